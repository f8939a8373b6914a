"""Pressure-stall information: how much of the time tasks waited for CPU, memory or a disk (Linux 4.20).

Sources: the kernel's accounting/psi. `some` is the share of time in which at least one task waited, `full`
that in which all did; `avg10` is its mean over 10 s, in percent.
"""

from __future__ import annotations

import platform
import re
from typing import NamedTuple

from agenttop.collect.gpu.kernel_files import read_bytes
from agenttop.collect.host.reasons import Reason

_AVERAGE = re.compile(rb"^(some|full) avg10=(\d{1,3}(?:\.\d{1,6})?) ", re.MULTILINE)
_SINCE = (4, 20)


class Pressure(NamedTuple):
    """Shares of the last 10 s."""

    some: float | None = None
    full: float | None = None


def parse_pressure(raw: bytes) -> Pressure:
    """Of one file below /proc/pressure."""
    found = {name: min(1.0, float(share) / 100) for name, share in _AVERAGE.findall(raw)}
    return Pressure(found.get(b"some"), found.get(b"full"))


def read_pressure(root: str, what: str) -> Pressure:
    """Of `cpu`, `memory` or `io`; nothing on a kernel without it."""
    return parse_pressure(read_bytes(f"{root}/proc/pressure/{what}") or b"")


def why_none(release: str | None = None) -> Reason:
    """Why a kernel tells no pressure. `release` as `uname -r` has it; of this one."""
    words = re.match(r"(\d+)\.(\d+)", platform.release() if release is None else release)
    if words and (int(words[1]), int(words[2])) < _SINCE:
        return Reason("pressure is counted from Linux 4.20 on")
    return Reason("this kernel does not count pressure", "boot with psi=1")
