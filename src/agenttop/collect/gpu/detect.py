"""Which GPUs this host has, and why none is shown when none is."""

from __future__ import annotations

import sys
from pathlib import Path

from agenttop.collect.gpu.base import GpuAdapter
from agenttop.collect.gpu.cards import cards
from agenttop.collect.gpu.nvidia import NvidiaAdapter
from agenttop.model.frames import Missing

_READ = {"nvidia"}
"""Vendors with an adapter."""
_PROPER = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}


def detect(t: float, root: Path = Path("/")) -> tuple[list[GpuAdapter], list[Missing]]:
    """Open every vendor's adapter; returns those that work, and why others do not.

    A reason is given only when it helps: where one vendor's GPU works, the absence of another's driver is
    no news. With no GPU at all, exactly one `gpu` frame says what was looked for.
    """
    nvidia = NvidiaAdapter(root=root)
    missing = nvidia.open(t)
    listed = cards(root)
    unread = sorted({card.vendor for card in listed} - _READ)
    if not missing:
        return [nvidia], [_unread(t, unread)] if unread else []
    nvidia.close()
    if any(card.vendor == "nvidia" for card in listed):
        return [], missing
    if unread:
        return [], [_unread(t, unread)]
    why = missing[0].why or "no NVIDIA driver"
    if sys.platform == "linux":
        why = f"{why}, no AMD or Intel card on the PCI bus"
    elif sys.platform == "darwin":
        why = "the GPU of a Mac is not read by this version"
    return [], [Missing(t=t, what="gpu", why=why, fix=missing[0].fix)]


def _unread(t: float, vendors: list[str]) -> Missing:
    names = " and ".join(_PROPER[vendor] for vendor in vendors)
    return Missing(t=t, what="gpu", why=f"there is a GPU of {names}, which this version does not read yet")
