"""One engine that stands in front of several: their figures made into one reading.

A front (Ollama, llama-swap, a llama.cpp router) passes requests on to servers that it starts, one per model.
Agents are sent to the front, so the front is the engine; what is measured happens in its servers. Each of
them is watched like an engine of its own, with its own time limits and back-off, and without the front's key.

Sums are sums of everything or nothing: where one server's figure is not known, the sum is missing and the
reason names the model, while `PartSample`s show what each server tells. A server that loads, sleeps or has
died holds nothing up: nothing runs in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from agenttop.collect.engine.base import EngineAdapter, EngineReading, Reasons
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.standing import BUSY_AFTER_S
from agenttop.collect.engine.watch import EngineWatch
from agenttop.collect.process import ServerProcess
from agenttop.model.frames import EngineSample, LatencySample, Missing, PartSample, SlotSample

PATIENCE_S = 0.2
"""How long one look at all servers together may take: what has not answered by then counts in the next one,
and a slow server does not slow the front down."""
MOST_SLOTS = 4096
"""Of all servers together; beyond it is no inference host."""

_COUNTED = ("ok", "busy", "asleep")
_STILL = ("loading", "down")
"""Nothing runs in a server that is one of these."""
_TOTALS = (
    "prompt_tokens_total",
    "cached_tokens_total",
    "output_tokens_total",
    "preemptions_total",
    "finished_total",
    "drafted_tokens_total",
    "accepted_tokens_total",
    "prefix_hits_tokens_total",
    "prefix_queries_tokens_total",
)
_FIGURES = "running waiting decode_tok_s prefill_tok_s slots kv_used_tokens kv_pool_tokens kv_used_fraction"
_NOT_THE_FRONTS = ("version",)
"""Reasons of a server that say nothing of the front: it has a version of its own."""


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A server behind a front."""

    url: str
    """Normalised. Asked as it is, unless `adapter` goes another way."""
    part: str | None = None
    """The model it serves, as the front names it; None where that cannot be told."""
    process: ServerProcess | None = None
    adapter: Callable[[], EngineAdapter] | None = None
    """Instead of recognising what answers at `url`."""

    @property
    def key(self) -> tuple[str, str | None, int | None]:
        """Another process is another server, at whatever address."""
        through = self.part if self.adapter is not None else None
        return self.url, through, self.process.pid if self.process is not None else None


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one server now."""

    child: Child
    sample: EngineSample
    slots: list[SlotSample] = []
    missing: list[Missing] = []
    latencies: list[LatencySample] = []

    @property
    def counts(self) -> bool:
        """Whether its figures are of now."""
        late = (self.sample.age_s or 0.0) > BUSY_AFTER_S
        return self.sample.state in _COUNTED and not (late and self.sample.state != "asleep")

    @property
    def still(self) -> bool:
        """Whether nothing runs in it, for sure."""
        return self.sample.state in _STILL

    @property
    def who(self) -> str:
        """The model, or the address."""
        return self.child.part or self.child.url


class Merged(msgspec.Struct, frozen=True, kw_only=True):
    """All servers of a front together."""

    figures: dict[str, Any] = {}
    """Fields of the front's EngineSample."""
    slots: list[SlotSample] = []
    latencies: list[LatencySample] = []
    missing: list[Missing] = []
    parts: dict[str, PartSample] = {}
    """By model; without a state, which is the front's to tell."""
    died: bool = False
    """One of them refuses connections: it is worth looking at the processes again."""


class _ChildWatch(EngineWatch):
    """Watches one server of a front."""

    def __init__(self, child: Child, now: Callable[[], float], metrics: bool) -> None:
        super().__init__(
            child.url, now=now, metrics=metrics, polls_host=child.process is not None, patience_s=PATIENCE_S
        )
        self._child = child
        self._reasons: dict[str, Missing] = {}
        self._slots: list[SlotSample] = []

    async def see(self, child: Child) -> Seen:
        """One look; never raises. `child` may know its model by now."""
        self._child = child
        reading = await self.poll()
        for frame in reading.missing:
            if frame.why is None:
                self._reasons.pop(frame.what, None)
            else:
                self._reasons[frame.what] = frame
        if self._task is None:  # else no news: the slots of before stand as long as the figures do
            self._slots = reading.slots
        return Seen(
            child=child,
            sample=reading.sample,
            slots=self._slots,
            missing=list(self._reasons.values()),
            latencies=reading.latencies,
        )

    async def _process(self) -> Circumstances:
        return Circumstances(process=self._child.process)

    async def _look(self) -> EngineReading:
        if self._adapter is None and self._child.adapter is not None:
            self._adapter = self._child.adapter()
        return await super()._look()


