"""The same seed and number give the same plan, whatever the engine does."""

from __future__ import annotations

from agenttop.agents.plan import AgentPlan
from agenttop.agents.profile import load
from agenttop.agents.starts import start_gap_s
from tests.agents.profiles import profile


def steps(seed: int, number: int, count: int = 40) -> list:
    plan = AgentPlan(load("human"), seed, number)
    return [plan.next() for _ in range(count)]


def test_same_seed_same_plan_and_no_shared_state() -> None:
    first = steps(7, 3)
    steps(8, 1)
    assert steps(7, 3) == first
    assert steps(7, 4) != first
    assert steps(8, 3) != first


def test_retries_do_not_change_what_comes_next() -> None:
    calm, troubled = AgentPlan(load("human"), 1, 1), AgentPlan(load("human"), 1, 1)
    one = [calm.next() for _ in range(20)]
    other = []
    for _ in range(20):
        other.append(troubled.next())
        assert 0.5 <= troubled.jitter() <= 1.5
    assert one == other


def test_people_come_after_runs_of_tool_calls() -> None:
    kinds = [step.pause_kind for step in steps(1, 1, 400)]
    assert steps(1, 1)[0].pause_s == 0
    assert kinds.count("human") > 5
    assert kinds.count("tool") > kinds.count("human")
    assert all(step.pause_s <= 60 for step in steps(1, 1, 400) if step.pause_kind == "tool")


def test_without_people_there_are_only_tools() -> None:
    plan = AgentPlan(profile(), 0, 1)
    assert {plan.next().pause_kind for _ in range(50)} == {"tool"}


def test_start_gaps() -> None:
    assert start_gap_s(load("busy"), 0, 5) == 0
    gaps = [start_gap_s(load("human"), 1, number) for number in range(2, 500)]
    assert gaps == [start_gap_s(load("human"), 1, number) for number in range(2, 500)]
    assert 12 < sum(gaps) / len(gaps) < 18
