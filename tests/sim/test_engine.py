"""The engine's behaviour, by wire: order of what it says, scheduling, caches, limits, cost of a step."""

from __future__ import annotations

from itertools import pairwise
from statistics import mean

import pytest

from agenttop.errors import UsageError
from agenttop.sim import presets
from agenttop.sim.engine import RejectedError, SimEngine
from agenttop.sim.options import EngineOptions, Plant
from agenttop.sim.step import Batch, StepModel
from tests.sim.rig import drain, engine, kinds, request, times

WIRES = ("vllm", "llama.cpp")


@pytest.mark.parametrize("wire", WIRES)
def test_a_request_starts_has_a_first_token_then_one_a_step_and_finishes(wire: str) -> None:
    sim = engine(wire=wire)
    sim.submit(request("a", 5000, 4))
    said = drain(sim)
    heard = [kind for kind in kinds(said, "a") if kind != "progress"]
    assert heard == ["start", "first", "token", "token", "token", "finish"]
    assert [one.tokens for one in said if one.kind in ("first", "token")] == [1, 2, 3, 4]
    assert said == sorted(said, key=lambda one: one.t)
    assert said[-1].reason == "length"
    assert sim.next_time() is None
    state = sim.state()
    assert (state.prompt_tokens_total, state.generation_tokens_total) == (5000, 4)
    assert (state.running, state.waiting, state.kv_used_tokens) == (0, 0, 0)


@pytest.mark.parametrize("wire", WIRES)
def test_a_reply_that_ends_by_itself_says_stop(wire: str) -> None:
    sim = engine(wire=wire)
    sim.submit(request("a", 100, 50, stop_tokens=7))
    last = drain(sim)[-1]
    assert (last.kind, last.reason, last.tokens) == ("finish", "stop", 7)


@pytest.mark.parametrize("wire", WIRES)
def test_the_same_seed_says_the_same_however_time_is_cut(wire: str) -> None:
    def run(seed: int, bite: float | None) -> list[object]:
        sim = engine(wire=wire, seed=seed, noise_fraction=0.02)
        for number in range(6):
            sim.submit(request(f"r{number}", 700 + 300 * number, 40, base=number << 30))
        if bite is None:
            return drain(sim)
        said: list[object] = []
        while sim.state().running + sim.state().waiting:
            said += sim.advance(sim.now + bite)
        return said

    assert run(3, None) == run(3, 0.0137)
    assert run(3, None) != run(4, None)


@pytest.mark.parametrize("wire", WIRES)
def test_a_prompt_that_leaves_no_room_is_rejected(wire: str) -> None:
    sim = engine(wire=wire, context_tokens=4096, slots=1)
    with pytest.raises(RejectedError) as caught:
        sim.submit(request("a", 4096, 10))
    assert caught.value.kind == "context"
    assert (caught.value.prompt_tokens, caught.value.context_limit_tokens) == (4096, 4096)
    assert sim.next_time() is None


@pytest.mark.parametrize("wire", WIRES)
def test_a_reply_ends_with_length_where_the_context_ends(wire: str) -> None:
    sim = engine(wire=wire, context_tokens=4096, slots=1)
    sim.submit(request("a", 4000, None))
    last = drain(sim)[-1]
    assert (last.kind, last.reason, last.tokens) == ("finish", "length", 96)


@pytest.mark.parametrize("wire", WIRES)
def test_a_cancelled_request_says_nothing_more_and_leaves_room(wire: str) -> None:
    sim = engine(wire=wire, slots=1, max_num_seqs=1)
    sim.submit(request("a", 3000, 500))
    sim.submit(request("b", 100, 2))
    drain(sim, until=0.8)
    assert sim.state().waiting == 1
    assert sim.cancel("a")
    assert not sim.cancel("a")
    said = drain(sim)
    assert kinds(said, "a") == []
    assert kinds(said, "b")[-1] == "finish"


@pytest.mark.parametrize("wire", WIRES)
def test_a_crash_ends_everything_and_empties_the_cache(wire: str) -> None:
    sim = engine(wire=wire, slots=1, max_num_seqs=1)
    sim.submit(request("a", 3000, 500, base=1))
    sim.submit(request("b", 100, 2))
    drain(sim, until=1.0)
    gone = sim.abort_all("the engine died")
    assert {(one.request, one.kind, one.reason) for one in gone} == {
        ("a", "error", "aborted"),
        ("b", "error", "aborted"),
    }
    assert sim.next_time() is None
    sim.submit(request("c", 3000, 1, base=1))
    assert next(one for one in drain(sim) if one.kind == "start").cached_tokens == 0


