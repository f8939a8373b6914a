"""Memory slots from what the firmware says of them: the SMBIOS table, and two texts that are made from it.

Sources: DMTF DSP0134 (System Management BIOS), 6.1 structures, 7.17 Physical Memory Array (type 16), 7.18
Memory Device (type 17); systemd's dmi_memory_id.c for the properties that udev keeps of it, which need no
rights; dmidecode's output. Whatever the bytes are, nothing is raised.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from agenttop.collect.memory_slots import MOST_SLOTS, Slot
from agenttop.model.text import clean

_ARRAY, _DEVICE, _END = 16, 17, 127
_SYSTEM_MEMORY = 3
_KINDS = {
    0x05: "VRAM",
    0x08: "ROM",
    0x09: "Flash",
    0x0A: "EEPROM",
    0x0B: "FEPROM",
    0x0C: "EPROM",
    0x13: "DDR2",
    0x18: "DDR3",
    0x1A: "DDR4",
    0x1B: "LPDDR",
    0x1C: "LPDDR2",
    0x1D: "LPDDR3",
    0x1E: "LPDDR4",
    0x1F: "Logical non-volatile device",
    0x20: "HBM",
    0x21: "HBM2",
    0x22: "DDR5",
    0x23: "LPDDR5",
    0x24: "HBM3",
}
_KNOWN = frozenset(_KINDS.values())
_PERSISTENT = (5, 6, 7)
"""Memory technologies NVDIMM-F, NVDIMM-P and Optane: no RAM, though they sit in the same slots."""
_PERSISTENT_WORDS = ("NVDIMM-F", "NVDIMM-P", "Intel Optane")
_PROPERTY = re.compile(r"^E:\s?MEMORY_DEVICE_(\d{1,3})_([A-Z_]+)=(.*)$", re.MULTILINE)
_LONGEST_NAME = 64


class Structure(NamedTuple):
    """One of the table."""

    kind: int
    handle: int
    fields: bytes
    """With the four bytes of the header."""
    strings: list[bytes]

    def byte(self, offset: int) -> int | None:
        """None where the structure is shorter, as those of older firmware are."""
        return self.fields[offset] if offset < len(self.fields) else None

    def word(self, offset: int) -> int | None:
        """Two bytes."""
        end = offset + 2
        return struct.unpack_from("<H", self.fields, offset)[0] if end <= len(self.fields) else None

    def long(self, offset: int) -> int | None:
        """Four bytes."""
        end = offset + 4
        return struct.unpack_from("<I", self.fields, offset)[0] if end <= len(self.fields) else None

    def string(self, offset: int) -> str:
        """The string whose number stands there."""
        number = self.byte(offset) or 0
        raw = self.strings[number - 1] if 0 < number <= len(self.strings) else b""
        return clean(raw.decode("latin-1"), _LONGEST_NAME)


def structures(table: bytes) -> Iterator[Structure]:
    """Up to the end mark, or to where the table is cut or broken."""
    at = 0
    while at + 4 <= len(table):
        kind, length, handle = struct.unpack_from("<BBH", table, at)
        end = table.find(b"\0\0", at + length)
        if length < 4 or kind == _END or end < 0:
            return
        strings = table[at + length : end].split(b"\0")
        yield Structure(kind, handle, table[at : at + length], strings)
        at = end + 2


def slots_of_table(table: bytes) -> list[Slot]:
    """Of /sys/firmware/dmi/tables/DMI: those of the arrays that are system memory."""
    found = list(structures(table))
    arrays = {one.handle: one.byte(5) for one in found if one.kind == _ARRAY}
    return [
        _slot(one)
        for one in found
        if one.kind == _DEVICE
        and len(one.fields) >= 0x15
        and arrays.get(one.word(4) or 0, _SYSTEM_MEMORY) == _SYSTEM_MEMORY
        and one.byte(0x28) not in _PERSISTENT
    ][:MOST_SLOTS]


def _slot(device: Structure) -> Slot:
    size = device.word(0x0C)
    if size == 0x7FFF and (larger := device.long(0x1C)) is not None:
        size = larger & 0x7FFF_FFFF
    kind = _KINDS.get(device.byte(0x12) or 0)
    bits = device.word(0x0A)
    return Slot(
        locator=device.string(0x10),
        bank=device.string(0x11),
        filled=kind is not None if size == 0xFFFF else size != 0,
        kind=kind,
        rated_mt_s=_speed(device, 0x15, 0x54),
        configured_mt_s=_speed(device, 0x20, 0x58),
        bits=bits if bits not in (0, 0xFFFF) else None,
    )


def _speed(device: Structure, offset: int, extended: int) -> int | None:
    speed = device.word(offset)
    if speed == 0xFFFF:
        speed = device.long(extended)
        speed = speed & 0x7FFF_FFFF if speed is not None else None
    return speed or None


def slots_of_udev(text: str) -> list[Slot]:
    """Of udev's database of the device `dmi/id`: a property a line, `E:MEMORY_DEVICE_0_TYPE=DDR5`."""
    devices: dict[int, dict[str, str]] = {}
    for number, name, value in _PROPERTY.findall(text):
        devices.setdefault(int(number), {})[name] = value.strip()
    found: list[Slot] = []
    for number in sorted(devices):
        told = devices[number]
        if told.get("MEMORY_TECHNOLOGY", "").startswith(_PERSISTENT_WORDS):
            continue
        kind = told.get("TYPE") if told.get("TYPE") in _KNOWN else None
        size = told.get("SIZE")
        found.append(
            Slot(
                locator=clean(told.get("LOCATOR", ""), _LONGEST_NAME),
                bank=clean(told.get("BANK_LOCATOR", ""), _LONGEST_NAME),
                filled=told.get("PRESENT") != "0" and (size != "0" if size else kind is not None),
                kind=kind,
                rated_mt_s=_number(told.get("SPEED_MTS")),
                configured_mt_s=_number(told.get("CONFIGURED_SPEED_MTS")),
                bits=_number(told.get("DATA_WIDTH")),
            )
        )
    return found[:MOST_SLOTS]


