"""Bytes that went through real network interfaces, from /proc/net/dev."""

from __future__ import annotations

import os
import re

from agenttop.collect.gpu.kernel_files import number
from agenttop.collect.kernel_tables import whole

INSIDE = re.compile(r"lo\d*$|veth|docker|br-|virbr|cni|flannel|cali|ifb|Loopback|isatap|Teredo")
"""Interfaces that lead nowhere, or pass on what a real one has counted."""


class Wires:
    """Real interfaces where there are some: a container's bridge would count the same bytes again."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._names: frozenset[str] = frozenset()
        self._chosen: frozenset[str] = frozenset()

    def look(self) -> dict[str, tuple[int, int]]:
        """(received, sent) bytes by interface."""
        table = parse_net_dev(whole(f"{self._root}/proc/net/dev") or b"")
        if table.keys() != self._names:
            self._names = frozenset(table)
            outer = frozenset(name for name in table if not INSIDE.match(name))
            self._chosen = frozenset(name for name in outer if self._is_real(name)) or outer
        return {name: table[name] for name in self._chosen}

    def _is_real(self, name: str) -> bool:
        return os.path.exists(f"{self._root}/sys/class/net/{name}/device")  # noqa: PTH110


def parse_net_dev(raw: bytes) -> dict[str, tuple[int, int]]:
    """(received, sent) bytes by interface."""
    found: dict[str, tuple[int, int]] = {}
    for line in raw.split(b"\n"):
        name, colon, rest = line.rpartition(b":")  # an alias has a colon in its name
        words = rest.split()
        if not colon or len(words) < 9:
            continue
        received, sent = number(words[0]), number(words[8])
        if received is not None and sent is not None:
            found[name.strip().decode("utf-8", "replace")] = (received, sent)
    return found
