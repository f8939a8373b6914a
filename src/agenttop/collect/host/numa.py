"""NUMA nodes: which cores and how much memory each has."""

from __future__ import annotations

import re

from agenttop.collect.gpu.kernel_files import folders, read_bytes, read_text

_FOLDER = "sys/devices/system/node"
_NODE = re.compile(r"node(\d{1,4})$")
_SIZE = re.compile(rb"^Node \d+ (MemTotal|MemFree):\s*(\d{1,15}) kB$", re.MULTILINE)


def nodes(root: str) -> list[str]:
    """Names in the order of their numbers."""
    found = [match for name in folders(f"{root}/{_FOLDER}") if (match := _NODE.match(name))]
    return [match[0] for match in sorted(found, key=lambda match: int(match[1]))]


def cores(root: str, node: str) -> str:
    """As the kernel writes them, `0-15,32-47`; empty for a node of memory alone."""
    text = read_text(f"{root}/{_FOLDER}/{node}/cpulist") or ""
    return text if re.fullmatch(r"[\d,-]*", text) else ""


def memory(root: str, node: str) -> tuple[int | None, int | None]:
    """(total, free) bytes."""
    found = dict(_SIZE.findall(read_bytes(f"{root}/{_FOLDER}/{node}/meminfo") or b""))
    total, free = found.get(b"MemTotal"), found.get(b"MemFree")
    return (int(total) * 1024 if total else None), (int(free) * 1024 if free else None)


def free(root: str, names: list[str]) -> list[int] | None:
    """Free bytes of each of several nodes; None where one does not tell."""
    if len(names) < 2:
        return None
    told = [memory(root, name)[1] for name in names]
    sizes = [size for size in told if size is not None]
    return sizes if len(sizes) == len(told) else None
