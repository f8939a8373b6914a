"""Which chip a GPU is: names as drivers write them, PCI ids, memory sizes and memory clocks."""

from __future__ import annotations

import pytest

from agenttop.analyse.chips import all_chips, chip_of, peak_of, plain_name
from agenttop.model.frames import GpuSample, Hardware

GIB = 2**30


def gpu(name: str, vendor: str = "nvidia", **given: object) -> GpuSample:
    return GpuSample(t=1.0, gpu="G", index=0, vendor=vendor, name=name, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "mib", "gb_s"),
    [
        ("NVIDIA GeForce RTX 5090", 32607, 1792),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", 24463, 896),
        ("NVIDIA GeForce RTX 4090", 24564, 1008),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, 576),
        ("NVIDIA GeForce RTX 3090", 24576, 936),
        ("NVIDIA GeForce RTX 3060", 12288, 360),
        ("NVIDIA GeForce RTX 3060", 8192, 240),
        ("GeForce RTX 2080 Ti", 11264, 616),
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", 8192, 384),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 97887, 1792),
        ("NVIDIA RTX 6000 Ada Generation", 49140, 960),
        ("NVIDIA RTX A6000", 49140, 768),
        ("Quadro RTX 6000", 23040, 672),
        ("Tesla T4", 15360, 320),
        ("Tesla V100-SXM2-16GB", 16384, 898),
        ("NVIDIA A100-SXM4-40GB", 40960, 1555),
        ("NVIDIA A100-SXM4-80GB", 81920, 2039),
        ("A100-SXM4-80GB", 81251, 2039),
        ("NVIDIA A100 80GB PCIe", 81920, 1935),
        ("NVIDIA H100 80GB HBM3", 81559, 3350),
        ("NVIDIA H100 PCIe", 81559, 2039),
        ("NVIDIA H100 NVL", 95830, 3940),
        ("NVIDIA H200", 143771, 4800),
        ("NVIDIA L4", 23034, 300),
        ("NVIDIA L40S", 46068, 864),
        ("NVIDIA GB10", None, 273),
        ("NVIDIA GH200 480GB", 97871, 4000),
    ],
)
def test_names_of_nvidias_driver(name, mib, gb_s):
    chip = chip_of(gpu(name, mem_total_bytes=mib and mib * 2**20))
    assert chip is not None
    assert chip.peak_bytes_s == pytest.approx(gb_s * 1e9)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4090 Ti",
        "NVIDIA GeForce RTX 5090 Max-Q",
        "NVIDIA GeForce RTX 4090 Laptop",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "NVIDIA H100",
        "GRID T4-8Q",
        "RTX",
        "",
    ],
)
def test_a_name_that_only_resembles_another_is_no_chip(name):
    assert chip_of(gpu(name)) is None


def test_a_vendor_is_not_another():
    assert chip_of(gpu("M4", vendor="nvidia")) is None
    assert chip_of(gpu("M4", vendor="apple")) is not None


def test_a_mig_instance_is_not_its_card():
    assert chip_of(gpu("NVIDIA A100-SXM4-40GB", parent="GPU-1")) is None
    assert "MIG" in peak_of(gpu("NVIDIA A100-SXM4-40GB", parent="GPU-1")).why


@pytest.mark.parametrize(
    ("name", "pci", "gib", "gb_s"),
    [
        ("Radeon RX 7900", "1002:744c", 24, 960),
        ("Radeon RX 7900", "1002:744c", 20, 800),
        ("Radeon RX 7900", "1002:744C", 16, 576),
        ("AMD Radeon RX 7900 XTX", "1002:744c", 23.98, 960),
        ("Radeon RX 7600", "1002:7480", 16, 288),
        ("AMD Radeon RX 6700 XT", "1002:73df", 12, 384),
        ("AMD Radeon RX 6750 XT", "1002:73df", 12, 432),
        ("Radeon RX 7800", "1002:747e", 16, 624),
        ("Radeon 8000S (Strix Halo)", "1002:1586", None, 256),
        ("AMD Instinct MI300X", "1002:74a1", 191.98, 5300),
        ("AMD Instinct MI250X / MI250", "1002:740c", 64, 1638),
    ],
)
def test_amd_by_device_then_memory(name, pci, gib, gb_s):
    found = chip_of(gpu(name, vendor="amd", pci_id=pci, mem_total_bytes=gib and int(gib * GIB)))
    assert found is not None
    assert found.peak_bytes_s == pytest.approx(gb_s * 1e9)


