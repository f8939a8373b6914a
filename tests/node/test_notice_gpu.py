"""What a watcher of GPUs would call out, and what not."""

from __future__ import annotations

import pytest

from agenttop.model.frames import Event, GpuSample, Session
from agenttop.node.notice import Noticer

GIB = 2**30


def gpu(t: float, **changes: object) -> GpuSample:
    fields = {"gpu": "GPU-1", "index": 0, "vendor": "nvidia", "name": "RTX 5090", "window_s": 1.0}
    return GpuSample(t=t, **(fields | {"throttle": []} | changes))


def told(noticer: Noticer, samples: list[GpuSample]) -> list[tuple[str, str]]:
    events: list[Event] = [event for sample in samples for event in noticer.notice(sample)]
    return [(event.event, event.text) for event in events]


def test_a_burst_that_only_the_time_counters_saw_is_told_with_how_long_it_held() -> None:
    bursts = [gpu(float(t), throttle_shares={"power cap": 0.3 if t < 10 else 0.0}) for t in range(30)]
    assert told(Noticer(), bursts) == [
        ("gpu.throttle", "GPU0 held down by power cap"),
        ("gpu.throttle-end", "GPU0 no longer held down by power cap (3.0 s in all)"),
    ]


def test_a_share_of_a_moment_is_no_event() -> None:
    assert told(Noticer(), [gpu(float(t), throttle_shares={"power cap": 0.01}) for t in range(30)]) == []


def test_clocks_that_drop_without_a_reason() -> None:
    noticer = Noticer()
    fast = [gpu(float(t), util_fraction=0.98, sm_clock_mhz=2600) for t in range(30)]
    assert told(noticer, fast) == []
    slow = [gpu(30.0 + t, util_fraction=0.98, sm_clock_mhz=1200) for t in range(10)]
    (event,) = told(noticer, slow)
    text = "GPU0 runs at 1200 MHz, 2600 MHz before under the same load; the driver names no reason"
    assert event == ("gpu.clock-drop", text)
    again = [gpu(40.0 + t, util_fraction=0.98, sm_clock_mhz=2550) for t in range(15)]
    assert told(noticer, again) == [("gpu.clock-drop-end", "GPU0 runs at 2550 MHz again")]


@pytest.mark.parametrize(
    "why",
    [
        {"util_fraction": 0.2},
        {"throttle": ["power cap"]},
        {"throttle": ["user clocks"]},
        {"throttle_shares": {"thermal (hw)": 0.4}},
    ],
    ids=["idle", "capped", "chosen", "counted"],
)
def test_slow_clocks_that_have_a_reason_are_no_drop(why: dict[str, object]) -> None:
    noticer = Noticer()
    told(noticer, [gpu(float(t), util_fraction=0.98, sm_clock_mhz=2600) for t in range(30)])
    slow = [gpu(30.0 + t, **({"util_fraction": 0.98, "sm_clock_mhz": 1200} | why)) for t in range(30)]
    assert "gpu.clock-drop" not in dict(told(noticer, slow))


def test_a_temperature_near_its_limit_is_told_once_until_it_has_cooled_down() -> None:
    noticer = Noticer()
    degrees = [70, 80, 88, 86, 88, 85, 87, 83, 80, *[75] * 12]
    samples = [gpu(float(t), temperature_c=float(c), temperature_limit_c=90.0) for t, c in enumerate(degrees)]
    assert told(noticer, samples) == [
        ("gpu.hot", "GPU0 is at 88 °C, 2 °C below the point at which it slows down"),
        ("gpu.hot-end", "GPU0 has cooled down to 75 °C"),
    ]


def test_the_margin_of_the_device_counts_more_than_a_limit() -> None:
    sample = gpu(1.0, temperature_c=70.0, temperature_limit_c=90.0, temperature_margin_c=1.0)
    ((name, text),) = told(Noticer(), [sample])
    assert (name, "1 °C below" in text) == ("gpu.hot", True)


