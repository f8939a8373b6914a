"""Machines of many kinds to draw: GPUs of each vendor, in health and in trouble, and hosts with limits."""

from __future__ import annotations

import msgspec

from agenttop.model.frames import (
    Event,
    Frame,
    GpuSample,
    Hardware,
    HostSample,
    Missing,
    ProcessSample,
)
from tests.view import scenes
from tests.view.scenes import GIB, URL

REPLACE = msgspec.structs.replace


def full_host(t: float, busy: float = 0.06, cores: int = 12) -> HostSample:
    """A host of which everything is known."""
    return REPLACE(
        scenes.host(t, busy, cores),
        steal_fraction=0.0,
        cpu_mhz=4210.0,
        cpu_max_mhz=5600.0,
        cpu_temperature_c=58.0,
        cpu_power_w=71.0,
        ram_cached_bytes=int(38.0 * GIB),
        ram_anonymous_bytes=int(8.1 * GIB),
        ram_mapped_bytes=int(20.4 * GIB),
        ram_shared_bytes=int(0.6 * GIB),
        major_faults_s=0.0,
        pressure_memory_full_fraction=0.0,
        pressure_io_full_fraction=0.0,
        disk_busy_fraction=0.02,
        disk_busiest="nvme0n1",
    )


def processes(t: float, gpu: str | None = "GPU-0") -> list[Frame]:
    """The engine's process and one of its workers; and a stranger that holds memory of the GPU."""
    held = {gpu: int(22.9 * GIB)} if gpu is not None else {}
    own = [
        ProcessSample(
            t=t, pid=4242, name="llama-server", engine=URL, window_s=1.0, cpu_fraction=0.41, threads=34,
            rss_bytes=int(3.1 * GIB), pss_bytes=int(2.1 * GIB), file_bytes=int(1.8 * GIB),
            anonymous_bytes=int(0.9 * GIB), major_faults_s=0.0, gpu_memory=held, gpus=[gpu] if gpu else [],
        ),
        ProcessSample(
            t=t, pid=4250, name="llama-worker", parent=4242, engine=URL, window_s=1.0, cpu_fraction=0.02,
            threads=3, rss_bytes=int(0.2 * GIB), pss_bytes=int(0.1 * GIB),
        ),
    ]  # fmt: skip
    if gpu is None:
        return [*own]
    return [*own, ProcessSample(t=t, pid=1731, name="Xorg", gpu_memory={gpu: 412 * 1024**2}, gpus=[gpu])]


def hardware(**changes: object) -> Hardware:
    fields: dict[str, object] = {
        "t": 0.2, "sockets": 1, "cores_physical": 6, "cores_logical": 12, "memory_type": "DDR5",
        "memory_mt_s": 5200, "memory_modules": 2, "memory_slots": 4, "memory_channels": 2,
        "memory_channels_total": 4, "memory_peak_bytes_s": 83.2e9, "memory_from": "dmidecode",
    }  # fmt: skip
    return Hardware(**{**fields, **changes})  # type: ignore[arg-type]


def rtx_5090(t: float, index: int = 0, **changes: object) -> GpuSample:
    """Everything a GeForce of today tells."""
    fields: dict[str, object] = {
        "driver": "580.95.05",
        "bus": "0000:01:00.0",
        "pci_id": "10de:2b85",
        "memory_kind": "dedicated",
        "mem_reserved_bytes": int(0.5 * GIB),
        "sm_clock_max_mhz": 2850,
        "mem_clock_mhz": 14001,
        "mem_clock_max_mhz": 14001,
        "temperature_limit_c": 83.0,
        "temperature_margin_c": 21.0,
        "fan_fraction": 0.45,
        "power_window_s": 0.0,
        "power_scope": "board",
        "power_limit_default_w": 575.0,
        "energy_j": 91_000.0 + 486.0 * t,
        "energy_source": "counter",
        "performance_state": 1,
        "pcie_source": "counter",
        "pcie_replays_total": 0,
        "throttle_shares": {"power cap": 0.12, "thermal (sw)": 0.0, "thermal (hw)": 0.0, "power brake": 0.0},
        "throttle_power_fraction": 0.12,
        "throttle_thermal_fraction": 0.0,
        "health": [],
        **changes,
    }
    return REPLACE(scenes.gpu(t, index), **fields)


