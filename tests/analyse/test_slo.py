"""Promises as text, and how many agents can be served as promised."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.analyse.capacity import capacity
from agenttop.analyse.points import LevelPoint, Served
from agenttop.analyse.slo import parse_slo
from agenttop.analyse.stats import wilson
from agenttop.errors import UsageError


@pytest.mark.parametrize(
    ("text", "limits", "attained"),
    [
        ("decode>=20,ttft<=10s", {"decode": 20, "ttft": 10}, 0.95),
        (" TTFT <= 500ms ", {"ttft": 0.5}, 0.95),
        ("wait<=2m@90%", {"wait": 120}, 0.9),
        ("decode>=20tok/s@0.99", {"decode": 20}, 0.99),
        ("decode>20,ttft<10", {"decode": 20, "ttft": 10}, 0.95),
    ],
)
def test_promises_are_read(text, limits, attained):
    slo = parse_slo(text)
    assert {condition.metric: condition.limit for condition in slo.conditions} == limits
    assert slo.attained == attained
    assert parse_slo(str(slo)) == slo


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "'' is not a condition of an SLO"),
        ("fast", "'fast' is not a condition"),
        ("speed>=20", "an SLO knows no 'speed'"),
        ("decode<=20", "'decode<=20' is the wrong way round"),
        ("ttft=10", "'ttft=10' asks for one exact value"),
        ("decode>=20s", "'s' is no unit for decode"),
        ("ttft<=10parsecs", "'parsecs' is no unit for ttft"),
        ("decode>=1.2.3", "'1.2.3' is not a number"),
        ("decode>=0", "'decode>=0' cannot be met or missed"),
        ("decode>=20,decode>=30", "bounds decode twice"),
        ("decode>=20@5%", "asks for no share between 50 and 100 %"),
        ("decode>=20@", "asks for no share between"),
        ("x" * 5000, "is not a condition"),
    ],
)
def test_a_promise_that_is_none_is_one_short_sentence(text, why):
    with pytest.raises(UsageError) as caught:
        parse_slo(text)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(UsageError):
        assert parse_slo(text).conditions


def test_wilson_is_the_textbook_interval():
    low, high = wilson(81, 263)
    assert (low, high) == (pytest.approx(0.2553, abs=1e-4), pytest.approx(0.3662, abs=1e-4))
    assert wilson(0, 10)[0] == 0.0
    assert wilson(10, 10) == (pytest.approx(0.7225, abs=1e-4), pytest.approx(1.0))


def served(good: int, bad: int, failed: int = 0) -> tuple[Served, ...]:
    return (
        *[Served(100, 10, decode_tok_s=30, ttft_s=2)] * good,
        *[Served(100, 10, decode_tok_s=30, ttft_s=20)] * bad,
        *[Served(0, 10, failed=True)] * failed,
        Served(900, 10, decode_tok_s=1, ttft_s=99, asked=False),
    )


def levels(*shares: tuple[int, int, int, int]) -> list[LevelPoint]:
    return [LevelPoint(agents=n, decode_tok_s=1, served=served(*counts)) for n, *counts in shares]


SLO = parse_slo("decode>=20,ttft<=10s")


def test_the_largest_level_that_passes_below_the_smallest_that_fails():
    held = capacity(levels((4, 200, 0, 0), (8, 195, 5, 0), (16, 120, 80, 0)), SLO)
    assert (held.agents, held.fails_at, held.monotone) == (8, 16, True)
    eight = held.levels[1]
    assert (eight.met, eight.requests, eight.passes) == (195, 200, True)
    assert eight.low is not None
    assert eight.low < 0.975 < (eight.high or 0)
    assert (held.levels[0].sure, held.levels[2].sure) == (True, True)
    assert "8 meet it, 16 do not" in held.why


def test_failures_miss_it_and_few_requests_are_not_sure():
    held = capacity(levels((4, 19, 0, 1), (8, 10, 0, 10)), SLO)
    assert (held.agents, held.fails_at) == (4, 8)
    assert held.levels[0].fraction == 0.95
    assert not held.levels[0].sure


def test_none_all_and_out_of_order():
    assert capacity(levels((4, 1, 9, 0), (8, 0, 9, 0)), SLO).agents is None
    every = capacity(levels((4, 9, 0, 0), (8, 9, 0, 0)), SLO)
    assert (every.agents, every.fails_at) == (8, None)
    odd = capacity(levels((4, 9, 0, 0), (8, 1, 9, 0), (16, 9, 0, 0)), SLO)
    assert (odd.agents, odd.fails_at, odd.monotone) == (4, 8, False)
    assert "uncertain" in odd.why


def test_a_table_is_judged_by_its_own_figures_and_what_it_lacks_is_no_pass():
    table = [LevelPoint(agents=n, decode_tok_s=100.0, ttft_s=1.0 * n) for n in (2, 4, 8)]
    held = capacity(table, SLO)
    assert (held.agents, held.fails_at) == (4, 8)
    assert not held.levels[0].sure
    unknown = capacity([LevelPoint(agents=2, decode_tok_s=100.0)], SLO)
    assert (unknown.agents, unknown.levels) == (None, [])
    assert unknown.why == "no level knows the figures that the SLO bounds"
