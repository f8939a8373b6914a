"""Folders as the kernel shows hosts with AMD GPUs: /sys, /proc and /dev below a temporary root.

Values are those of real hosts where they were published (Strix Halo with small and large carve-out, RX 7900
XTX, MI300X); files that a chip does not have are left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.collect.amd_structs import filled

GIB = 2**30
HALO, NAVI, INSTINCT = "0000:c3:00.0", "0000:03:00.0", "0000:05:00.0"
HOST_NAMESPACE = "pid:[4026531836]"

Files = dict[str, str | bytes | int]


def write(folder: Path, files: Files) -> None:
    for name, value in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(value, bytes):
            path.write_bytes(value)
        else:
            path.write_text(f"{value}\n")


class Host:
    """A host to put cards into."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "sys/bus/pci/devices").mkdir(parents=True)
        (root / "sys/bus/pci/drivers/amdgpu").mkdir(parents=True)
        (root / "proc/self/ns").mkdir(parents=True)
        (root / "proc/self/ns/pid").symlink_to(HOST_NAMESPACE)
        write(root, {"proc/sys/kernel/osrelease": "6.14.0-test"})

    def card(
        self, bus: str, files: Files, hwmon: Files, bridges: list[tuple[str, Files]] | None = None
    ) -> Path:
        """Put a card on the bus, below its bridges; returns its folder."""
        folder = self.root / "sys/devices/pci0000:00"
        for name, bridge in bridges or []:
            folder /= name
            write(folder, bridge)
        folder /= bus
        write(folder, {"vendor": "0x1002", "power/runtime_status": "active", **files})
        write(folder / "hwmon/hwmon4", {"name": "amdgpu", **hwmon} if hwmon else {})
        (folder / "driver").symlink_to("../../bus/pci/drivers/amdgpu")
        (self.root / "sys/bus/pci/devices" / bus).symlink_to(folder)
        return folder

    def process(
        self, pid: int, descriptors: dict[str, tuple[str, str]], command: str = "llama-server"
    ) -> None:
        """A process: descriptor to (where it points, its text)."""
        folder = self.root / "proc" / str(pid)
        write(folder, {"cmdline": f"{command}\0".encode()})
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        for name, (where, text) in descriptors.items():
            (folder / "fd" / name).symlink_to(where)
            write(folder / "fdinfo", {name: text})


def fdinfo(bus: str, client: int, **regions: int) -> str:
    """One descriptor's text as kernels since 6.11 write it: new keys and the old ones beside them."""
    lines = [f"pos:\t0\npasid:\t32772\ndrm-driver:\tamdgpu\ndrm-client-id:\t{client}\ndrm-pdev:\t{bus}"]
    for name, amount in regions.items():
        lines += [
            f"drm-total-{name}:\t{amount // 1024 + 4096} KiB",
            f"drm-resident-{name}:\t{amount // 1024} KiB",
        ]
        lines.append(f"drm-memory-{name}:\t{amount // 1024 + 64} KiB")
    lines.append("drm-engine-gfx:\t123456789 ns")
    return "\n".join(lines)


HALO_METRICS: dict[str, int] = {
    "temperature_gfx": 5837,
    "gfx_activity": 9650,
    "dram_reads": 41_000,
    "dram_writes": 2_300,
    "socket_power": 118_432,
    "gfxclk": 2_873,
    "uclk": 1_000,
    "prochot": 0,
    "spl": 1_000,
    "fppt": 52,
    "sppt": 4_000_000_000,
    "thm_core": 0,
    "thm_gfx": 17,
    "thm_soc": 0,
}


def halo_metrics(**values: int) -> bytes:
    return filled((3, 0), **HALO_METRICS | values)


def strix_halo(host: Host, vram: int = 512 * 2**20, gtt: int = 62 * GIB, **files: Any) -> Path:
    """gfx1151 with 128 GB: a small carve-out with much GTT, or the other way round."""
    return host.card(
        HALO,
        {
            "device": "0x1586",
            "revision": "0xc1",
            "class": "0x038000",
            "gpu_busy_percent": 97,
            "mem_info_vram_total": vram,
            "mem_info_vram_used": vram * 3 // 4,
            "mem_info_gtt_total": gtt,
            "mem_info_gtt_used": gtt // 2,
            "pp_dpm_sclk": "0: 600Mhz\n1: 1100Mhz *\n2: 2900Mhz",
            "pp_dpm_mclk": "0: 400Mhz\n1: 800Mhz\n2: 1000Mhz *",
            "current_link_speed": "16.0 GT/s PCIe",
            "current_link_width": 16,
            "gpu_metrics": halo_metrics(),
            **files,
        },
        {
            "temp1_label": "edge",
            "temp1_input": 58_000,
            "power1_average": 118_040_000,
            "power1_input": 118_040_000,
            "power1_label": "PPT",
            "freq1_input": 2_873_000_000,
            "freq1_label": "sclk",
        },
        [("0000:00:08.1", {"vendor": "0x1022", "class": "0x060400"})],
    )


