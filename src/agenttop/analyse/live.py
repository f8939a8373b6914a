"""What can be derived of an engine and its GPUs now, from the newest sample of each: for a screen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agenttop.analyse.figure import Figure, unknown
from agenttop.model.frames import EngineSample, GpuSample, Hardware, HostSample, ProcessSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Figures of now, each with its evidence, or with why it cannot be told."""

    power_w: Figure
    """Of the GPUs that the engine uses together."""
    tokens_per_joule: Figure
    """Output tokens; all the energy of these GPUs is theirs, prefill and idling included."""
    joules_per_token: Figure
    """The inverse."""
    bandwidth_fraction: Figure
    """Memory bandwidth that decoding uses, as a share of the peak: measured, or a floor from the weights."""
    bandwidth_bytes_s: Figure
    """The same in bytes per second."""
    pcie_fraction: Figure
    """The busiest direction of the busiest GPU's link, as a share of what the link carries as it is now."""


def derive(
    engine: EngineSample,
    gpus: Sequence[GpuSample],
    host: HostSample | None = None,
    hardware: Hardware | None = None,
    processes: Sequence[ProcessSample] = (),
) -> Derived:
    """The figures of now, from the newest sample of each.

    Args:
        engine: the engine asked about.
        gpus: those of its host; a simulated engine's own. Which of them it uses is told by `processes`, else
            all of them count as used, and the evidence says so.
        host: of the same machine.
        hardware: of the same machine.
        processes: of the same machine; those of other engines are left.
    """
    nothing = unknown("not worked out yet")
    return Derived(
        power_w=nothing,
        tokens_per_joule=nothing,
        joules_per_token=nothing,
        bandwidth_fraction=nothing,
        bandwidth_bytes_s=nothing,
        pcie_fraction=nothing,
    )
