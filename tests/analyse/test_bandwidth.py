"""Memory bandwidth of decoding: by meters, by weights; batches, experts, several GPUs, weights in RAM."""

from __future__ import annotations

import pytest

from agenttop.analyse.bandwidth import Decoding, of_engine
from agenttop.model.frames import EngineSample, GpuSample, Hardware

URL = "http://127.0.0.1:8080"
GIB = 2**30


def engine(**given: object) -> EngineSample:
    return EngineSample(t=1.0, engine=URL, url=URL, name="vLLM", state="ok", **given)  # type: ignore[arg-type]


def rtx(number: int = 0, t: float = 1.0, **given: object) -> GpuSample:
    known = {"vendor": "nvidia", "name": "NVIDIA GeForce RTX 4090", "mem_total_bytes": 24 * GIB} | given
    return GpuSample(t=t, gpu=f"G{number}", index=number, **known)  # type: ignore[arg-type]


DENSE = engine(weights_bytes=20_000_000_000, weights_active_bytes=18_000_000_000)
ONE = Decoding(rate=28.0, sequences=1.0)


def test_weights_times_steps_is_a_floor():
    found = of_engine(DENSE, ONE, [rtx()])
    assert found.bytes_s.value == pytest.approx(504e9)
    assert found.fraction.value == pytest.approx(0.5)
    assert found.fraction.at_least
    assert not found.measured
    assert (
        found.fraction.evidence
        == "18.0 GB of weights a step, 28.0 steps/s: 504.0 GB/s of 1008.0 GB/s (RTX 4090)"
    )


def test_a_batch_reads_the_weights_once():
    alone = of_engine(DENSE, ONE, [rtx()])
    together = of_engine(DENSE, Decoding(rate=28.0, sequences=16.0), [rtx()])
    assert together.fraction.value == alone.fraction.value


def test_a_step_may_give_several_tokens():
    drafted = of_engine(DENSE, Decoding(rate=28.0, sequences=1.0, tokens_per_step=2.0), [rtx()])
    assert drafted.fraction.value == pytest.approx(0.25)
    untold = of_engine(DENSE, Decoding(rate=28.0, sequences=1.0, tokens_per_step=None), [rtx()])
    assert untold.fraction.value is None
    assert "drafts are taken" in untold.fraction.evidence


def test_several_sequences_read_more_experts():
    # 1 GB always, 128 experts of 0.125 GB, 8 of them used by a token.
    moe = engine(
        weights_bytes=17_000_000_000, weights_active_bytes=2_000_000_000, experts=128, experts_used=8
    )
    alone = of_engine(moe, Decoding(rate=100.0, sequences=1.0), [rtx()])
    assert alone.bytes_s.value == pytest.approx(200e9)
    assert alone.bytes_s.at_least
    four = of_engine(moe, Decoding(rate=100.0, sequences=4.0), [rtx()])
    touched = 1 - (1 - 8 / 128) ** 4
    assert four.bytes_s.value == pytest.approx((1 + 16 * touched) * 1e9 * 100)
    assert not four.bytes_s.at_least
    assert "4.0 sequences use 23 % of the experts, if drawn evenly" in four.bytes_s.evidence
    many = of_engine(moe, Decoding(rate=20.0, sequences=1000.0), [rtx()])
    assert many.bytes_s.value == pytest.approx(17e9 * 20)


def test_peaks_of_several_gpus_are_added_up_and_it_is_said():
    found = of_engine(DENSE, ONE, [rtx(0), rtx(1)])
    assert found.fraction.value == pytest.approx(0.25)
    assert "2 peaks added up: with layers split it is 2 times that" in found.fraction.evidence


