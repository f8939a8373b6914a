"""Figures of now: power, tokens per joule, bandwidth, PCIe; each with its evidence."""

from __future__ import annotations

import pytest

from agenttop.analyse.live import derive
from agenttop.model.frames import EngineSample, GpuSample, ProcessSample

URL = "http://127.0.0.1:8080"


def engine(**given: object) -> EngineSample:
    return EngineSample(t=1.0, **{"engine": URL, "url": URL, "name": "vLLM", "state": "ok"} | given)  # type: ignore[arg-type]


def gpu(number: int = 0, **given: object) -> GpuSample:
    known = {"vendor": "nvidia", "name": "NVIDIA GeForce RTX 4090"} | given
    return GpuSample(t=1.0, gpu=f"G{number}", index=number, **known)  # type: ignore[arg-type]


def test_joules_of_a_token():
    found = derive(engine(decode_tok_s=100.0), [gpu(power_w=300.0), gpu(1, power_w=200.0)])
    assert found.power_w.value == 500.0
    assert found.joules_per_token.value == pytest.approx(5.0)
    assert found.tokens_per_joule.value == pytest.approx(0.2)
    assert found.joules_per_token.evidence == (
        "500 W over 100 tok/s, prefill included; all 2 GPUs of the host, assumed to be its own"
    )


def test_only_the_gpus_that_the_engine_uses():
    process = ProcessSample(t=1.0, pid=3, name="vllm", engine=URL, gpus=["G1"])
    found = derive(
        engine(decode_tok_s=100.0), [gpu(power_w=300.0), gpu(1, power_w=200.0)], processes=[process]
    )
    assert found.power_w.value == 200.0
    gone = ProcessSample(t=1.0, pid=3, name="vllm", engine=URL, gpus=["G1"], ended=True)
    assert (
        derive(engine(), [gpu(power_w=300.0), gpu(1, power_w=200.0)], processes=[gone]).power_w.value == 500.0
    )


@pytest.mark.parametrize(
    ("facts", "sample", "why"),
    [
        ({"decode_tok_s": 0.0}, {"power_w": 300.0}, "nothing is decoded now"),
        ({}, {"power_w": 300.0}, "the engine tells no rate of now"),
        ({"decode_tok_s": 9.0, "state": "down"}, {"power_w": 300.0}, "the engine tells no rate of now"),
        ({"decode_tok_s": 9.0}, {}, "GPU0 does not tell its power now"),
        ({"decode_tok_s": 9.0}, {"power_w": 9.0, "state": "late"}, "GPU0 does not tell its power now"),
    ],
)
def test_why_there_is_no_figure(facts, sample, why):
    found = derive(engine(**facts), [gpu(**sample)])
    assert found.joules_per_token.value is None
    assert found.tokens_per_joule.value is None
    assert found.joules_per_token.evidence == why


def test_a_floor_of_the_rate_is_a_ceiling_of_the_joules():
    found = derive(engine(decode_tok_s=100.0, decode_is_floor=True), [gpu(power_w=300.0)])
    assert (found.joules_per_token.at_most, found.tokens_per_joule.at_least) == (True, True)


def test_bandwidth_by_one_sequences_rate():
    facts = {"weights_bytes": 10**10, "weights_active_bytes": 10**10}
    found = derive(engine(decode_tok_s=200.0, running=4, **facts), [gpu()])
    assert found.bandwidth_fraction.value == pytest.approx(500 / 1008)
    assert found.bandwidth_fraction.at_least
    told = derive(engine(decode_tok_s=200.0, running=4, per_sequence_tok_s=60.0, **facts), [gpu()])
    assert told.bandwidth_bytes_s.value == pytest.approx(600e9)


def test_the_busiest_link():
    idle = gpu(0, pcie_received_bytes_s=1e9, pcie_sent_bytes_s=0.1e9, pcie_generation=4, pcie_width=16)
    narrow = gpu(1, pcie_received_bytes_s=5e9, pcie_sent_bytes_s=0.1e9, pcie_generation=3, pcie_width=8)
    found = derive(engine(), [idle, narrow]).pcie_fraction
    assert found.value == pytest.approx(5 / 7.88, rel=1e-3)
    assert found.evidence == "GPU1, generation 3 x8"
    assert derive(engine(), [gpu()]).pcie_fraction.value is None


def test_without_gpus_there_is_a_reason_for_everything():
    found = derive(engine(decode_tok_s=10.0), [])
    for figure in (found.power_w, found.joules_per_token, found.bandwidth_fraction, found.pcie_fraction):
        assert figure.value is None
        assert figure.evidence