class Composite:
    """Watches the servers of one front, which come and go."""

    def __init__(
        self, client: EngineClient, *, metrics: bool = True, fixes: Mapping[str, str] | None = None
    ) -> None:
        """`client` is the front's; closing it closes what is open here.

        `fixes`: a part of what helps a server alone, to what is to be done where this front starts it.
        """
        self._url = client.base_url
        self._now = client.now
        self._metrics = metrics
        self._fixes = dict(fixes or {})
        self._watches: dict[Any, _ChildWatch] = {}
        self._places = Places()
        self._carried = Carried()
        client.close_with(self.close)

    async def look(self, children: Sequence[Child]) -> Merged:
        """One look at all of them at once. Never raises."""
        wanted = {child.key: child for child in children}
        for key in [key for key in self._watches if key not in wanted]:
            await self._watches.pop(key).close()
        for key, child in wanted.items():
            if key not in self._watches:
                self._watches[key] = _ChildWatch(child, self._now, self._metrics)
        seen = await asyncio.gather(*(self._watches[key].see(child) for key, child in wanted.items()))
        starts = self._places.update({each.child.key: _slot_count(each) for each in seen})
        merged = merge(self._now(), self._url, list(seen), starts, self._fixes)
        totals = self._carried.update({each.child.key: each.sample for each in seen if each.counts})
        return msgspec.structs.replace(merged, figures=merged.figures | totals)

    async def close(self) -> None:
        """Give up the questions in flight and close the connections."""
        watches, self._watches = self._watches, {}
        for watch in watches.values():
            await watch.close()


class Places:
    """Which numbers the slots of each server have in the front's list. Pure.

    A server keeps its numbers as long as it lives; another one takes the lowest that are free.
    """

    def __init__(self) -> None:
        self._places: dict[Any, tuple[int, int]] = {}

    def update(self, counts: Mapping[Any, int]) -> dict[Any, int]:
        """First number of each server; `counts` are their slots, 0 for those not known yet."""
        self._places = {
            key: place for key, place in self._places.items() if counts.get(key, 0) in range(1, place[1] + 1)
        }
        for key, count in counts.items():
            if count > 0 and key not in self._places:
                self._places[key] = (self._free(count), count)
        return {key: start for key, (start, _) in self._places.items()}

    def _free(self, count: int) -> int:
        start = 0
        for first, length in sorted(self._places.values()):
            if start + count <= first:
                break
            start = max(start, first + length)
        return start


class Carried:
    """Totals that do not go back when a server ends: its last ones stay in the sum. Pure."""

    def __init__(self) -> None:
        self._last: dict[tuple[Any, str], int] = {}
        self._ended: dict[str, int] = {}

    def update(self, samples: Mapping[Any, EngineSample]) -> dict[str, int | None]:
        """The sums. One that a server does not tell is None."""
        sums: dict[str, int | None] = {}
        for name in _TOTALS:
            now = {key: getattr(sample, name) for key, sample in samples.items()}
            for (key, field), before in list(self._last.items()):
                if field == name and (key not in now or (now[key] is not None and now[key] < before)):
                    self._ended[name] = self._ended.get(name, 0) + self._last.pop((key, field))
            self._last.update({(key, name): value for key, value in now.items() if value is not None})
            known = [value for value in now.values() if value is not None]
            complete = len(known) == len(now) and (known or name in self._ended)
            sums[name] = sum(known) + self._ended.get(name, 0) if complete else None
        return sums


def merge(
    t: float,
    url: str,
    seen: Sequence[Seen],
    starts: Mapping[Any, int] | None = None,
    fixes: Mapping[str, str] | None = None,
) -> Merged:
    """The servers as one, without the totals. Pure.

    Args:
        t: the time of the frames.
        url: the front's.
        seen: the servers, in a stable order.
        starts: first number of the slots of each server, by its key.
        fixes: see `Composite`.
    """
    starts = starts or {}
    figures = _figures(seen)
    return Merged(
        figures=figures,
        slots=[slot for each in seen if each.counts for slot in _slots(t, url, each, starts)][:MOST_SLOTS],
        latencies=_latencies(t, url, seen),
        missing=_missing(t, url, seen, figures, fixes or {}),
        parts={each.child.part: _part(t, url, each) for each in seen if each.child.part is not None},
        died=any(each.sample.state == "down" for each in seen),
    )


