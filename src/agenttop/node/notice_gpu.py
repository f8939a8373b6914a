"""Events that follow from GPU samples: held down, hot, full, lost, sick. Pure, with a short memory.

Rules
- A reason counts when the driver names it now, or when its time counters say that it held for some of the
  window: bursts between two looks are seen too.
- Everything has hysteresis (`Episode`): a card at its limit is one event and not one a second.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from agenttop.model import units
from agenttop.model.frames import HARMLESS_THROTTLE, Event, GpuSample
from agenttop.model.identity import SIMULATED
from agenttop.model.text import clean
from agenttop.node.episode import Episode

HELD_SHARE = 0.05
"""A reason that the time counters show for less of a window than this is a moment's."""

DROPPED = 0.75
"""A busy GPU whose clock is below this share of what it was under the same load has dropped."""
BUSY = 0.90
REMEMBERED = 300
"""Looks of a busy GPU of which the usual clock is taken."""
LEAST_REMEMBERED = 20
DROP_HOLDS_S = 5.0

NEAR_C = 3.0
"""Degrees left until the device lowers its clocks."""
CLEAR_C = 6.0

FREE_SHARE, FREE_BYTES = 0.02, 512 * 1024**2
"""GPU memory is nearly full when less than both is free: engines fill it on purpose, but leave more."""
CLEAR_SHARE = 0.03

LINK_HOLDS_S = 10.0


@dataclass(slots=True)
class _Known:
    """What is remembered of one GPU."""

    state: str | None = None
    reasons: dict[str, Episode] = field(default_factory=dict)
    shares: dict[str, list[float]] = field(default_factory=dict)
    """Share-seconds and seconds counted since a begin was told, by reason."""
    dropped: Episode = field(default_factory=lambda: Episode(hold_s=DROP_HOLDS_S))
    clocks: deque[int] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    hot: Episode = field(default_factory=Episode)
    memory_hot: Episode = field(default_factory=Episode)
    full: Episode = field(default_factory=Episode)
    narrow: Episode = field(default_factory=lambda: Episode(hold_s=LINK_HOLDS_S))
    sick: set[str] = field(default_factory=set)


