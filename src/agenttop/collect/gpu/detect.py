"""Which GPUs this host has, and why none is shown when none is."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from agenttop.collect.gpu.base import GpuAdapter, GpuKind, GpuOpening
from agenttop.collect.gpu.cards import cards
from agenttop.collect.gpu.registry import kinds
from agenttop.model.clock import Clock, SystemClock
from agenttop.model.frames import Missing
from agenttop.model.text import clean

_PROPER = {"nvidia": "NVIDIA", "amd": "AMD", "intel": "Intel"}


class Detected(msgspec.Struct, frozen=True, kw_only=True):
    """What there is to sample, and what could not be opened."""

    adapters: list[GpuAdapter]
    missing: list[Missing]
    refused: list[str] = []
    """Plug-ins that are not used, a sentence each."""


def detect(
    t: float, root: Path = Path("/"), clock: Clock | None = None, among: list[GpuKind] | None = None
) -> Detected:
    """Open every vendor's adapter; keeps those that work, with why others do not.

    A reason is given where a device or a driver is there that cannot be read. With no GPU at all, exactly one
    frame says what was looked for.
    """
    known, refused = kinds() if among is None else (among, [])
    adapters: list[GpuAdapter] = []
    missing: list[Missing] = []
    for kind in known:
        if sys.platform not in kind.platforms:
            continue
        try:
            adapter = kind.adapter(clock or SystemClock(), root)
            opened = adapter.open(t)
            if not isinstance(opened, GpuOpening):
                raise TypeError("its adapter opens to no GpuOpening")
        except Exception as error:  # noqa: BLE001 - a vendor's code must not end the session
            why = clean(f"{type(error).__name__}: {error}", 100)
            opened = GpuOpening(
                found=False,
                missing=[Missing(t=t, what="gpu", why=f"{kind.proper} GPUs cannot be looked for ({why})")],
            )
        missing += opened.missing
        if opened.found:
            adapters.append(adapter)
    if not adapters and not missing:
        missing = [Missing(t=t, what="gpu", why=_nothing(root))]
    # One frame stands for all: a second one of the same name would take the place of the first.
    return Detected(adapters=adapters, missing=_together(missing), refused=refused)


def _nothing(root: Path) -> str:
    system = str(sys.platform)
    if system == "linux":
        vendors = sorted({card.vendor for card in cards(root)})
        if vendors:
            names = " and ".join(_PROPER[vendor] for vendor in vendors)
            return f"the PCI bus has a card of {names}, but it cannot be read"
        return "no NVIDIA driver, no AMD or Intel card on the PCI bus"
    if system == "darwin":
        return "this Mac has no Apple silicon: its GPU cannot be read"
    return "no NVIDIA driver, and no AMD or Intel GPU that Windows counts"


def _together(missing: list[Missing]) -> list[Missing]:
    whole = [frame for frame in missing if frame.what == "gpu" and frame.why]
    if len(whole) < 2:
        return missing
    fixes = dict.fromkeys(frame.fix for frame in whole if frame.fix)
    why = "; ".join(dict.fromkeys(frame.why or "" for frame in whole))
    one = Missing(t=whole[0].t, what="gpu", why=why, fix="; ".join(fixes) or None)
    return [one, *(frame for frame in missing if frame.what != "gpu")]
