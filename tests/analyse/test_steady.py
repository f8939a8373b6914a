"""When a level has settled: warm-up, trend, level shift, and what is not enough to tell."""

from __future__ import annotations

import math
import random

import pytest

from agenttop.analyse.series import batched, inflation, mser_crop, ranks, shift, theil_sen, trend
from agenttop.analyse.steady import LEAST_TURNS, judge
from agenttop.model.frames import Turn
from tests.record.build import turn

AGENTS = 4


def level(rate=lambda t: 50.0, ttft=lambda t, size: 0.4, *, seconds=240.0, seed=1, noise=0.04, tokens=100):
    """Agents that ask, wait and decode in turns until `seconds`."""
    dice = random.Random(seed)
    turns: list[Turn] = []
    for agent in range(AGENTS):
        t, number = 0.3 * agent, 0
        while True:
            number += 1
            size = dice.randrange(200, 4000)
            first = t + ttft(t, size) * max(0.2, 1 + dice.gauss(0, 0.3))
            speed = rate(t) * (1 + dice.gauss(0, noise))
            made = turn(
                sent=t,
                first=first,
                tokens=tokens,
                rate=speed,
                agent=f"a{agent}",
                number=number,
                prompt_tokens=size,
                cached_tokens=0,
            )
            if made.t >= seconds:
                break
            turns.append(made)
            t = made.t + dice.uniform(0.5, 2.0)
    return sorted(turns, key=lambda made: made.t)


def standing(turns, until=240.0, **how):
    return judge(turns, AGENTS, 0.0, until, **how)


def test_a_level_that_stays_is_steady():
    made = standing(level())
    assert (made.state, made.since) == ("steady", 0.0)
    assert made.window_s == 240.0
    assert made.full_per_agent >= 40
    assert made.why.startswith("no trend and no level shift over")


def test_false_alarms_are_rare():
    states = [standing(level(seed=seed, seconds=120), 120.0).state for seed in range(60)]
    assert states.count("steady") >= 56


@pytest.mark.parametrize(
    ("rate", "why"),
    [
        (lambda t: 60 - t / 12, "the decode rate per agent falls within it"),
        (lambda t: 30 + t / 12, "the decode rate per agent rises within it"),
        (lambda t: 50 if t < 150 else 35, "the decode rate per agent"),
    ],
)
def test_a_trend_or_a_level_shift_of_the_decode_rate_is_no_steady_state(rate, why):
    made = standing(level(rate))
    assert made.state == "unsteady"
    assert made.why.startswith(why)
    assert "tok/s" in made.why


def test_a_queue_that_grows_is_no_steady_state_though_decoding_is():
    made = standing(level(ttft=lambda t, size: 0.4 + t / 60))
    assert made.state == "unsteady"
    assert made.why.startswith("the time to the first token of like prompts rises")


def test_prompts_that_grow_do_not_count_as_a_queue():
    """The time to the first token rises with the size alone."""
    turns = level(ttft=lambda t, size: 0.3)
    grown = []
    for made in turns:
        size = int(1000 + 40 * made.t)
        wait = size / 2500
        grown.append(
            turn(
                sent=made.t_sent,
                first=made.t_sent + wait,
                tokens=100,
                rate=50.0,
                agent=made.agent,
                number=made.turn,
                prompt_tokens=size,
                cached_tokens=0,
            )
        )
    grown.sort(key=lambda made: made.t)
    assert grown[-1].t_first_token - grown[-1].t_sent > 3 * (grown[0].t_first_token - grown[0].t_sent)
    assert standing(grown, 300.0).state == "steady"


def test_a_slow_beginning_is_cropped():
    made = standing(level(lambda t: 25 if t < 40 else 50))
    assert made.state == "steady"
    assert 30 <= made.since <= 60
    assert made.until == 240.0


def test_a_small_real_change_is_none():
    turns = level(lambda t: 50 - t / 100, noise=0.005, seconds=600)
    assert standing(turns, 240.0).state == "steady"


