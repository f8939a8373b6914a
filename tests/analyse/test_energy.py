"""Energy over a span: counters and their traps, power over time, rest, what is covered."""

from __future__ import annotations

import pytest

from agenttop.analyse.energy import at_rest, of_gpu, of_span
from agenttop.analyse.used import used_gpus
from agenttop.model.frames import EngineSample, GpuSample, HostSample, ProcessSample

URL = "http://127.0.0.1:8080"


def gpu(t: float, number: int = 0, **given: object) -> GpuSample:
    return GpuSample(t=t, gpu=f"G{number}", index=number, vendor="v", name="n", **given)  # type: ignore[arg-type]


def engine(t: float, running: int | None, url: str = URL, **given: object) -> EngineSample:
    return EngineSample(t=t, engine=url, url=url, name="vLLM", state="ok", running=running, **given)  # type: ignore[arg-type]


def steady(watts: float = 200.0, end: int = 100, number: int = 0) -> list[GpuSample]:
    return [
        gpu(float(t), number, power_w=watts, energy_j=1e6 + watts * t, energy_source="counter")
        for t in range(end)
    ]


def test_by_the_counter_between_the_samples_around_the_span():
    figure = of_gpu(steady(), 10.25, 60.75)
    assert figure.value == pytest.approx(200 * 50.5)
    assert figure.evidence == "energy counter"


def test_two_readings_are_enough_where_samples_are_missing():
    samples = [gpu(0.0, energy_j=0.0), gpu(50.0, energy_j=5000.0), gpu(100.0, energy_j=10_000.0)]
    assert of_gpu(samples, 0.0, 100.0).value == pytest.approx(10_000)


@pytest.mark.parametrize("what", ["reset", "source", "wrong"])
def test_a_counter_that_cannot_be_believed_gives_way_to_the_power(what):
    samples = []
    for sample in steady():
        given = {"energy_j": sample.energy_j, "energy_source": "counter", "power_w": 200.0}
        if what == "reset" and sample.t >= 50:
            given["energy_j"] -= 1e6
        if what == "source" and sample.t >= 50:
            given |= {"energy_j": given["energy_j"] + 9e6, "energy_source": "power"}
        if what == "wrong":
            given["energy_j"] /= 6
        samples.append(gpu(sample.t, **given))
    figure = of_gpu(samples, 10.0, 90.0)
    assert figure.value == pytest.approx(200 * 80)
    assert figure.evidence.startswith("power over time")
    assert ("disagrees" in figure.evidence) == (what == "wrong")


def test_a_gap_is_not_covered_and_a_large_one_leaves_nothing():
    samples = [gpu(float(t), power_w=100.0) for t in range(101) if not 40 < t < 47]
    assert of_gpu(samples, 0.0, 100.0).value == pytest.approx(100 * 100)  # 93 % known, filled up
    samples = [gpu(float(t), power_w=100.0) for t in range(101) if not 40 < t < 70]
    figure = of_gpu(samples, 0.0, 100.0)
    assert figure.value is None
    assert figure.evidence == "power of GPU0 is known for 70 % of the time"
    # Samples that are far apart because session time runs fast are no gaps.
    assert of_gpu([gpu(float(t), power_w=100.0) for t in range(0, 101, 20)], 0.0, 100.0, 20.0).value == 10_000


def test_a_lost_gpu_and_a_silent_one_have_no_energy():
    lost = [*steady(end=40), *[gpu(float(t), state="lost") for t in range(40, 100)]]
    assert of_gpu(lost, 0.0, 99.0).value is None
    assert (
        of_gpu([gpu(float(t)) for t in range(99)], 0.0, 99.0).evidence
        == "GPU0 tells neither energy nor power"
    )


