"""What counts as a level, and how much of it is warm-up."""

from __future__ import annotations

from agenttop.analyse.levels import Span, find_levels
from agenttop.model.frames import Event, Level, LoadSample, Turn
from tests.record.build import URL, turn


def loads(*active: tuple[int, int]) -> list[LoadSample]:
    """One sample a second from t = 1: (agents, seconds) after another."""
    counts = [count for count, seconds in active for _ in range(seconds)]
    return [LoadSample(t=1.0 + index, engine=URL, active=count) for index, count in enumerate(counts)]


def level(t: float, agents: int, t_end: float | None = None) -> Level:
    return Level(t=t, level=0, agents=agents, t_end=t_end)


def found(
    levels: list[Level],
    samples: list[LoadSample],
    turns: list[Turn] | None = None,
    events: list[Event] | None = None,
    duration: float = 1000.0,
) -> list[tuple[int, float, float, float]]:
    spans = find_levels(levels, samples, turns or [], events or [], duration)
    return [(span.agents, span.start, span.steady, span.end) for span in spans]


def test_a_run_announces_its_levels() -> None:
    samples = loads((0, 9), (4, 60), (8, 60))
    levels = [level(8.0, 4, 70.0), level(69.5, 8, 130.0)]
    assert found(levels, samples) == [(4, 8.0, 10.0, 69.5), (8, 69.5, 70.0, 130.0)]


def test_a_level_ends_when_the_agents_are_stopped_or_the_recording_ends() -> None:
    samples = loads((4, 60))
    stop = [Event(t=30.0, event="agents.stop-all", text="")]
    assert found([level(1.0, 4, 100.0)], samples, events=stop) == [(4, 1.0, 1.0, 30.0)]
    assert found([level(1.0, 4, 100.0)], samples, duration=44.0) == [(4, 1.0, 1.0, 44.0)]
    mark = [Event(t=30.0, event="mark", text="")]
    assert found([level(1.0, 4, 100.0)], samples, events=mark)[0][3] == 100.0


def test_the_warm_up_lasts_until_all_agents_run() -> None:
    samples = loads((1, 5), (2, 5), (3, 50))
    assert found([level(1.0, 3, 60.0)], samples) == [(3, 1.0, 11.0, 60.0)]
    assert found([level(1.0, 4, 60.0)], samples) == [(4, 1.0, 60.0, 60.0)]


def test_the_warm_up_lasts_until_each_newcomer_has_its_first_token() -> None:
    samples = loads((1, 30), (2, 60))
    levels = [level(1.0, 1, 31.0), level(31.0, 2, 90.0)]
    turns = [
        turn(sent=1.0, first=4.0, tokens=10, agent="a1"),
        turn(sent=32.0, first=32.5, tokens=10, agent="a1", number=2),
        turn(sent=31.5, first=47.0, tokens=10, agent="a2"),
        turn(sent=60.0, first=80.0, tokens=10, agent="a2", number=2),  # no newcomer any more
    ]
    assert found(levels, samples, turns) == [(1, 1.0, 4.0, 31.0), (2, 31.0, 47.0, 90.0)]
    never = [*turns[:2], turn(sent=31.5, agent="a2", error_kind="cancelled", t=90.0)]
    assert found(levels, samples, never)[1] == (2, 31.0, 90.0, 90.0)


def test_by_hand_a_level_is_a_stretch_with_the_same_number_of_agents() -> None:
    samples = loads((0, 10), (1, 3), (2, 3), (3, 40), (2, 20), (0, 10))
    assert found([], samples) == [(3, 17.0, 17.0, 56.0), (2, 57.0, 57.0, 76.0)]


def test_by_hand_the_longest_stretch_stands_when_all_are_short() -> None:
    assert found([], loads((0, 4), (1, 3), (2, 6))) == [(2, 8.0, 8.0, 13.0)]
    assert found([], loads((0, 50))) == []
    assert found([], []) == []


def test_levels_are_numbered_from_one() -> None:
    spans = find_levels([level(0.0, 1), level(50.0, 2)], loads((1, 50), (2, 50)), [], [], 100.0)
    assert [(span.number, span.planned) for span in spans] == [(1, True), (2, True)]
    assert spans[0] == Span(number=1, agents=1, start=0.0, steady=1.0, end=50.0, planned=True)
    assert spans[0].window_s == 49.0