@pytest.mark.parametrize(
    ("turns", "until", "why"),
    [
        (level(), 8.0, "8.0 s of at least"),
        ([made for made in level() if made.agent != "a3"], 60.0, "3 of 4 agents have had 1 full turn"),
        (level(tokens=1200), 60.0, f"{LEAST_TURNS} are needed to tell a trend"),
    ],
)
def test_too_little_is_warming_and_says_what_is_lacking(turns, until, why):
    made = standing(turns, until)
    assert made.state == "warming"
    assert why in made.why


def test_priming_compaction_sub_agents_and_failures_are_no_turns_of_it():
    import msgspec

    turns = level()
    other = [
        msgspec.structs.replace(made, **changes)
        for made in level(lambda t: 500 - t, seed=2)
        for changes in (
            {"turn_kind": "prime"},
            {"turn_kind": "compact"},
            {"parent": "a0"},
            {"error_kind": "cut"},
        )
    ]
    mixed = sorted([*turns, *other], key=lambda made: made.t)
    assert standing(mixed) == standing(turns)


def test_the_turns_so_far_say_the_same_as_the_whole_at_each_moment_and_go_from_warming_to_steady():
    turns = level()
    known, states = [], []
    pending = list(turns)
    for now in range(5, 120, 5):
        while pending and pending[0].t < now:
            known.append(pending.pop(0))
        states.append(judge(known, AGENTS, 0.0, float(now)))
        assert states[-1] == judge(turns, AGENTS, 0.0, float(now))
    assert states[0].state == "warming"
    assert states[-1].state == "steady"


def test_the_cost_of_a_look_does_not_grow_with_the_square_of_the_turns():
    """Ten times the turns cost far less than a hundred times as much: they are put together first."""
    import time

    def cost(turns):
        begun = time.process_time()
        for _ in range(3):
            judge(turns, AGENTS, 0.0, 1e9)
        return time.process_time() - begun

    few, many = level(seconds=600), level(seconds=6000)
    assert len(many) > 9 * len(few)
    assert cost(many) < 30 * cost(few)


# The tests themselves


def test_ranks_share_ties():
    assert ranks([3.0, 1.0, 3.0, 2.0]) == [3.5, 1.0, 3.5, 2.0]


def test_trend_gives_its_size_by_the_median_slope():
    found = trend([10 + 2 * i for i in range(20)])
    assert (found.size, found.before, found.after) == (38, 10, 48)
    assert found.p < 1e-6
    assert trend([5.0] * 20).p == 1.0


def test_autocorrelation_makes_a_trend_less_sure():
    dice = random.Random(3)
    alarms = plain = 0
    for _ in range(200):
        value, series = 0.0, []
        for _ in range(60):
            value = 0.8 * value + dice.gauss(0, 1)
            series.append(100 + value)
        found = trend(series)
        alarms += found.p < 0.01
        plain += found.plain_p < 0.01
    assert plain > 2 * max(1, alarms)
    assert inflation([dice.gauss(0, 1) for _ in range(100)]) < 1.6


def test_shift_finds_where_and_how_far():
    dice = random.Random(4)
    series = [50 + dice.gauss(0, 1) for _ in range(30)] + [40 + dice.gauss(0, 1) for _ in range(30)]
    found = shift(series)
    assert found.size == pytest.approx(-10, abs=1)
    assert found.p < 0.001
    assert shift([dice.gauss(50, 1) for _ in range(60)]).p > 0.01


def test_the_crop_leaves_the_warm_up_out_and_nothing_of_a_level_series():
    dice = random.Random(5)
    steady = [50 + dice.gauss(0, 1) for _ in range(60)]
    assert mser_crop([20.0, 25.0, 30.0, *steady]) in range(3, 15)
    assert mser_crop([50.0] * 30) == 0
    assert mser_crop([1.0, 2.0]) == 0


def test_long_series_become_medians_of_neighbours():
    assert batched([1.0, 2.0, 3.0], 5) == [1.0, 2.0, 3.0]
    assert batched([float(i) for i in range(10)], 5) == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert math.isclose(theil_sen([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]), 2.0)
    assert theil_sen([(1.0, 1.0), (1.0, 9.0)]) == 0.0
