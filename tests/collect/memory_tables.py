"""The firmware's word on memory, built for tests: SMBIOS tables, and what udev and dmidecode make of them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

KINDS = {
    "DDR3": 0x18,
    "DDR4": 0x1A,
    "DDR5": 0x22,
    "LPDDR5": 0x23,
    "Flash": 0x09,
    "Unknown": 0x02,
    "HBM3": 0x24,
}
DRAM, OPTANE = 3, 7


@dataclass
class Place:
    """A memory device; empty without `gib`."""

    locator: str
    bank: str = "BANK 0"
    gib: int = 0
    kind: str = "DDR4"
    rated: int = 3200
    configured: int = 3200
    bits: int = 64
    array: int = 0x1000
    technology: int = DRAM

    @property
    def size_word(self) -> int:
        """MiB; from 32 GiB on it stands elsewhere."""
        return self.gib * 1024 if self.gib < 32 else 0x7FFF


def structure(kind: int, handle: int, fields: bytes, *strings: str) -> bytes:
    head = struct.pack("<BBH", kind, len(fields) + 4, handle)
    text = b"".join(string.encode() + b"\0" for string in strings) + b"\0"
    return head + fields + (text if strings else b"\0\0")


def device(place: Place, handle: int, length: int = 0x5C) -> bytes:
    """Type 17."""
    here = bool(place.gib)
    kind = KINDS[place.kind if here else "Unknown"]
    speeds = (place.rated, place.configured) if here else (0, 0)
    fields = bytearray(0x5C)
    struct.pack_into("<HHHHH", fields, 4, place.array, 0xFFFE, place.bits, place.bits, place.size_word)
    struct.pack_into("<BBBBBH", fields, 0x0E, 9, 0, 1, 2, kind, 0x80)
    struct.pack_into("<I", fields, 0x1C, place.gib * 1024)
    for offset, extended, speed in ((0x15, 0x54, speeds[0]), (0x20, 0x58, speeds[1])):
        struct.pack_into("<H", fields, offset, min(speed, 0xFFFF))
        struct.pack_into("<I", fields, extended, speed if speed >= 0xFFFF else 0)
    fields[0x28] = place.technology
    return structure(17, handle, bytes(fields[4:length]), place.locator, place.bank)


def array(slots: int, handle: int = 0x1000, use: int = 3) -> bytes:
    """Type 16; `use` 3 is system memory."""
    return structure(16, handle, struct.pack("<BBBIHH", 3, use, 3, 0x80000000, 0xFFFE, slots))


def table(places: list[Place], length: int = 0x5C) -> bytes:
    """With what stands before and behind in a real one."""
    devices = [device(place, 0x1100 + number, length) for number, place in enumerate(places)]
    bios = structure(0, 0, bytes(20), "American Megatrends", "1.0")
    return b"".join([bios, array(len(places)), *devices, structure(127, 0xFEFF, b"")])


def udev(places: list[Place]) -> str:
    """/run/udev/data/+dmi:id, as the rule `70-memory.rules` fills it."""
    lines = ["I:3489", "E:ID_VENDOR=Vendor", f"E:MEMORY_ARRAY_NUM_DEVICES={len(places)}"]
    for number, place in enumerate(places):
        name = f"E:MEMORY_DEVICE_{number}_"
        lines += [f"{name}LOCATOR={place.locator}", f"{name}BANK_LOCATOR={place.bank}"]
        if not place.gib:
            lines += [f"{name}PRESENT=0", f"{name}TYPE=Unknown"]
            continue
        lines += [
            f"{name}TOTAL_WIDTH={place.bits}",
            f"{name}DATA_WIDTH={place.bits}",
            f"{name}SIZE={place.gib << 30}",
            f"{name}TYPE={place.kind}",
            f"{name}SPEED_MTS={place.rated}",
            f"{name}CONFIGURED_SPEED_MTS={place.configured}",
            f"{name}MEMORY_TECHNOLOGY={'DRAM' if place.technology == DRAM else 'Intel Optane DC'}",
        ]
    return "\n".join([*lines, "Q:systemd", ""])


def dmidecode(places: list[Place]) -> str:
    """`dmidecode -t memory`."""
    blocks = [
        "# dmidecode 3.6\nGetting SMBIOS data from sysfs.\nSMBIOS 3.7.0 present.",
        "Handle 0x1000, DMI type 16, 23 bytes\nPhysical Memory Array\n\tUse: System Memory",
    ]
    for number, place in enumerate(places):
        told = {
            "Array Handle": f"0x{place.array:04X}",
            "Total Width": f"{place.bits} bits" if place.gib else "Unknown",
            "Data Width": f"{place.bits} bits" if place.gib else "Unknown",
            "Size": f"{place.gib} GiB" if place.gib else "No Module Installed",
            "Locator": place.locator,
            "Bank Locator": place.bank,
            "Type": place.kind if place.gib else "Unknown",
            "Speed": f"{place.rated} MT/s" if place.gib else "Unknown",
            "Configured Memory Speed": f"{place.configured} MT/s" if place.gib else "Unknown",
            "Memory Technology": "DRAM" if place.technology == DRAM else "Intel Optane DC persistent memory",
        }
        lines = "".join(f"\n\t{name}: {value}" for name, value in told.items())
        blocks.append(f"Handle 0x{0x1100 + number:04X}, DMI type 17, 92 bytes\nMemory Device{lines}")
    return "\n\n".join(blocks) + "\n"
