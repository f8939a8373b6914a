"""Memory modules: how many slots and channels are filled, and what these can move.

Channels are counted by the names that the firmware gives to slots, and only where every slot has a name that
tells its channel; a name such as `BANK 1` or Dell's `A1` (a socket and a number) does not.
"""

from __future__ import annotations

import re

import msgspec

MOST_SLOTS = 256
_SLOTS_A_CHANNEL = 3
"""More share no channel of any memory: such names tell something else."""
_CHANNEL = re.compile(r"(.*?)channel[\s_-]?([A-Z]|\d{1,2})(?![A-Z0-9])", re.IGNORECASE)
_LETTER = re.compile(r"(.*(?:DIMM|DDR\d)(?:.*[_\-\s])?)([A-Z])(\d{0,2})$")
_LEAST_MT_S = {"DDR3": 800, "DDR4": 1600, "DDR5": 2000, "LPDDR5": 1600}
"""What is below is the clock, which is half of it: older firmware tells that instead."""
_FASTEST_LPDDR5 = 6400
_MODULE_BITS = 64
_SOLDERED_BITS = (16, 32, 64, 128)
_NO_RAM = frozenset({"ROM", "Flash", "EEPROM", "FEPROM", "EPROM", "VRAM", "Logical non-volatile device"})


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One place for memory: a slot, or what is soldered in."""

    locator: str = ""
    bank: str = ""
    filled: bool = False
    kind: str | None = None
    """DDR4, DDR5, LPDDR5, ... as SMBIOS has it."""
    rated_mt_s: int | None = None
    configured_mt_s: int | None = None
    bits: int | None = None
    """Without those of error correction."""


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """What the slots amount to; see `Hardware`."""

    kind: str | None = None
    mt_s: int | None = None
    modules: int
    slots: int
    channels: int | None = None
    channels_total: int | None = None
    peak_bytes_s: float | None = None


def build(slots: list[Slot], sockets: int | None = None) -> Build | None:
    """None where no slot is filled: that table is not to be believed."""
    slots = [slot for slot in slots if slot.kind not in _NO_RAM][:MOST_SLOTS]
    filled = [slot for slot in slots if slot.filled]
    if not filled:
        return None
    speeds = [transfers(slot) for slot in filled]
    known = [speed for speed in speeds if speed is not None]
    slowest = min(known) if len(known) == len(speeds) else None
    named = channels(slots, sockets)
    full = {name for slot, name in zip(slots, named, strict=True) if slot.filled} if named else None
    peak = None
    if named and slowest is not None:
        bits = _width([(name, slot) for slot, name in zip(slots, named, strict=True) if slot.filled])
        peak = bits / 8 * slowest * 1e6 if bits else None
    return Build(
        kind=_kind(filled),
        mt_s=slowest,
        modules=len(filled),
        slots=len(slots),
        channels=len(full) if full else None,
        channels_total=len(set(named)) if named else None,
        peak_bytes_s=peak,
    )


def transfers(slot: Slot) -> int | None:
    """Million transfers a second as configured; None where it may be the clock that is told."""
    speed = slot.configured_mt_s
    if speed is None or not 100 <= speed <= 30_000 or speed < _LEAST_MT_S.get(slot.kind or "", 0):
        return None
    if slot.rated_mt_s is not None and abs(slot.rated_mt_s - 2 * speed) <= 2:
        return None
    return speed


def channels(slots: list[Slot], sockets: int | None = None) -> list[str] | None:
    """The channel of each slot, under a name of its own; None where the names do not tell."""
    if len({(slot.bank, slot.locator) for slot in slots}) < len(slots):
        return None
    found = (
        _by_word([slot.bank for slot in slots], sockets)
        or _by_word([slot.locator for slot in slots], sockets)
        or _by_letter([slot.locator for slot in slots])
    )
    if found is None or (len(slots) > 1 and len(set(found)) == 1):
        return None
    return found if max(map(found.count, found)) <= _SLOTS_A_CHANNEL else None


def _by_word(names: list[str], sockets: int | None) -> list[str] | None:
    """`P0 CHANNEL A`, `ChannelA-DIMM0`, `Node0_Channel1_Dimm0`, `Controller1-ChannelA-DIMM0`."""
    matches = [match for name in names if (match := _CHANNEL.match(name))]
    if len(matches) < len(names):
        return None
    if (sockets or 1) > 1 and not any(re.search(r"\d", match[1]) for match in matches):
        return None  # the same names on each socket
    return [f"{match[1].upper()}{match[2].upper()}" for match in matches]


def _by_letter(names: list[str]) -> list[str] | None:
    """`DIMM_A1`, `P1-DIMMB2`, `DDR4_A2`, `CPU0_DIMM_C`, `DIMM_P0_A0`."""
    matches = [match for name in names if (match := _LETTER.match(name.upper()))]
    if len(matches) < len(names) or any(match[3] and int(match[3]) > _SLOTS_A_CHANNEL for match in matches):
        return None
    return [f"{match[1]}{match[2]}" for match in matches]


def _width(filled: list[tuple[str, Slot]]) -> int | None:
    """Bits of all filled channels together."""
    widths: dict[str, int] = {}
    for channel, slot in filled:
        bits = _bits(slot)
        if bits is None:
            return None
        widths[channel] = max(bits, widths.get(channel, 0))
    return sum(widths.values())


def _bits(slot: Slot) -> int | None:
    """A module of DDR is 64 bits wide: DDR5 has two halves of 32 on it, which share what it is counted as."""
    kind = slot.kind or ""
    if kind.startswith("LPDDR"):
        return slot.bits if slot.bits in _SOLDERED_BITS else None
    if kind.startswith("DDR"):
        return _MODULE_BITS if slot.bits in (None, _MODULE_BITS) else None
    return None


def _kind(filled: list[Slot]) -> str | None:
    kinds = {slot.kind for slot in filled}
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind == "LPDDR5" and all((slot.rated_mt_s or 0) > _FASTEST_LPDDR5 for slot in filled):
        return "LPDDR5X"  # SMBIOS has one number for both; LPDDR5 ends at 6400
    return kind