def machine(seconds: int, *each: list[Frame], **running: object) -> list[Frame]:
    """A session with agents on the frames of a machine in place of the usual ones."""
    frames = [
        frame
        for frame in scenes.running(seconds, demo=False, **running)  # type: ignore[arg-type]
        if not isinstance(frame, HostSample | GpuSample | Missing)
    ]
    return sorted([*frames, *(frame for some in each for frame in some)], key=lambda frame: frame.t)


def hosts(seconds: int, **changes: object) -> list[Frame]:
    return [REPLACE(full_host(t, 0.04 + 0.02 * (t % 3)), **changes) for t in range(1, seconds + 1)]


def _episode(second: int) -> dict[str, object]:
    """Power capped on and off; then hot for 40 s, and slowed by a brake for a moment."""
    shares = {"power cap": 0.0, "thermal (sw)": 0.0, "thermal (hw)": 0.0, "power brake": 0.0}
    if 40 <= second < 110:
        shares["power cap"] = 0.35 + 0.06 * (second % 7)
    degrees, margin = 62.0 + 8.0 * (second > 40), 21.0 - 8.0 * (second > 40)
    if 190 <= second < 232:
        shares["thermal (sw)"] = min(1.0, (second - 188) / 20)
        degrees, margin = 84.0, -1.0
    if 262 <= second < 268:
        shares["power brake"] = 1.0
    if second >= 280:
        shares["power cap"] = 0.2
    return {
        "throttle_shares": shares,
        "throttle": [reason for reason, share in shares.items() if share > 0.1],
        "throttle_power_fraction": max(shares["power cap"], shares["power brake"]),
        "throttle_thermal_fraction": shares["thermal (sw)"],
        "temperature_c": degrees,
        "temperature_margin_c": margin,
        "sm_clock_mhz": 2610 if degrees < 80 else 2115,
    }


def thermal_episode(seconds: int = 300) -> list[Frame]:
    """An RTX 5090 that was capped, got hot and was braked within five minutes."""
    cards: list[Frame] = [REPLACE(rtx_5090(t), **_episode(t)) for t in range(1, seconds + 1)]
    begun: list[Frame] = [
        Event(t=41.0, event="gpu.throttle", text="GPU0 held down by power cap", severity="warn"),
        Event(t=191.0, event="gpu.throttle", text="GPU0 held down by thermal (sw)", severity="bad"),
        Event(
            t=236.0, event="gpu.throttle-end", text="GPU0 no longer held down by thermal (sw) (33 s in all)"
        ),
        Event(t=263.0, event="gpu.throttle", text="GPU0 held down by power brake", severity="bad"),
    ]
    return machine(seconds, hosts(seconds), cards, begun, processes(seconds), [hardware()])


def two_3090(seconds: int = 60) -> list[Frame]:
    """Of two cards one sits in a narrow slot, and the other has fallen off the bus."""
    cards: list[Frame] = []
    for t in range(1, seconds + 1):
        for index in range(2):
            card = rtx_5090(
                t, index, name="NVIDIA GeForce RTX 3090", mem_total_bytes=24 * GIB,
                mem_used_bytes=int(22.1 * GIB), sm_clock_mhz=1695, sm_clock_max_mhz=2100, power_w=338.0,
                power_limit_w=350.0, pcie_generation=4, pcie_generation_max=4, mem_temperature_c=96.0,
                nvlink_links=4, nvlink_received_bytes_s=2.1e9, nvlink_sent_bytes_s=2.0e9,
            )  # fmt: skip
            if index == 0:
                card = REPLACE(card, pcie_width=8)
            elif t > 40:
                card = REPLACE(
                    GpuSample(t=t, gpu=card.gpu, index=1, vendor="nvidia", name=card.name), state="lost"
                )
            cards.append(card)
    gone: list[Frame] = [
        Event(t=41.0, event="gpu.lost", text="GPU1 does not answer any more", severity="bad"),
        *(
            Missing(
                t=41.0, what=f"gpu/GPU-1:{field}", why="the GPU has fallen off the bus (Xid 79)",
                fix="reboot; look for `NVRM: Xid` in dmesg, and at its power cables and riser",
            )
            for field in ("util_fraction", "mem_used_bytes", "power_w", "temperature_c", "throttle")
        ),
        *(
            Missing(t=2.0, what=f"gpu/GPU-0:{field}", why="this needs GPM, which GPUs have from Hopper on")
            for field in ("dram_active_fraction", "tensor_active_fraction")
        ),
    ]  # fmt: skip
    return machine(seconds, hosts(seconds), cards, gone, processes(seconds))


