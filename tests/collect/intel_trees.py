"""Trees of hosts with Intel GPUs as their kernels show them: an Arc B580 by xe, an Arc A770 by i915, graphics
inside a CPU."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.collect.tree import build

B580 = "0000:03:00.0"
A770 = "0000:2d:00.0"
INSIDE = "0000:00:02.0"

ALL_PROCESSES = "-> pid:[4026531836]"
PERFMON = f"CapEff:\t{1 << 38:016x}"
NO_PRIVILEGE = "CapEff:\t0000000000000000"

GIB = 1 << 30


def host(root: Path, status: str = NO_PRIVILEGE) -> Path:
    return build(
        root,
        {
            "proc/self/ns/pid": ALL_PROCESSES,
            "proc/self/status": f"Name:\tpython3\n{status}\nCapBnd:\t000001ffffffffff",
            "proc/sys/kernel/osrelease": "6.17.4-arch1",
            "proc/meminfo": "MemTotal:       32768000 kB\nMemFree: 1 kB\nMemAvailable:   24576000 kB",
            "proc/1/cmdline": "/sbin/init\0",
            "proc/1/fd/0": "-> /dev/null",
            "proc/2/cmdline": b"",
        },
    )


def _port(root: Path, folder: str, speed: str, width: int, vendor: str = "0x8086") -> None:
    build(
        root,
        {
            f"{folder}/vendor": vendor,
            f"{folder}/current_link_speed": speed,
            f"{folder}/max_link_speed": speed,
            f"{folder}/current_link_width": width,
            f"{folder}/max_link_width": width,
        },
    )


def _card(root: Path, folder: str, bus: str, driver: str, device: str, node: int) -> str:
    """An entry on the bus that leads to `folder`; returns the folder."""
    up = "../" * 4
    build(
        root,
        {
            f"{folder}/vendor": "0x8086",
            f"{folder}/device": f"0x{device}",
            f"{folder}/class": "0x030000",
            f"{folder}/power/runtime_status": "active",
            f"{folder}/power/control": "auto",
            f"{folder}/power/autosuspend_delay_ms": 1000 if driver == "xe" else 10000,
            f"{folder}/driver": f"-> {up}../bus/pci/drivers/{driver}",
            f"{folder}/drm/card{node}/dev": f"226:{node}",
            f"{folder}/drm/renderD{128 + node}/dev": f"226:{128 + node}",
            f"sys/bus/pci/devices/{bus}": f"-> ../../../{folder.removeprefix('sys/')}",
        },
    )
    return folder


def b580(root: Path) -> str:
    """Behind the switch on the card: the chip says generation 1, one lane."""
    chain = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0"
    _port(root, "sys/devices/pci0000:00/0000:00:01.0", "32.0 GT/s PCIe", 16, "0x1022")
    _port(root, "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0", "16.0 GT/s PCIe", 8)
    _port(root, chain, "2.5 GT/s PCIe", 1)
    folder = _card(root, f"{chain}/{B580}", B580, "xe", "e20b", 1)
    _port(root, folder, "2.5 GT/s PCIe", 1)
    unit = f"{folder}/tile0/gt0"
    throttle = {
        f"{unit}/freq0/throttle/reason_{name}": 0
        for name in ("pl1", "pl2", "pl4", "thermal", "prochot", "ratl", "vr_thermalert", "vr_tdc")
    }
    hwmon = f"{folder}/hwmon/hwmon4"
    build(
        root,
        {
            f"{unit}/freq0/act_freq": 2850,
            f"{unit}/freq0/cur_freq": 2900,
            f"{unit}/freq0/rp0_freq": 2850,
            f"{unit}/freq0/max_freq": 2850,
            f"{unit}/freq0/throttle/status": 0,
            **throttle,
            f"{unit}/gtidle/name": "gt0-rc",
            f"{unit}/gtidle/idle_residency_ms": 500_000,
            f"{folder}/tile0/gt1/gtidle/name": "gt1-mc",
            f"{folder}/tile0/gt1/gtidle/idle_residency_ms": 900_000,
            f"{folder}/tile0/gt1/freq0/act_freq": 1500,
            f"{folder}/tile0/physical_vram_size_bytes": 12 * GIB,
            f"{hwmon}/name": "xe",
            f"{hwmon}/energy1_input": 5_000_000_000,
            f"{hwmon}/energy1_label": "card",
            f"{hwmon}/energy2_input": 3_000_000_000,
            f"{hwmon}/energy2_label": "pkg",
            f"{hwmon}/power1_max": 190_000_000,
            f"{hwmon}/power2_max": 120_000_000,
            f"{hwmon}/temp2_input": 61_000,
            f"{hwmon}/temp2_label": "pkg",
            f"{hwmon}/temp3_input": 70_000,
            f"{hwmon}/temp3_label": "vram",
            f"{hwmon}/fan1_input": 900,
            f"{hwmon}/fan2_input": 1100,
        },
    )
    return folder


def a770(root: Path) -> str:
    """By i915: one meter for the whole, and another for the graphics unit that is not it."""
    folder = _card(root, f"sys/devices/pci0000:2c/0000:2c:01.0/{A770}", A770, "i915", "56a0", 0)
    _port(root, folder, "16.0 GT/s PCIe", 16)
    unit = f"{folder}/drm/card0/gt/gt0"
    build(
        root,
        {
            f"{unit}/rps_act_freq_mhz": 2400,
            f"{unit}/rps_RP0_freq_mhz": 2400,
            f"{unit}/rps_max_freq_mhz": 2400,
            f"{unit}/rc6_residency_ms": 100_000,
            f"{unit}/throttle_reason_status": 0,
            f"{unit}/throttle_reason_pl1": 0,
            f"{unit}/throttle_reason_thermal": 0,
            f"{folder}/hwmon/hwmon2/name": "i915_gt0",
            f"{folder}/hwmon/hwmon2/energy1_input": 77,
            f"{folder}/hwmon/hwmon3/name": "i915",
            f"{folder}/hwmon/hwmon3/energy1_input": 8_000_000_000,
            f"{folder}/hwmon/hwmon3/power1_max": 190_000_000,
            f"{folder}/hwmon/hwmon3/power1_rated_max": 225_000_000,
            f"{folder}/hwmon/hwmon3/temp1_input": 55_000,
            f"{folder}/hwmon/hwmon3/fan1_input": 1200,
        },
    )
    return folder


def inside(root: Path, driver: str = "i915") -> str:
    """Graphics inside a CPU: no meters, old places of the files."""
    folder = _card(root, f"sys/devices/pci0000:00/{INSIDE}", INSIDE, driver, "46a6", 2)
    build(
        root,
        {
            f"{folder}/drm/card2/gt_act_freq_mhz": 1300,
            f"{folder}/drm/card2/gt_RP0_freq_mhz": 1300,
            f"{folder}/drm/card2/gt_max_freq_mhz": 1300,
            f"{folder}/drm/card2/power/rc6_residency_ms": 40_000,
            "usr/share/misc/pci.ids": "0001  SafeNet (wrong ID)\n8086  Intel Corporation\n\t0007  82379AB\n"
            "\t46a6  Alder Lake-P GT2 [Iris Xe Graphics]\n\t\t1028 0b19  XPS 13\n8088  Beijing\n",
        },
    )
    return folder


def xe_client(bus: str, number: int, cycles: int, passed: int, vram_kib: int, engine: str = "ccs") -> str:
    return (
        f"pos:\t0\nflags:\t02100002\ndrm-driver:\txe\ndrm-client-id:\t{number}\ndrm-pdev:\t{bus}\n"
        f"drm-total-system:\t0\ndrm-resident-system:\t0\ndrm-resident-gtt:\t192 KiB\n"
        f"drm-total-vram0:\t{vram_kib} KiB\ndrm-shared-vram0:\t0\ndrm-resident-vram0:\t{vram_kib} KiB\n"
        f"drm-cycles-{engine}:\t{cycles}\ndrm-total-cycles-{engine}:\t{passed}\n"
        f"drm-cycles-bcs:\t{passed}\ndrm-total-cycles-bcs:\t{passed}"
    )


def i915_client(bus: str, number: int, busy_ns: int, local_kib: int | None, engine: str = "compute") -> str:
    memory = (
        ""
        if local_kib is None
        else f"drm-total-local0:\t{local_kib} KiB\ndrm-resident-local0:\t{local_kib} KiB\n"
    )
    return (
        f"drm-driver:\ti915\ndrm-client-id:\t{number}\ndrm-pdev:\t{bus}\n{memory}"
        f"drm-resident-system0:\t64 KiB\ndrm-engine-{engine}:\t{busy_ns} ns\n"
        f"drm-engine-video:\t{busy_ns} ns\ndrm-engine-capacity-video:\t2"
    )


def opened(root: Path, pid: int, descriptor: int, node: str, text: str) -> None:
    build(
        root,
        {
            f"proc/{pid}/cmdline": "llama-server\0",
            f"proc/{pid}/fd/{descriptor}": f"-> {node}",
            f"proc/{pid}/fdinfo/{descriptor}": text,
        },
    )


def regions(driver: str, total: int, used: int) -> bytes:
    """A driver's list of its memory regions: RAM, and the card's own."""
    if driver == "i915":
        header = struct.pack("<I3I", 2, 0, 0, 0)
        each = [(0, 32 * GIB, 32 * GIB), (1, total, total - used)]
    else:
        header = struct.pack("<II", 2, 0)
        each = [(0, 32 * GIB, 5 * GIB), (1, total, used)]
    return header + b"".join(struct.pack("<HHIQQ", kind, 0, 0, a, b) + bytes(64) for kind, a, b in each)