@pytest.mark.parametrize("wire", WIRES)
def test_the_next_turn_of_a_conversation_finds_prompt_and_reply_in_the_cache(wire: str) -> None:
    sim = engine(wire=wire)
    sim.submit(request("a", 20_000, 200, base=0))
    first = drain(sim)
    before = sim.now
    sim.submit(request("b", 20_800, 10, base=0))
    second = drain(sim)
    cached = next(one.cached_tokens for one in second if one.kind == "start")
    assert 20_176 <= cached <= 20_200, "everything computed, in whole blocks"
    assert times(second, "b", "first")[0] - before < times(first, "a", "first")[0] / 5
    state = sim.state()
    assert state.prefix_hits_total == cached
    assert state.prefix_queries_total == 40_800


def test_vllm_without_a_prefix_cache_computes_all_again() -> None:
    sim = engine(prefix_cache=False)
    for name in "ab":
        sim.submit(request(name, 5000, 2, base=0))
        drain(sim)
    assert sim.state().computed_tokens_total == 10_000


def test_vllm_decodes_go_on_between_the_chunks_of_a_long_prompt() -> None:
    sim = engine(max_num_batched_tokens=2048)
    sim.submit(request("a", 100, 400))
    drain(sim, until=0.5)
    sim.submit(request("long", 40_000, 1))
    said = drain(sim)
    during = [t for t in times(said, "a", "token") if t <= times(said, "long", "first")[0]]
    assert 18 <= len(during) <= 22, "one token for each chunk of 2047"


def test_vllm_runs_at_most_so_many_and_takes_the_others_in_order() -> None:
    sim = engine(max_num_seqs=2)
    for name in "abcd":
        sim.submit(request(name, 100, 20))
    drain(sim, until=sim.next_time() or 0)
    assert (sim.state().running, sim.state().waiting) == (2, 2)
    said = drain(sim)
    assert times(said, "c", "start")[0] >= times(said, "a", "finish")[0]
    assert times(said, "c", "start") <= times(said, "d", "start")


def test_vllm_without_room_preempts_the_last_which_starts_over_and_still_ends() -> None:
    sim = engine(kv_pool_tokens=6400, context_tokens=4096)
    for name in "abc":
        sim.submit(request(name, 1600, 800))
    said = drain(sim)
    state = sim.state()
    assert state.preemptions_total > 0
    assert state.generation_tokens_total == 2400
    assert state.computed_tokens_total > 4800, "the work is done again"
    for name in "abc":
        tokens = [one.tokens for one in said if one.request == name and one.kind in ("first", "token")]
        assert tokens == list(range(1, 801)), "no token twice, none lost"
    assert times(said, "a", "finish") < times(said, "c", "finish")
    assert len(times(said, "c", "start")) == 1


def test_vllm_counts_what_running_requests_hold_and_what_is_left_for_reuse() -> None:
    sim = engine()
    sim.submit(request("a", 1600, 100))
    drain(sim, until=0.6)
    held = sim.state().kv_used_tokens
    assert 1600 < held <= 1712
    drain(sim)
    assert sim.state().kv_used_tokens == 0
    assert sim.state().kv_cached_tokens >= 1600


def test_llama_cpp_shares_one_prefill_budget_whatever_the_number_of_slots() -> None:
    rates = []
    for slots in (1, 2, 4):
        sim = engine("2x4090", "qwen3.5-27b-q4_k_m", wire="llama.cpp", slots=slots, context_tokens=65_536)
        for number in range(4):
            sim.submit(request(f"r{number}", 12_000, 1))
        drain(sim)
        rates.append(48_000 / sim.now)
    assert max(rates) / min(rates) < 1.03


def test_llama_cpp_generating_slots_stall_while_a_prompt_batch_runs() -> None:
    sim = engine("2x4090", "qwen3.5-27b-q4_k_m", wire="llama.cpp", slots=2, context_tokens=65_536)
    sim.submit(request("a", 100, 300))
    alone = drain(sim, until=3.0)
    sim.submit(request("long", 20_000, 1))
    said = drain(sim)
    end = times(said, "long", "first")[0]
    pauses = [b - a for a, b in pairwise(times(said, "a", "token"))]
    usual = times(alone, "a", "token")[-1] - times(alone, "a", "token")[-2]
    assert len([t for t in times(said, "a", "token") if t <= end]) <= 11, "one token a batch of 2048"
    assert max(pauses) > 20 * usual


