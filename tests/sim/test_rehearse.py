"""Closed-loop agents in virtual time: the loop itself, and known answers planted into the engine."""

from __future__ import annotations

from itertools import pairwise

import pytest

from agenttop.sim import presets
from agenttop.sim.options import EngineOptions, Plant
from agenttop.sim.rehearse import Rehearsed, ramp, rehearse
from agenttop.sim.workload import Spread, Workload

TALK = Workload(
    name="talk",
    system=500,
    first=Spread(800),
    input=Spread(400, 0.5),
    output=Spread(120, 0.4),
    pause=Spread(0.5, 0.3),
    limit=6000,
    compact_to=1000,
    summary=200,
)


def level(
    agents: int = 4,
    seconds: float = 60.0,
    *,
    workload: Workload = TALK,
    model: str = "qwen3.5-9b-4bit",
    seed: int = 0,
    warm_s: float = 0.0,
    **options: object,
) -> Rehearsed:
    return rehearse(
        presets.host("rtx-5090"),
        presets.model(model),
        EngineOptions(**options),  # type: ignore[arg-type]
        agents=agents,
        seconds=seconds,
        workload=workload,
        seed=seed,
        warm_s=warm_s,
    )


def test_the_same_seed_gives_the_same_turns_and_another_does_not() -> None:
    assert level(seed=5) == level(seed=5)
    assert level(seed=5).frames != level(seed=6).frames


def test_an_agent_grows_to_its_limit_compacts_and_grows_again() -> None:
    turns = [turn for turn in level(agents=1, seconds=120).frames if turn.agent == "agent-1"]
    assert [turn.turn for turn in turns] == list(range(1, len(turns) + 1))
    kinds = [turn.turn_kind for turn in turns]
    assert kinds.count("compact") >= 2
    where = kinds.index("compact")
    sizes = [turn.prompt_tokens or 0 for turn in turns]
    assert sizes[:where] == sorted(sizes[:where])
    assert 5000 < sizes[where] < 6300
    assert sizes[where + 1] < 2600
    assert turns[where].output_tokens == 200
    for before, after in pairwise(turns[:where]):
        held = (before.prompt_tokens or 0) + (before.output_tokens or 0)
        assert held - 32 <= (after.cached_tokens or 0) <= held, "only the new part is computed"


def test_the_system_prompt_is_shared_by_all_agents() -> None:
    work = Workload(**{**spread_of(TALK), "stagger": 5.0})
    firsts = [turn for turn in level(agents=4, workload=work).frames if turn.turn == 1]
    assert [turn.cached_tokens for turn in firsts] == [0, 496, 496, 496], "in whole blocks of 16"


def test_figures_agree_with_the_turns_they_come_from() -> None:
    one = level(agents=6, seconds=120, warm_s=20)
    assert one.window_s == pytest.approx(100, abs=2)
    good = [turn for turn in one.frames if turn.error_kind is None]
    assert one.turns == len(good)
    assert one.decode_tok_s == pytest.approx(sum(turn.output_tokens or 0 for turn in good) / 100, rel=0.1)
    assert one.completions_per_min == pytest.approx(len(good) / one.window_s * 60)
    assert all(turn.t >= 20 for turn in one.frames)
    assert one.failures == 0


def test_a_steady_start_fills_contexts_of_all_ages_and_leaves_that_out() -> None:
    one = level(agents=8, seconds=30, workload=Workload(**{**spread_of(TALK), "steady": True}))
    sizes = sorted(turn.prompt_tokens or 0 for turn in one.frames if turn.turn == 2)
    assert len(sizes) == 8
    assert sizes[0] < 2800
    assert sizes[-1] > 5000
    assert not [turn for turn in one.frames if turn.turn_kind == "prime"]


def spread_of(workload: Workload) -> dict[str, object]:
    return {name: getattr(workload, name) for name in workload.__struct_fields__}


def test_a_round_waits_for_its_slowest() -> None:
    work = Workload(**{**spread_of(TALK), "rounds": True, "documents": True, "pause": Spread(0.0)})
    frames = level(agents=5, seconds=40, workload=work).frames
    for number in range(1, 6):
        sent = {turn.t_sent for turn in frames if turn.turn == number}
        assert len(sent) == 1
        ended = [turn.t for turn in frames if turn.turn == number - 1]
        assert not ended or max(ended) <= sent.pop()


def test_what_fails_is_a_turn_with_its_kind_and_the_agent_goes_on() -> None:
    one = level(
        agents=4, seconds=120, wire="llama.cpp", slots=4, unified=True, context_tokens=12_288, model="tiny"
    )
    failed = [turn for turn in one.frames if turn.error_kind]
    assert failed
    assert {turn.error_kind for turn in failed} == {"context"}
    assert one.failures == len(failed)
    assert one.turns > 50
    refused = level(agents=1, seconds=30, context_tokens=2048, model="tiny")
    assert {turn.error_kind for turn in refused.frames} == {None, "context"}


def test_a_level_without_a_window_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to look at"):
        level(seconds=10, warm_s=9)


def test_a_planted_knee_and_a_straight_line_show_in_the_levels() -> None:
    work = Workload(**{**spread_of(TALK), "pause": Spread(0.0), "output": Spread(200, 0.3)})

    def rates(plant: Plant) -> dict[int, float]:
        levels = ramp(
            presets.host("rtx-5090"),
            presets.model("tiny"),
            EngineOptions(plant=plant),
            levels=(1, 4, 8, 16),
            seconds=100,
            workload=work,
            warm_s=20,
        )
        return {one.agents: one.decode_tok_s for one in levels}

    bent, straight = rates(Plant(knee=8)), rates(Plant())
    assert bent[8] > 6.5 * bent[1]
    assert bent[16] < 1.12 * bent[8]
    assert straight[16] > 13 * straight[1]
