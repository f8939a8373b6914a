"""Rates from counters: those that move with the work, and those that move when a piece of it is done."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.engine.counters import LEAST_S, WINDOW_S, CounterWindow, LandingRate


def test_a_rate_is_growth_over_the_window_and_says_how_long_that_is() -> None:
    window = CounterWindow()
    for second in range(10):
        assert not window.add(float(second), {"output": 50.0 * second})
    assert window.span_s == WINDOW_S
    assert window.rate("output") == 50.0


def test_one_look_or_too_short_a_time_gives_no_rate() -> None:
    window = CounterWindow()
    window.add(5.0, {"output": 100})
    assert (window.span_s, window.rate("output")) == (None, None)
    window.add(5.0 + LEAST_S / 2, {"output": 140})
    assert (window.span_s, window.rate("output")) == (None, None)
    window.add(6.0, {"output": 150})
    assert window.rate("output") == 50.0


def test_looks_further_apart_than_the_window_give_the_rate_between_them() -> None:
    window = CounterWindow()
    for at, total in ((0.0, 0), (20.0, 1000), (40.0, 4000)):
        window.add(at, {"output": total})
    assert (window.span_s, window.rate("output")) == (20.0, 150.0)


def test_a_counter_that_goes_back_begins_anew() -> None:
    window = CounterWindow()
    window.add(0.0, {"output": 900, "prompt": 5})
    window.add(1.0, {"output": 950, "prompt": 5})
    assert window.add(2.0, {"output": 3, "prompt": 9})
    assert window.rate("output") is None
    assert not window.add(3.0, {"output": 13, "prompt": 9})
    assert (window.rate("output"), window.rate("prompt")) == (10.0, 0.0)


def test_a_counter_that_is_not_there_has_no_rate_and_disturbs_no_other() -> None:
    window = CounterWindow()
    window.add(0.0, {"output": 1, "cached": None})
    assert not window.add(1.0, {"output": 2, "cached": 7})
    assert (window.rate("output"), window.rate("cached"), window.rate("no such")) == (1.0, None, None)


def test_the_mean_of_a_gauge_is_by_time_and_over_the_same_window() -> None:
    window = CounterWindow()
    for at, running in ((0.0, 100), (1.0, 2), (2.0, 4), (4.0, 4)):
        window.add(at, {"output": at}, {"running": running})
    assert window.span_s == 3.0  # what was at 0 has left it
    assert window.mean("running") == pytest.approx((3 * 1 + 4 * 2) / 3)
    assert window.mean("no such") is None
    window.add(5.0, {"output": 5.0}, {"running": None})
    assert window.mean("running") is None
    assert window.rate("output") == 1.0


def test_a_mean_begins_anew_with_the_window() -> None:
    window = CounterWindow()
    window.add(0.0, {"output": 9}, {"running": 50})
    assert window.add(1.0, {"output": 0}, {"running": 2})
    assert window.mean("running") is None
    window.add(2.0, {"output": 0}, {"running": 4})
    assert window.mean("running") == 3.0


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 10_000)), min_size=2, max_size=30))
def test_no_rate_is_negative_or_above_what_was_counted(steps: list[tuple[float, int]]) -> None:
    window, landed = CounterWindow(), LandingRate()
    at, total = 0.0, 0
    for gap, grown in steps:
        at, total = at + gap, total + grown
        window.add(at, {"x": total})
        landed.add(at, total, working=grown % 2 == 0)
        for rate in (window.rate("x"), landed.rate()):
            assert rate is None or 0 <= rate <= total / LEAST_S


def landing(looks: list[tuple[float, int, bool]]) -> LandingRate:
    rate = LandingRate()
    for at, total, working in looks:
        rate.add(at, total, working)
    return rate


def test_a_prompt_of_twelve_seconds_is_spread_over_them() -> None:
    """64k tokens that land at once: 5.3k tok/s for twelve seconds, not nothing and then 21k for three."""
    looks = [(float(second), 0, False) for second in range(5)]
    looks += [(4.0 + second, 0, True) for second in range(1, 12)]
    assert landing(looks).rate() is None  # nothing has landed yet: how fast it goes is not known
    looks.append((16.0, 64_000, False))
    assert landing(looks).rate() == pytest.approx(64_000 / 12)


def test_a_short_prompt_after_a_long_time_of_decoding_is_not_spread_over_that_time() -> None:
    looks = [(0.0, 1000, False), *((float(second), 1000, False) for second in range(1, 60))]
    assert landing(looks).rate() == 0.0
    assert landing([*looks, (60.0, 1300, False)]).rate() == pytest.approx(100.0)


def test_what_has_landed_leaves_the_window_again() -> None:
    looks = [(0.0, 0, False), (1.0, 900, False), (2.0, 900, False), (5.0, 900, False)]
    assert landing(looks[:3]).rate() == pytest.approx(450.0)
    assert landing(looks).rate() == 0.0


def test_a_landing_counter_that_goes_back_or_away_begins_anew() -> None:
    assert landing([(0.0, 900, False), (1.0, 950, False), (2.0, 3, False)]).rate() is None
    rate = landing([(0.0, 900, False), (1.0, 950, False)])
    rate.add(2.0, None, working=True)
    assert rate.rate() is None


def test_a_counter_that_was_away_and_is_lower_when_it_comes_back_begins_anew() -> None:
    window = CounterWindow()
    assert not window.add(1.0, {"tokens": 6000})
    assert not window.add(2.0, {"tokens": None})
    assert window.add(3.0, {"tokens": 600})
    assert window.rate("tokens") is None
    assert not window.add(4.0, {"tokens": 700})
    assert window.rate("tokens") == 100
