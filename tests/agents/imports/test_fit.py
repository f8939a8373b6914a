"""Distributions from what was seen: planted figures come back, odd shapes are kept as they are."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from agenttop.agents.check import parse
from agenttop.agents.imports import fit as fitting
from agenttop.agents.imports.fit import Fit, Observed, Values, distance, fit
from agenttop.agents.imports.profile import make
from agenttop.agents.settings import Profile
from agenttop.agents.tracefile import TraceSession, TraceTurn


def fitted(draw: Callable[[random.Random], float], count: int = 3000, counts: bool = False) -> Fit:
    rng, values = random.Random(7), Values("q")
    for _ in range(count):
        values.add(draw(rng))
    made = fit(values, "tokens", counts)
    assert made is not None
    return made


def test_a_log_normal_comes_back() -> None:
    made = fitted(lambda rng: rng.lognormvariate(6.61, 1.10))
    assert made.distribution.kind == "log-normal"
    assert made.distribution.mu == pytest.approx(6.61, abs=0.07)
    assert made.distribution.sigma == pytest.approx(1.10, abs=0.05)
    assert made.distance is not None
    assert made.distance < 0.03
    assert made.why.startswith("held out: log-normal 0.0")


def test_two_humps_are_kept_as_they_are() -> None:
    made = fitted(lambda rng: rng.gauss(100, 5) if rng.random() < 0.5 else rng.gauss(5000, 100))
    assert made.distribution.kind == "empirical"
    assert made.distance is not None
    assert made.distance < 0.05
    drawn = sorted(made.distribution.draw(random.Random(n)) for n in range(400))
    assert 80 < drawn[100] < 120
    assert 4800 < drawn[300] < 5200


def test_whole_seconds_with_many_zeros_fit_too() -> None:
    made = fitted(lambda rng: float(max(0, round(rng.lognormvariate(0.7, 1.0) - 0.8))))
    share = sum(made.distribution.draw(random.Random(n)) < 0.5 for n in range(2000)) / 2000
    assert made.quantiles[0] == 0
    assert share == pytest.approx(0.28, abs=0.15)


def test_numbers_of_turns_are_geometric() -> None:
    def turns(rng: random.Random) -> float:
        count = 0
        while rng.random() < 0.9:
            count += 1
        return count

    made = fitted(turns, counts=True)
    assert made.distribution.kind == "geometric"
    assert made.distribution.mean == pytest.approx(9, rel=0.1)


def test_one_value_is_constant_and_few_get_the_simple_shape() -> None:
    assert fitted(lambda _: 15_100).distribution.value == 15_100
    made = fitted(lambda rng: rng.choice([3, 5000]), count=12)
    assert made.distribution.kind == "log-normal"
    assert "fewer than" in made.why
    assert fit(Values("q"), "s") is None


def test_the_distance_is_that_between_step_functions() -> None:
    made = fitted(lambda rng: rng.choice([1.0, 2.0, 3.0, 4.0]))
    assert distance([1.0, 2.0, 3.0, 4.0] * 50, made.distribution) < 0.3
    assert distance([9.0, 10.0], made.distribution) == 1.0


def test_of_very_many_values_an_even_sample_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fitting, "MOST", 1000)
    values = Values("q")
    for number in range(50_000):
        values.add(number)
    kept = sorted(values.kept())
    assert len(kept) == 1000
    assert values.seen == 50_000
    assert kept[500] == pytest.approx(25_000, rel=0.1)


def sessions(count: int, seed: int = 3) -> list[TraceSession]:
    """Recorded coding agents with planted figures."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        turns: list[TraceTurn] = []
        prompt = 15_100 + round(rng.lognormvariate(9.1, 0.5))
        kind, pause = "human", None
        for _ in range(80):
            output = round(rng.lognormvariate(5.57, 0.9)) + 1
            turns.append(TraceTurn(prompt=prompt, output=output, pause_s=pause, kind=kind))
            prompt += output + round(rng.lognormvariate(6.61, 1.1)) + 1
            kind = "human" if rng.random() < 0.1 else "tool"
            pause = round(rng.lognormvariate(5.0 if kind == "human" else 2.3, 1.0), 1)
            if prompt > 100_000:
                prompt, kind = 30_000, "compact"
        made.append(TraceSession(session=f"s{number}", turns=turns, system=15_100))
    return made


def profile_of(observed: Observed, trace: str | None = None) -> Profile:
    profile, problems = parse(make(observed, "recorded", trace).text, "made")
    assert profile is not None, problems
    return profile


def test_a_profile_says_what_was_recorded() -> None:
    observed = Observed()
    for session in sessions(30):
        observed.add(session)
    profile = profile_of(observed)
    assert profile.context.system == 15_100
    assert profile.context.limit == pytest.approx(100_000, rel=0.05)
    assert profile.compacted == pytest.approx(30_000, rel=0.02)
    assert profile.turn.input.mu == pytest.approx(6.61, abs=0.1)
    assert profile.turn.output.mu == pytest.approx(5.57, abs=0.1)
    assert profile.pacing.tool_pause_s.mu == pytest.approx(2.3, abs=0.1)
    assert profile.pacing.human_pause_s is not None
    assert profile.pacing.human_pause_s.mu == pytest.approx(5.0, abs=0.2)
    assert profile.pacing.tool_turns is not None
    assert profile.pacing.tool_turns.mean == pytest.approx(8.3, rel=0.25)
    assert profile.context.turns is not None
    assert profile.context.turns.value == 80


def test_sub_agents_do_not_blur_the_figures() -> None:
    observed = Observed()
    for session in sessions(5):
        observed.add(session)
    child = TraceSession(session="s0-1", turns=[TraceTurn(prompt=50, output=1)], parent="s0")
    for _ in range(50):
        observed.add(child)
    assert observed.subagents == 50
    assert profile_of(observed).context.system == 15_100


def test_single_requests_of_a_silent_source_make_a_sound_profile() -> None:
    observed = Observed()
    for number in range(60):
        turn = TraceTurn(prompt=200 + 13 * number, output=10 + number, kind="human")
        observed.add(TraceSession(session=f"s{number}", turns=[turn]))
    made = make(observed, "single requests")
    assert {note.partition(":")[0] for note in made.notes} >= {
        "no turn after a first one",
        "no pauses for tools in the source",
        "no compaction was seen",
    }
    profile = profile_of(observed)
    assert profile.context.turns is not None
    assert profile.context.turns.value == 1
    assert profile.pacing.human_pause_s is None


def test_turns_that_add_nothing_are_told() -> None:
    observed = Observed()
    turns = [TraceTurn(prompt=size, output=100) for size in (9000, 9050, 9400)]
    observed.add(TraceSession(session="s1", turns=turns, system=5000))
    assert observed.shrunk == 1
    assert "1 turns added nothing" in " ".join(make(observed, "recorded").notes)