def test_hot_memory() -> None:
    sample = gpu(1.0, temperature_c=60.0, mem_temperature_c=104.0, mem_temperature_limit_c=105.0)
    ((name, text),) = told(Noticer(), [sample])
    assert (name, text) == ("gpu.hot", "the memory of GPU0 is at 104 °C, its limit is 105 °C")


def test_memory_that_is_nearly_full() -> None:
    noticer = Noticer()
    used = [20.0, 23.6, 23.7, 23.45, 23.6, *[20.0] * 12]
    samples = [
        gpu(float(t), mem_used_bytes=int(u * GIB), mem_total_bytes=24 * GIB) for t, u in enumerate(used)
    ]
    assert told(noticer, samples) == [
        ("gpu.memory-full", "the memory of GPU0 is nearly full: 410 MiB of 24.0 GiB free"),
        ("gpu.memory-full-end", "the memory of GPU0 has 4.0 GiB free again"),
    ]
    of_host = gpu(1.0, mem_used_bytes=119 * GIB, mem_total_bytes=119 * GIB, memory_kind="unified")
    assert told(Noticer(), [of_host]) == [], "the host tells when RAM ends"


def test_lost_and_back() -> None:
    states = ["ok", "ok", "lost", "lost", "ok", "late", "ok"]
    samples = [gpu(float(t), state=state) for t, state in enumerate(states)]
    assert [name for name, _ in told(Noticer(), samples)] == ["gpu.lost", "gpu.back", "gpu.late", "gpu.back"]


def test_sleep_is_told_when_it_begins_in_the_session_and_not_before() -> None:
    asleep = [gpu(float(t), state=state) for t, state in enumerate(["asleep", "asleep", "ok", "asleep"])]
    assert told(Noticer(), asleep) == [
        ("gpu.back", "GPU0 (RTX 5090) has woken"),
        ("gpu.asleep", "GPU0 (RTX 5090) was powered down by the kernel, and is left asleep"),
    ]


def test_a_link_that_is_narrower_than_it_could_be() -> None:
    narrow = {"pcie_generation": 4, "pcie_generation_max": 4, "pcie_width": 4, "pcie_width_max": 16}
    events = told(Noticer(), [gpu(float(t), **narrow) for t in range(30)])
    assert events == [
        ("gpu.link", "the PCIe link of GPU0 is gen4 x4 of gen4 x16: look at its slot, riser and BIOS")
    ]


def test_a_link_at_rest_is_slow_and_that_is_no_news() -> None:
    rest = {"pcie_generation": 1, "pcie_generation_max": 5, "pcie_width": 16, "pcie_width_max": 16}
    assert told(Noticer(), [gpu(float(t), util_fraction=0.1, **rest) for t in range(30)]) == []
    busy = [gpu(float(t), util_fraction=0.97, **rest) for t in range(30)]
    assert [name for name, _ in told(Noticer(), busy)] == ["gpu.link"]


def test_each_complaint_of_the_device_once() -> None:
    sick = ["2 uncorrected memory errors"]
    samples = [gpu(1.0, health=[]), gpu(2.0, health=sick), gpu(3.0, health=sick), gpu(4.0, health=None)]
    assert told(Noticer(), samples) == [("gpu.health", "GPU0: 2 uncorrected memory errors")]


def test_two_gpus_are_told_apart() -> None:
    noticer = Noticer()
    first = gpu(1.0, throttle=["power cap"])
    second = gpu(1.0, gpu="GPU-2", index=1, throttle=["power cap"])
    assert [text for _, text in told(noticer, [first, second])] == [
        "GPU0 held down by power cap",
        "GPU1 held down by power cap",
    ]


def test_faster_than_life_conditions_hold_for_real_seconds() -> None:
    noticer = Noticer()
    session = Session(t=0.0, schema=1, session="s", started_unix=0.0, host="h", os="o", speedup=20.0)
    noticer.notice(session)
    narrow = {"pcie_width": 8, "pcie_width_max": 16}
    events = told(noticer, [gpu(float(t), **narrow) for t in range(0, 180, 20)])
    assert events == [], "nine looks are nine seconds of the one who watches"
    assert len(told(noticer, [gpu(float(t), **narrow) for t in range(180, 400, 20)])) == 1