def test_llama_cpp_chooses_the_slot_with_the_longest_common_prefix_else_the_one_unused_longest() -> None:
    sim = engine(wire="llama.cpp", slots=2)
    for name, base in (("a", 0), ("b", 5000)):
        sim.submit(request(name, 1600, 2, base=base))
        drain(sim)
    sim.submit(request("a2", 1800, 2, base=0))
    drain(sim)
    assert [slot.task for slot in sim.state().slots] == [2, 1]
    sim.submit(request("new", 1600, 2, base=9000))
    drain(sim)
    assert [slot.task for slot in sim.state().slots] == [2, 3], "b was unused longer"
    assert sim.state().slots[1].held_tokens == 1601


def test_llama_cpp_slots_tell_what_a_server_would() -> None:
    sim = engine(wire="llama.cpp", slots=2, context_tokens=8192)
    fresh = sim.state().slots[0]
    assert (fresh.task, fresh.held_tokens, fresh.request) == (None, 0, None)
    assert fresh.context_limit_tokens == 4096
    sim.submit(request("a", 1000, 50))
    drain(sim, until=0.4)
    busy = sim.state().slots[0]
    assert busy.request == "a"
    assert busy.held_tokens == 1000 + busy.decoded_tokens - 1
    assert busy.remaining_tokens == 50 - busy.decoded_tokens
    assert (busy.processed_tokens, busy.cached_tokens) == (1000, 0)
    drain(sim)
    done = sim.state().slots[0]
    assert (done.held_tokens, done.decoded_tokens, done.remaining_tokens) == (1049, 0, None)


def test_llama_cpp_unified_pool_exhausted_kills_all_in_flight_together() -> None:
    sim = engine(wire="llama.cpp", slots=4, unified=True, context_tokens=4096)
    for name in "abc":
        sim.submit(request(name, 1200, 800))
    said = drain(sim)
    errors = [one for one in said if one.kind == "error"]
    assert {one.request for one in errors} == set("abc")
    assert len({one.t for one in errors}) == 1
    assert {(one.reason, one.message) for one in errors} == {("context", "Context size has been exceeded.")}
    assert all(slot.held_tokens == 0 for slot in sim.state().slots)


def test_llama_cpp_unified_pool_clears_idle_slots_first() -> None:
    sim = engine(wire="llama.cpp", slots=4, unified=True, context_tokens=4096)
    for name in "ab":
        sim.submit(request(name, 1500, 10))
        drain(sim)
    sim.submit(request("c", 2000, 10))
    assert kinds(drain(sim), "c")[-1] == "finish"
    assert [slot.held_tokens > 0 for slot in sim.state().slots] == [False, True, True, False]


def test_a_planted_knee_bends_where_it_was_planted_and_a_straight_line_does_not() -> None:
    def rate(plant: Plant, sequences: int) -> float:
        sim = engine(plant=plant)
        for number in range(sequences):
            sim.submit(request(f"r{number}", 16, 500))
        drain(sim)
        return sequences * 500 / sim.now

    knee, straight = Plant(knee=8), Plant()
    bent = {n: rate(knee, n) for n in (1, 4, 8, 16, 24)}
    assert bent[8] / bent[1] == pytest.approx(8, rel=0.05)
    assert bent[24] / bent[8] == pytest.approx(1, rel=0.05)
    assert rate(straight, 24) / rate(straight, 1) == pytest.approx(24, rel=0.05)
    falls = Plant(knee=8, cliff=12)
    assert rate(falls, 24) < 0.5 * rate(falls, 12)


def test_noise_scatters_steps_without_moving_their_mean() -> None:
    def gaps(noise: float) -> list[float]:
        sim = engine(noise_fraction=noise)
        sim.submit(request("a", 16, 2000))
        seen = times(drain(sim), "a", "token")
        return [b - a for a, b in pairwise(seen)]

    calm, noisy = gaps(0.0), gaps(0.02)
    assert mean(noisy) == pytest.approx(mean(calm), rel=0.01)
    assert max(noisy) - min(noisy) > 5 * (max(calm) - min(calm))


def cost(host: str, model: str, batch: Batch, **options: object) -> float:
    chosen = EngineOptions(**options)  # type: ignore[arg-type]
    wire = presets.engine(chosen.wire)
    return StepModel(presets.host(host), presets.model(model), wire, chosen).cost(batch).seconds


def decode(sequences: int, context: int = 1000) -> Batch:
    return Batch(decoding=sequences, decode_context=sequences * context)


