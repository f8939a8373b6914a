"""Numbers to short text and durations from text. `None` is always `–`."""

from __future__ import annotations

import re

from agenttop.errors import UsageError

MISSING = "–"

LONGEST_S = 1000 * 24 * 3600.0
"""Nothing lasts longer: beyond some size a number of seconds is not even finite."""

_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


def parse_duration(text: str) -> float:
    """`30s`, `22m`, `1h30m`, `90` (seconds) to seconds. Raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if not match or not any(match.groups()):
        raise UsageError(f"'{text}' is not a duration", "write 30s, 22m or 1h30m")
    hours, minutes, seconds = (float(part) if part else 0.0 for part in match.groups())
    total = hours * 3600 + minutes * 60 + seconds
    if total > LONGEST_S:
        raise UsageError(f"'{text[:40]}' is too long", f"at most {LONGEST_S / 3600:.0f}h")
    return total


def parse_clock(text: str) -> float:
    """`12:34`, `1:02:03`, or a duration, to seconds since the session began. Raises UsageError."""
    if ":" not in text:
        try:
            return parse_duration(text)
        except UsageError:
            raise UsageError(f"'{text}' is not a time", "write 90s, 12:34 or 1:02:03") from None
    parts = text.strip().split(":")
    if len(parts) > 3 or not all(re.fullmatch(r"\d+(\.\d+)?", part) for part in parts):
        raise UsageError(f"'{text}' is not a time", "write 90s, 12:34 or 1:02:03")
    total = 0.0
    for part in parts:
        total = total * 60 + float(part)
    return total


def clock(seconds: float | None) -> str:
    """Session time as `00:12:41`."""
    if seconds is None:
        return MISSING
    whole = max(0, int(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def seconds(value: float | None) -> str:
    """A duration in at most 6 characters: `19 ms`, `1.8 s`, `42 s`, `5.2 m`."""
    if value is None:
        return MISSING
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 9.95:
        return f"{value:.1f} s"
    if value < 119.5:
        return f"{value:.0f} s"
    if value < 5970:
        return f"{value / 60:.1f} m" if value < 597 else f"{value / 60:.0f} m"
    return f"{value / 3600:.1f} h"


def rate(value: float | None) -> str:
    """Tokens per second in at most 5 characters: `0`, `5.2`, `51.5`, `412`, `3.9k`."""
    if value is None:
        return MISSING
    if value == 0:
        return "0"
    if value < 99.95:
        return f"{value:.1f}"
    return f"{value:.0f}" if value < 999.5 else _scaled(value)


def count(value: float | None) -> str:
    """A count in at most 5 characters: `812`, `8192`, `44k`, `1.2M`."""
    if value is None:
        return MISSING
    return f"{value:.0f}" if value < 9999.5 else _scaled(value)


def _scaled(value: float) -> str:
    for limit, divisor, suffix in ((999_500, 1e3, "k"), (999.5e6, 1e6, "M"), (999.5e9, 1e9, "G")):
        if value < limit:
            short = value / divisor
            return f"{short:.1f}{suffix}" if short < 9.95 else f"{short:.0f}{suffix}"
    return f"{value / 1e12:.1f}T"


def size(value: float | None) -> str:
    """Bytes in binary units: `812 B`, `4.1 MiB`, `24.1 GiB`."""
    if value is None:
        return MISSING
    amount = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1023.5:
            return f"{amount:.0f} {unit}" if unit == "B" or amount >= 99.95 else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"


def byte_rate(value: float | None) -> str:
    """Bytes per second in decimal units: `0.3 MB/s`, `1.2 GB/s`."""
    if value is None:
        return MISSING
    if value < 1e6 * 999.5:
        return f"{value / 1e6:.1f} MB/s"
    return f"{value / 1e9:.1f} GB/s"


def plural(number: int, word: str) -> str:
    """`1 agent`, `4 agents`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def percent(value: float | None) -> str:
    """A fraction as `52 %`; below one percent as `0.4 %`."""
    if value is None:
        return MISSING
    shown = value * 100
    return f"{shown:.1f} %" if 0 < shown < 0.95 else f"{shown:.0f} %"
