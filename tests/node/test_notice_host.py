"""What a watcher of the host would call out, and what not."""

from __future__ import annotations

from agenttop.model.frames import HostSample
from agenttop.node.notice import Noticer

GIB = 2**30


def told(samples: list[HostSample], noticer: Noticer | None = None) -> list[tuple[str, str]]:
    noticer = noticer or Noticer()
    return [(event.event, event.text) for sample in samples for event in noticer.notice(sample)]


def test_swapping_that_lasts() -> None:
    rates = [0.0, 50e6, 0.0, 0.0, *[80e6] * 10, *[0.0] * 15]
    samples = [
        HostSample(t=float(t), swap_in_bytes_s=rate, swap_out_bytes_s=2e6) for t, rate in enumerate(rates)
    ]
    quiet = [HostSample(t=50.0 + t, swap_in_bytes_s=0.0, swap_out_bytes_s=0.0) for t in range(15)]
    assert told([*samples, *quiet]) == [
        ("host.swap", "the host swaps: 2.0 MB/s out, 0.0 MB/s back in"),
        ("host.swap-end", "the host no longer swaps"),
    ]


def test_a_moment_of_swapping_is_what_starting_a_program_looks_like() -> None:
    rates = [0.0, 50e6, 50e6, 0.0, 0.0, 50e6, 0.0]
    assert told([HostSample(t=float(t), swap_in_bytes_s=rate) for t, rate in enumerate(rates)]) == []


def test_a_mapped_model_that_does_not_stay_in_memory() -> None:
    samples = [HostSample(t=float(t), major_faults_s=12_000.0) for t in range(10)]
    ((name, text),) = told(samples)
    assert name == "host.faults"
    assert text.startswith("12k pages a second are read back from disk")


def test_memory_at_its_end() -> None:
    free = [20, 1, 1.5, 2.5, *[20] * 15]
    samples = [
        HostSample(t=float(t), ram_available_bytes=int(f * GIB), ram_total_bytes=64 * GIB)
        for t, f in enumerate(free)
    ]
    assert told(samples) == [
        ("host.memory-full", "RAM is nearly full: 1.0 GiB of 64.0 GiB available"),
        ("host.memory-full-end", "RAM has 20.0 GiB available again"),
    ]


def test_the_limits_of_a_container() -> None:
    samples = [
        HostSample(
            t=float(t),
            ram_limit_bytes=8 * GIB,
            ram_limited_used_bytes=int(7.9 * GIB),
            cpu_limit_cores=2.0,
            cpu_limit_throttled_fraction=0.6,
        )
        for t in range(6)
    ]
    assert told(samples) == [
        ("host.memory-limit", "the container's memory limit is nearly reached: 7.9 GiB of 8.0 GiB"),
        ("host.cpu-limit", "the container's CPU limit of 2 cores stopped it in 60 % of the periods"),
    ]


def test_work_that_waits_for_memory() -> None:
    samples = [HostSample(t=float(t), pressure_memory_full_fraction=0.4) for t in range(6)]
    assert [name for name, _ in told(samples)] == ["host.memory-stall"]


def test_nothing_is_made_of_nothing() -> None:
    assert told([HostSample(t=float(t)) for t in range(30)]) == []
