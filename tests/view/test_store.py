from agenttop.model.frames import AgentSample, Bye, Event, Level, Missing, SlotSample, Turn
from agenttop.view.look import Look
from agenttop.view.rows import Row, rows
from agenttop.view.store import Store
from tests.view import scenes
from tests.view.draw import folded


def slot(t: float, number: int = 0, **changes: object) -> SlotSample:
    return SlotSample(**{"t": t, "engine": scenes.URL, "slot": number, "phase": "idle", **changes})  # type: ignore[arg-type]


def agent(t: float, name: str = "a1", **changes: object) -> AgentSample:
    fields = {
        "t": t,
        "agent": name,
        "engine": scenes.URL,
        "profile": "human",
        "state": "decode",
        "state_since": t,
        **changes,
    }
    return AgentSample(**fields)  # type: ignore[arg-type]


SERVED = [scenes.engine(1.0), slot(1.0, 0, phase="decode", task=7, agent="a1"), agent(1.0)]


def listed(store: Store, **look: object) -> list[tuple[int | None, str | None]]:
    return [
        (row.slot.slot if row.slot else None, row.agent.agent if row.agent else None)
        for row in rows(store, Look(**look))  # type: ignore[arg-type]
    ]


def test_piecemeal_and_at_once_fold_to_the_same() -> None:
    frames = scenes.running(40)
    at_once, piecemeal = folded(frames, 40.0), Store()
    for frame in frames:
        piecemeal.feed([frame], frame.t)
    piecemeal.feed([], 40.0)
    for name in (
        "session",
        "host",
        "engines",
        "slots",
        "agents",
        "load",
        "plan",
        "own",
        "missing",
        "events",
        "turns",
    ):
        assert getattr(at_once, name) == getattr(piecemeal, name), name
    assert at_once.last(scenes.URL, "decode_tok_s", 60) == piecemeal.last(scenes.URL, "decode_tok_s", 60)


def test_a_seek_forgets_what_was_known() -> None:
    store = folded(scenes.running(40), 40.0)
    store.feed(scenes.idle(), 8.0, reset=True)
    assert store.agents == {}
    assert store.load is None
    assert not store.turns
    assert store.now == 8.0


def test_silence_is_stale_after_three_seconds() -> None:
    store = folded(scenes.idle(), 8.0)
    assert store.stale_s is None
    store.feed([], 10.9)
    assert store.stale_s is None
    store.feed([], 12.0)
    assert store.stale_s == 4.0
    store.feed([scenes.host(12.0)], 12.1)
    assert store.stale_s is None


def test_a_session_that_has_ended_is_not_stale() -> None:
    store = folded([*scenes.idle(), Bye(t=8.0, why="the run has ended")], 60.0)
    assert store.stale_s is None


def test_what_comes_back_is_no_longer_missing() -> None:
    store = folded([Missing(t=1.0, what="gpu", why="driver lost")])
    assert store.missing["gpu"].why == "driver lost"
    store.feed([Missing(t=2.0, what="gpu")], 2.0)
    assert store.missing == {}


def test_turns_older_than_the_window_are_let_go() -> None:
    turns = [
        Turn(t=float(t), agent="a1", engine=scenes.URL, profile="human", turn=t, t_queued=0.0)
        for t in range(0, 900, 100)
    ]
    assert [turn.turn for turn in folded(turns, 800.0).turns] == [500, 600, 700, 800]


def test_events_are_bounded() -> None:
    store = folded(Event(t=float(t), event="mark", text=str(t)) for t in range(5000))
    assert len(store.events) == 2000
    assert store.events[-1].text == "4999"


def test_a_served_agent_shares_its_row_with_its_slot() -> None:
    store = folded([*SERVED, slot(1.0, 1)])
    assert listed(store) == [(0, "a1"), (1, None)]


def test_a_pausing_agent_keeps_the_slot_that_holds_its_context() -> None:
    store = folded(SERVED)
    store.feed([slot(2.0, 0, task=7), agent(2.0, state="tool")], 2.0)
    assert listed(store) == [(0, "a1")]
    store.feed([slot(3.0, 0, phase="prefill", task=8), agent(3.0, state="tool")], 3.0)
    assert listed(store) == [(None, "a1"), (0, None)]


def test_an_agent_is_in_one_slot_at_a_time() -> None:
    store = folded([*SERVED, slot(1.0, 1)])
    store.feed(
        [slot(2.0, 0, task=7), slot(2.0, 1, phase="decode", task=9, agent="a1"), agent(2.0, slot=1)], 2.0
    )
    assert listed(store) == [(1, "a1"), (0, None)]


def test_agents_keep_the_order_of_their_numbers() -> None:
    store = folded([scenes.engine(1.0), *(agent(1.0, f"a{number}") for number in (10, 2, 1))])
    assert [name for _, name in listed(store)] == ["a1", "a2", "a10"]


def test_rows_can_be_sorted() -> None:
    frames = [
        scenes.engine(1.0),
        slot(1.0, 0, phase="decode", task=1, agent="a2"),
        slot(1.0, 1, phase="decode", task=2, agent="a1"),
        agent(1.0, "a1", context_tokens=900, decode_tok_s=5.0),
        agent(1.0, "a2", context_tokens=100, decode_tok_s=9.0),
    ]
    store = folded(frames)
    assert [name for _, name in listed(store)] == ["a1", "a2"]
    assert [name for _, name in listed(store, sort="slot")] == ["a2", "a1"]
    assert [name for _, name in listed(store, sort="context")] == ["a1", "a2"]
    assert [name for _, name in listed(store, sort="rate")] == ["a2", "a1"]


def test_a_stopped_agent_leaves_after_a_while() -> None:
    store = folded([scenes.engine(1.0), agent(1.0, state="stopped")], 3.0)
    assert listed(store) == [(None, "a1")]
    store.feed([], 7.0)
    assert listed(store) == []


def test_a_restarted_engine_starts_with_empty_slots() -> None:
    store = folded([*SERVED, slot(1.0, 3)])
    store.feed([scenes.engine(2.0, restarts=1)], 2.0)
    assert store.slots == {}
    assert store.holder(scenes.URL, 0) is None


def test_slots_of_an_engine_that_is_down_are_of_the_past() -> None:
    store = folded([scenes.engine(1.0), slot(1.0)])
    store.feed([scenes.engine(2.0, state="down")], 2.0)
    assert rows(store, Look()) == []


def test_with_many_slots_those_that_serve_come_first() -> None:
    frames = [scenes.engine(1.0), *(slot(1.0, number) for number in range(100))]
    frames += [slot(1.0, 77, phase="decode", task=1)]
    assert listed(folded(frames))[:2] == [(77, None), (0, None)]
    assert isinstance(rows(folded(frames), Look())[0], Row)


def test_a_slot_figure_has_a_history() -> None:
    store = folded(
        [slot(1.0, 2, phase="decode", decode_tok_s=4.0), slot(2.0, 2, phase="decode", decode_tok_s=6.0)]
    )
    assert store.last(f"{scenes.URL}#2", "decode_tok_s", 2) == [4.0, 6.0]


def test_a_ramp_that_ends_early_leaves_no_level_behind() -> None:
    store = Store()
    store.feed([Level(t=1.0, level=0, agents=1, t_end=600.0, of=4, origin="ramp")], 2.0)
    assert store.level is not None
    store.feed([Event(t=3.0, event="ramp.end", text="steered by hand")], 3.0)
    assert store.level is None