def test_of_several_gpus_and_what_is_covered():
    gpus = sorted([*steady(100.0), *steady(300.0, number=1)], key=lambda sample: sample.t)
    hosts = [HostSample(t=float(t), cpu_power_w=50.0, dram_power_w=5.0) for t in range(100)]
    used = used_gpus(URL, [engine(0.0, 1)], gpus)
    energy = of_span(used, gpus, hosts, 0.0, 90.0)
    assert energy.gpu_j.value == pytest.approx(400 * 90)
    assert "all 2 GPUs of the host, assumed" in energy.gpu_j.evidence
    assert energy.total_j.value == pytest.approx(455 * 90)
    assert energy.total_j.evidence == "GPUs, CPU packages, RAM"
    assert of_span(used, gpus, [], 0.0, 90.0).total_j.value is None


def test_only_the_gpus_its_processes_use():
    gpus = sorted([*steady(100.0), *steady(300.0, number=1)], key=lambda sample: sample.t)
    process = ProcessSample(t=1.0, pid=7, name="llama-server", engine=URL, gpu_memory={"G1": 10**9})
    used = used_gpus(URL, [engine(0.0, 1)], gpus, [process])
    energy = of_span(used, gpus, [], 0.0, 90.0)
    assert energy.gpu_j.value == pytest.approx(300 * 90)
    assert "GPU1, which its processes use" in energy.gpu_j.evidence


def test_a_socket_has_its_cpu_in_it_already():
    gpus = [gpu(float(t), power_w=80.0, power_scope="socket") for t in range(100)]
    hosts = [HostSample(t=float(t), cpu_power_w=50.0) for t in range(100)]
    energy = of_span(used_gpus(URL, [], gpus), gpus, hosts, 0.0, 90.0)
    assert (energy.gpu_j.value, energy.total_j.value) == (pytest.approx(7200), pytest.approx(7200))
    assert energy.total_j.evidence == "the socket, CPU cores included"


def test_a_mig_instance_has_no_power_of_its_own():
    card = [gpu(float(t), power_w=300.0, mig=True) for t in range(100)]
    part = GpuSample(t=1.0, gpu="M", index=0, vendor="v", name="n", parent="G0", mig_instance=2)
    process = ProcessSample(t=1.0, pid=7, name="vllm", engine=URL, gpus=["M"])
    used = used_gpus(URL, [engine(0.0, 1)], [*card, part], [process])
    assert (used.cards, used.parts) == ({"G0"}, {"M"})
    energy = of_span(used, card, [], 0.0, 90.0)
    assert energy.gpu_j.value is None
    assert "MIG" in energy.gpu_j.evidence


def test_an_engine_elsewhere_has_no_gpu_of_this_host():
    far = "http://gpu-box:8000"
    used = used_gpus(far, [engine(0.0, 1, far)], steady())
    assert used.cards == frozenset()
    assert of_span(used, steady(), [], 0.0, 90.0).gpu_j.evidence == (
        "the engine does not run on this host, as far as can be told"
    )
    assert used_gpus(far, [engine(0.0, 1, far, pid=12)], steady()).cards == {"G0"}


def test_power_at_rest_is_of_samples_long_after_the_last_request():
    engines = [engine(float(t), 2 if t < 40 or t > 80 else 0) for t in range(100)]
    gpus = [
        gpu(float(t), power_w=300.0 if t < 40 or t > 80 else 90.0 if t < 52 else 25.0) for t in range(100)
    ]
    used = used_gpus(URL, engines, gpus)
    figure = at_rest(used, gpus, engines)
    assert figure.value == 25.0
    assert "15 s or more after the last request" in figure.evidence


def test_power_at_rest_needs_all_engines_at_rest():
    other = "http://127.0.0.1:9000"
    engines = [engine(float(t), 0) for t in range(100)] + [engine(t + 0.5, 1, other) for t in range(100)]
    engines.sort(key=lambda sample: sample.t)
    gpus = [gpu(float(t), power_w=300.0) for t in range(100)]
    figure = at_rest(used_gpus(URL, engines, gpus), gpus, engines)
    assert figure.value is None
    assert "never ran nothing" in figure.evidence
