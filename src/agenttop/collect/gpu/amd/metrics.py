"""The binary file `gpu_metrics` as figures in plain units. Pure: bytes in, figures or a reason out."""

from __future__ import annotations

import struct

import msgspec

from agenttop.collect.gpu.amd.layouts import ATTRIBUTE_FORMATS, ATTRIBUTES, LAYOUTS

ENERGY_UNIT_J = 2**-16
"""15.259 µJ, as the header has it, from revision 1.4 on. Before, the unit differs between chips."""
UNKNOWN = "is not known to agenttop"
"""The end of the reason for a table of a revision that is newer than this program."""
_FORMATS = {letter: struct.Struct(f"<{letter}") for letter in "BbHhIiQq"}
_ALL_ONES = {1: 0xFF, 2: 0xFFFF, 4: 0xFFFF_FFFF, 8: 0xFFFF_FFFF_FFFF_FFFF}


class Metrics(msgspec.Struct, frozen=True):
    """One table. A figure that the driver does not fill in, or that cannot be right, is None."""

    revision: tuple[int, int]
    raw: dict[str, int]
    """By name (`layouts`), in the units of the revision, without those that are not filled in."""

    @property
    def of_apu(self) -> bool:
        """Formats 2 and 3 are those of processors with a GPU in them."""
        return self.revision[0] in (2, 3)

    @property
    def of_instinct(self) -> bool:
        """Revisions 1.4 and later are those of Instinct accelerators."""
        return self.revision[0] == 1 and self.revision[1] >= 4

    def within(self, name: str, largest: int) -> int | None:
        """A raw figure from 0 to `largest`."""
        value = self.raw.get(name)
        return value if value is not None and 0 <= value <= largest else None

    def share(self, name: str) -> float | None:
        """An activity. Format 3 hands the firmware's hundredths of a percent on; its own header says percent,
        but the driver divides by 100 where it tells percent itself."""
        whole = 10_000 if self.revision[0] == 3 else 100
        value = self.within(name, whole)
        return None if value is None else value / whole

    def celsius(self, name: str) -> float | None:
        """A temperature; 0 is what a sensor says that is not there."""
        scale = 100 if self.revision[0] == 3 else 1
        value = self.within(name, 150 * scale)
        return value / scale if value else None

    def power_w(self) -> float | None:
        """Of the socket: watts from 1.4 on, milliwatts in format 3."""
        scale = 1000 if self.revision[0] == 3 else 1
        value = self.within("socket_power", 5000 * scale)
        return None if value is None else value / scale

    def energy_j(self) -> float | None:
        """Of the socket, since the driver was loaded."""
        value = self.raw.get("energy")
        return value * ENERGY_UNIT_J if value else None

    def dram_bytes_s(self, name: str) -> float | None:
        """10^6 bytes a second in 16 bits: goes round at 65.5 GB/s."""
        value = self.raw.get(name)
        return None if value is None else value * 1e6


def decode(raw: bytes | None) -> tuple[Metrics | None, str]:
    """(the table, "") or (None, why it cannot be decoded)."""
    if raw is None or len(raw) < 4:
        return None, "gpu_metrics is cut short"
    size, revision = int.from_bytes(raw[:2], "little"), (raw[2], raw[3])
    name = f"gpu_metrics {revision[0]}.{revision[1]}"
    if revision not in LAYOUTS and revision != (1, 9):
        return None, f"{name} {UNKNOWN}"
    if len(raw) < size:
        return None, f"{name} is cut short: {len(raw)} bytes instead of {size}"
    if revision == (1, 9):
        found = _attributes(raw, size)
        return (Metrics(revision, found), "") if found is not None else (None, f"{name} contradicts itself")
    sizes = LAYOUTS[revision]
    layout = sizes.get(size)
    if layout is None:
        known = " or ".join(str(known) for known in sizes)
        return None, f"{name} has {size} bytes in this driver instead of {known}"
    values: dict[str, int] = {}
    for field, (offset, letter) in layout.items():
        form = _FORMATS[letter]
        (value,) = form.unpack_from(raw, offset)
        if value != _ALL_ONES[form.size]:
            values[field] = value
    return Metrics(revision, values), ""


def _attributes(raw: bytes, size: int) -> dict[str, int] | None:
    """Revision 1.9: a count, then for each attribute 64 bits that say what follows, and its values.

    Bits of the 64: 0-9 number of values, 10-19 attribute, 20-23 type, 24-31 unit. Packed, no padding. None
    where the attributes do not end exactly where the table does.
    """
    if size < 8:
        return None
    count = int.from_bytes(raw[4:8], "little")
    values: dict[str, int] = {}
    at = 8
    for _ in range(count):
        if at + 8 > size:
            return None
        what = int.from_bytes(raw[at : at + 8], "little")
        number, attribute, kind = what & 0x3FF, what >> 10 & 0x3FF, what >> 20 & 0xF
        if kind >= len(ATTRIBUTE_FORMATS) or number == 0 or what >> 32:
            return None
        form = _FORMATS[ATTRIBUTE_FORMATS[kind]]
        at += 8
        if at + number * form.size > size:
            return None
        (value,) = form.unpack_from(raw, at)
        at += number * form.size
        name = ATTRIBUTES.get(attribute)
        if name is not None and value >= 0 and value != _ALL_ONES[form.size]:
            values[name] = value
    return values if at == size else None
