"""The three figures on curves that are known, on tables that people published, and on odd input."""

from __future__ import annotations

import itertools
import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.analyse.knee import analyse, predict_cliff
from agenttop.analyse.points import LevelPoint, Served
from agenttop.errors import AgenttopError
from tests.analyse.curves import (
    EXPERTS,
    MANY,
    ONE_BUDGET,
    batch,
    batch_with_cliff,
    closed_queue,
    hinge,
    noisy,
    straight,
    within_one,
)

SEEDS = range(20)


def line_of(values: dict[int, float], **more: object) -> list[LevelPoint]:
    return [LevelPoint(agents=n, decode_tok_s=v, **more) for n, v in values.items()]  # type: ignore[arg-type]


def finite(plain: object) -> bool:
    """No NaN, no infinity anywhere in plain values."""
    if isinstance(plain, dict):
        return all(map(finite, plain.values()))
    if isinstance(plain, list):
        return all(map(finite, plain))
    return not isinstance(plain, float) or math.isfinite(plain)


@pytest.mark.parametrize("noise", [0.03, 0.10])
@pytest.mark.parametrize("curve", [closed_queue, hinge, batch], ids=lambda curve: curve.__name__)
def test_a_knee_is_found_within_one_level_in_nine_of_ten(curve, noise):
    found = [analyse(noisy(curve, noise, seed), draws=0).knee.agents for seed in SEEDS]
    # The closed queue bends gently: its marginal gain crosses a quarter at 24 agents, its N* is 16.
    # At 10 % noise the batch curve, which never stops rising, may be placed two levels off now and then.
    hits = sum(within_one(agents, 16) for agents in found)
    assert hits >= (0.9 if curve is not batch or noise < 0.1 else 0.75) * len(SEEDS)


@pytest.mark.parametrize("noise", [0.03, 0.10])
def test_a_straight_line_has_none_in_nineteen_of_twenty(noise):
    reports = [analyse(noisy(straight, noise, seed), draws=0) for seed in SEEDS]
    assert sum(report.knee.agents is None for report in reports) >= 19
    assert sum(report.cliff.agents is None for report in reports) >= 19
    assert "No knee up to 64 agents" in reports[0].sentence


def test_a_cliff_is_found_and_the_knee_before_it():
    reports = [analyse(noisy(batch_with_cliff, 0.03, seed), draws=0) for seed in SEEDS]
    assert sum(report.cliff.agents == 32 for report in reports) >= 18
    assert sum(within_one(report.knee.agents, 16) for report in reports) >= 18
    one = reports[0]
    assert (one.cliff.low, one.cliff.cause) == (24, "throughput")
    assert "below the best smaller level" in one.cliff.why


def test_the_interval_holds_the_knee_and_lies_between_tested_levels():
    for noise in (0.03, 0.10):
        knee = analyse(noisy(hinge, noise, 3), draws=100).knee
        assert knee.agents is not None
        assert knee.low is not None
        assert knee.high is not None
        assert 1 <= knee.low <= knee.agents <= knee.high <= 64
        assert knee.low <= 16 <= knee.high
    narrow, wide = (analyse(noisy(hinge, noise, 3), draws=100).knee for noise in (0.01, 0.10))
    assert (wide.high or 0) - (wide.low or 0) >= (narrow.high or 0) - (narrow.low or 0)


def test_the_second_opinion_agrees_or_says_that_it_does_not():
    sharp = analyse(noisy(hinge, 0.02, 1), draws=0).knee.second_opinion
    assert sharp.agrees is True
    assert sharp.agents == pytest.approx(16, abs=4)
    none = analyse(noisy(straight, 0.02, 1), draws=0).knee.second_opinion
    assert (none.agents, none.agrees) == (None, True)
    few = analyse(line_of({1: 10, 2: 19, 4: 20}), draws=0).knee.second_opinion
    assert (few.agents, few.agrees) == (None, None)


# What people found


def test_one_prefill_budget_makes_five_the_soft_ceiling():
    report = analyse(ONE_BUDGET)
    assert report.measure == "completions_per_min"
    assert (report.knee.agents, report.knee.soft_ceiling, report.cliff.agents) == (5, True, None)
    assert report.sentence == (
        "5 agents are the soft ceiling: from 3 to 9 the total hardly moves while the wait grows 2.9 times;"
        " no cliff up to 9."
    )


def test_a_small_gain_between_few_levels_of_several_agents_is_one_budget_too():
    report = analyse(line_of({3: 4.6, 5: 5.4, 9: 5.4}))
    assert (report.knee.agents, report.knee.soft_ceiling) == (5, True)
    growing = analyse(line_of({4: 150, 8: 210, 16: 260}))
    assert (growing.knee.agents, growing.knee.soft_ceiling) == (None, False)


