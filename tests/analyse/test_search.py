"""The search for the knee, on curves that are known: where it goes, when it stops, what it finds."""

import random

import pytest

from agenttop.analyse import bending, knee
from agenttop.analyse.points import LevelPoint
from agenttop.analyse.search import Belief, Done, Measured, Search, Step, believed, doublings


@pytest.fixture(autouse=True)
def no_intervals(monkeypatch):
    """They cost most of the time and steer nothing."""
    monkeypatch.setattr(bending, "DRAWS", 1)


class Bench:
    """Runs a search on a curve instead of on an engine."""

    def __init__(
        self, curve, *, most=64, budget_s=3600.0, noise=0.0, seed=0, slo=None, level_s=None, point=None
    ):
        self.curve, self.slo = curve, slo
        self.noise, self.dice = noise, random.Random(seed)
        self.level_s = level_s or (lambda _agents: 60.0)
        self.make_point = point or (lambda _agents: {})
        self.points = []
        self.report = None
        self.search = Search(most, budget_s, self.judge)
        self.spent = 0.0
        self.steps = []

    def judge(self):
        if not self.points:
            return Belief()
        self.report = knee.analyse(self.points, slo=self.slo)
        return believed(self.report)

    def run(self, ended=lambda _agents: "steady"):
        while True:
            step = self.search.next(self.search.budget_s - self.spent)
            if isinstance(step, Done):
                return step
            assert isinstance(step, Step)
            assert len(self.steps) < 60, "it goes on without end"
            self.steps.append(step)
            took = min(self.level_s(step.agents), self.search.budget_s - self.spent)
            self.spent += took
            how = ended(step.agents)
            if how != "failures":
                rate = self.curve(step.agents) * (1 + self.noise * self.dice.gauss(0, 1))
                figures = {"decode_tok_s": rate, "decode_tok_s_per_agent": rate / step.agents}
                self.points.append(LevelPoint(agents=step.agents, **figures, **self.make_point(step.agents)))
            self.search.add(Measured(step.agents, step.purpose, took, how))

    @property
    def levels(self):
        return [step.agents for step in self.steps]


def flat_from(knee_at, one=40.0):
    return lambda agents: one * min(agents, knee_at)


def straight(agents):
    return 40.0 * agents


def falling_from(cliff, knee_at=64, one=40.0):
    return lambda agents: one * min(agents, knee_at) * (1.0 if agents < cliff else 0.6)


def near(found, planted, levels):
    """Within one of the levels that were measured."""
    tested = sorted({*levels, planted})
    return abs(tested.index(found) - tested.index(planted)) <= 1


def test_doublings_end_with_the_most():
    assert doublings(16) == [1, 2, 4, 8, 16]
    assert doublings(24) == [1, 2, 4, 8, 16, 24]
    assert doublings(1) == [1]


def test_it_climbs_by_doubling_and_never_beyond_the_most():
    bench = Bench(straight, most=24)
    done = bench.run()
    assert bench.levels[:6] == [1, 2, 4, 8, 16, 24]
    assert max(bench.levels) == 24
    assert not done.cut_short


@pytest.mark.slow
def test_a_planted_knee_is_found_within_one_level_in_nine_of_ten_seeds():
    hits = 0
    for seed in range(10):
        planted = (3, 6, 8, 12, 20)[seed % 5]
        bench = Bench(flat_from(planted), noise=0.03, seed=seed)
        bench.run()
        found = bench.report.knee.agents
        hits += found is not None and near(found, planted, bench.levels)
    assert hits >= 9


def test_a_straight_line_has_no_knee_in_nineteen_of_twenty():
    none = 0
    for seed in range(20):
        bench = Bench(straight, most=32, noise=0.03, seed=seed)
        bench.run()
        none += bench.report.knee.agents is None
    assert none >= 19


def test_it_refines_to_both_sides_of_the_knee_and_confirms_with_new_agents():
    bench = Bench(flat_from(12), noise=0.01)
    bench.run()
    purposes = [step.purpose for step in bench.steps]
    assert "refine" in purposes
    assert "confirm" in purposes
    assert purposes.index("refine") < purposes.index("confirm")
    confirmed = {step.agents for step in bench.steps if step.purpose == "confirm"}
    assert confirmed <= {step.agents for step in bench.steps if step.purpose != "confirm"}


