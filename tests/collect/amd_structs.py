"""The structs of `gpu_metrics` in full, in the order in which the kernel's header declares their fields.

`H`: 16 bits, `I`: 32, `Q`: 64, `B`: 8; `name*8` is an array. What stands where follows from C's rules alone,
so that the offsets of the product are checked against something that was not made from them.
"""

from __future__ import annotations

import ctypes
from typing import Any

TYPES: dict[str, Any] = {
    "B": ctypes.c_uint8,
    "H": ctypes.c_uint16,
    "I": ctypes.c_uint32,
    "Q": ctypes.c_uint64,
}
_HEADER = "H:structure_size B:format_revision B:content_revision "

_TEMPERATURES_1 = "H:edge H:hotspot H:mem H:vrgfx H:vrsoc H:vrmem "
_ACTIVITIES_1 = "H:gfx_activity H:umc_activity H:mm_activity H:average_socket_power "
_CLOCKS_1 = " ".join(f"H:average_{name}" for name in ("gfx", "soc", "u", "v0", "d0", "v1", "d1")) + " "
_CLOCKS_1 += " ".join(f"H:current_{name}" for name in ("gfx", "soc", "u", "v0", "d0", "v1", "d1")) + " "
_BODY_1 = (
    f"{_TEMPERATURES_1}{_ACTIVITIES_1}Q:energy Q:system_clock {_CLOCKS_1}I:throttle_status H:fan "
    "H:link_width H:link_speed H:padding I:gfx_acc I:mem_acc H:hbm*4 "
)
_INSTINCT = "H:hotspot H:mem_temperature H:vrsoc H:socket_power H:gfx_activity H:umc_activity "
_LINKS = "H:link_width H:link_speed H:xgmi_width H:xgmi_speed I:gfx_acc I:mem_acc "
_PCIE = "Q:pcie_acc Q:pcie_inst Q:l0_recovery Q:pcie_replays Q:rollovers "
_NAKS = "I:nak_sent I:nak_received "
_XGMI = "Q:xgmi_read*8 Q:xgmi_write*8 "
_CLOCKS_4 = "H:gfxclk*8 H:socclk*4 H:vclk*4 H:dclk*4 H:uclk H:last "
_RESIDENCIES = "I:cycles I:prochot I:ppt I:socket_thm I:vr_thm I:hbm_thm "
_BODY_2 = (
    "H:gfx_activity H:mm_activity Q:system_clock H:socket_power H:cpu_power H:soc_power H:gfx_power "
    "H:core_power*8 H:average*6 H:current*6 H:coreclk*8 H:l3clk*2 I:throttle_status H:fan_pwm "
)
_TEMPERATURES_2 = "H:gfx H:soc H:core*8 H:l3*2 "
_TAIL_2 = "H:average_gfx H:average_soc H:average_core*8 H:average_l3*2 "


def _partitions(jpeg: int, counters: int) -> Any:
    return type(
        "Partition",
        (ctypes.Structure,),
        {
            "_fields_": [
                ("busy", ctypes.c_uint32 * 8),
                ("jpeg", ctypes.c_uint16 * jpeg),
                ("vcn", ctypes.c_uint16 * 4),
                ("counters", ctypes.c_uint64 * 8 * counters),
            ]
        },
    )


def _struct(text: str, partition: Any = None) -> Any:
    fields: list[tuple[str, Any]] = []
    for field in (_HEADER + text).split():
        kind, _, name = field.partition(":")
        name, _, count = name.partition("*")
        fields.append((name, TYPES[kind] * int(count) if count else TYPES[kind]))
    if partition is not None:
        fields += [("partitions", partition * 8), ("other_end_recovery", ctypes.c_uint32)]
    return type("Metrics", (ctypes.LittleEndianStructure,), {"_fields_": fields})


