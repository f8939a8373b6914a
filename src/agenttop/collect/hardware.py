"""What the machine is made of: sockets, cores, NUMA nodes, memory modules. Read once."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path

from agenttop import paths
from agenttop.collect import virtual
from agenttop.collect.gpu.kernel_files import folders, read_number, read_text
from agenttop.collect.host import numa
from agenttop.collect.host.facts import cores_physical
from agenttop.collect.kernel_tables import whole
from agenttop.collect.memory_slots import Build, Slot, build
from agenttop.collect.smbios import slots_of_dmidecode, slots_of_table, slots_of_udev
from agenttop.model.frames import Hardware, Missing

_CPUS = "sys/devices/system/cpu"
_TABLE = "sys/firmware/dmi/tables/DMI"
_UDEV = "run/udev/data/+dmi:id"
PREPARED = "dmidecode.txt"
"""In the folder of settings: the output of `dmidecode -t memory`, for hosts where root alone may ask."""
_ENTRY_BYTES = 8
_OF_MEMORY = "memory_type memory_mt_s memory_modules memory_channels memory_peak_bytes_s"


def hardware(t: float, root: Path = Path("/"), prepared: Path | None = None) -> Hardware:
    """What can be read without special rights. `root` is where /proc, /sys and /run are found; `prepared` the
    output of dmidecode that the user has put aside, in the folder of settings by default."""
    here = root.as_posix().rstrip("/")
    if prepared is None and not here:
        prepared = paths.config() / PREPARED
    sockets, cores = _topology(here)
    # a hypervisor makes up modules of its own
    slots, source = _slots(here, prepared) if virtual.machine(here) is None else ([], None)
    memory = build(slots, sockets) if slots else None
    nodes = numa.nodes(here)
    several = nodes if len(nodes) > 1 else []
    totals = [numa.memory(here, node)[0] for node in several]
    sizes = [size for size in totals if size is not None]
    told = memory or Build(modules=0, slots=0)
    return Hardware(
        t=t,
        sockets=sockets,
        cores_physical=cores if cores is not None or here else cores_physical(),
        cores_logical=_logical(here) if here else os.cpu_count(),
        numa_nodes=[numa.cores(here, node) for node in several],
        numa_total_bytes=sizes if len(sizes) == len(totals) else [],
        memory_type=told.kind,
        memory_mt_s=told.mt_s,
        memory_modules=told.modules or None,
        memory_slots=told.slots or None,
        memory_channels=told.channels,
        memory_channels_total=told.channels_total,
        memory_peak_bytes_s=told.peak_bytes_s,
        memory_from=source if memory is not None else None,
        virtual=virtual.virtual(here),
    )


def missing(found: Hardware, system: str = sys.platform) -> list[Missing]:
    """Why the figures about memory are not known: `host:<field of Hardware>`."""
    fix = None
    if found.memory_from is None:
        fields = _OF_MEMORY
        if virtual.in_machine(found.virtual):
            why = "a virtual machine is not told its memory modules"
        elif found.virtual is not None:
            why = "the firmware's table of memory modules is hidden in the container"
            fix = "mount the host's /run/udev into it, read-only"
        elif system == "linux":
            why = "the firmware's table of memory modules is for root alone"
            fix = f"sudo dmidecode -t memory > {paths.config() / PREPARED}"
        else:
            why = "this system does not tell what memory modules there are"
    elif found.memory_channels is None:
        fields, why = "memory_channels memory_peak_bytes_s", "the firmware's names of slots tell no channels"
    elif found.memory_peak_bytes_s is None:
        fields, why = "memory_peak_bytes_s", "the firmware does not tell speed or width of the modules"
    else:
        return []
    return [Missing(t=found.t, what=f"host:{field}", why=why, fix=fix) for field in fields.split()]


def _topology(root: str) -> tuple[int | None, int | None]:
    """(sockets, cores), of the cores that are on. Boards without a table of the firmware number clusters as
    if they were sockets."""
    packages: set[int] = set()
    cores: set[str] = set()
    for name in folders(f"{root}/{_CPUS}"):
        if name.startswith("cpu") and name[3:].isdigit():
            place = f"{root}/{_CPUS}/{name}/topology"
            package = read_number(f"{place}/physical_package_id")
            siblings = read_text(f"{place}/core_cpus_list") or read_text(f"{place}/thread_siblings_list")
            packages.update([package] if package is not None and package >= 0 else [])
            cores.update([siblings] if siblings else [])
    trusted = bool(folders(f"{root}/sys/class/dmi/id")) or b"physical id" in (
        whole(f"{root}/proc/cpuinfo") or b""
    )
    return (len(packages) or None) if trusted else None, len(cores) or None


def _logical(root: str) -> int | None:
    names = folders(f"{root}/{_CPUS}")
    return sum(name.startswith("cpu") and name[3:].isdigit() for name in names) or None


def _slots(root: str, prepared: Path | None) -> tuple[list[Slot], str | None]:
    """The slots, and where they were read: the table itself, what udev has kept of it, what was prepared."""
    if table := whole(f"{root}/{_TABLE}"):
        return slots_of_table(table), f"/{_TABLE}"
    if (told := whole(f"{root}/{_UDEV}")) and (slots := slots_of_udev(told.decode("utf-8", "replace"))):
        return slots, "udev"
    if prepared is not None and (told := whole(str(prepared))):
        return slots_of_dmidecode(told.decode("utf-8", "replace")), PREPARED
    if not root and (table := _table_of_windows()):
        return slots_of_table(table), "SMBIOS"
    return [], None


def _table_of_windows() -> bytes | None:
    """By GetSystemFirmwareTable, which needs no rights. The table stands behind eight bytes about it."""
    if sys.platform == "win32":
        with contextlib.suppress(OSError, AttributeError):
            ask = ctypes.windll.kernel32.GetSystemFirmwareTable
            provider = int.from_bytes(b"RSMB", "big")
            room = ctypes.create_string_buffer(max(0, min(ask(provider, 0, None, 0), 1 << 20)))
            taken = ask(provider, 0, room, len(room))
            return bytes(room.raw[_ENTRY_BYTES:taken]) if 0 < taken <= len(room) else None
    return None
