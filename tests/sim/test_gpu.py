"""The simulated GPU: power, heat, limits, traffic, in the terms of a real GpuSample."""

from __future__ import annotations

import math

import msgspec
import pytest

from agenttop.collect.gpu.nvidia.throttle import REASONS
from agenttop.model.frames import GpuSample
from agenttop.sim import presets
from agenttop.sim.engine import SimEngine
from agenttop.sim.gpu import SimGpu
from agenttop.sim.options import EngineOptions
from agenttop.sim.requests import GpuReading
from tests.sim.rig import drain, engine, request


def soak(sim: SimEngine, seconds: float, prompt: int = 30_000, output: int = 1) -> float:
    """Prompts back to back; prompt tokens computed a second from half time on."""
    number, before = 0, sim.state()
    end = sim.now + seconds
    while sim.now < end:
        number += 1
        sim.submit(request(f"soak{number}/{end}", prompt, output))
        drain(sim)
        if sim.now < end - seconds / 2:
            before = sim.state()
    last = sim.state()
    return (last.computed_tokens_total - before.computed_tokens_total) / (last.t - before.t)


def test_a_reading_has_the_fields_of_a_gpu_sample_of_the_same_types() -> None:
    sim = engine("2x4090", "qwen3.5-27b-q4_k_m", wire="llama.cpp")
    soak(sim, 5)
    readings = sim.gpus()
    assert [one.index for one in readings] == [0, 1]
    for one in readings:
        sample = msgspec.convert({"kind": "gpu", "t": 1.0, **msgspec.structs.asdict(one)}, GpuSample)
        assert sample.gpu == one.gpu
    assert set(GpuReading.__struct_fields__) <= set(GpuSample.__struct_fields__)
    assert len({one.gpu for one in readings}) == 2


def test_idle_it_stays_at_idle_power_and_lowest_clock() -> None:
    sim = engine()
    sim.advance(600)
    (gpu,) = sim.gpus()
    assert gpu.power_w == pytest.approx(28, abs=1)
    assert gpu.util_fraction == 0
    assert gpu.sm_clock_mhz == 210
    assert gpu.throttle == []
    assert gpu.pcie_sent_bytes_s == 0
    assert (gpu.mem_used_bytes or 0) > 5e9, "the pool is taken from the start"


def test_decode_saturates_memory_and_prefill_meets_the_power_limit() -> None:
    sim = engine()
    for number in range(8):
        sim.submit(request(f"d{number}", 16, 3000, base=number << 40))
    drain(sim, until=10)
    (decoding,) = sim.gpus()
    assert decoding.mem_util_fraction
    assert decoding.mem_util_fraction > 0.4
    assert decoding.power_w
    assert 250 < decoding.power_w < 500
    assert decoding.throttle == []

    sim = engine()
    soak(sim, 10)
    (filling,) = sim.gpus()
    assert filling.power_w == pytest.approx(575, abs=12)
    assert filling.throttle == ["power cap"]
    assert filling.throttle_power_fraction
    assert filling.throttle_power_fraction > 0.9
    assert filling.throttle_shares["power cap"] == filling.throttle_power_fraction
    assert filling.throttle_shares["thermal (hw)"] == 0
    assert filling.sm_clock_mhz
    assert filling.sm_clock_mhz < 2407


def test_it_warms_as_a_capacitor_charges_and_cools_again() -> None:
    sim = engine()
    gpu = sim.host.gpu
    cold = sim.gpus()[0].temperature_c
    soak(sim, 70)
    warm = sim.gpus()[0].temperature_c
    assert cold is not None
    assert warm is not None
    settled = gpu.ambient_c + gpu.heat_c_per_w * 575
    share = 1 - math.exp(-sim.now / gpu.heat_time_s)
    assert warm == pytest.approx(cold + (settled - cold) * share, abs=1.5)
    sim.advance(sim.now + 10 * gpu.heat_time_s)
    assert sim.gpus()[0].temperature_c == pytest.approx(cold, abs=0.5)


