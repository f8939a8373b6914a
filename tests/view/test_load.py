"""The load as a whole: what goes wrong is told by kind, what is found stays in sight."""

from __future__ import annotations

from typing import Any

import pytest

from agenttop.model.frames import AgentSample, Event, Finding, Frame, Level, LoadSample
from agenttop.view.figures import prefix_hit_fraction
from agenttop.view.glyphs import STATES
from agenttop.view.look import Look
from agenttop.view.panels.events import whole
from agenttop.view.panels.load import load
from agenttop.view.rows import rows
from agenttop.view.spans import width
from tests.view import scenes, vllm_scenes
from tests.view.draw import drawn, folded, text_of

SIZES = [(80, 24), (120, 40), (200, 60)]


def lines(
    *frames: Frame, cells: int = 116, most: int = 5, now: float = 400.0, calm: bool = True
) -> list[str]:
    return text_of(load(folded([scenes.session(), *frames], now), cells, most, calm=calm))


def sample(**changes: Any) -> LoadSample:
    return vllm_scenes.load(400.0, **changes)


def test_failures_are_told_by_kind_the_most_frequent_first() -> None:
    [line] = lines(
        sample(failures=9, failure_kinds={"cut": 2, "stall": 4, "refused": 1, "http-5xx": 1, "context": 1})
    )
    assert "fail 9: stall 4, cut 2, context 1, http-5xx 1, 1 more kind" in line
    [narrow] = lines(sample(failures=7, failure_kinds={"cut": 2, "stall": 4, "refused": 1}), cells=76)
    assert "fail 7: stall 4, cut 2, 1 more kind" in narrow


def test_stalled_agents_and_requests_the_engine_does_not_see() -> None:
    [line] = lines(sample(stalled=2, unseen_in_flight=3))
    assert "2 stalled   3 sent and not seen by the engine" in line


def test_a_client_that_is_the_limit_says_why_and_how_many_drivers_there_are() -> None:
    first, second = lines(sample(client_limited="the driver's loop was 300 ms late"))
    assert "2 drivers, busiest 31 % cpu" in first
    assert "is the limit: the driver's loop was 300 ms late" in second


def test_where_lines_are_scarce_only_trouble_takes_one() -> None:
    assert lines(sample(), calm=False) == []
    assert len(lines(sample(stalled=1), calm=False)) == 1
    assert lines() == []


def test_the_level_and_its_purpose() -> None:
    level = Level(t=350.0, level=2, agents=6, t_end=430.0, purpose="confirm", of=5, cold=True, origin="run")
    [line] = lines(level, sample())
    assert "level 3 of 5, confirm, 6 agents, cold, 30 s left" in line
    assert "level" not in lines(level, sample(), now=500.0)[0]
    assert "level" not in lines(level, sample(target=0, active=0))[0]
    text = drawn([scenes.session(), vllm_scenes.vllm(400.0), level, sample()], 400.0, 120, 40)
    assert "level 3/5 confirm  30 s left" in text.splitlines()[0]
    open_end = Level(t=350.0, level=2, agents=6, purpose="climb")
    assert (
        "level 3 climb"
        in drawn([vllm_scenes.vllm(400.0), open_end, sample()], 400.0, 120, 40).splitlines()[0]
    )


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
def test_what_was_found_is_a_sentence_above_the_table_and_an_event(size: tuple[int, int]) -> None:
    text = drawn(vllm_scenes.searching(), 401.0, *size)
    assert text.count("knee at 6 agents") == 2
    assert "found   knee at 6 agents" in text


def test_what_the_node_has_said_in_the_same_words_is_not_said_twice() -> None:
    said = Event(t=399.0, event="run.found", text="the knee is at 6")
    found = Finding(t=399.1, what="knee", sentence="the knee is at 6")
    store = folded([said, found], 400.0)
    assert [event.text for event in store.events] == ["the knee is at 6"]
    assert store.findings["knee"] is found


def test_what_has_no_room_ends_in_dots() -> None:
    found = Finding(t=399.0, what="knee", sentence="word " * 100)
    told = lines(found, sample(), most=2)
    assert len(told) == 2
    assert told[1].endswith("…")
    assert all(width([(line, "text")]) <= 118 for line in told)


# Engines without slots


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
def test_vllm_shows_preemptions_waiting_and_prefix_hits_and_no_column_of_slots(size: tuple[int, int]) -> None:
    text = drawn(vllm_scenes.searching(60, simulated=False), 60.4, *size)
    assert "wait 2" in text
    assert "preempt 3" in text
    assert "hits 90 %" in text
    titles = next(line for line in text.splitlines() if "state" in line and "context" in line)
    assert "#" not in titles