V3_0 = (
    "H:temperature_gfx H:soc H:core*16 H:skin H:gfx_activity H:vcn H:ipu*8 H:core_c0*16 H:dram_reads "
    "H:dram_writes H:ipu_reads H:ipu_writes Q:system_clock I:socket_power H:ipu_power I:apu_power "
    "I:gfx_power I:dgpu_power I:all_core_power H:core_power*16 H:sys_power H:stapm_limit H:stapm_current "
    "H:gfxclk H:socclk H:vpeclk H:ipuclk H:fclk H:vclk H:uclk H:mpipu H:coreclk*16 "
    "H:core_maxfreq H:gfx_maxfreq I:prochot I:spl I:fppt I:sppt I:thm_core "
    "I:thm_gfx I:thm_soc I:alpha"
)
_1_5 = f"{_INSTINCT}H:vcn*4 H:jpeg*32 Q:energy Q:system_clock "
_1_6_END = f"{_PCIE}{_NAKS}{_XGMI}Q:timestamp {_CLOCKS_4}"
_1_7_END = f"{_PCIE}{_NAKS}{_XGMI}H:xgmi_status*8 H:padding Q:timestamp {_CLOCKS_4}"

STRUCTS: dict[tuple[int, int, str], Any] = {
    (1, 0, ""): _struct(
        f"Q:system_clock {_TEMPERATURES_1}{_ACTIVITIES_1}I:energy {_CLOCKS_1}I:throttle_status H:fan "
        "B:link_width B:link_speed"
    ),
    (1, 1, ""): _struct(_BODY_1),
    (1, 2, ""): _struct(f"{_BODY_1}Q:timestamp"),
    (1, 3, ""): _struct(
        f"{_BODY_1}Q:timestamp H:soc_mv H:gfx_mv H:mem_mv H:padding1 Q:indep_throttle_status"
    ),
    (1, 4, ""): _struct(
        f"{_INSTINCT}H:vcn*4 Q:energy Q:system_clock I:throttle_status I:lock {_LINKS}{_PCIE}{_XGMI}"
        f"Q:timestamp {_CLOCKS_4}"
    ),
    (1, 5, ""): _struct(
        f"{_1_5}I:throttle_status I:lock {_LINKS}{_PCIE}{_NAKS}{_XGMI}Q:timestamp {_CLOCKS_4}"
    ),
    (1, 6, "early"): _struct(f"{_1_5}{_RESIDENCIES}I:throttle_status I:lock {_LINKS}{_1_6_END}"),
    (1, 6, ""): _struct(
        f"{_INSTINCT}Q:energy Q:system_clock {_RESIDENCIES}I:lock {_LINKS}{_1_6_END}", _partitions(32, 1)
    ),
    (1, 7, ""): _struct(
        f"{_INSTINCT}Q:bandwidth Q:energy Q:system_clock {_RESIDENCIES}I:lock {_LINKS}{_1_7_END}",
        _partitions(32, 2),
    ),
    (1, 8, ""): _struct(
        f"{_INSTINCT}Q:bandwidth Q:energy Q:system_clock {_RESIDENCIES}I:lock {_LINKS}{_1_7_END}",
        _partitions(40, 5),
    ),
    (2, 0, ""): _struct(f"Q:system_clock {_TEMPERATURES_2}{_BODY_2.replace('Q:system_clock ', '')}H:padding"),
    (2, 1, ""): _struct(f"{_TEMPERATURES_2}{_BODY_2}H:padding*3"),
    (2, 2, ""): _struct(f"{_TEMPERATURES_2}{_BODY_2}H:padding*3 Q:indep_throttle_status"),
    (2, 3, ""): _struct(f"{_TEMPERATURES_2}{_BODY_2}H:padding*3 Q:indep_throttle_status {_TAIL_2}"),
    (2, 4, ""): _struct(
        f"{_TEMPERATURES_2}{_BODY_2}H:padding*3 Q:indep_throttle_status {_TAIL_2}H:mv*3 H:ma*3"
    ),
    (3, 0, ""): _struct(V3_0),
}


def filled(revision: tuple[int, int], variant: str = "", **values: int) -> bytes:
    """A table as the driver hands it out: all bits set but for the header and the given fields."""
    struct = STRUCTS[*revision, variant]
    table = struct.from_buffer_copy(b"\xff" * ctypes.sizeof(struct))
    table.structure_size = ctypes.sizeof(struct)
    table.format_revision, table.content_revision = revision
    for name, value in values.items():
        field = getattr(table, name)
        if isinstance(field, ctypes.Array):
            field[0] = value
        else:
            setattr(table, name, value)
    return bytes(table)