def slots_of_dmidecode(text: str) -> list[Slot]:
    """Of the output of `dmidecode -t memory`."""
    found: list[Slot] = []
    foreign: set[str] = set()
    for block in re.split(r"\n\s*\n", text):
        handle = re.search(r"^Handle (0x[0-9A-Fa-f]+), DMI type (\d+),", block, re.MULTILINE)
        told = dict(re.findall(r"^\s+([A-Z][A-Za-z ]+): (.*)$", block, re.MULTILINE))
        if handle and handle[2] == "16" and told.get("Use") != "System Memory":
            foreign.add(handle[1])
        of_system = handle and handle[2] == "17" and told.get("Array Handle") not in foreign
        if of_system and not told.get("Memory Technology", "").startswith(_PERSISTENT_WORDS):
            found.append(_slot_of_text(told))
    return found[:MOST_SLOTS]


def _slot_of_text(told: dict[str, str]) -> Slot:
    kind = told.get("Type") if told.get("Type") in _KNOWN else None
    size = told.get("Size", "")
    configured = told.get("Configured Memory Speed") or told.get("Configured Clock Speed")
    return Slot(
        locator=clean(told.get("Locator", ""), _LONGEST_NAME),
        bank=clean(told.get("Bank Locator", ""), _LONGEST_NAME),
        filled=kind is not None if size == "Unknown" else bool(_number(size)),
        kind=kind,
        rated_mt_s=_number(told.get("Speed")),
        configured_mt_s=_number(configured),
        bits=_number(told.get("Data Width")),
    )


def _number(text: str | None) -> int | None:
    """The number a text begins with; none of 0 or of more digits than any of these has."""
    match = re.match(r"(\d{1,9})(?!\d)", text or "")
    return int(match[1]) or None if match else None
