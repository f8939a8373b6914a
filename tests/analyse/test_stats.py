"""Percentiles by their definition, trends by theirs."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.analyse.stats import drift, median, percentile, trend_p

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50)


@settings(deadline=None)
@given(VALUES, st.floats(0, 1))
def test_percentiles_are_those_of_pandas(values: list[float], q: float) -> None:
    import pandas

    assert percentile(values, q) == pytest.approx(pandas.Series(values).quantile(q), rel=1e-9, abs=1e-6)


@settings(deadline=None)
@given(VALUES)
def test_the_median_is_the_middle_value(values: list[float]) -> None:
    assert median(values) == pytest.approx(statistics.median(values))


def test_of_nothing_there_is_no_percentile() -> None:
    assert percentile([], 0.5) is None
    assert drift([]) is None
    assert drift([5.0] * 11) is None


def test_the_trend_test_gives_the_textbook_figure() -> None:
    # n = 10, S = 45 - 2 * 3 inversions = 39; variance 125; z = 38 / 11.18 = 3.399; p = 0.000677
    values = [1.0, 2.0, 4.0, 3.0, 5.0, 7.0, 6.0, 8.0, 10.0, 9.0]
    assert trend_p(values) == pytest.approx(0.000677, abs=1e-6)
    assert trend_p([3.0] * 20) == 1.0


def test_noise_seldom_looks_like_a_trend() -> None:
    dice = random.Random(5)
    alarms = sum(trend_p([dice.gauss(50, 5) for _ in range(30)]) < 0.01 for _ in range(500))
    assert alarms <= 12


def test_drift_tells_how_far_and_whether_it_is_real() -> None:
    falling = [60.0 - index for index in range(30)]
    assert drift(falling) == (55.5, 35.5, pytest.approx(-20 / 45.5), True)
    assert drift([50.0, 51.0, 49.0] * 500) == (50.0, 50.0, 0.0, False)