def test_experts_reach_a_floor_and_a_scattered_total_is_no_cliff():
    report = analyse(EXPERTS)
    assert report.floor is not None
    assert (report.floor.from_agents, report.floor.decode_tok_s_per_agent) == (4, 125)
    assert report.cliff.agents is None
    assert report.noise_from == "curve"
    assert report.noise_fraction == pytest.approx(0.11, abs=0.02)
    assert "no cliff up to 8" in report.sentence
    assert "stays at about 125 tok/s from 4 agents on" in report.sentence


def test_a_total_that_still_rises_has_no_knee_yet_and_the_slo_tells_how_many():
    rising = [
        LevelPoint(
            agents=n, decode_tok_s=total, decode_tok_s_per_agent=each, kv_max_fraction=kv, preemptions=0
        )
        for n, total, each, kv in (
            (1, 62, 62, 0.05),
            (4, 180, 45, 0.2),
            (8, 290, 36, 0.38),
            (16, 430, 15, 0.52),
        )
    ]
    report = analyse(rising, slo="decode>=20")
    assert (report.knee.agents, report.cliff.agents) == (None, None)
    assert report.capacity is not None
    assert (report.capacity.agents, report.capacity.fails_at, report.capacity.monotone) == (8, 16, True)


def test_already_past_the_knee_at_one():
    report = analyse(line_of({1: 100, 2: 103, 4: 102, 8: 101}))
    assert (report.knee.agents, report.knee.already_past) == (1, True)
    assert report.sentence.startswith("Already past the knee at 1 agent")


def test_the_floor_is_none_where_the_rate_never_fell_or_still_falls():
    never = [LevelPoint(agents=n, decode_tok_s=20.0 * n, decode_tok_s_per_agent=20) for n in (1, 2, 4, 8)]
    still = [LevelPoint(agents=n, decode_tok_s=100, decode_tok_s_per_agent=100 / n) for n in (1, 2, 4, 8)]
    assert analyse(never).floor is None
    assert analyse(still).floor is None


# Causes of a cliff


@pytest.mark.parametrize(
    ("cause", "worse"),
    [
        ("preemptions", {"preemptions": 7}),
        ("KV pool full", {"kv_max_fraction": 0.99}),
        ("prefix hits lost", {"prefix_hit_fraction": 0.70}),
        ("requests refused", {"refused": 9, "requests": 60}),
    ],
)
def test_each_sign_of_a_cliff_names_its_cause(cause, worse):
    fine = {
        "preemptions": 0,
        "kv_max_fraction": 0.5,
        "prefix_hit_fraction": 0.95,
        "refused": 0,
        "requests": 60,
    }
    points = [
        LevelPoint(agents=n, decode_tok_s=20.0 * n, **(fine | (worse if n >= 8 else {})))
        for n in (1, 2, 4, 8, 16)
    ]
    cliff = analyse(points, draws=0).cliff
    assert (cliff.agents, cliff.low, cliff.cause) == (8, 4, cause)


def test_the_deeper_cause_comes_first_where_signs_meet():
    points = [
        LevelPoint(agents=n, decode_tok_s=rate, preemptions=p, kv_max_fraction=kv)
        for n, rate, p, kv in (
            (1, 50, 0, 0.1),
            (2, 98, 0, 0.2),
            (4, 190, 0, 0.4),
            (8, 350, 0, 0.8),
            (16, 200, 33, 1),
        )
    ]
    report = analyse(points)
    assert (report.cliff.agents, report.cliff.low, report.cliff.cause) == (16, 8, "KV pool full")
    assert "33 preemptions" in report.cliff.why
    assert "throughput lies 43 % below" in report.cliff.why
    assert report.knee.agents == 8


def test_hits_lost_for_one_level_only_are_no_cliff():
    points = [
        LevelPoint(agents=n, decode_tok_s=20.0 * n, prefix_hit_fraction=hit)
        for n, hit in ((1, 0.9), (2, 0.7), (4, 0.92), (8, 0.93))
    ]
    assert analyse(points).cliff.agents is None


def test_the_cliff_is_predicted_from_pool_and_contexts_and_verified_beyond():
    def levels(most: int, cliff: int | None) -> list[LevelPoint]:
        return [
            LevelPoint(
                agents=n,
                decode_tok_s=10.0 * n,
                kv_pool_tokens=300_000,
                context_mean_tokens=29_000.0,
                preemptions=40 if cliff and n >= cliff else 0,
            )
            for n in (1, 2, 4, 8, 12, 16, 24)
            if n <= most
        ]

    before = predict_cliff(levels(8, None))
    assert (before.agents, before.rests_on, before.verified) == (10, "KV pool", None)
    assert analyse(levels(24, 12), draws=0).cliff.predicted.verified is True  # type: ignore[union-attr]
    assert analyse(levels(24, None), draws=0).cliff.predicted.verified is False  # type: ignore[union-attr]
    slots = predict_cliff([LevelPoint(agents=4, decode_tok_s=1, slots_total=6, kv_pool_tokens=10**6)])
    assert (slots.agents, slots.rests_on) == (6, "slots")
    assert predict_cliff([LevelPoint(agents=4, decode_tok_s=1)]).agents is None


