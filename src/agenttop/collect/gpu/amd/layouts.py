"""Where the figures stand in the binary file `gpu_metrics`, by revision. Pure data.

Source: the kernel's `drivers/gpu/drm/amd/include/kgd_pp_interface.h`, `struct gpu_metrics_v1_0` to `v3_0`, as
a C compiler lays them out (little-endian, natural alignment). The tests lay the whole structs out again.

Rules
- A revision is decoded only in a size that it has had: 1.6 and 3.0 were changed after they had been released
  under the same number. Later revisions are not the earlier ones with more at their end.
- All bits set means that the driver does not fill the field in.
- `throttle_status` means something else on every chip, and is not read.
"""

from __future__ import annotations

Place = tuple[int, str]
"""(offset, format of `struct`)."""
Layout = dict[str, Place]

_V1_0: Layout = {
    "hotspot": (18, "H"),
    "gfx_activity": (28, "H"),
    "umc_activity": (30, "H"),
    "link_width": (74, "B"),
    "link_speed": (75, "B"),
}
_V1_1: Layout = {
    "hotspot": (6, "H"),
    "gfx_activity": (16, "H"),
    "umc_activity": (18, "H"),
    "link_width": (74, "H"),
    "link_speed": (76, "H"),
}
_V1_3: Layout = _V1_1 | {"indep_throttle_status": (112, "Q")}

_INSTINCT: Layout = {
    "hotspot": (4, "H"),
    "mem_temperature": (6, "H"),
    "socket_power": (10, "H"),
    "gfx_activity": (12, "H"),
    "umc_activity": (14, "H"),
}
_V1_4: Layout = _INSTINCT | {
    "energy": (24, "Q"),
    "link_width": (48, "H"),
    "link_speed": (50, "H"),
    "pcie_replays": (88, "Q"),
    "gfxclk": (240, "H"),
    "uclk": (280, "H"),
}
_V1_5: Layout = _INSTINCT | {
    "energy": (88, "Q"),
    "link_width": (112, "H"),
    "link_speed": (114, "H"),
    "pcie_replays": (152, "Q"),
    "gfxclk": (312, "H"),
    "uclk": (352, "H"),
}


def _residencies(first: int) -> Layout:
    names = ("cycles", "prochot", "ppt", "socket_thm", "vr_thm", "hbm_thm")
    return {name: (first + 4 * index, "I") for index, name in enumerate(names)}


_V1_6: Layout = (
    _INSTINCT
    | _residencies(32)
    | {
        "energy": (16, "Q"),
        "link_width": (60, "H"),
        "link_speed": (62, "H"),
        "pcie_replays": (104, "Q"),
        "gfxclk": (264, "H"),
        "uclk": (304, "H"),
    }
)
_V1_6_EARLY: Layout = (
    _INSTINCT
    | _residencies(104)
    | {
        "energy": (88, "Q"),
        "link_width": (136, "H"),
        "link_speed": (138, "H"),
        "pcie_replays": (176, "Q"),
        "gfxclk": (336, "H"),
        "uclk": (376, "H"),
    }
)
"""As it was before the activities of media engines moved into the part about partitions."""
_V1_7: Layout = (
    _INSTINCT
    | _residencies(40)
    | {
        "energy": (24, "Q"),
        "link_width": (68, "H"),
        "link_speed": (70, "H"),
        "pcie_replays": (112, "Q"),
        "gfxclk": (296, "H"),
        "uclk": (336, "H"),
    }
)

_V2_2: Layout = {"indep_throttle_status": (120, "Q")}
"""Of an APU before 3.0. Neither power nor activity: up to 2.3 their units differ between chips."""

_V3_0: Layout = {
    "temperature_gfx": (4, "H"),
    "gfx_activity": (42, "H"),
    "dram_reads": (94, "H"),
    "dram_writes": (96, "H"),
    "socket_power": (112, "I"),
    "gfxclk": (174, "H"),
    "uclk": (186, "H"),
    "prochot": (228, "I"),
    "spl": (232, "I"),
    "fppt": (236, "I"),
    "sppt": (240, "I"),
    "thm_core": (244, "I"),
    "thm_gfx": (248, "I"),
    "thm_soc": (252, "I"),
}

LAYOUTS: dict[tuple[int, int], dict[int, Layout]] = {
    (1, 0): {80: _V1_0},
    (1, 1): {96: _V1_1},
    (1, 2): {104: _V1_1},
    (1, 3): {120: _V1_3},
    (1, 4): {288: _V1_4},
    (1, 5): {360: _V1_5},
    (1, 6): {1664: _V1_6, 384: _V1_6_EARLY},
    (1, 7): {2208: _V1_7},
    (1, 8): {3872: _V1_7},
    (2, 0): {120: {}},
    (2, 1): {120: {}},
    (2, 2): {128: _V2_2},
    (2, 3): {152: _V2_2},
    (2, 4): {168: _V2_2},
    (3, 0): {264: _V3_0},
}
"""Revision (format, content), then size in bytes."""

ATTRIBUTES = {
    0: "hotspot",
    1: "mem_temperature",
    3: "socket_power",
    4: "gfx_activity",
    5: "umc_activity",
    7: "energy",
    9: "cycles",
    10: "prochot",
    11: "ppt",
    12: "socket_thm",
    13: "vr_thm",
    14: "hbm_thm",
    16: "link_width",
    17: "link_speed",
    25: "pcie_replays",
    33: "gfxclk",
    37: "uclk",
}
"""`enum amdgpu_metrics_attr_id` of revision 1.9, which names what stands in it: the same names as above."""
ATTRIBUTE_FORMATS = "BbHhIiQq"
"""`enum amdgpu_metrics_attr_type` as formats of `struct`."""