def strix_halo(seconds: int = 60) -> list[Frame]:
    """An APU: one pool of carve-out and RAM, throttle residency, DRAM rates, no PCIe."""
    cards: list[Frame] = [
        GpuSample(
            t=t, gpu="amd-0000:c5:00.0", index=0, vendor="amd", name="AMD Radeon 8060S", window_s=1.0,
            driver="amdgpu", util_fraction=0.99, mem_used_bytes=int(71.5 * GIB), mem_total_bytes=112 * GIB,
            memory_kind="vram+gtt", mem_vram_used_bytes=int(63.2 * GIB), mem_vram_total_bytes=64 * GIB,
            mem_gtt_used_bytes=int(8.3 * GIB), mem_gtt_total_bytes=48 * GIB, sm_clock_mhz=2720,
            sm_clock_max_mhz=2900, power_w=118.0, power_limit_w=120.0, power_scope="socket",
            temperature_c=81.0, temperature_limit_c=100.0, throttle=["sustained power (ppt slow)"],
            throttle_shares={"sustained power (ppt slow)": 0.41, "prochot": 0.0, "thermal core": 0.02},
            throttle_power_fraction=0.41, throttle_thermal_fraction=0.02, dram_read_bytes_s=164.2e9,
            dram_write_bytes_s=21.7e9, dram_is_floor=True, energy_j=118.0 * t, energy_source="power",
        )
        for t in range(1, seconds + 1)
    ]  # fmt: skip
    gone: list[Frame] = [
        Missing(
            t=2.0, what="gpu/amd-0000:c5:00.0:pcie_received_bytes_s",
            why="no PCIe counter on this chip: it is a part of the processor",
        )
    ]  # fmt: skip
    return machine(seconds, hosts(seconds, ram_total_bytes=128 * GIB), cards, gone, processes(seconds, None))


def gb10(seconds: int = 60) -> list[Frame]:
    """Unified memory: the driver tells no size of it."""
    cards: list[Frame] = [
        GpuSample(
            t=t, gpu="GPU-gb10", index=0, vendor="nvidia", name="NVIDIA GB10", window_s=1.0, driver="580.95",
            util_fraction=0.96, mem_used_bytes=int(88.3 * GIB), mem_total_bytes=int(119.7 * GIB),
            memory_kind="unified", sm_clock_mhz=2405, sm_clock_max_mhz=3003, power_w=82.0, power_window_s=1.0,
            temperature_c=71.0, throttle=[], throttle_shares={"power cap": 0.0, "thermal (sw)": 0.0},
        )
        for t in range(1, seconds + 1)
    ]  # fmt: skip
    gone: list[Frame] = [
        Missing(t=2.0, what=f"gpu/GPU-gb10:{field}", why="GB10 has no such sensor")
        for field in ("power_limit_w", "fan_fraction", "pcie_generation", "pcie_received_bytes_s")
    ]
    return machine(
        seconds, hosts(seconds, ram_total_bytes=int(119.7 * GIB)), cards, gone, processes(seconds, None)
    )


