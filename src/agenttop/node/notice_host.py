"""Events that follow from host samples: swapping, memory at its end, a container's limit. Pure."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import Event, HostSample
from agenttop.node.episode import Episode

SWAP_BYTES_S = 1e6
FAULTS_S = 500.0
"""Pages from disk per second: 2 MB/s of a mapped model that did not stay in RAM."""
HOLDS_S = 3.0
"""A moment of swapping or faulting is what starting a program looks like."""
AVAILABLE_SHARE, CLEAR_SHARE = 0.03, 0.05
STALLED_SHARE = 0.10
LIMITED_SHARE = 0.25
"""Of the periods of a container's CPU limit."""


class HostNoticer:
    """Feed it every host sample; it returns the events that the sample gives rise to."""

    def __init__(self) -> None:
        self._swap = Episode(hold_s=HOLDS_S)
        self._faults = Episode(hold_s=HOLDS_S)
        self._memory = Episode()
        self._limit = Episode()
        self._stall = Episode(hold_s=HOLDS_S)
        self._cpu = Episode(hold_s=HOLDS_S)

    def notice(self, host: HostSample, pace: float) -> list[Event]:
        """Events caused by this sample, usually none. `pace`: session seconds per second."""
        return [
            *_swap(self._swap, host, pace),
            *_faults(self._faults, host, pace),
            *_memory(self._memory, host, pace),
            *_limit(self._limit, host, pace),
            *_stall(self._stall, host, pace),
            *_cpu(self._cpu, host, pace),
        ]


def _swap(episode: Episode, host: HostSample, pace: float) -> list[Event]:
    if host.swap_in_bytes_s is None and host.swap_out_bytes_s is None:
        return []
    into, out = host.swap_in_bytes_s or 0.0, host.swap_out_bytes_s or 0.0
    text = f"the host swaps: {units.byte_rate(out)} out, {units.byte_rate(into)} back in"
    return _told(
        episode, host, into + out > SWAP_BYTES_S, "host.swap", text, "the host no longer swaps", pace
    )


def _faults(episode: Episode, host: HostSample, pace: float) -> list[Event]:
    if host.major_faults_s is None:
        return []
    text = (
        f"{units.count(host.major_faults_s)} pages a second are read back from disk:"
        " what is mapped (a model, programs) does not stay in RAM"
    )
    after = "pages are no longer read back from disk"
    return _told(episode, host, host.major_faults_s > FAULTS_S, "host.faults", text, after, pace)


def _memory(episode: Episode, host: HostSample, pace: float) -> list[Event]:
    free, total = host.ram_available_bytes, host.ram_total_bytes
    if free is None or not total:
        return []
    share = CLEAR_SHARE if episode.told else AVAILABLE_SHARE
    text = f"RAM is nearly full: {units.size(free)} of {units.size(total)} available"
    after = f"RAM has {units.size(free)} available again"
    return _told(episode, host, free < share * total, "host.memory-full", text, after, pace)


def _limit(episode: Episode, host: HostSample, pace: float) -> list[Event]:
    used, limit = host.ram_limited_used_bytes, host.ram_limit_bytes
    if used is None or not limit:
        return []
    share = CLEAR_SHARE if episode.told else AVAILABLE_SHARE
    text = f"the container's memory limit is nearly reached: {units.size(used)} of {units.size(limit)}"
    after = f"the container uses {units.size(used)} of its {units.size(limit)} of memory"
    return _told(episode, host, used > (1 - share) * limit, "host.memory-limit", text, after, pace)


def _stall(episode: Episode, host: HostSample, pace: float) -> list[Event]:
    share = host.pressure_memory_full_fraction
    if share is None:
        return []
    text = f"all work waited for memory in {units.percent(share)} of the last 10 s"
    after = "work no longer waits for memory"
    return _told(episode, host, share > STALLED_SHARE, "host.memory-stall", text, after, pace)


def _cpu(episode: Episode, host: HostSample, pace: float) -> list[Event]:
    share = host.cpu_limit_throttled_fraction
    if share is None:
        return []
    cores = "" if host.cpu_limit_cores is None else f" of {host.cpu_limit_cores:g} cores"
    text = f"the container's CPU limit{cores} stopped it in {units.percent(share)} of the periods"
    after = "the container's CPU limit no longer stops it"
    return _told(episode, host, share > LIMITED_SHARE, "host.cpu-limit", text, after, pace)


def _told(
    episode: Episode, host: HostSample, on: bool, name: str, text: str, after: str, pace: float
) -> list[Event]:
    if on and episode.begins(host.t, pace):
        words, severity, begin = f"{text}{episode.repeats(host.t)}", "warn", True
    elif not on and episode.ends(host.t, pace):
        words, severity, begin, name = after, "info", False, f"{name}-end"
    else:
        return []
    episode.tell(host.t, begin=begin)
    return [Event(t=host.t, event=name, text=words, source="host", severity=severity)]
