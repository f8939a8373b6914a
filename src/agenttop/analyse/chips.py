"""Which chip a GPU is, and what its memory can move at most: from `chips.toml`. Pure but for that file.

Names are compared whole, without the vendor: a laptop's chip is another one than that of the desktop card
whose name its own begins with. Where several chips share a name or a PCI id, the size of the memory decides,
then its clock; where neither does, it is not known.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from agenttop.model.frames import GpuSample, Hardware

SIZE_SHARE = 0.10
"""A driver tells up to so much less than the nominal size of a memory: ECC, firmware, what it keeps."""

CLOCK_SHARE = 0.03
"""Memory clocks within this are the same."""

TRANSFERS = 2
"""Per clock as NVML tells it, whatever the memory: GDDR6X at 10501 MHz and GDDR7 at 14001 MHz are sold as 21
and 28 Gbit/s, HBM2 at 1215 MHz as 2.4."""

_NOISE = re.compile(
    r"\((?:r|tm|c)\)|[®™]|\b(?:nvidia|geforce|amd|advanced micro devices|intel|apple|graphics)\b|\(nvgpu\)"
)


@dataclass(frozen=True, slots=True)
class Chip:
    """A chip of the table."""

    name: str
    vendor: str
    names: frozenset[str]
    """As `plain_name` gives them."""
    source: str
    """Where its figures were read."""
    peak_bytes_s: float | None = None
    """Of its memory; None where that is the machine's RAM and as fast as the modules in it."""
    bus_bits: int | None = None
    sizes_bytes: tuple[int, ...] = ()
    tdp_w: float | None = None
    unified: bool = False
    """Its memory is the machine's RAM."""
    pci: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Peak:
    """What a memory can move at most."""

    bytes_s: float | None
    why: str
    """Where it is from; without a value, why not."""


def plain_name(name: str) -> str:
    """A name as the table is searched by: lower case, without vendor and marks."""
    return " ".join(_NOISE.sub(" ", name.lower()).split())


def chip_of(gpu: GpuSample, ram_bytes: int | None = None) -> Chip | None:
    """The chip of a GPU; None where it is not in the table or cannot be told from others.

    `ram_bytes`: of the machine, by which chips with unified memory are told apart.
    """
    if gpu.parent is not None:
        return None  # a slice of a card has a slice of its memory's bandwidth
    name = plain_name(gpu.name)
    of_vendor = [chip for chip in all_chips() if chip.vendor == gpu.vendor.lower()]
    found = [chip for chip in of_vendor if gpu.pci_id is not None and gpu.pci_id.lower() in chip.pci]
    found = found or [chip for chip in of_vendor if name in chip.names]
    found = [chip for chip in found if _size_fits(chip, gpu, ram_bytes)]
    found = [chip for chip in found if name in chip.names] or found
    return _alone(found) or _alone([chip for chip in found if _clock_fits(chip, gpu)])


def peak_of(gpu: GpuSample, hardware: Hardware | None = None, ram_bytes: int | None = None) -> Peak:
    """What the memory of a GPU can move at most, and where that is from."""
    chip = chip_of(gpu, ram_bytes)
    if chip is not None and chip.peak_bytes_s is not None:
        return Peak(chip.peak_bytes_s, f"{chip.name}: {chip.source}")
    unified = gpu.memory_kind in ("unified", "vram+gtt") or (chip is not None and chip.unified)
    if unified and hardware is not None and hardware.memory_peak_bytes_s:
        return Peak(hardware.memory_peak_bytes_s, f"of the RAM ({hardware.memory_from or 'its modules'})")
    if gpu.parent is not None:
        return Peak(None, "a MIG instance has a share of its card's memory bandwidth, not told which")
    if unified:
        return Peak(None, f"how fast the RAM is that {gpu.name} works in is not known")
    return Peak(None, f"the peak memory bandwidth of {gpu.name or 'the GPU'} is not known")


def _size_fits(chip: Chip, gpu: GpuSample, ram_bytes: int | None) -> bool:
    size = ram_bytes if chip.unified else gpu.mem_total_bytes
    if chip.unified and size is None and gpu.memory_kind == "unified":
        size = gpu.mem_total_bytes
    if size is None or not chip.sizes_bytes:
        return True
    return any((1 - SIZE_SHARE) * known <= size <= 1.03 * known for known in chip.sizes_bytes)


def _clock_fits(chip: Chip, gpu: GpuSample) -> bool:
    """Whether bus and memory clock give the peak; only NVIDIA's clocks mean the same everywhere."""
    if chip.vendor != "nvidia" or not (gpu.mem_clock_max_mhz and chip.bus_bits and chip.peak_bytes_s):
        return False
    told = gpu.mem_clock_max_mhz * 1e6 * TRANSFERS * chip.bus_bits / 8
    return abs(told / chip.peak_bytes_s - 1) <= CLOCK_SHARE


def _alone(chips: Sequence[Chip]) -> Chip | None:
    """The one chip, or one of several that do not differ in what is asked of them."""
    if not chips or len({(chip.peak_bytes_s, chip.bus_bits) for chip in chips}) > 1:
        return None
    first = chips[0]
    if len(chips) == 1:
        return first
    powers = {chip.tdp_w for chip in chips}
    names = dict.fromkeys(chip.name for chip in chips)
    return Chip(
        name=" / ".join(names),
        vendor=first.vendor,
        names=first.names.union(*(chip.names for chip in chips)),
        source=first.source,
        peak_bytes_s=first.peak_bytes_s,
        bus_bits=first.bus_bits,
        sizes_bytes=first.sizes_bytes,
        tdp_w=first.tdp_w if len(powers) == 1 else None,
        unified=first.unified,
        pci=first.pci,
    )


@cache
def all_chips() -> tuple[Chip, ...]:
    """The whole table."""
    text = (resources.files("agenttop.analyse") / "chips.toml").read_text(encoding="utf-8")
    return tuple(
        Chip(
            name=entry["names"][0],
            vendor=series["vendor"],
            names=frozenset(map(plain_name, entry["names"])),
            source=series["source"],
            peak_bytes_s=entry["gb_s"] * 1e9 if "gb_s" in entry else None,
            bus_bits=entry.get("bus"),
            sizes_bytes=tuple(size * 2**30 for size in entry.get("gib", ())),
            tdp_w=entry.get("tdp_w"),
            unified=series.get("unified", False),
            pci=tuple(entry.get("pci", ())),
        )
        for series in tomllib.loads(text)["series"]
        for entry in series["chips"]
    )
