"""Percentiles of what happened lately, from histograms that count since a server's start."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.engine.histogram import (
    LEAST_S,
    MAX_EDGES,
    Histogram,
    LatencyWindow,
    collect,
)
from agenttop.model.frames import LatencySample

EDGES = (0.1, 0.5, 1.0, math.inf)


def histogram(*counts: float, total: float | None = None) -> Histogram:
    return Histogram(EDGES, counts, total)


def test_a_percentile_lies_within_its_bucket_as_prometheus_says() -> None:
    made = histogram(0, 10, 20, 20)
    assert made.quantile(0.25) == pytest.approx(0.3)
    assert made.quantile(0.5) == pytest.approx(0.5)
    assert made.quantile(0.75) == pytest.approx(0.75)


def test_a_bucket_with_an_open_end_has_no_percentile() -> None:
    assert histogram(10, 10, 10, 10).quantile(0.5) is None  # all below the first edge
    assert histogram(0, 0, 0, 10).quantile(0.5) is None  # all above the last one
    assert histogram(0, 0, 0, 0).quantile(0.5) is None


def test_the_difference_of_two_looks() -> None:
    later, sooner = histogram(1, 5, 9, 9, total=6.0), histogram(1, 2, 4, 4, total=2.0)
    assert later.minus(sooner) == histogram(0, 3, 5, 5, total=4.0)
    assert sooner.minus(later) is None
    assert later.minus(Histogram((0.2, math.inf), (1, 2), None)) is None
    assert (
        histogram(0, 0, 5, 5).minus(histogram(0, 3, 4, 4)) is None
    )  # edges that have moved among themselves


def test_what_is_no_histogram() -> None:
    assert collect([]) is None
    assert collect([({"le": "1"}, 3.0)]) is None  # no infinite edge
    assert collect([({"le": "x"}, 3.0), ({"le": "+Inf"}, 3.0)]) is None
    assert collect([({"le": "1"}, 4.0), ({"le": "+Inf"}, 3.0)]) is None
    assert collect([({"le": "1"}, math.nan), ({"le": "+Inf"}, 3.0)]) is None
    twice = [({"le": "1"}, 1.0), ({"le": "+Inf"}, 3.0), ({"le": "+Inf"}, 3.0)]
    assert collect(twice) is None  # ranks with other edges
    many = [({"le": str(number)}, 1.0) for number in range(MAX_EDGES + 1)]
    assert collect([*many, ({"le": "+Inf"}, 1.0)]) is None
    good = [({"le": "1"}, 1.0), ({"le": "+Inf"}, 3.0)]
    assert collect(good, [({}, math.nan)]) == Histogram((1.0, math.inf), (1, 3), None)


def told(looks: list[tuple[float, Histogram]]) -> list[LatencySample]:
    window = LatencyWindow("u")
    return [sample for at, made in looks for sample in window.add(at, {"itl": made})]


def test_only_the_last_minute_counts() -> None:
    looks = [
        (float(5 * number), histogram(0, 100 + number, 100 + number, 100 + number)) for number in range(30)
    ]
    samples = told(looks)
    assert [sample.count for sample in samples[:3]] == [1, 2, 3]
    assert samples[-1].count == 12
    assert samples[-1].window_s == pytest.approx(60)


def test_a_mean_needs_no_bucket_and_a_fast_engine_is_told_by_its_first_edge() -> None:
    (sample,) = told([(0.0, histogram(0, 0, 0, 0, total=0.0)), (6.0, histogram(9, 10, 10, 10, total=0.5))])
    assert sample.mean_s == pytest.approx(0.05)
    assert (sample.p50_s, sample.below_s) == (None, 0.1)
    assert sample.p95_s == pytest.approx(0.3)


def test_samples_come_every_few_seconds_and_not_before_the_second_look() -> None:
    looks = [(float(second), histogram(0, second, second, second)) for second in range(13)]
    assert [sample.t for sample in told(looks)] == [1.0, 6.0, 11.0]
    assert LEAST_S == 5.0


def test_a_restart_begins_anew() -> None:
    window = LatencyWindow("u")
    window.add(0.0, {"itl": histogram(0, 50, 50, 50)})
    window.add(5.0, {"itl": histogram(0, 60, 60, 60)})
    assert window.add(10.0, {"itl": histogram(0, 1, 1, 1)}) == []
    (sample,) = window.add(15.0, {"itl": histogram(0, 3, 3, 3)})
    assert (sample.count, sample.window_s) == (2, 5.0)
    window.forget()
    assert window.add(20.0, {"itl": histogram(0, 9, 9, 9)}) == []


def test_a_measure_that_comes_and_goes() -> None:
    window = LatencyWindow("u")
    window.add(0.0, {"itl": histogram(0, 1, 1, 1), "ttft": None})
    assert [each.measure for each in window.add(5.0, {"itl": None, "ttft": histogram(0, 1, 1, 1)})] == [
        "ttft"
    ]
    assert [each.count for each in window.add(5.0, {"ttft": histogram(0, 9, 9, 9)})] == []  # the same moment


COUNTS = st.lists(st.integers(0, 50), min_size=4, max_size=4)


@given(st.lists(st.tuples(st.floats(0, 30), COUNTS, st.floats(0, 1e4)), min_size=2, max_size=20))
def test_no_sample_is_nonsense(steps: list[tuple[float, list[int], float]]) -> None:
    window = LatencyWindow("u")
    at, counts, total = 0.0, [0, 0, 0, 0], 0.0
    for gap, grown, more in steps:
        at, total = at + gap, total + more
        rising = [sum(grown[: index + 1]) for index in range(4)]
        counts = [count + more_of_it for count, more_of_it in zip(counts, rising, strict=True)]
        for sample in window.add(at, {"itl": histogram(*counts, total=total)}):
            values = [sample.p50_s, sample.p90_s, sample.p95_s, sample.p99_s]
            known = [value for value in values if value is not None]
            assert known == sorted(known)
            assert all(0 <= value <= 1.0 for value in known)
            assert 0 <= sample.window_s <= 60 + 30
            assert sample.count >= 0
            assert all(math.isfinite(v) for v in msgspec.to_builtins(sample).values() if isinstance(v, float))