def test_one_device_id_of_several_chips_without_a_memory_size_is_not_guessed():
    assert chip_of(gpu("AMD GPU", vendor="amd", pci_id="1002:744c")) is None
    assert chip_of(gpu("AMD GPU", vendor="amd", pci_id="1002:73bf")).peak_bytes_s == 512e9  # all alike


def test_like_named_chips_are_told_apart_by_pci_id_or_memory_clock():
    alike = {"name": "NVIDIA GeForce RTX 3060 Ti", "mem_total_bytes": 8 * GIB}
    assert chip_of(gpu(**alike)) is None
    assert chip_of(gpu(**alike, pci_id="10de:24c9")).peak_bytes_s == 608e9
    assert chip_of(gpu(**alike, pci_id="10de:2489")).peak_bytes_s == 448e9
    assert chip_of(gpu(**alike, mem_clock_max_mhz=9501)).peak_bytes_s == 608e9
    assert chip_of(gpu(**alike, mem_clock_max_mhz=7001)).peak_bytes_s == 448e9
    assert chip_of(gpu(**alike, mem_clock_max_mhz=405)) is None


def test_apples_chips_by_the_memory_of_the_machine():
    def peak(ram: int | None) -> float | None:
        found = chip_of(gpu("Apple M3 Max", vendor="apple", memory_kind="unified"), ram and ram * GIB)
        return found and found.peak_bytes_s

    assert (peak(36), peak(64), peak(None)) == (300e9, 400e9, None)


def test_intel():
    found = chip_of(gpu("Intel Arc B580", vendor="intel", pci_id="8086:e20b", mem_total_bytes=12 * GIB))
    assert found.peak_bytes_s == 456e9
    assert chip_of(gpu("Intel(R) Arc(TM) B580 Graphics", vendor="intel")).peak_bytes_s == 456e9


def test_a_chip_that_works_in_ram_is_as_fast_as_the_ram():
    ram = Hardware(t=0.0, memory_peak_bytes_s=119.5e9, memory_from="dmidecode")
    halo_point = gpu("Radeon 890M", vendor="amd", pci_id="1002:150e", memory_kind="vram+gtt")
    assert peak_of(halo_point, ram).bytes_s == 119.5e9
    assert peak_of(halo_point).bytes_s is None
    assert "RAM" in peak_of(halo_point).why
    assert peak_of(gpu("Voodoo 2", mem_total_bytes=GIB), ram).bytes_s is None


def test_the_table_is_sound():
    chips = all_chips()
    assert len(chips) > 200
    for chip in chips:
        assert chip.source
        assert chip.names
        assert all(plain_name(name) == name for name in chip.names)
        assert chip.peak_bytes_s is None or 50e9 < chip.peak_bytes_s < 10e12
        assert all(len(device) == 9 and device == device.lower() for device in chip.pci)
    # Bus and a clock that exists: what is sold as gigabits a second is a round number of them for GDDR.
    wide = [chip for chip in chips if chip.vendor == "nvidia" and chip.bus_bits and chip.bus_bits <= 512]
    rates = {round(chip.peak_bytes_s * 8 / chip.bus_bits / 1e9, 1) for chip in wide if chip.peak_bytes_s}
    assert rates <= {6.4, 8.5, 10.0, 11.0, 12.0, 12.5, 13.0, 14.0, 14.5, 15.0, 15.5, 16.0, 17.0, 17.5, 18.0,
                     19.0, 19.5, 20.0, 21.0, 22.4, 23.0, 24.0, 28.0, 30.0}, sorted(rates)  # fmt: skip