# Noise


def test_repetitions_tell_the_noise_and_are_put_together():
    points = [
        LevelPoint(agents=n, decode_tok_s=hinge(n) * off)
        for n in (1, 4, 8, 16, 32, 64)
        for off in (0.9, 1.0, 1.1)
    ]
    report = analyse(points)
    assert report.noise_from == "repetitions"
    assert report.noise_fraction == pytest.approx(0.1 / math.sqrt(3), rel=0.05)
    assert report.knee.agents == 16


def test_requests_tell_the_noise_of_their_level():
    dice = random.Random(2)

    def served(count: int) -> tuple[Served, ...]:
        return tuple(Served(dice.lognormvariate(5, 0.9), dice.uniform(5, 15)) for _ in range(count))

    few, many = (
        analyse([LevelPoint(agents=n, decode_tok_s=20.0 * n, served=served(count)) for n in (1, 2, 4)])
        for count in (10, 1000)
    )
    assert few.noise_from == many.noise_from == "requests"
    assert (few.noise_fraction or 0) > 4 * (many.noise_fraction or 1)


def test_where_nothing_tells_the_noise_it_is_assumed_and_said():
    report = analyse(line_of({1: 10, 2: 19, 4: 30}))
    assert (report.noise_from, report.noise_fraction) == ("assumed", pytest.approx(0.03))


# Odd input


def test_order_and_repetitions_do_not_matter():
    points = noisy(hinge, 0.03, 5)
    mixed = random.Random(1).sample(points, len(points))
    assert analyse(mixed).as_json() == analyse(points).as_json()
    assert analyse([*points, *points], draws=0).knee.agents == analyse(points, draws=0).knee.agents


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_levels_get_an_honest_answer(count):
    report = analyse(line_of(dict(itertools.islice({2: 30, 4: 31, 8: 31.5}.items(), count))))
    assert report.cliff.agents is None
    assert report.scaling.serial_fraction is None
    assert report.scaling.why
    if count == 1:
        assert report.sentence.startswith("Only one level can be judged, that of 2 agents")
    if count == 2:
        assert (report.knee.agents, report.knee.unconfirmed) == (None, 2)
    if count == 3:
        assert (report.knee.agents, report.knee.already_past) == (2, True)


def test_levels_that_may_not_be_judged_are_left_out_and_named():
    points = [
        *line_of({1: 20, 2: 40, 4: 80, 8: 160}),
        LevelPoint(agents=16, decode_tok_s=90, valid=False, why_invalid="the client was the limit"),
    ]
    report = analyse(points)
    assert report.left_out == ["16 agents: the client was the limit"]
    assert (report.knee.agents, report.cliff.agents) == (None, None)
    nothing = analyse(points[4:])
    assert nothing.sentence == "No level can be judged, up to 16 agents: the client was the limit."
    assert nothing.knee.agents is None


@pytest.mark.parametrize(
    ("point", "why"),
    [
        (LevelPoint(agents=0, decode_tok_s=1), "a level of 0 agents cannot be"),
        (LevelPoint(agents=2.5, decode_tok_s=1), "a level of 2.5 agents cannot be"),  # type: ignore[arg-type]
        (LevelPoint(agents=10**9, decode_tok_s=1), "a level of 1000000000 agents cannot be"),
        (LevelPoint(agents=1, decode_tok_s=math.nan), "decode_tok_s nan of the level of 1 agents cannot be"),
        (LevelPoint(agents=1, decode_tok_s=-3), "decode_tok_s -3 of the level of 1 agents cannot be"),
        (LevelPoint(agents=1, wait_s=math.inf), "wait_s inf of the level of 1 agents cannot be"),
        (LevelPoint(agents=1, decode_tok_s=1, prefix_hit_fraction=95), "prefix_hit_fraction 95"),
    ],
)
def test_numbers_that_cannot_be_are_one_sentence(point, why):
    with pytest.raises(AgenttopError, match=why) as caught:
        analyse([point])
    assert "\n" not in str(caught.value)


def test_no_level_and_an_unknown_throughput_are_one_sentence():
    with pytest.raises(AgenttopError, match="no level to judge"):
        analyse([])
    with pytest.raises(AgenttopError, match="'speed' is no throughput"):
        analyse(line_of({1: 1}), measure="speed")


