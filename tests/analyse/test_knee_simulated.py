"""The analysis on simulated engines with a knee that was planted, and on workloads that people measured."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agenttop.analyse.knee import analyse
from agenttop.analyse.points import LevelPoint, requests_of
from agenttop.sim import presets
from agenttop.sim.options import EngineOptions, Plant
from agenttop.sim.rehearse import Rehearsed, rehearse
from agenttop.sim.workload import Spread, Workload

LEVELS = (1, 2, 4, 6, 8, 12)

WORK = Workload(
    name="short turns",
    first=Spread(300),
    input=Spread(100, 0.3),
    output=Spread(60, 0.5),
    limit=8000,
    steady=True,
)

DOCUMENTS = Workload(
    name="documents",
    documents=True,
    first=Spread(60_000, 0.1, most=63_000),
    output=Spread(250, 0.3),
    system=500,
)


def point(seen: Rehearsed) -> LevelPoint:
    return LevelPoint(
        agents=seen.agents,
        decode_tok_s=seen.decode_tok_s,
        decode_tok_s_per_agent=seen.decode_tok_s_per_agent,
        prefill_tok_s=seen.prefill_tok_s,
        completions_per_min=seen.completions_per_min,
        wait_s=seen.wait_s,
        preemptions=seen.preemptions,
        kv_max_fraction=seen.kv_max_fraction,
        served=requests_of(seen.frames),
    )


def climbed(plant: Plant, seed: int, levels: Sequence[int] = LEVELS) -> list[LevelPoint]:
    host, model = presets.host("rtx-5090"), presets.model("qwen3.5-9b-4bit")
    options = EngineOptions(plant=plant)
    return [
        point(rehearse(host, model, options, agents=n, seconds=70, workload=WORK, seed=seed, warm_s=10))
        for n in levels
    ]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_planted_knee_is_found_within_one_level(seed):
    report = analyse(climbed(Plant(knee=4), seed), draws=50)
    assert report.knee.agents in (2, 4, 6)
    assert report.knee.low is not None
    assert report.knee.high is not None
    assert report.knee.low <= 4 <= report.knee.high
    assert report.noise_from in ("requests", "curve")


def test_an_engine_that_never_bends_has_no_knee():
    report = analyse(climbed(Plant(), 1), draws=0)
    assert (report.knee.agents, report.cliff.agents) == (None, None)


def test_a_planted_cliff_is_found():
    report = analyse(climbed(Plant(cliff=6, cliff_slope=0.4), 1), draws=0)
    assert report.cliff.agents in (8, 12)
    assert report.cliff.low in (6, 8)


def test_huge_prompts_share_one_budget_whatever_the_slots_and_five_is_the_soft_ceiling():
    seen = [
        rehearse(
            presets.host("2x4090"),
            presets.model(f"qwen3.5-27b-{quant}"),
            EngineOptions(wire="llama.cpp", slots=slots, context_tokens=65_536 * slots),
            agents=slots,
            seconds=2400,
            workload=DOCUMENTS,
            warm_s=300,
        )
        for slots, quant in ((3, "q8_k_xl"), (5, "q6_k_xl"), (9, "q4_k_m"))
    ]
    rates = [level.prefill_tok_s for level in seen]
    assert max(rates) < 1.2 * min(rates)
    report = analyse([point(level) for level in seen], measure="completions_per_min")
    assert (report.knee.agents, report.knee.soft_ceiling, report.cliff.agents) == (5, True, None)
    assert "while the wait grows" in report.sentence
