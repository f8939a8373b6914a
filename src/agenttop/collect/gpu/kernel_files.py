"""Small files of the kernel below /sys and /proc, read raw: a few microseconds each, and no exception.

Drivers fail reads with any error number, hand out bytes that are no text, and may take a file away between
two looks. All of that is None here.
"""

from __future__ import annotations

import contextlib
import os

_MOST = 4096
"""Bytes that are read of one file: an attribute of sysfs is never longer than a page."""
_DIGITS = 20
"""More than a counter of 64 bits has."""


def read_bytes(path: str, most: int = _MOST) -> bytes | None:
    """What a file begins with, in one read; None where it cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except (OSError, ValueError):
        return None
    try:
        return os.read(handle, most)
    except (OSError, ValueError):
        return None
    finally:
        with contextlib.suppress(OSError):
            os.close(handle)


def read_text(path: str, most: int = _MOST) -> str | None:
    """The same as text without white space around it; None too where it is empty."""
    raw = read_bytes(path, most)
    return raw.decode("utf-8", "replace").strip() or None if raw is not None else None


def read_number(path: str) -> int | None:
    """A whole number, which is all that the file holds; None where it is anything else."""
    return number(read_bytes(path))


def number(raw: bytes | None) -> int | None:
    """A whole decimal number in bytes, with white space around it or without."""
    if raw is None:
        return None
    word = raw.strip()
    digits = word[1:] if word.startswith(b"-") else word
    return int(word) if digits.isdigit() and len(digits) <= _DIGITS else None


def plain(path: str, largest: int) -> int | None:
    """A number from 0 to `largest`."""
    found = read_number(path)
    return found if found is not None and 0 <= found <= largest else None


def folders(path: str) -> list[str]:
    """Names in a folder, sorted; empty where there is none or it may not be looked into."""
    try:
        return sorted(os.listdir(path))  # noqa: PTH208 - Path objects cost more than the look itself
    except (OSError, ValueError):
        return []


def target(path: str) -> str | None:
    """Where a symbolic link points; None where there is none, or it may not be read."""
    try:
        return os.readlink(path)  # noqa: PTH115 - as above
    except (OSError, ValueError):
        return None


def celsius(path: str) -> float | None:
    """Thousandths of a degree as degrees; 0 is what a sensor says that is not there."""
    found = read_number(path)
    return found / 1000 if found and -40_000 <= found <= 150_000 else None


def memory(root: str) -> tuple[int | None, int | None]:
    """(total, used) bytes of the host's RAM, as /proc/meminfo has it: used is total less available."""
    raw = read_bytes(f"{root}/proc/meminfo") or b""
    found: dict[bytes, int] = {}
    for line in raw.split(b"\n"):
        name, colon, rest = line.partition(b":")
        if colon and name in (b"MemTotal", b"MemAvailable"):
            kilobytes = number(rest.removesuffix(b"kB"))
            if kilobytes is not None and 0 <= kilobytes < 1 << 44:
                found[name] = kilobytes * 1024
    total, available = found.get(b"MemTotal"), found.get(b"MemAvailable")
    if not total or available is None or available > total:
        return total or None, None
    return total, total - available