def prefill(tokens: int, before: int = 0) -> Batch:
    batch = Batch()
    batch.add_prompt(tokens, before)
    return batch


def test_decoding_a_dense_model_costs_the_weights_once_whatever_the_batch() -> None:
    one, eight = (cost("rtx-5090", "qwen3-32b-4bit", decode(n, 10)) for n in (1, 8))
    assert one > 19.3e9 / 1.792e12
    assert eight < 1.1 * one


def test_a_moe_reads_more_experts_the_larger_the_batch() -> None:
    one, eight, many = (cost("rtx-5090", "qwen3-coder-30b-a3b-4bit", decode(n, 10)) for n in (1, 8, 64))
    assert one < 0.5 * cost("rtx-5090", "qwen3-32b-4bit", decode(1, 10))
    assert one < 0.8 * eight < 0.8 * many


def test_context_costs_bandwidth_in_decode_and_its_square_in_prefill() -> None:
    short, long = (cost("rtx-5090", "qwen3-32b-4bit", decode(4, n)) for n in (1000, 30_000))
    assert long - short == pytest.approx(4 * 29_000 * 262_144 / (1.792e12 * 0.8), rel=0.01)
    early, late, later = (cost("rtx-5090", "qwen3-32b-4bit", prefill(2048, n)) for n in (0, 40_000, 80_000))
    assert later - late == pytest.approx(late - early, rel=0.05)


def test_tensor_parallelism_shortens_a_step_and_layers_one_after_the_other_do_not() -> None:
    alone = cost("rtx-3090", "qwen3-32b-4bit", decode(1))
    tensor = cost("2x3090", "qwen3-32b-4bit", decode(1))
    layers = cost("2x3090", "qwen3-32b-4bit", decode(1), parallel="layer")
    nvlink = cost("2x3090-nvlink", "qwen3-32b-4bit", decode(1))
    assert 0.5 * alone < nvlink < tensor < 0.75 * alone
    assert layers == pytest.approx(alone, rel=0.02)


def test_experts_in_main_memory_bind_decode_to_its_bandwidth() -> None:
    model = presets.model("qwen3.5-122b-a10b-offload")
    step = cost("2x4090", model.key, decode(1), wire="llama.cpp")
    assert model.experts is not None
    active = (
        model.weights_bytes * model.experts.params / model.params * 8 / 256 * model.experts.in_ram_fraction
    )
    assert active / step == pytest.approx(14.1e9, rel=0.2)


def test_the_pool_is_what_weights_and_buffers_leave() -> None:
    small, large = engine("rtx-5090"), engine("rtx-pro-6000")
    assert large.kv_pool_tokens > 3 * small.kv_pool_tokens
    per_token = 2 * 8 * 4 * 256
    assert small.kv_pool_tokens == pytest.approx((0.9 * 34.19e9 - 5.3e9 - 3.5e9) / per_token, rel=0.01)
    halved = engine("rtx-5090", kv_type="f16")
    assert halved.kv_pool_tokens == pytest.approx(small.kv_pool_tokens / 2, rel=0.001)


@pytest.mark.parametrize(
    ("host", "model", "options", "says"),
    [
        ("rtx-5090", "qwen3.5-122b-a10b-offload", {}, "does not fit"),
        ("rtx-5090", "qwen3.5-9b-4bit", {"wire": "ollama"}, "wire"),
        ("rtx-5090", "qwen3.5-9b-4bit", {"kv_type": "q9"}, "q9"),
        ("rtx-5090", "qwen3.5-9b-4bit", {"slots": 0}, "slots is 0"),
        ("rtx-5090", "qwen3.5-9b-4bit", {"slots": 100_000}, "slots is 100000"),
        ("rtx-5090", "qwen3.5-9b-4bit", {"ambient_c": float("nan")}, "ambient_c is nan"),
        ("rtx-5090", "qwen3.5-9b-4bit", {"power_limit_w": 0.0}, "power_limit_w is 0.0"),
        ("rtx-5090", "qwen3.5-9b-4bit", {"power_limit_w": float("nan")}, "power_limit_w is nan"),
        ("rtx-5090", "qwen3.5-9b-4bit", {"kv_pool_tokens": 100, "context_tokens": 4096}, "KV pool"),
        ("2x4090", "qwen3.5-27b-q4_k_m", {"wire": "llama.cpp", "slots": 10, "context_tokens": 655_360},
         "does not fit"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said_in_one_sentence(
    host: str, model: str, options: dict[str, object], says: str
) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        SimEngine(presets.host(host), presets.model(model), EngineOptions(**options))  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