def _figures(seen: Sequence[Seen]) -> dict[str, Any]:
    known = all(each.counts or each.still for each in seen)
    counted = [each.sample for each in seen if each.counts]
    awake = [sample for sample in counted if sample.state != "asleep"]

    def together(name: str, samples: list[EngineSample]) -> Any:
        values = [getattr(sample, name) for sample in samples]
        return sum(values) if known and values and None not in values else None

    figures: dict[str, Any] = {
        name: together(name, counted)
        for name in (
            "slots_total",
            "kv_pool_tokens",
            "kv_used_tokens",
            "kv_active_tokens",
            "kv_idle_tokens",
            "sequences_max",
        )
    }
    figures["running"] = together("running", counted) if counted else (0 if known else None)
    figures["waiting"] = together("waiting", counted) if counted else (0 if known else None)
    figures |= {name: together(name, awake) for name in ("decode_tok_s", "prefill_tok_s")}
    figures["decode_is_floor"] = any(sample.decode_is_floor for sample in awake)
    windows = [sample.window_s for sample in awake if sample.window_s is not None]
    figures["window_s"] = max(windows, default=None)
    used, pool = figures["kv_used_tokens"], figures["kv_pool_tokens"]
    fills = [sample.kv_used_fraction for sample in counted if sample.kv_used_fraction is not None]
    if used is not None and pool:
        figures["kv_used_fraction"] = min(1.0, used / pool)
    elif known and len(counted) == 1 and fills:
        figures["kv_used_fraction"] = fills[0]
    if known and len(counted) > 1 and len(fills) == len(awake) > 0:
        figures["kv_fullest_fraction"] = max(fills)
    for name in ("context_limit_tokens", "kv_layout", "kv_dtype", "quantisation"):
        values = {getattr(sample, name) for sample in counted}
        figures[name] = values.pop() if len(values) == 1 else None
    return figures


def _slot_count(each: Seen) -> int:
    return max((slot.slot + 1 for slot in each.slots), default=0)


def _slots(t: float, url: str, each: Seen, starts: Mapping[Any, int]) -> list[SlotSample]:
    start = starts.get(each.child.key, 0)
    return [
        msgspec.structs.replace(slot, t=t, engine=url, slot=start + slot.slot, part=each.child.part)
        for slot in each.slots
    ]


def _latencies(t: float, url: str, seen: Sequence[Seen]) -> list[LatencySample]:
    """Percentiles of several servers do not add up, so they are the front's where one server runs alone."""
    if len(seen) != 1 or not seen[0].counts:
        return []
    return [msgspec.structs.replace(latency, t=t, engine=url) for latency in seen[0].latencies]


def _part(t: float, url: str, each: Seen) -> PartSample:
    sample = each.sample
    part = PartSample(
        t=t,
        engine=url,
        part=each.child.part or "",
        role="model",
        url=each.child.url if each.child.adapter is None else None,
    )
    if not each.counts:
        return msgspec.structs.replace(part, note=sample.note)
    return msgspec.structs.replace(
        part,
        running=sample.running,
        waiting=sample.waiting,
        kv_used_fraction=sample.kv_used_fraction,
        kv_used_tokens=sample.kv_used_tokens,
        kv_pool_tokens=sample.kv_pool_tokens,
        decode_tok_s=sample.decode_tok_s,
        prefill_tok_s=sample.prefill_tok_s,
        context_limit_tokens=sample.context_limit_tokens,
        quantisation=sample.quantisation,
        note=sample.note,
    )


def _missing(
    t: float, url: str, seen: Sequence[Seen], figures: Mapping[str, Any], fixes: Mapping[str, str]
) -> list[Missing]:
    """One reason per field, of the first server that has one."""
    reasons = Reasons(url, t)
    for each in seen:
        if not each.counts and not each.still:
            note = each.sample.note or "its figures are late"
            reasons.add(_FIGURES, f"{each.who}: {note}")
        for frame in each.missing:
            field = frame.subject_and_field[1]
            if field in _NOT_THE_FRONTS or not each.counts:
                continue
            why = f"{each.who}: {frame.why}" if len(seen) > 1 else frame.why or ""
            fix = next((ours for mark, ours in fixes.items() if mark in (frame.fix or "")), frame.fix)
            reasons.add(field, why, fix)
    first: dict[str, Missing] = {}
    for frame in reasons.frames:
        if figures.get(frame.subject_and_field[1]) is None:
            first.setdefault(frame.what, frame)
    return list(first.values())
