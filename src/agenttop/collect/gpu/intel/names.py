"""Names of Intel GPUs from their PCI device numbers.

Source: the PCI ID database (`pci.ids`); those that run models are in a table, so that their names do not hang
on that file being installed.
"""

from __future__ import annotations

from agenttop.collect.gpu.kernel_files import read_bytes
from agenttop.model.text import clean

_NAMES = {
    "4905": "Intel Iris Xe MAX",
    "5690": "Intel Arc A770M",
    "5691": "Intel Arc A730M",
    "5692": "Intel Arc A550M",
    "56a0": "Intel Arc A770",
    "56a1": "Intel Arc A750",
    "56a2": "Intel Arc A580",
    "56a5": "Intel Arc A380",
    "56a6": "Intel Arc A310",
    "56b0": "Intel Arc Pro A30M",
    "56b1": "Intel Arc Pro A40/A50",
    "56b2": "Intel Arc Pro A60M",
    "56b3": "Intel Arc Pro A60",
    "56c0": "Intel Data Center GPU Flex 170",
    "56c1": "Intel Data Center GPU Flex 140",
    "e20b": "Intel Arc B580",
    "e20c": "Intel Arc B570",
    "e211": "Intel Arc Pro B60",
    "e212": "Intel Arc Pro B50",
    "0bd5": "Intel Data Center GPU Max 1550",
    "0bda": "Intel Data Center GPU Max 1100",
}
_DATABASES = ("usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids", "usr/share/pci.ids")
_MOST_BYTES = 4 * 1024 * 1024


def name_of(device: str, root: str) -> str:
    """The name of a device (`56a0`); its number where nobody knows a name."""
    known = _NAMES.get(device)
    if known is not None:
        return known
    for path in _DATABASES:
        found = _listed(read_bytes(f"{root}/{path}", _MOST_BYTES), device)
        if found:
            return found
    return f"Intel GPU {device}"


def _listed(database: bytes | None, device: str) -> str | None:
    """The name under vendor 8086, `Alder Lake-P Integrated Graphics [Iris Xe]`."""
    if database is None:
        return None
    begin = database.find(b"\n8086  ")
    entry = database.find(f"\n\t{device}  ".encode(), begin) if begin >= 0 else -1
    if entry < 0 or any(byte not in b"\t#" for byte in _first_bytes(database[begin + 1 : entry])):
        return None
    line = database[entry + 1 :].partition(b"\n")[0].decode("utf-8", "replace")
    return clean(f"Intel {line.strip().partition('  ')[2]}", 60)


def _first_bytes(block: bytes) -> set[int]:
    """First bytes of all lines of a vendor but its own: that of another begins with neither tab nor `#`."""
    return {line[0] for line in block.split(b"\n")[1:] if line}