def test_it_stops_past_the_cliff_and_narrows_it_down():
    bench = Bench(falling_from(20, knee_at=16), most=256)
    bench.run()
    assert max(bench.levels) <= 64
    assert bench.report.cliff.agents is not None
    assert 20 <= bench.report.cliff.agents <= 25


def test_a_predicted_cliff_is_entered_and_verified():
    def point(agents):
        return {
            "kv_pool_tokens": 100_000,
            "context_mean_tokens": 5000.0,
            "kv_max_fraction": min(1.0, agents / 20),
            "preemptions": 0 if agents <= 20 else 40,
        }

    bench = Bench(falling_from(21), most=256, point=point)
    bench.run()
    verified = [step.agents for step in bench.steps if step.purpose == "verify"]
    assert verified, bench.levels
    assert any(18 <= agents <= 26 for agents in verified)
    assert max(bench.levels) <= 64
    assert bench.report.cliff.agents is not None


@pytest.mark.parametrize("budget_s", [61.0, 200.0, 500.0, 900.0])
def test_the_budget_is_kept_and_said_when_it_cuts_the_search_short(budget_s):
    bench = Bench(flat_from(8), budget_s=budget_s, level_s=lambda agents: 50.0 + 2 * agents)
    done = bench.run()
    assert bench.spent <= budget_s
    assert done.cut_short
    assert "too little of the budget is left for another level" in done.why


def test_with_little_left_the_knee_is_refined_before_the_climb_goes_on():
    bench = Bench(flat_from(4), most=512, budget_s=1000.0, level_s=lambda agents: 40.0 + 4 * agents)
    bench.run()
    assert any(step.purpose == "refine" for step in bench.steps)


def test_nothing_but_failures_ends_it_at_once():
    bench = Bench(straight)
    done = bench.run(ended=lambda _agents: "failures")
    assert bench.levels == [1]
    assert "failed" in done.why
    assert bench.report is None or bench.report.knee.agents is None


def test_beyond_the_first_failures_it_goes_no_higher():
    bench = Bench(straight, most=64)
    bench.run(ended=lambda agents: "failures" if agents >= 16 else "steady")
    assert max(bench.levels) == 16
    assert 32 not in bench.levels


def test_a_client_that_is_the_limit_ends_the_climb_and_is_named():
    bench = Bench(straight, most=64)
    done = bench.run(ended=lambda agents: "client" if agents >= 8 else "steady")
    assert max(bench.levels) == 8
    assert "client is the limit" in done.why


def search_with(belief, measured, most=64):
    search = Search(most, 3600.0, lambda: belief)
    for agents in measured:
        search.add(Measured(agents, "climb", 60.0, "steady"))
    return search


def test_the_capacity_is_bisected():
    search = search_with(Belief(holds=16, breaks=32), [1, 2, 4, 8, 16, 32, 64])
    step = search.next(3000.0)
    assert step == Step(24, "capacity", step.why)


def test_a_capacity_known_to_a_tenth_is_left():
    search = search_with(Belief(holds=30, breaks=32), [1, 2, 4, 8, 16, 30, 32, 64])
    assert isinstance(search.next(3000.0), Done)


def test_already_past_the_knee_at_one_agent_is_confirmed_and_done():
    bench = Bench(lambda _agents: 40.0, most=16)
    bench.run()
    assert bench.report.knee.already_past or bench.report.knee.agents == 1


def test_levels_that_scatter_too_much_for_a_knee_are_measured_again():
    search = search_with(Belief(noise=0.2), [1, 2, 4, 8], most=8)
    assert [search.next(3000.0).agents, search.next(3000.0).purpose] == [8, "confirm"]
    quiet = search_with(Belief(noise=0.02), [1, 2, 4, 8], most=8)
    assert isinstance(quiet.next(3000.0), Done)


def test_an_engine_that_goes_down_ends_the_search_and_is_not_taken_for_a_cliff():
    bench = Bench(straight, most=64)
    done = bench.run(ended=lambda agents: "engine" if agents >= 4 else "steady")
    assert bench.levels == [1, 2, 4]
    assert done.cut_short
    assert done.why == "the engine went down with 4 agents"
