"""Requests in flight that the engine does not know of."""

from __future__ import annotations

from agenttop.model.frames import EngineSample, LoadSample
from agenttop.node.unseen import LASTING, Unseen


def engine(t: float, running: int | None, waiting: int | None = 0, state: str = "ok") -> EngineSample:
    return EngineSample(t=t, engine="u", url="u", name="vLLM", state=state, running=running, waiting=waiting)


def look(unseen: Unseen, t: float, in_flight: int, running: int | None, waiting: int | None = 0):
    return unseen.compare(LoadSample(t=t, in_flight=in_flight), engine(t, running, waiting))


def test_a_cap_of_connections_is_told_once_it_lasts() -> None:
    unseen, told = Unseen(), []
    for second in range(LASTING + 3):
        load, events = look(unseen, float(second), 256, 100)
        assert load.unseen_in_flight == 156
        told += events
    (event,) = told
    assert event.event == "load.unseen"
    assert event.text.startswith("156 requests of 256 in flight unknown to the engine")


def test_the_moment_between_two_counts_is_no_news() -> None:
    unseen = Unseen()
    for second in range(20):
        load, events = look(unseen, float(second), 8, 8 if second % 3 else 5)
        assert not events
    assert load.unseen_in_flight == 0


def test_more_than_ours_is_none_unseen() -> None:
    load, _ = look(Unseen(), 1.0, 4, 9)
    assert load.unseen_in_flight == 0


def test_without_both_counts_there_is_no_figure() -> None:
    for running, waiting in ((None, 0), (3, None)):
        load, events = look(Unseen(), 1.0, 9, running, waiting)
        assert load.unseen_in_flight is None
        assert not events
    assert Unseen().compare(LoadSample(t=1.0, in_flight=9), None)[0].unseen_in_flight is None
    away = engine(1.0, 3, state="down")
    assert Unseen().compare(LoadSample(t=1.0, in_flight=9), away)[0].unseen_in_flight is None
    old = engine(1.0, 3)
    assert Unseen().compare(LoadSample(t=20.0, in_flight=9), old)[0].unseen_in_flight is None
    assert Unseen(rate=10.0).compare(LoadSample(t=20.0, in_flight=9), old)[0].unseen_in_flight == 6


def test_many_looks_within_a_moment_are_still_that_moment() -> None:
    """A session faster than life is looked at five times a second: five looks are one real second."""
    unseen, told = Unseen(rate=20.0), []
    for number in range(60):
        _, events = look(unseen, number * 4.0, 8, 5)
        told += [(number, event) for event in events]
    ((first, event),) = told
    assert first == 20  # four real seconds
    assert event.event == "load.unseen"
