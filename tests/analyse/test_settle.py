"""When a level that runs may end."""

import random

import pytest

from agenttop.analyse.settle import half_width, progress
from agenttop.model.frames import LoadSample, Turn


def turn(agent, sent, took=2.0, **fields):
    fields = {"t_first_token": sent + 0.5, "t_last_token": sent + took, "output_tokens": 50, **fields}
    return Turn(
        t=sent + took, agent=agent, engine="u", profile="p", turn=1, t_queued=sent, t_sent=sent, **fields
    )


def failure(agent, sent, kind="refused"):
    return turn(agent, sent, t_first_token=None, t_last_token=None, output_tokens=None, error_kind=kind)


def cycle(agents, until, period=3.0):
    """Turns of every agent, one after another."""
    turns = [
        turn(f"a{number}", number * 0.1 + at * period)
        for number in range(agents)
        for at in range(int(until // period))
    ]
    return sorted(turns, key=lambda each: each.t)


def loads(active, until, rate=lambda _t: 100.0, **fields):
    return [
        LoadSample(t=float(t), active=active, target=active, decode_tok_s=rate(t), window_s=1.0, **fields)
        for t in range(1, int(until))
    ]


def test_a_level_is_ready_once_all_agents_had_full_turns_and_the_rate_is_known():
    ready = progress(4, 60.0, loads(4, 60), cycle(4, 60))
    assert ready.ready
    assert ready.waits_for == ""
    assert ready.fewest >= 2


@pytest.mark.parametrize(
    ("now", "samples", "turns", "says"),
    [
        (60.0, loads(3, 60), cycle(4, 60), "3 of 4 agents started"),
        (60.0, loads(4, 60), cycle(3, 60), "not every agent has had its first answer"),
        (20.0, loads(4, 20), cycle(4, 20), "a window of 30 s"),
        (60.0, loads(4, 60), [*cycle(3, 60), turn("a9", 1.0, took=70.0)], "a full turn of 1 agent"),
        (60.0, loads(4, 60), cycle(4, 60, period=20.0), "more turns"),
        (60.0, loads(4, 60, lambda t: 10.0 + 10 * (t % 25)), cycle(4, 60), "a steadier total rate"),
    ],
)
def test_what_is_still_missing_is_named(now, samples, turns, says):
    state = progress(4, now, samples, turns)
    assert not state.ready
    assert says in state.waits_for
    assert state.halted_by is None


def test_nothing_but_failures_ends_a_level():
    turns = [failure(f"a{number % 2}", 1.0 + number) for number in range(8)]
    state = progress(2, 10.0, loads(2, 10), turns)
    assert state.halted_by == "failures"
    assert "every request failed (8 times refused)" in state.waits_for


def test_failures_among_answers_do_not_end_it():
    turns = [*cycle(2, 30), *[failure("a0", 1.0 + number) for number in range(8)]]
    assert progress(2, 30.0, loads(2, 30), turns).halted_by is None


def test_requests_cancelled_on_purpose_are_no_failures():
    turns = [failure(f"a{number % 2}", 1.0 + number, "cancelled") for number in range(8)]
    assert progress(2, 10.0, loads(2, 10), turns).halted_by is None


def test_a_client_that_is_the_limit_ends_a_level():
    state = progress(4, 60.0, loads(4, 60, client_limited="its event loop lags"), cycle(4, 60))
    assert state.halted_by == "client"
    assert "its event loop lags" in state.waits_for


def test_priming_and_sub_agents_are_no_turns_of_the_level():
    own = cycle(1, 60)
    primed = [turn("a1", 0.2, turn_kind="prime"), turn("a1.1", 5.0, turn_kind="sub", parent="a0")]
    assert (
        "first answer"
        in progress(2, 60.0, loads(2, 60), sorted([*own, *primed], key=lambda t: t.t)).waits_for
    )


def test_engines_that_count_no_tokens_in_progress_are_judged_by_their_turns():
    assert progress(4, 60.0, loads(4, 60, lambda _t: None), cycle(4, 60)).ready


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says():
    dice = random.Random(5)
    covered = 0
    for _ in range(300):
        values = [dice.gauss(100, 20) for _ in range(60)]
        width = half_width(values)
        covered += abs(sum(values) / 60 - 100) <= width * sum(values) / 60
    assert 0.90 <= covered / 300 <= 0.99


def test_too_few_values_have_no_interval():
    assert half_width([1.0] * 9) is None
    assert half_width([0.0] * 20) is None
