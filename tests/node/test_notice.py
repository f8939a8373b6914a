from agenttop.model.frames import EngineSample, GpuSample, LoadSample, Session, Turn
from agenttop.node.notice import Noticer


def gpu(*reasons, t=1.0):
    return GpuSample(t=t, gpu="GPU-1", index=0, vendor="nvidia", name="X", throttle=list(reasons))


def test_throttling_is_an_event_when_it_begins_and_when_it_ends():
    noticer = Noticer()
    assert noticer.notice(gpu()) == []
    (begin,) = noticer.notice(gpu("power cap"))
    assert (begin.event, begin.severity, begin.text) == (
        "gpu.throttle",
        "warn",
        "GPU0 held down by power cap",
    )
    assert noticer.notice(gpu("power cap")) == []
    (end,) = noticer.notice(gpu(t=20.0))
    assert end.event == "gpu.throttle-end"


def test_a_card_at_its_limit_is_one_event_and_not_one_a_second():
    noticer = Noticer()
    told = [
        event.event
        for second in range(60)
        for event in noticer.notice(
            gpu(*(["power cap"] if second % 3 and second < 40 else []), t=float(second))
        )
    ]
    assert told == ["gpu.throttle", "gpu.throttle-end"]


def session(speedup):
    return Session(t=0.0, schema=1, session="s", started_unix=0.0, host="h", os="o", speedup=speedup)


def throttled(noticer, seconds, *, on, every):
    """Events of a card that is held down for `on` of every `every` session seconds."""
    return [
        event
        for second in range(seconds)
        for event in noticer.notice(gpu(*(["power cap"] if second % every < on else []), t=float(second)))
    ]


def test_in_a_session_faster_than_life_repeats_are_held_back_in_real_seconds():
    noticer = Noticer()
    noticer.notice(session(20.0))
    told = throttled(noticer, 20 * 60, on=20, every=60)
    assert [event.event for event in told] == ["gpu.throttle"]
    told = throttled(Noticer(), 20 * 60, on=20, every=60)
    assert len(told) > 15


def test_the_next_event_says_how_often_it_was_held_down_meanwhile():
    noticer = Noticer()
    (begin,) = throttled(noticer, 10, on=2, every=5)
    assert begin.text == "GPU0 held down by power cap"
    (end,) = noticer.notice(gpu(t=30.0))
    assert end.text == "GPU0 no longer held down by power cap"
    soon = [noticer.notice(gpu(*reasons, t=40.0 + i)) for i, reasons in enumerate([["power cap"], []] * 3)]
    assert not any(soon), "a minute has not passed"
    (again,) = noticer.notice(gpu("power cap", t=95.0))
    assert again.text == "GPU0 held down by power cap, 4 times in 65 s"


def test_a_client_at_its_limit_is_told_again_after_a_real_minute():
    noticer = Noticer()
    noticer.notice(session(20.0))
    told = [noticer.notice(LoadSample(t=float(t), client_limited="busy")) for t in range(0, 2400, 20)]
    assert len([event for events in told for event in events]) == 2


def test_clocks_that_somebody_chose_are_no_throttling():
    assert Noticer().notice(gpu("user clocks", "sync boost")) == []


def test_a_heat_throttle_is_bad_news():
    (event,) = Noticer().notice(gpu("thermal (hw)"))
    assert event.severity == "bad"


def engine(active, pool=1000):
    return EngineSample(
        t=1,
        engine="u",
        url="u",
        name="llama.cpp",
        state="ok",
        kv_pool_tokens=pool,
        kv_active_tokens=active,
        kv_used_fraction=active / pool,
        kv_layout="unified",
    )


def test_a_pool_about_to_overflow_is_called_out_once():
    noticer = Noticer()
    assert noticer.notice(engine(900)) == []
    (event,) = noticer.notice(engine(960))
    assert "97" not in event.text
    assert "96 %" in event.text
    assert "ends every generation" in event.text
    assert noticer.notice(engine(970)) == []
    assert noticer.notice(engine(500)) == []
    assert len(noticer.notice(engine(990))) == 1


def turn(**changes):
    return Turn(t=9.0, agent="a1", engine="u", profile="human", turn=3, t_queued=1.0, t_sent=2.0, **changes)


def test_failures_in_a_row_are_told_once_until_something_changes():
    noticer = Noticer()
    kinds = ["refused", "refused", "refused", "stall", "stall", None, "stall"]
    told = [len(noticer.notice(turn(error_kind=kind))) for kind in kinds]
    assert told == [1, 0, 0, 1, 0, 0, 1]


def test_failures_and_compactions_of_agents_are_events():
    (failure,) = Noticer().notice(turn(error_kind="cut", error="the stream ended early\x1b[2J"))
    assert failure.severity == "bad"
    assert failure.subject == "a1"
    assert "\x1b" not in failure.text
    (compact,) = Noticer().notice(turn(turn_kind="compact", prompt_tokens=98_000, context_tokens=22_000))
    assert "98k → 22k" in compact.text
    assert Noticer().notice(turn()) == []
    assert Noticer().notice(turn(error_kind="cancelled", error="stopped")) == []


def test_a_client_at_its_limit_is_told_with_the_reason_and_not_every_second():
    noticer = Noticer()
    told = [
        noticer.notice(
            LoadSample(t=float(t), client_limited="the driver took 90 % of a core" if t % 2 else None)
        )
        for t in range(100)
    ]
    events = [event for events in told for event in events]
    assert [event.t for event in events] == [1.0, 61.0]
    assert "the driver took 90 % of a core" in events[0].text


def test_token_counts_that_cannot_be_right_are_told_once_per_engine():
    def turn(output, limit, events, engine="http://e"):
        return Turn(
            t=1.0, agent="a1", engine=engine, profile="p", turn=1, t_queued=0.0,
            output_tokens=output, output_limit_tokens=limit, events=events,
        )  # fmt: skip

    noticer = Noticer()
    assert noticer.notice(turn(120, 120, 118)) == []
    assert noticer.notice(turn(60, 120, 64)) == []
    (told,) = noticer.notice(turn(6000, 120, 118))
    assert told.event == "engine.counts"
    assert "6000 output tokens where at most 120 were asked for" in told.text
    assert noticer.notice(turn(12, 120, 118)) == []
    (other,) = noticer.notice(turn(12, 120, 118, engine="http://f"))
    assert "12 output tokens in 118 pieces of text" in other.text