def mi300x(seconds: int = 60) -> list[Frame]:
    """Eight accelerators; one is hot, one is sick, one link is narrow."""
    cards: list[Frame] = []
    for t in range(1, seconds + 1):
        for index in range(8):
            card = GpuSample(
                t=t, gpu=f"amd-{index}", index=index, vendor="amd", name="AMD Instinct MI300X", window_s=1.0,
                driver="amdgpu 6.12", util_fraction=0.88 + index / 100, mem_used_bytes=(150 + index) * GIB,
                mem_total_bytes=192 * GIB, memory_kind="dedicated", sm_clock_mhz=1850, sm_clock_max_mhz=2100,
                power_w=690.0 + index, power_limit_w=750.0, power_scope="socket", temperature_c=66.0 + index,
                hotspot_c=74.0 + index, mem_temperature_c=58.0, temperature_limit_c=100.0, throttle=[],
                throttle_shares={"socket power": 0.03 * index, "socket thermal": 0.0, "hbm thermal": 0.0},
                pcie_generation=5, pcie_generation_max=5, pcie_width=16, pcie_width_max=16,
                pcie_received_bytes_s=0.8e9, pcie_sent_bytes_s=0.2e9, pcie_source="bus", health=[],
                mem_util_fraction=0.61,
            )  # fmt: skip
            if index == 3 and t > 30:
                card = REPLACE(card, temperature_c=98.0, hotspot_c=107.0, throttle=["socket thermal"])
                card = REPLACE(card, throttle_shares={**card.throttle_shares, "socket thermal": 0.6})
            if index == 5:
                card = REPLACE(card, health=["2 uncorrected memory errors", "14 replays on PCIe"])
            cards.append(card)
    return machine(seconds, hosts(seconds), cards)


def h100_mig(seconds: int = 60) -> list[Frame]:
    """A card split in three, with the meters that Hopper has."""
    cards: list[Frame] = []
    for t in range(1, seconds + 1):
        cards.append(
            GpuSample(
                t=t,
                gpu="GPU-h100",
                index=0,
                vendor="nvidia",
                name="NVIDIA H100 80GB HBM3",
                window_s=1.0,
                driver="580.95.05",
                mig=True,
                mem_used_bytes=61 * GIB,
                mem_total_bytes=int(79.6 * GIB),
                memory_kind="dedicated",
                mem_reserved_bytes=int(0.6 * GIB),
                sm_clock_mhz=1980,
                sm_clock_max_mhz=1980,
                power_w=412.0,
                power_limit_w=700.0,
                power_window_s=0.0,
                temperature_c=48.0,
                temperature_margin_c=39.0,
                mem_temperature_c=55.0,
                throttle=[],
                throttle_shares={"power cap": 0.0, "thermal (sw)": 0.0, "thermal (hw)": 0.0},
                pcie_received_bytes_s=0.4e9,
                pcie_sent_bytes_s=0.1e9,
                pcie_source="gpm",
                pcie_generation=5,
                pcie_generation_max=5,
                pcie_width=16,
                pcie_width_max=16,
                sm_active_fraction=0.71,
                tensor_active_fraction=0.33,
                dram_active_fraction=0.58,
                nvlink_links=18,
                nvlink_received_bytes_s=11.2e9,
                nvlink_sent_bytes_s=10.9e9,
                health=[],
            )
        )
        for number, (profile, size) in enumerate((("3g.40gb", 39.5), ("2g.20gb", 19.5), ("2g.20gb", 19.5))):
            cards.append(
                GpuSample(
                    t=t,
                    gpu=f"MIG-{number}",
                    index=0,
                    vendor="nvidia",
                    parent="GPU-h100",
                    mig_instance=number,
                    name=f"NVIDIA H100 80GB HBM3 MIG {profile}",
                    mem_used_bytes=int((0.9 - 0.2 * number) * size * GIB),
                    mem_total_bytes=int(size * GIB),
                    sm_active_fraction=0.9 - 0.3 * number,
                    tensor_active_fraction=0.4 - 0.1 * number,
                )
            )
    gone: list[Frame] = [
        Missing(
            t=2.0, what="gpu/GPU-h100:util_fraction", why="a card that is split into instances tells none"
        )
    ]
    return machine(seconds, hosts(seconds), cards, gone, processes(seconds, "MIG-0"))


