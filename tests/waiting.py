"""Waiting for something to become true, without a sleep that is too short on a busy machine.

until(look), await until_async(look), and gone(pid) to look at: `until(lambda: gone(pid))`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")


def gone(pid: int) -> bool:
    """Whether the process has ended. A zombie has: its reaper may be slow, as a container's init is."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(look: Callable[[], T], timeout_s: float = 20.0, what: str = "") -> T:
    """Call `look` until it gives something true; return that. Fails, naming `what`, after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain for {what or look}"
        time.sleep(0.01)
    return seen


async def until_async(look: Callable[[], T], timeout_s: float = 20.0, what: str = "") -> T:
    """The same inside an event loop, which goes on meanwhile."""
    deadline = time.monotonic() + timeout_s
    while not (seen := look()):
        assert time.monotonic() < deadline, f"waited {timeout_s:g} s in vain for {what or look}"
        await asyncio.sleep(0.01)
    return seen
