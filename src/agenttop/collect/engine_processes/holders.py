"""Who holds memory of GPUs: the process ids that drivers tell, joined to the processes seen here. Pure.

A driver counts processes as the host does, or, in newer versions of NVIDIA's open kernel module, as the
caller's pid namespace does; it does not say which. In a namespace of our own the same number may therefore
be another process. There a number counts only when that very process has a GPU's device open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from agenttop.model.frames import GPU_SUBJECT, Missing
from agenttop.model.units import size

Holders = Mapping[str, Mapping[int, int | None]]
"""By GPU: process id to bytes held there, as `GpuReading.holders`."""


class Share(msgspec.Struct):
    """What one process holds."""

    memory: dict[str, int] = {}
    """Bytes by GPU, where the driver tells them."""
    gpus: list[str] = []


class Joined(msgspec.Struct):
    """Holders by process."""

    shares: dict[int, Share] = {}
    unplaced: dict[str, list[int | None]] = {}
    """By GPU: bytes of the holders that cannot be told to be a process that is seen here."""


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What can be seen of processes from here."""

    host_numbers: bool = True
    """Process ids are those of the host."""
    others_hidden: bool = False
    """/proc shows the processes of this user alone (`hidepid`)."""


def join(
    holders: Holders, exists: Callable[[int], bool], sight: Sight, holds_device: Callable[[int], bool]
) -> Joined:
    """`exists`: whether a process is seen from here; `holds_device`: whether one has a GPU's device open."""
    joined = Joined()
    for gpu, held in holders.items():
        for pid, amount in held.items():
            if exists(pid) and (sight.host_numbers or holds_device(pid)):
                share = joined.shares.setdefault(pid, Share(memory={}, gpus=[]))
                share.gpus.append(gpu)
                if amount is not None and amount >= 0:
                    share.memory[gpu] = amount
            elif sight.others_hidden or not sight.host_numbers:
                joined.unplaced.setdefault(gpu, []).append(amount)
            # Else it has ended since the driver was asked.
    return joined


def reasons(t: float, joined: Joined, sight: Sight) -> Iterator[Missing]:
    """Why memory of a GPU is not told by process."""
    for gpu, amounts in joined.unplaced.items():
        known = [amount for amount in amounts if amount is not None]
        whose = "1 process" if len(amounts) == 1 else f"{len(amounts)} processes"
        held = f" with {size(sum(known))}" if known else ""
        if sight.host_numbers:
            why = f"{whose}{held} cannot be seen: /proc is mounted so that it hides those of other users"
            fix = "run agenttop as root, or mount /proc without hidepid"
        else:
            why = f"{whose}{held} cannot be told apart: the driver counts processes as the host does"
            fix = "start the container with --pid=host (Kubernetes: hostPID: true)"
        yield Missing(t=t, what=f"{GPU_SUBJECT}{gpu}:processes", why=why, fix=fix)