def arc(seconds: int = 60) -> list[Frame]:
    """An Intel card: little is told, and why."""
    cards: list[Frame] = [
        GpuSample(
            t=t, gpu="intel-0000:03:00.0", index=0, vendor="intel", name="Intel Arc B580", window_s=1.0,
            driver="xe", mem_total_bytes=12 * GIB, mem_used_bytes=int(9.1 * GIB), memory_kind="dedicated",
            sm_clock_mhz=2650, sm_clock_max_mhz=2850, power_w=141.0, power_limit_w=190.0, power_window_s=1.0,
            throttle=["sustained power (pl1)"], temperature_c=64.0, fan_rpm=1420, pcie_generation=4,
            pcie_generation_max=4, pcie_width=8, pcie_width_max=8,
        )
        for t in range(1, seconds + 1)
    ]  # fmt: skip
    gone: list[Frame] = [
        Missing(
            t=2.0, what="gpu/intel-0000:03:00.0:util_fraction", why="the xe driver of this kernel tells none",
            fix="a kernel from 6.15 on, and CAP_PERFMON or kernel.perf_event_paranoid=0",
        ),
        *(
            Missing(t=2.0, what=f"gpu/intel-0000:03:00.0:{field}", why="the xe driver has no such counter")
            for field in ("pcie_received_bytes_s", "pcie_sent_bytes_s", "mem_util_fraction")
        ),
    ]  # fmt: skip
    return machine(seconds, hosts(seconds), cards, gone, processes(seconds, "intel-0000:03:00.0"))


def container(seconds: int = 60) -> list[Frame]:
    """A container with limits that are nearly used up, on a host under pressure."""
    pressed = hosts(
        seconds, cpu_limit_cores=4.0, cpu_limited_used_cores=3.7, cpu_limit_throttled_fraction=0.31,
        ram_limit_bytes=16 * GIB, ram_limited_used_bytes=int(15.1 * GIB), swap_limit_bytes=0,
        steal_fraction=0.04, iowait_fraction=0.11, major_faults_s=840.0, pressure_memory_fraction=0.22,
        pressure_memory_full_fraction=0.09, pressure_io_fraction=0.31, pressure_io_full_fraction=0.12,
        disk_busy_fraction=0.93, swap_used_bytes=2 * GIB, swap_in_bytes_s=12e6,
    )  # fmt: skip
    gone: list[Frame] = [
        scenes.no_gpu(),
        Missing(
            t=1.0, what="host:cpu_power_w", why="the energy counter may be read by root alone",
            fix="sudo chmod a+r /sys/class/powercap/intel-rapl:0/energy_uj",
        ),
    ]  # fmt: skip
    limited = hardware(virtual="docker", memory_from=None, memory_channels=None, memory_peak_bytes_s=None)
    return machine(seconds, pressed, gone, processes(seconds, None), [limited])


def laptop(seconds: int = 60) -> list[Frame]:
    """A GPU that sleeps and is left asleep, and one whose driver does not answer."""
    cards: list[Frame] = []
    for t in range(1, seconds + 1):
        cards.append(
            GpuSample(
                t=t, gpu="GPU-0", index=0, vendor="nvidia", name="NVIDIA RTX 4070 Laptop", state="asleep"
            )
        )
        late = rtx_5090(t, 1, name="AMD Radeon RX 7900 XTX", vendor="amd")
        cards.append(REPLACE(late, state="late", age_s=12.0) if t > 48 else late)
    gone: list[Frame] = [
        Missing(t=2.0, what=f"gpu/GPU-0:{field}", why="the GPU is powered down, and looking would wake it")
        for field in ("util_fraction", "mem_used_bytes", "power_w", "temperature_c", "throttle")
    ]
    return machine(seconds, hosts(seconds), cards, gone)


MACHINES = {
    "thermal-episode": (thermal_episode, 300),
    "two-3090-one-lost": (two_3090, 60),
    "strix-halo": (strix_halo, 60),
    "gb10": (gb10, 60),
    "mi300x": (mi300x, 60),
    "h100-mig": (h100_mig, 60),
    "arc": (arc, 60),
    "container": (container, 60),
    "laptop": (laptop, 60),
}
"""Name to the scene and its seconds."""