SWITCH: list[tuple[str, Files]] = [
    (
        "0000:00:01.1",
        {
            "vendor": "0x1022",
            "class": "0x060400",
            "max_link_speed": "16.0 GT/s PCIe",
            "max_link_width": 8,
            "current_link_speed": "16.0 GT/s PCIe",
            "current_link_width": 4,
        },
    ),
    (
        "0000:01:00.0",
        {
            "vendor": "0x1002",
            "class": "0x060400",
            "max_link_speed": "16.0 GT/s PCIe",
            "max_link_width": 16,
            "current_link_speed": "8.0 GT/s PCIe",
            "current_link_width": 4,
        },
    ),
    ("0000:02:00.0", {"vendor": "0x1002", "class": "0x060400", "current_link_speed": "16.0 GT/s PCIe"}),
]
"""A root port with 8 lanes of generation 4, and the card's own switch, in a slot wired with four lanes."""


def navi_metrics(mask: int = 0, **values: int) -> bytes:
    return filled((1, 3), hotspot=71, gfx_activity=99, umc_activity=58, indep_throttle_status=mask, **values)


def radeon_7900(host: Host, **files: Any) -> Path:
    return host.card(
        NAVI,
        {
            "device": "0x744c",
            "revision": "0xc8",
            "class": "0x030000",
            "gpu_busy_percent": 99,
            "mem_busy_percent": 61,
            "mem_info_vram_total": 24 * GIB,
            "mem_info_vram_used": 19 * GIB,
            "mem_info_gtt_total": 31 * GIB,
            "mem_info_gtt_used": 1 * GIB,
            "pp_dpm_sclk": "0: 500Mhz\n1: 2482Mhz *\n2: 2526Mhz",
            "pp_dpm_mclk": "0: 96Mhz\n1: 456Mhz\n2: 1249Mhz *",
            "current_link_speed": "16.0 GT/s PCIe",
            "current_link_width": 16,
            "max_link_speed": "16.0 GT/s PCIe",
            "max_link_width": 16,
            "pcie_bw": "1 2 128",
            "gpu_metrics": navi_metrics(),
            **files,
        },
        {
            "temp1_label": "edge",
            "temp1_input": 55_000,
            "temp1_crit": 100_000,
            "temp2_label": "junction",
            "temp2_input": 71_000,
            "temp2_crit": 110_000,
            "temp3_label": "mem",
            "temp3_input": 74_000,
            "temp3_crit": 108_000,
            "power1_average": 291_000_000,
            "power1_cap": 303_000_000,
            "power1_cap_default": 303_000_000,
            "freq1_input": 2_431_000_000,
            "freq2_input": 1_249_000_000,
            "fan1_input": 1_512,
            "pwm1": 102,
        },
        SWITCH,
    )


def instinct_metrics(revision: tuple[int, int] = (1, 7), **values: int) -> bytes:
    usual = {
        "hotspot": 63,
        "mem_temperature": 52,
        "socket_power": 640,
        "gfx_activity": 100,
        "umc_activity": 44,
        "energy": 65_536_000,
        "pcie_replays": 3,
        "cycles": 10_000,
        "prochot": 0,
        "ppt": 100,
        "socket_thm": 0,
        "vr_thm": 0,
        "hbm_thm": 0,
    }
    return filled(revision, **usual | values)


def mi300x(host: Host, **files: Any) -> Path:
    return host.card(
        INSTINCT,
        {
            "device": "0x74a1",
            "revision": "0x00",
            "class": "0x120000",
            "product_name": "AMD Instinct MI300X OAM",
            "gpu_busy_percent": 100,
            "mem_busy_percent": 44,
            "mem_info_vram_total": 205_822_885_888,
            "mem_info_vram_used": 150_000_000_000,
            "mem_info_gtt_total": 800 * GIB,
            "mem_info_gtt_used": 15_000_000,
            "gpu_metrics": instinct_metrics(),
            "current_link_speed": "32.0 GT/s PCIe",
            "current_link_width": 16,
            "max_link_speed": "32.0 GT/s PCIe",
            "max_link_width": 16,
            "ras/umc_err_count": "ue: 0\nce: 4",
            "ras/gfx_err_count": "ue: 0\nce: 1",
            "ras/features": "feature mask: 0x7f",
            "ras/gpu_vram_bad_pages": b"",
            **files,
        },
        {
            "temp2_label": "junction",
            "temp2_input": 63_000,
            "temp2_crit": 100_000,
            "temp3_label": "mem",
            "temp3_input": 52_000,
            "temp3_crit": 105_000,
            "power1_input": 641_000_000,
            "power1_cap": 750_000_000,
            "power1_cap_default": 750_000_000,
            "freq1_input": 2_075_000_000,
            "freq2_input": 1_300_000_000,
        },
        [
            (
                "0000:00:01.1",
                {
                    "vendor": "0x1022",
                    "class": "0x060400",
                    "max_link_speed": "32.0 GT/s PCIe",
                    "max_link_width": 16,
                },
            )
        ],
    )
