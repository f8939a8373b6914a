"""The stories of three field reports, told by the simulated engine: shapes, with their order of magnitude.

Shorter runs than those of `docs/simulator.md`; the bounds are wide enough for any seed to pass.
"""

from __future__ import annotations

import pytest

from agenttop.sim import fidelity
from agenttop.sim.fidelity import Ceiling
from agenttop.sim.rehearse import Rehearsed

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lab() -> dict[tuple[str, int], Rehearsed]:
    return {
        **fidelity.home_lab(levels=(16,), seconds=700, seed=1),
        **fidelity.home_lab(("rtx-5090", "strix-halo"), (8,), seconds=700, seed=1),
    }


@pytest.fixture(scope="module")
def budget() -> list[Ceiling]:
    return fidelity.one_prefill_budget(seconds=2700, seed=1)


def ratio(lab: dict[tuple[str, int], Rehearsed], figure: str, host: str, agents: int = 16) -> float:
    other, base = lab[host, agents], lab["rtx-5090", agents]
    return float(getattr(other, figure) / getattr(base, figure))


def test_the_6000_pro_is_a_quarter_ahead_in_decode_and_a_third_in_prefill(
    lab: dict[tuple[str, int], Rehearsed],
) -> None:
    assert 1.12 < ratio(lab, "decode_tok_s_per_agent", "rtx-pro-6000") < 1.40
    assert 1.15 < ratio(lab, "decode_tok_s", "rtx-pro-6000") < 1.37
    assert 1.30 < ratio(lab, "prefill_busy_tok_s", "rtx-pro-6000") < 1.45


def test_strix_halo_is_about_eight_times_slower_at_load_with_the_same_shape(
    lab: dict[tuple[str, int], Rehearsed],
) -> None:
    assert 6 < 1 / ratio(lab, "decode_tok_s", "strix-halo") < 11
    halved = lab["strix-halo", 16].decode_tok_s_per_agent or 0
    assert halved < 0.7 * (lab["strix-halo", 8].decode_tok_s_per_agent or 0)


def test_on_the_5090_compute_binds_and_not_the_pool(lab: dict[tuple[str, int], Rehearsed]) -> None:
    eight, sixteen = lab["rtx-5090", 8], lab["rtx-5090", 16]
    assert sixteen.decode_tok_s > eight.decode_tok_s, "still rising"
    assert sixteen.decode_tok_s < 1.25 * eight.decode_tok_s, "but twice the agents bring little"
    assert 12 < (sixteen.decode_tok_s_per_agent or 0) < 22
    assert sixteen.compactions <= eight.compactions * 1.1
    assert sixteen.preemptions == 0
    assert 0.4 < sixteen.kv_max_fraction < 0.95
    assert (sixteen.prefix_hit_fraction or 0) > 0.8


def test_more_slots_divide_one_prefill_budget_and_multiply_the_wait(budget: list[Ceiling]) -> None:
    three, _, nine = (one.level for one in budget)
    done = [one.level.completions_per_min for one in budget]
    assert max(done) / min(done) < 1.25, "three times the agents hardly move throughput"
    assert all(1.3 < rate < 1.8 for rate in done)
    assert all(1300 < one.level.prefill_tok_s < 1700 for one in budget)
    assert 2.2 < (nine.wait_s or 0) / (three.wait_s or 1) < 3.5
    assert all(one.level.failures == 0 for one in budget)


def test_memory_sets_a_hard_ceiling_of_nine(budget: list[Ceiling]) -> None:
    fitting = {one.quant: one.slots_fitting for one in budget}
    assert fitting["q4_k_m"] == 9
    assert fitting["q8_k_xl"] == 3
    assert fitting["q6_k_xl"] in (5, 6)


def test_offloaded_experts_decode_as_fast_as_main_memory_lets_them() -> None:
    rate, large, small = fidelity.offloaded_decode()
    assert rate == pytest.approx(18.75, rel=0.1)
    assert 2 < large / small < 4.5


def test_latency_is_a_line_over_prompt_size_whose_slope_is_the_prefill_rate() -> None:
    slope, fixed = fidelity.latency_line("qwen3.5-27b-q6_k_xl", prompts=(8000, 48_000))
    assert 1300 < slope < 1800
    assert 2 < fixed < 10


def test_the_moe_falls_to_a_floor_at_four_agents_and_the_rest_are_free() -> None:
    levels = fidelity.swarm(levels=(1, 2, 4, 8), seconds=100, seeds=1)
    each = {agents: rate for agents, rate, _ in levels}
    together = {agents: total for agents, _, total in levels}
    assert each[1] == pytest.approx(169, rel=0.07)
    assert each[1] > 1.08 * each[2] > 1.08 * each[4]
    assert each[4] / each[1] == pytest.approx(1 - 0.27, abs=0.06)
    assert each[8] > 0.9 * each[4], "the floor"
    assert together[8] > 0.98 * together[4] > 1.5 * together[1], "no cliff"


def test_a_swarm_of_four_is_three_times_faster_on_the_moe_and_nvlink_hardly_matters() -> None:
    moe = fidelity.swarm(levels=(4,), seconds=100, seeds=1)[0]
    dense = fidelity.swarm(model="qwen3-32b-4bit", levels=(4,), seconds=100, seeds=1)[0]
    linked = fidelity.swarm("2x3090-nvlink", levels=(4,), seconds=100, seeds=1)[0]
    assert 82 < dense[2] < 127
    assert moe[2] > 2.5 * dense[2]
    assert 0 < linked[1] / moe[1] - 1 < 0.04
