"""The machine over a level, from frames to the row: throttling, energy, bandwidth, host; and the verdicts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agenttop.analyse.compare import rows_of
from agenttop.analyse.material import of_frames
from agenttop.analyse.points import points_of
from agenttop.analyse.row import LevelRow
from agenttop.analyse.sentence import throttled
from agenttop.analyse.story import story
from agenttop.model.frames import (
    EngineSample,
    Frame,
    GpuSample,
    Hardware,
    HostSample,
    Level,
    LoadSample,
    ProcessSample,
)
from tests.record.build import URL, session, turn

Maker = Callable[[float], list[Frame]]

GIB = 2**30


def gpu(t: float, number: int = 0, **given: object) -> GpuSample:
    known = {
        "vendor": "nvidia",
        "name": "NVIDIA GeForce RTX 4090",
        "mem_total_bytes": 24 * GIB,
        "window_s": 1.0,
        "util_fraction": 0.7,
    }
    return GpuSample(t=t, gpu=f"G{number}", index=number, **(known | given))  # type: ignore[arg-type]


def frames(*makers: Maker, facts: dict[str, object] | None = None) -> list[Frame]:
    """A level of two agents of 100 s, 20 tok/s each, with what `makers` give for each second."""
    made: list[Frame] = [Level(t=0.0, level=0, agents=2, t_end=101.0)]
    known = {"waiting": 0, "running": 2, "kv_used_fraction": 0.3} | (facts or {})
    for second in range(102):
        t = second + 0.5
        made.append(LoadSample(t=t, engine=URL, profile="human", target=2, active=2))
        made.append(EngineSample(t=t, engine=URL, url=URL, name="vLLM", state="ok", **known))  # type: ignore[arg-type]
        for maker in makers:
            made += maker(t)
    for number in range(10):
        for agent, offset in (("a1", 0.5), ("a2", 1.5)):
            sent = number * 10 + offset
            more = {"agent": agent, "number": number + 1, "prompt_tokens": 1000, "cached_tokens": 900}
            made.append(turn(sent=sent, first=sent + 0.5, tokens=100, rate=20.0, **more))
    return sorted(made, key=lambda frame: frame.t)


def row_of(*makers: Maker, facts: dict[str, object] | None = None, **changes: object) -> LevelRow:
    (row,) = rows_of(of_frames(session(**changes), frames(*makers, facts=facts)))
    return row


def host(t: float, **given: object) -> HostSample:
    known = {"cpu_fraction": 0.05, "ram_total_bytes": 64 * GIB, "ram_available_bytes": 40 * GIB}
    return HostSample(t=t, **(known | given))  # type: ignore[arg-type]


def test_a_level_without_any_of_it_says_why():
    row = row_of()
    assert row.throttled_why is None
    assert row.throttle_shares == {}
    assert row.energy_j is None
    assert row.energy_from == "no GPU was seen"
    assert row.joules_per_token is None
    assert row.joules_per_token_why == "no GPU was seen"
    assert row.bandwidth_evidence == "the size of the weights is not known"
    assert row.host_verdict is None
    assert row.engine_cpu_cores is None


def test_the_share_of_time_throttled_by_reason_and_gpu():
    def some(t: float) -> list[Frame]:
        capped = {"power cap": 0.6 if t > 50 else 0.0, "thermal (hw)": 0.0}
        return [
            gpu(t, 0, throttle_shares={"power cap": 0.02, "thermal (hw)": 0.0}),
            gpu(t, 1, throttle_shares=capped),
        ]

    row = row_of(some)
    assert row.throttle_worst_shares["power cap"] == pytest.approx(0.31, abs=0.02)
    assert row.throttle_shares["power cap"] == pytest.approx(0.165, abs=0.01)
    assert row.throttle_shares["thermal (hw)"] == 0
    assert row.throttled_why is not None
    assert row.throttled_why.startswith("throttled 31 % of this level: power cap (GPU1, 16 % on average")
    assert row.gpu_throttled_fraction == pytest.approx(row.throttle_shares["power cap"])
    assert row.bottleneck == "power throttle"
    assert "(power cap on GPU1, " in (row.bottleneck_evidence or "")
    material = of_frames(session(), frames(some))
    said = throttled(points_of(material))
    assert said is not None
    assert said.startswith("throttled with 2 agents 31 % of this level: power cap (GPU1")
    assert any("throttled with 2 agents 31 % of this level" in line for line in story([row_as_dict(row)]))


def row_as_dict(row: LevelRow) -> dict[str, object]:
    import msgspec

    plain = msgspec.to_builtins(row)
    assert isinstance(plain, dict)
    return plain


def test_a_mig_instance_does_not_count_its_cards_throttling_twice():
    def some(t: float) -> list[Frame]:
        part = GpuSample(
            t=t,
            gpu="M",
            index=0,
            vendor="nvidia",
            name="n",
            parent="G0",
            mig_instance=1,
            throttle=["power cap"],
        )
        return [gpu(t, 0, mig=True, throttle=["power cap"]), gpu(t, 1, throttle=[]), part]

    row = row_of(some)
    assert row.throttle_shares == {"power cap": pytest.approx(0.5)}
    assert row.gpu_throttled_fraction == pytest.approx(0.5)


def test_joules_of_a_token_and_what_is_above_rest():
    def some(t: float) -> list[Frame]:
        return [gpu(t, power_w=250.0, energy_j=1e6 + 250 * t, energy_source="counter", power_scope="board")]

    row = row_of(some, lambda t: [host(t, cpu_power_w=40.0)])
    assert row.gpu_power_w == pytest.approx(250)
    assert row.energy_j == pytest.approx(250 * row.window_s)
    assert row.energy_covers == "GPU boards"
    assert row.energy_from == "energy counter; the only GPU of the host"
    assert row.joules_per_token == pytest.approx(250 / row.decode_tok_s)
    assert row.tokens_per_joule == pytest.approx(row.decode_tok_s / 250)
    assert row.joules_per_token_all == pytest.approx(250 / (row.decode_tok_s + row.prefill_tok_s))
    assert row.energy_total_j == pytest.approx(290 * row.window_s)
    assert row.energy_total_covers == "GPU boards, CPU packages"
    assert row.idle_power_w is None
    assert row.joules_per_token_above_idle is None
    assert "never ran nothing" in row.idle_power_from


def test_power_at_rest_is_told_apart_where_the_session_rested():
    work = frames(lambda t: [gpu(t, power_w=250.0)])
    rest: list[Frame] = []
    for second in range(102, 160):
        rest.append(EngineSample(t=second + 0.5, engine=URL, url=URL, name="vLLM", state="ok", running=0))
        rest.append(gpu(second + 0.5, power_w=50.0))
    (row,) = rows_of(of_frames(session(), work + rest))
    assert row.idle_power_w == 50
    assert row.joules_per_token_above_idle == pytest.approx(200 / row.decode_tok_s)


def test_tokens_of_others_are_not_paid_for_by_ours():
    def powered(t: float) -> list[Frame]:
        return [gpu(t, power_w=250.0)]

    row = row_of(powered, facts={"decode_tok_s": 100.0})
    assert row.joules_per_token is None
    assert row.tokens_per_joule is None
    assert row.joules_per_token_why == (
        f"the engine decoded 100 tok/s, {row.decode_tok_s:.1f} of them for the agents of this session"
    )
    other = "http://127.0.0.1:9000"

    def busy(t: float) -> list[Frame]:
        return [EngineSample(t=t, engine=other, url=other, name="Ollama", state="ok", running=1)]

    assert row_of(powered, busy).joules_per_token is None

    def apart(t: float) -> list[Frame]:
        return [
            *busy(t),
            *powered(t),
            gpu(t, 1, power_w=400.0),
            ProcessSample(t=t, pid=1, name="vllm", engine=URL, gpus=["G0"]),
            ProcessSample(t=t, pid=2, name="ollama", engine=other, gpus=["G1"]),
        ]

    row = row_of(apart)
    assert row.gpu_power_w == pytest.approx(250)
    assert row.joules_per_token == pytest.approx(250 / row.decode_tok_s)


def test_decode_bandwidth_where_the_driver_tells_no_memory_use():
    halo = {
        "vendor": "amd",
        "name": "AMD Radeon 8060S",
        "pci_id": "1002:1586",
        "memory_kind": "vram+gtt",
        "mem_total_bytes": 100 * GIB,
        "util_fraction": 0.97,
    }
    facts = {"weights_bytes": 9_000_000_000, "weights_active_bytes": 9_000_000_000}
    row = row_of(lambda t: [gpu(t, **halo), host(t)], facts=facts)
    assert row.bandwidth_fraction == pytest.approx(20 * 9 / 256, rel=0.01)
    assert row.bandwidth_at_least
    assert row.bottleneck == "decode bandwidth"
    assert row.bottleneck_evidence is not None
    assert (
        "70 % of the GPU memory's peak (9.0 GB of weights a step, 20.0 steps/s: " in row.bottleneck_evidence
    )
    light = {"weights_bytes": 2_000_000_000, "weights_active_bytes": 2_000_000_000}
    assert (
        row_of(lambda t: [gpu(t, **halo), host(t)], facts=light).bottleneck is None
    )  # a floor proves no ease


def test_a_meter_of_bytes_goes_before_the_share_of_busy_time():
    def some(moved: float) -> Maker:
        return lambda t: [gpu(t, mem_util_fraction=0.9, dram_active_fraction=moved), host(t)]

    row = row_of(some(0.4))
    assert row.bottleneck != "decode bandwidth"
    assert (row.bandwidth_measured, row.bandwidth_fraction) == (True, pytest.approx(0.4))
    assert row_of(some(0.7)).bottleneck == "decode bandwidth"


def test_experts_in_ram_and_empty_memory_channels():
    def some(t: float) -> list[Frame]:
        return [
            gpu(t, mem_util_fraction=0.2),
            host(t),
            ProcessSample(t=t, pid=1, name="llama-server", engine=URL, gpu_memory={"G0": 20_000_000_000}),
        ]

    facts = {
        "weights_bytes": 60_000_000_000,
        "weights_active_bytes": 4_000_000_000,
        "experts": 128,
        "experts_used": 8,
        "running": 1,
    }
    ram = Hardware(t=0.1, memory_peak_bytes_s=70e9, memory_channels=2, memory_channels_total=4)
    made = [*frames(some, facts=facts), ram]
    (row,) = rows_of(of_frames(session(), sorted(made, key=lambda frame: frame.t)))
    assert row.ram_bandwidth_fraction is not None
    assert row.ram_bandwidth_fraction > 0.6
    assert row.bottleneck == "decode bandwidth"
    assert "of the RAM's peak" in (row.bottleneck_evidence or "")
    assert "2 of 4 memory channels filled" in (row.bottleneck_evidence or "")


def test_cpu_and_ram_that_were_not_the_bottleneck():
    row = row_of(lambda t: [gpu(t), host(t, cpu_fraction=0.061, swap_in_bytes_s=0.0)])
    assert row.host_verdict == "CPU never above 6 %, RAM never above 38 %, no swapping: not the bottleneck"
    assert any("not the bottleneck" in line for line in story([row_as_dict(row)]))


def test_a_process_with_a_whole_core_leaves_it_open_unless_the_gpu_is_full():
    def process(t: float) -> list[Frame]:
        return [ProcessSample(t=t, pid=1, name="vllm", engine=URL, cpu_fraction=1.0, rss_bytes=4 * GIB)]

    row = row_of(lambda t: [gpu(t, util_fraction=0.7), host(t)], process)
    assert row.engine_busiest_cores == pytest.approx(1.0)
    assert row.engine_memory_bytes == 4 * GIB
    assert row.host_verdict is None
    full = row_of(lambda t: [gpu(t, util_fraction=0.97), host(t)], process)
    assert "the GPU busy 97 % while one process uses a whole core: not the bottleneck" in full.host_verdict
    starved = row_of(lambda t: [gpu(t, util_fraction=0.4, mem_util_fraction=0.2), host(t)], process)
    assert starved.bottleneck == "CPU/RAM"
    assert "busiest process uses 1.0 cores while the GPU is busy only 40 %" in starved.bottleneck_evidence


@pytest.mark.parametrize(
    ("given", "proof"),
    [
        ({"steal_fraction": 0.3}, "30 % of the CPU time goes to other guests"),
        ({"pressure_memory_fraction": 0.4}, "tasks waited for memory in 40 % of the time"),
        ({"major_faults_s": 2500.0}, "2500 pages a second are read back from a disk"),
        ({"cpu_limit_throttled_fraction": 0.6}, "stopped by its CPU limit in 60 % of the periods"),
        ({"cpu_limit_cores": 4.0, "cpu_limited_used_cores": 3.9}, "98 % of the cores that its limit allows"),
        ({"swap_in_bytes_s": 3e6}, "swapping in 3.0 MB/s (median)"),
    ],
)
def test_ways_in_which_the_host_is_the_limit(given, proof):
    row = row_of(lambda t: [gpu(t), host(t, **given)])
    assert row.bottleneck == "CPU/RAM"
    assert proof in (row.bottleneck_evidence or "")
    assert row.host_verdict is None


def test_figures_of_this_host_are_not_those_of_an_engine_elsewhere():
    far = "http://gpu-box:8000"
    made: list[Frame] = []
    for frame in frames(lambda t: [gpu(t, power_w=9.0, throttle=["power cap"]), host(t, cpu_fraction=0.99)]):
        if isinstance(frame, EngineSample):
            frame = EngineSample(t=frame.t, engine=far, url=far, name="vLLM", state="ok", running=2)
        elif isinstance(frame, LoadSample):
            frame = LoadSample(t=frame.t, engine=far, profile="human", target=2, active=2)
        made.append(frame)
    (row,) = rows_of(of_frames(session(), made))
    assert row.engine == far
    assert (row.gpu_throttled_fraction, row.energy_j, row.cpu_max_fraction) == (None, None, None)
    assert row.energy_from == "the engine does not run on this host, as far as can be told"


def test_clocks_and_margins():
    def some(t: float) -> list[Frame]:
        return [
            gpu(t, 0, sm_clock_mhz=2700, sm_clock_max_mhz=3000, temperature_margin_c=12.0),
            gpu(t, 1, sm_clock_mhz=1500, sm_clock_max_mhz=3000, temperature_c=80.0, temperature_limit_c=83.0),
        ]

    row = row_of(some)
    assert row.gpu_clock_fraction_p50 == pytest.approx(0.5)
    assert row.gpu_margin_c_min == pytest.approx(3.0)


def test_utilisation_of_visible_processes_alone_proves_no_idleness():
    def process(t: float) -> list[Frame]:
        return [ProcessSample(t=t, pid=1, name="vllm", engine=URL, cpu_fraction=1.0)]

    floor = {"util_fraction": 0.4, "mem_util_fraction": 0.2, "visible_only": True}
    row = row_of(lambda t: [gpu(t, **floor), host(t)], process)
    assert row.bottleneck is None
    assert "GPU utilisation" in row.bottleneck_evidence