class GpuNoticer:
    """Feed it every GPU sample; it returns the events that the sample gives rise to."""

    def __init__(self) -> None:
        self.pace = 1.0
        """Session seconds per second."""
        self._known: dict[str, _Known] = {}

    def notice(self, gpu: GpuSample) -> list[Event]:
        """Events caused by this sample, usually none."""
        known = self._known.setdefault(gpu.gpu, _Known())
        events = _state(known, gpu)
        if gpu.state != "ok":
            return events
        events += self._held(known, gpu)
        events += self._dropped(known, gpu)
        events += self._hot(known, gpu)
        events += self._full(known, gpu)
        events += self._narrow(known, gpu)
        return events + _health(known, gpu)

    def _held(self, known: _Known, gpu: GpuSample) -> list[Event]:
        """A card at its limit is held down and let go several times a minute: one begin, and an end once it
        has been left alone for a while; how often it was held down in between is said by the next begin."""
        if gpu.throttle is None and not gpu.throttle_shares:
            return []
        now = held_by(gpu)
        events = []
        for reason in sorted(now):
            episode = known.reasons.setdefault(reason, Episode())
            if episode.begins(gpu.t, self.pace):
                severity = "warn" if reason == "power cap" else "bad"
                text = f"{name_of(gpu)} held down by {reason}{episode.repeats(gpu.t)}"
                events.append(_event(gpu, "gpu.throttle", text, severity))
                episode.tell(gpu.t, begin=True)
                known.shares[reason] = [0.0, 0.0]
        for reason, episode in sorted(known.reasons.items()):
            counted = known.shares.setdefault(reason, [0.0, 0.0])
            if episode.told and gpu.window_s and reason in gpu.throttle_shares:
                counted[0] += gpu.throttle_shares[reason] * gpu.window_s
                counted[1] += gpu.window_s
            if reason not in now and episode.ends(gpu.t, self.pace):
                held = f" ({units.seconds(counted[0])} in all)" if counted[0] > 0 else ""
                text = f"{name_of(gpu)} no longer held down by {reason}{held}{episode.repeats(gpu.t)}"
                events.append(_event(gpu, "gpu.throttle-end", text))
                episode.tell(gpu.t, begin=False)
        return events

    def _dropped(self, known: _Known, gpu: GpuSample) -> list[Event]:
        """A busy GPU that runs slower than it did, and nothing says why: a bad power cable, a stuck state."""
        clock = gpu.sm_clock_mhz
        if clock is None or gpu.util_fraction is None:
            return []
        busy = gpu.util_fraction >= BUSY
        explained = bool(gpu.throttle) or bool(held_by(gpu))  # also what somebody chose explains a clock
        enough = len(known.clocks) >= LEAST_REMEMBERED
        usual = sorted(known.clocks)[len(known.clocks) // 2] if enough else None
        unexplained = busy and usual is not None and clock < DROPPED * usual and not explained
        if busy and not unexplained and not explained:
            known.clocks.append(clock)

        def text() -> str:
            told = "the driver names no reason" if gpu.throttle is not None else "the driver tells no reasons"
            return f"{name_of(gpu)} runs at {clock} MHz, {usual} MHz before under the same load; {told}"

        after = f"{name_of(gpu)} runs at {clock} MHz again"
        return self._told(known.dropped, gpu, unexplained, "gpu.clock-drop", text, after)

    def _hot(self, known: _Known, gpu: GpuSample) -> list[Event]:
        events = []
        margin = margin_of(gpu)
        if margin is not None:
            limit = NEAR_C if not known.hot.told else CLEAR_C

            def text() -> str:
                left = f"{max(0.0, margin):.0f} °C below the point at which it slows down"
                return f"{name_of(gpu)} is at {gpu.temperature_c:.0f} °C, {left}"

            after = f"{name_of(gpu)} has cooled down to {gpu.temperature_c:.0f} °C"
            events += self._told(known.hot, gpu, margin <= limit, "gpu.hot", text, after)
        memory, most = gpu.mem_temperature_c, gpu.mem_temperature_limit_c
        if memory is not None and most is not None:
            limit = NEAR_C if not known.memory_hot.told else CLEAR_C
            text_of = f"the memory of {name_of(gpu)} is at {memory:.0f} °C, its limit is {most:.0f} °C"
            after = f"the memory of {name_of(gpu)} has cooled down to {memory:.0f} °C"
            hot = most - memory <= limit
            events += self._told(known.memory_hot, gpu, hot, "gpu.hot", lambda: text_of, after)
        return events

    def _full(self, known: _Known, gpu: GpuSample) -> list[Event]:
        used, total = gpu.mem_used_bytes, gpu.mem_total_bytes
        if used is None or not total or gpu.memory_kind == "unified":  # then it is the host's to tell
            return []
        free = max(0, total - used - (gpu.mem_reserved_bytes or 0))
        share = CLEAR_SHARE if known.full.told else FREE_SHARE
        full = free < share * total and free < FREE_BYTES * (share / FREE_SHARE)
        text = f"the memory of {name_of(gpu)} is nearly full: {units.size(free)} of {units.size(total)} free"
        after = f"the memory of {name_of(gpu)} has {units.size(free)} free again"
        return self._told(known.full, gpu, full, "gpu.memory-full", lambda: text, after)

    def _narrow(self, known: _Known, gpu: GpuSample) -> list[Event]:
        """Below its width the link never is at rest; below its generation it is, to save power."""
        width, most = gpu.pcie_width, gpu.pcie_width_max
        generation, best = gpu.pcie_generation, gpu.pcie_generation_max
        busy = (gpu.util_fraction or 0.0) >= BUSY
        fewer = bool(width and most and width < most)
        narrow = fewer and (busy or gpu.vendor != "amd")  # which gives lanes back at rest
        slow = bool(busy and generation and best and generation < best)
        have, could = f"gen{generation or '?'} x{width or '?'}", f"gen{best or '?'} x{most or '?'}"
        text = f"the PCIe link of {name_of(gpu)} is {have} of {could}: look at its slot, riser and BIOS"
        after = f"the PCIe link of {name_of(gpu)} is {have}"
        return self._told(known.narrow, gpu, narrow or slow, "gpu.link", lambda: text, after)

    def _told(
        self, episode: Episode, gpu: GpuSample, on: bool, name: str, text: Callable[[], str], after: str
    ) -> list[Event]:
        if on:
            if not episode.begins(gpu.t, self.pace):
                return []
            words = f"{text()}{episode.repeats(gpu.t)}"
            episode.tell(gpu.t, begin=True)
            return [_event(gpu, name, words, "warn")]
        if not episode.ends(gpu.t, self.pace):
            return []
        episode.tell(gpu.t, begin=False)
        return [_event(gpu, f"{name}-end", after)]


def held_by(gpu: GpuSample) -> frozenset[str]:
    """What holds the clocks down, or did for some of the window; what somebody chose does not count."""
    counted = {reason for reason, share in gpu.throttle_shares.items() if share >= HELD_SHARE}
    return frozenset(gpu.throttle or ()) - HARMLESS_THROTTLE | counted - HARMLESS_THROTTLE


def margin_of(gpu: GpuSample) -> float | None:
    """Degrees left until the device lowers its clocks; None where it is not known."""
    if gpu.temperature_c is None:
        return None
    if gpu.temperature_margin_c is not None:
        return gpu.temperature_margin_c
    return None if gpu.temperature_limit_c is None else gpu.temperature_limit_c - gpu.temperature_c


def name_of(gpu: GpuSample) -> str:
    """`GPU0`, `simulated GPU0`, `GPU0 instance 2`."""
    part = "" if gpu.mig_instance is None else f" instance {gpu.mig_instance}"
    return f"{'simulated ' if gpu.gpu.startswith(SIMULATED) else ''}GPU{gpu.index}{part}"


STATES = {
    "lost": (
        "gpu.lost",
        "{} does not answer any more: it fell off the bus, or its driver was stopped",
        "bad",
    ),
    "asleep": ("gpu.asleep", "{} was powered down by the kernel, and is left asleep", "info"),
    "late": ("gpu.late", "the driver of {} does not answer: its figures are old", "warn"),
}


def _state(known: _Known, gpu: GpuSample) -> list[Event]:
    """What has become of it. The first look tells only what is bad."""
    before, known.state = known.state, gpu.state
    if gpu.state == before:
        return []
    name = f"{name_of(gpu)} ({clean(gpu.name, 40)})"
    if gpu.state in STATES and (before is not None or gpu.state == "lost"):
        event, text, severity = STATES[gpu.state]
        return [_event(gpu, event, text.format(name), severity)]
    if gpu.state == "ok" and before is not None:
        how = {"asleep": "has woken", "lost": "is back"}.get(before, "answers again")
        return [_event(gpu, "gpu.back", f"{name} {how}")]
    return []


def _health(known: _Known, gpu: GpuSample) -> list[Event]:
    """Each complaint once, and again only when it has been gone."""
    if gpu.health is None:
        return []
    new = [complaint for complaint in gpu.health if complaint not in known.sick]
    known.sick = set(gpu.health)
    return [_event(gpu, "gpu.health", f"{name_of(gpu)}: {clean(each, 120)}", "bad") for each in new]


def _event(gpu: GpuSample, name: str, text: str, severity: str = "info") -> Event:
    return Event(t=gpu.t, event=name, text=text, source="gpu", severity=severity, subject=gpu.gpu)