def test_a_busy_5090_meets_its_thermal_limit_in_minutes_and_a_hot_room_makes_it_slower() -> None:
    normal, hot = engine(), engine(ambient_c=50.0)
    fast, slow = soak(normal, 400), soak(hot, 400)
    assert "thermal (sw)" in normal.gpus()[0].throttle
    assert normal.gpus(60)[0].throttle_thermal_fraction == pytest.approx(1, abs=0.1)
    assert slow < 0.95 * fast
    temperature = hot.gpus()[0].temperature_c
    assert temperature
    assert hot.host.gpu.throttle_c < temperature < hot.host.gpu.throttle_c + 15


def test_a_lower_power_limit_costs_prefill_more_than_decode() -> None:
    def decode(limit: float | None) -> float:
        sim = engine(power_limit_w=limit)
        for number in range(4):
            sim.submit(request(f"d{number}", 16, 3000, base=number << 40))
        drain(sim)
        return 12_000 / sim.now

    prefill_loss = 1 - soak(engine(power_limit_w=300), 20) / soak(engine(), 20)
    decode_loss = 1 - decode(300) / decode(None)
    assert prefill_loss > 0.15
    assert decode_loss < 0.5 * prefill_loss
    limited = engine(power_limit_w=300)
    soak(limited, 5)
    assert limited.gpus()[0].power_w == pytest.approx(300, abs=1)
    assert limited.gpus()[0].power_limit_w == 300


def test_reasons_are_named_as_the_collector_names_them() -> None:
    seen: set[str] = set()
    for ambient in (30, 48, 85):
        sim = engine(ambient_c=float(ambient))
        for _ in range(6):
            soak(sim, 60)
            seen.update(sim.gpus()[0].throttle)
    assert seen == {"power cap", "thermal (sw)", "thermal (hw)"}
    assert seen <= set(REASONS.values())


def test_traffic_is_small_on_one_gpu_and_large_with_offload_or_tensor_parallelism() -> None:
    def traffic(host: str, model: str, **options: object) -> float:
        sim = engine(host, model, **options)
        soak(sim, 10, prompt=8000)
        return sim.gpus(5)[0].pcie_received_bytes_s or 0.0

    alone = traffic("rtx-5090", "qwen3.5-9b-4bit")
    assert 0 < alone < 50e6
    offloaded = traffic(
        "2x4090", "qwen3.5-122b-a10b-offload", wire="llama.cpp", slots=1, context_tokens=16_384
    )
    assert offloaded > 1e9
    assert traffic("2x3090", "qwen3-32b-4bit") > 0.5e9
    assert traffic("2x3090-nvlink", "qwen3-32b-4bit") < 50e6


def test_layer_by_layer_each_of_two_gpus_works_half_the_time() -> None:
    sim = engine("2x4090", "qwen3.5-27b-q4_k_m", wire="llama.cpp", slots=1, context_tokens=65_536)
    soak(sim, 60, prompt=40_000)
    for gpu in sim.gpus(30):
        assert gpu.util_fraction == pytest.approx(0.5, abs=0.05)
        assert gpu.power_w
        assert gpu.power_w < 300


def test_unified_memory_has_no_pcie() -> None:
    sim = engine("strix-halo")
    soak(sim, 20, prompt=4000)
    (gpu,) = sim.gpus()
    assert gpu.vendor == "amd"
    assert (gpu.pcie_received_bytes_s, gpu.pcie_sent_bytes_s, gpu.pcie_generation) == (None, None, None)


def test_energy_is_power_over_time() -> None:
    host = presets.host("rtx-5090")
    gpu = SimGpu(host, EngineOptions(), 0, 1e9)
    joules = 0.0
    for second in range(1, 61):
        gpu.work(float(second), 1.0, 0.8, 0.1, 0.0, 0.0)
        joules += gpu.power
    reading = gpu.reading(1.0)
    assert reading.energy_j == pytest.approx(joules)
    assert reading.power_w == pytest.approx(gpu.power)
    assert reading.window_s == pytest.approx(1.0)


def test_a_reading_changes_nothing() -> None:
    def run(look: bool) -> list[object]:
        sim = engine(noise_fraction=0.02)
        for number in range(4):
            sim.submit(request(f"r{number}", 9000, 300, base=number << 30))
        said: list[object] = []
        while (t := sim.next_time()) is not None:
            said += sim.advance(t)
            if look:
                sim.gpus()
                sim.state()
        return said

    assert run(True) == run(False)
