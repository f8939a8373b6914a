"""Which process belongs to which engine. Pure.

A driver reports the process that holds GPU memory, which often is a child: an engine's core, a worker, the
server that a front has started. So an engine is its process and all that descends from it, up to the next
process that is an engine by itself, and without agenttop's own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

MOST = 1024
"""Processes of one engine; what lies beyond is no engine but the ancestor of everything."""


def members(
    roots: Mapping[int, str], parents: Mapping[int, int], is_own: Callable[[int], bool]
) -> dict[int, str]:
    """Process to engine. `roots`: the process of each engine; `parents`: process to parent."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found: dict[int, str] = {}
    for root, engine in roots.items():
        if root not in parents or root in found:
            continue
        todo = [root]
        taken = 0
        while todo and taken < MOST:
            pid = todo.pop()
            if pid in found:
                continue
            found[pid] = engine
            taken += 1
            todo += [
                child
                for child in children.get(pid, ())
                if child not in roots and child not in found and not is_own(child)
            ]
    return found