@pytest.mark.parametrize(
    ("facts", "decoding", "gpus", "why"),
    [
        (engine(), ONE, [rtx()], "the size of the weights is not known"),
        (None, ONE, [rtx()], "the size of the weights is not known"),
        (DENSE, Decoding(rate=None, sequences=None), [rtx()], "nothing was decoded"),
        (DENSE, ONE, [rtx(name="Voodoo 2")], "the peak memory bandwidth of Voodoo 2 is not known"),
        (DENSE, ONE, [rtx(state="lost")], "no GPU answers"),
        (DENSE, Decoding(rate=90.0, sequences=1.0), [rtx()], "more than the memory can move"),
    ],
)
def test_what_is_lacking_is_said(facts, decoding, gpus, why):
    found = of_engine(facts, decoding, gpus)
    assert found.fraction.value is None
    assert why in found.fraction.evidence


def test_bytes_are_told_without_a_peak():
    assert of_engine(DENSE, ONE, [rtx(name="Voodoo 2")]).bytes_s.value == pytest.approx(504e9)


def test_a_meter_goes_before_arithmetic():
    samples = [rtx(t=float(t), dram_active_fraction=share) for t, share in enumerate((0.6, 0.7, 0.8))]
    found = of_engine(DENSE, ONE, samples)
    assert found.measured
    assert found.fraction.value == pytest.approx(0.7)
    assert not found.fraction.at_least
    assert found.bytes_s.value == pytest.approx(0.7 * 1008e9)


def test_a_meter_that_wraps_is_a_floor():
    halo = {"vendor": "amd", "name": "AMD Radeon 8060S", "pci_id": "1002:1586", "memory_kind": "vram+gtt"}
    sample = rtx(dram_read_bytes_s=60e9, dram_write_bytes_s=4e9, dram_is_floor=True, **halo)
    found = of_engine(DENSE, ONE, [sample])
    assert found.measured
    assert found.fraction.at_least
    assert found.fraction.value == pytest.approx(64 / 256)
    assert "at least: the meter wraps" in found.fraction.evidence


def test_one_gpu_without_a_meter_leaves_arithmetic():
    assert not of_engine(DENSE, ONE, [rtx(0, dram_active_fraction=0.5), rtx(1)]).measured


def test_experts_left_in_ram():
    """A 122B mixture with its experts in RAM: two of four channels filled are the limit."""
    moe = engine(
        weights_bytes=62_000_000_000, weights_active_bytes=6_000_000_000, experts=256, experts_used=8
    )
    ram = Hardware(t=0.0, memory_peak_bytes_s=83.2e9, memory_channels=2, memory_channels_total=4)
    found = of_engine(
        moe, Decoding(rate=18.75, sequences=1.0), [rtx(0), rtx(1)], ram, held_bytes=40_000_000_000
    )
    experts = 56e9 / (1 - 8 / 256)
    assert found.ram_bytes_s.value == pytest.approx(22e9 / experts * experts * 8 / 256 * 18.75)
    assert found.ram_fraction.value == pytest.approx(found.ram_bytes_s.value / 83.2e9)
    assert "2 of 4 memory channels filled" in found.ram_fraction.evidence
    assert found.bytes_s.value + found.ram_bytes_s.value == pytest.approx(6e9 * 18.75)


def test_weights_that_fit_are_not_said_to_be_in_ram():
    assert of_engine(DENSE, ONE, [rtx(mem_used_bytes=21_000_000_000)]).ram_fraction is None


def test_without_a_gpu_the_ram_does_it():
    ram = Hardware(t=0.0, memory_peak_bytes_s=80e9)
    small = engine(weights_bytes=5_000_000_000, weights_active_bytes=5_000_000_000)
    found = of_engine(small, Decoding(rate=8.0, sequences=1.0), [], ram)
    assert found.ram_fraction.value == pytest.approx(0.5)
    assert found.fraction.value is None
    elsewhere = of_engine(small, ONE, [], ram, without="the engine does not run on this host")
    assert elsewhere.ram_fraction is None
    assert elsewhere.fraction.evidence == "the engine does not run on this host"