def test_two_data_parallel_engines_show_the_fullest_pool() -> None:
    engine = vllm_scenes.vllm(5.0, data_parallel=2, kv_fullest_fraction=0.97)
    assert "2 engines, fullest 97 %" in drawn([scenes.session(), engine], 5.2, 200, 60)


def test_an_empty_table_of_an_engine_without_slots() -> None:
    assert "vLLM does not tell requests apart" in drawn(
        [scenes.session(), vllm_scenes.vllm(5.0)], 5.2, 120, 40
    )


def test_prefix_hits_over_the_last_minute_and_not_since_the_start() -> None:
    def at(second: int, hits: int, queries: int) -> Frame:
        return vllm_scenes.vllm(second, prefix_hits_tokens_total=hits, prefix_queries_tokens_total=queries)

    frames = [at(second, 0, 1000 * second) for second in range(1, 101)]
    frames += [at(second, 900 * (second - 100), 1000 * second) for second in range(101, 201)]
    store = folded(frames, 200.0)
    assert prefix_hit_fraction(store, store.engines[vllm_scenes.URL]) == pytest.approx(0.9)
    for tail in ([at(201, 5, 10)], [at(201, 90_000, 200_000)]):  # a restart; nothing looked up
        store = folded([*frames[-1:], *tail], 201.0)
        assert prefix_hit_fraction(store, store.engines[vllm_scenes.URL]) is None


# Agents


@pytest.mark.parametrize("state", ["prime", "stalled", "children"])
def test_each_state_has_a_glyph_a_role_and_words(state: str) -> None:
    glyph, role = STATES[state]
    text = drawn([scenes.session(), vllm_scenes.vllm(9.0), vllm_scenes.agent(9.0, 1, state)], 9.2, 80, 24)
    assert f"{glyph} {state}" in text
    assert (role == "bad") == (state == "stalled")
    words = {"prime": "36 %", "stalled": "silent for 41 s", "children": "2 at work"}
    assert words[state] in text
    assert len({glyph for glyph, _ in STATES.values()}) == len(STATES) - 1  # tool and human are both pauses


def family(*pairs: tuple[str, str | None]) -> list[Frame]:
    return [
        AgentSample(
            t=9.0, agent=name, parent=parent, engine=scenes.URL, profile="p", state="decode", state_since=1.0
        )
        for name, parent in pairs
    ]


def order(frames: list[Frame], sort: str = "agent") -> list[tuple[str, int]]:
    return [(row.agent.agent, row.depth) for row in rows(folded(frames, 9.0), Look(sort=sort)) if row.agent]


def test_sub_agents_stand_below_the_agent_they_work_for() -> None:
    frames = family(("a1", None), ("a10", None), ("a2", None), ("a2.1", "a2"), ("a1.2", "a1"), ("a1.1", "a1"))
    assert order(frames) == [("a1", 0), ("a1.1", 1), ("a1.2", 1), ("a2", 0), ("a2.1", 1), ("a10", 0)]
    text = drawn([scenes.session(), scenes.engine(9.0), *frames], 9.0, 80, 24)
    assert "└.1" in text


def test_orphans_and_circles_are_shown_too_and_once() -> None:
    frames = family(
        ("a1", None), ("a9.1", "a9"), ("x", "y"), ("y", "x"), ("z", "z"), ("a1.1", "a1"), ("a1.1.1", "a1.1")
    )
    names = [name for name, _ in order(frames)]
    assert sorted(names) == ["a1", "a1.1", "a1.1.1", "a9.1", "x", "y", "z"]


def test_a_sub_agent_that_has_done_its_work_leaves_at_once() -> None:
    done = AgentSample(
        t=9.0, agent="a1.1", parent="a1", engine=scenes.URL, profile="p", state="stopped", state_since=9.0
    )
    assert order([*family(("a1", None), ("a1.1", "a1")), done]) == [("a1", 0)]


def test_in_another_order_nobody_is_indented() -> None:
    frames = family(("a1", None), ("a1.1", "a1"))
    assert {depth for _, depth in order(frames, sort="rate")} == {0}


# Events


def test_a_long_text_is_shown_whole() -> None:
    text = " ".join(f"word{number}" for number in range(80))
    told = text_of(whole(Event(t=61.0, event="mark", text=text, source="you"), 60))
    assert " ".join(" ".join(told).split()) == f"00:01:01 ◆ {text} (you)"
    assert all(len(line) <= 60 for line in told)


def test_a_text_of_one_long_word_does_not_break_the_frame() -> None:
    told = whole(Event(t=61.0, event="mark", text="x" * 5000), 60)
    assert all(width(line) <= 60 for line in told)