@settings(deadline=None, max_examples=60)
@given(
    st.dictionaries(st.integers(1, 300), st.floats(0, 1e12), min_size=1, max_size=9),
    st.lists(st.floats(0, 1), min_size=9, max_size=9),
)
def test_any_table_gets_a_report_without_nonsense(table, hits):
    points = [
        LevelPoint(agents=n, decode_tok_s=v, prefix_hit_fraction=h)
        for (n, v), h in zip(table.items(), hits, strict=False)
    ]
    report = analyse(points, slo="decode>=20,ttft<=10s", draws=20)
    plain = report.as_json()
    assert finite(plain)
    json.dumps(plain, allow_nan=False)
    assert {"schema", "knee", "cliff", "capacity", "scaling", "floor", "sentence"} <= set(plain)
    assert report.sentence.endswith(".")
    assert report.knee.agents is None or report.knee.agents in table
    assert report.cliff.agents is None or report.cliff.agents in table


def test_the_json_has_the_promised_keys():
    plain = analyse(noisy(batch_with_cliff, 0.01, 1), slo="decode>=1", draws=10).as_json()
    assert plain["schema"] == 1
    assert {"agents", "low", "high", "second_opinion", "why"} <= set(plain["knee"])
    assert {"agents", "cause", "why"} <= set(plain["cliff"])
    assert {"serial_fraction", "crosstalk"} <= set(plain["scaling"])
    assert plain["scaling"]["serial_fraction"] is None or 0 <= plain["scaling"]["serial_fraction"] <= 1


def test_the_scaling_law_recovers_its_own_parameters():
    serial, crosstalk = 0.05, 0.0004
    points = line_of({n: 40 * n / (1 + serial * (n - 1) + crosstalk * n * (n - 1)) for n in MANY})
    law = analyse(points, draws=0).scaling
    assert law.serial_fraction == pytest.approx(serial, rel=1e-3)
    assert law.crosstalk == pytest.approx(crosstalk, rel=1e-3)
    assert law.first_agent == pytest.approx(40, rel=1e-3)
    assert law.peak_agents == pytest.approx(math.sqrt((1 - serial) / crosstalk), rel=1e-3)


@pytest.mark.parametrize("first", [2, 4])
def test_a_drop_right_after_the_first_levels_is_a_cliff_and_not_noise(first):
    table = {n: 100.0 if n < first else 40.0 for n in (1, 2, 4, 8, 16)}
    report = analyse(line_of(table), draws=0)
    assert (report.cliff.agents, report.cliff.cause) == (first, "throughput")
    assert "no cliff" not in report.sentence


@pytest.mark.parametrize("measure", ["decode_tok_s", "completions_per_min"])
def test_a_level_that_produces_nothing_after_others_did_is_a_cliff(measure):
    table = {1: 100.0, 2: 200.0, 4: 400.0, 8: 0.0, 16: 0.0}
    report = analyse([LevelPoint(agents=n, **{measure: value}) for n, value in table.items()], draws=0)
    assert (report.cliff.low, report.cliff.agents, report.cliff.cause) == (4, 8, "throughput")
    assert "nothing was produced" in report.cliff.why
    recovers = analyse(line_of({**table, 16: 1600.0}), draws=0)
    assert recovers.cliff.agents is None


def test_requests_that_fail_because_the_engine_is_away_are_no_cliff():
    fine = line_of({1: 20.0, 2: 40.0})
    level = {"agents": 4, "refused": 34, "requests": 38, "valid": False, "why_invalid": "down"}
    away = LevelPoint(**level, engine_away="the engine was not serving for 15 samples (down)")
    assert analyse([*fine, away], draws=0).cliff.agents is None
    assert analyse([*fine, LevelPoint(**level)], draws=0).cliff.cause == "requests refused"
    again = LevelPoint(agents=4, decode_tok_s=80.0, refused=0, requests=40, valid=False, why_invalid="short")
    assert analyse([*fine, away, again], draws=0).cliff.agents is None


def test_no_cliff_is_claimed_up_to_the_last_level_that_was_judged():
    points = [*line_of({1: 20.0, 2: 40.0, 4: 80.0}), LevelPoint(agents=8, valid=False, why_invalid="stalls")]
    report = analyse(points, draws=0)
    assert report.sentence == "No knee up to 4 agents; no cliff up to 4."
    assert report.cliff.why.endswith("up to 4")
    assert analyse(points[3:], draws=0).cliff.why == "no level can be judged"


@pytest.mark.parametrize("levels", [MANY, (1, 2, 4, 8, 16, 32)], ids=["many levels", "few levels"])
def test_a_flat_curve_has_no_cliff_by_chance(levels: tuple[int, ...]) -> None:
    """Where every drop is noise, few levels must not be believed about how little they scatter."""
    draws = [analyse(noisy(lambda _: 100.0, 0.03, seed, levels), draws=0) for seed in range(30)]
    assert sum(report.cliff.agents is not None for report in draws) <= 3
