"""What AMD's chips are called, and which are part of a processor. Pure data, and the look-up.

Sources: libdrm's `amdgpu.ids`, LLVM's "AMDGPU Usage" (gfx names), the kernel's device tables. Only chips that
serve language models, and the APUs that a driver's files might not tell from cards; others are named by
`amdgpu.ids` of the host, where that is installed, or by their number.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from agenttop.collect.gpu.kernel_files import read_bytes


class Chip(NamedTuple):
    """One device number."""

    name: str
    gfx: str
    apu: bool = False
    revisions: dict[int, str] = {}  # noqa: RUF012 - never written to
    """Names of single revisions."""


_STRIX_HALO = {
    **dict.fromkeys((0xC1, 0xC3, 0xC6, 0xD1), "Radeon 8060S"),
    **dict.fromkeys((0xC2, 0xC4, 0xD2, 0xD4), "Radeon 8050S"),
    0xD5: "Radeon 8040S",
}
_NAVI_31 = {0xC8: "Radeon RX 7900 XTX", 0xCC: "Radeon RX 7900 XT", 0xCE: "Radeon RX 7900 GRE"}
_NAVI_32 = {0xC8: "Radeon RX 7800 XT", 0xFF: "Radeon RX 7700 XT"}
_NAVI_48 = {0xC0: "Radeon RX 9070 XT", 0xC3: "Radeon RX 9070"}

CHIPS: dict[int, Chip] = {
    0x1586: Chip("Radeon 8000S (Strix Halo)", "gfx1151", True, _STRIX_HALO),
    0x150E: Chip("Radeon 800M (Strix Point)", "gfx1150", True),
    0x1114: Chip("Radeon 800M (Krackan Point)", "gfx1152", True),
    0x15BF: Chip("Radeon 700M (Phoenix)", "gfx1103", True),
    0x15C8: Chip("Radeon 700M (Phoenix)", "gfx1103", True),
    0x1900: Chip("Radeon 700M (Hawk Point)", "gfx1103", True),
    0x1901: Chip("Radeon 700M (Hawk Point)", "gfx1103", True),
    0x1681: Chip("Radeon 600M (Rembrandt)", "gfx1035", True),
    0x164E: Chip("Radeon Graphics (Raphael)", "gfx1036", True),
    0x13C0: Chip("Radeon Graphics (Granite Ridge)", "gfx1036", True),
    0x163F: Chip("Radeon Graphics (Van Gogh)", "gfx1033", True),
    0x1435: Chip("Radeon Graphics (Van Gogh)", "gfx1033", True),
    0x1636: Chip("Radeon Graphics (Renoir)", "gfx90c", True),
    0x1638: Chip("Radeon Graphics (Cezanne)", "gfx90c", True),
    0x164C: Chip("Radeon Graphics (Lucienne)", "gfx90c", True),
    0x15DD: Chip("Radeon Vega Graphics (Raven)", "gfx902", True),
    0x15D8: Chip("Radeon Vega Graphics (Picasso)", "gfx902", True),
    0x744C: Chip("Radeon RX 7900", "gfx1100", False, _NAVI_31),
    0x7448: Chip("Radeon PRO W7900", "gfx1100"),
    0x745E: Chip("Radeon PRO W7800", "gfx1100"),
    0x747E: Chip("Radeon RX 7800", "gfx1101", False, _NAVI_32),
    0x7480: Chip("Radeon RX 7600", "gfx1102"),
    0x7550: Chip("Radeon RX 9070", "gfx1201", False, _NAVI_48),
    0x7551: Chip("Radeon AI PRO R9700", "gfx1201"),
    0x7590: Chip("Radeon RX 9060", "gfx1200"),
    0x73BF: Chip("Radeon RX 6800/6900", "gfx1030"),
    0x73DF: Chip("Radeon RX 6700", "gfx1031"),
    0x66AF: Chip("Radeon VII", "gfx906"),
    0x66A1: Chip("Instinct MI50/MI60", "gfx906"),
    0x738C: Chip("Instinct MI100", "gfx908"),
    0x7408: Chip("Instinct MI250X", "gfx90a"),
    0x740C: Chip("Instinct MI250", "gfx90a"),
    0x740F: Chip("Instinct MI210", "gfx90a"),
    0x74A0: Chip("Instinct MI300A", "gfx942", True),
    0x74A1: Chip("Instinct MI300X", "gfx942"),
    0x74A5: Chip("Instinct MI325X", "gfx942"),
    0x75A0: Chip("Instinct MI350X", "gfx950"),
    0x75A3: Chip("Instinct MI355X", "gfx950"),
}
MI300A = 0x74A0
"""An APU whose only memory is its own HBM."""
RAVEN = frozenset({0x15DD, 0x15D8})
"""Chips of which some drivers say that they are always fully busy (drm/amd#1932)."""

_IDS = ("usr/share/libdrm/amdgpu.ids", "opt/amdgpu/share/libdrm/amdgpu.ids")
_LONGEST = 200_000


def name_of(root: str, device: int | None, revision: int | None) -> str:
    """The name of a chip, with the maker's in front."""
    if device is None:
        return "AMD GPU"
    chip = CHIPS.get(device)
    if chip is not None and revision in chip.revisions:
        return f"AMD {chip.revisions[revision]}"
    listed = _listed(root, device, revision)
    if listed is not None:
        generic = chip is not None and listed.lower() in ("amd radeon graphics", "amd radeon(tm) graphics")
        return listed if chip is None or not generic else f"AMD {chip.name}"
    return f"AMD {chip.name}" if chip is not None else f"AMD GPU {device:04x}"


def _listed(root: str, device: int, revision: int | None) -> str | None:
    for name in _IDS:
        raw = read_bytes(os.path.join(root, name), _LONGEST)  # noqa: PTH118 - text, as all paths of this package
        wanted = f"{device:04X}"
        for line in (raw or b"").decode("utf-8", "replace").splitlines():
            parts = [part.strip() for part in line.split(",", 2)]
            if len(parts) == 3 and parts[0].upper() == wanted and parts[1].upper() == f"{revision or 0:02X}":
                return parts[2] if parts[2].startswith("AMD") else f"AMD {parts[2]}"
    return None
