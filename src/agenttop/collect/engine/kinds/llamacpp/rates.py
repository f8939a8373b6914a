"""Token rates of llama.cpp from successive looks at its slots. Pure; the caller brings the times.

The counters of a slot move in steps, a batch at a time, and all busy slots step together: polls of 250 ms of
four slots that decode 52 tok/s read 16 to 96. So rates are taken over a window of about three seconds.

What is counted between two looks at one slot:
- same task: the growth of `n_decoded` and of `n_prompt_tokens_processed`;
- a new task: all it has so far, for it began within the interval;
- the request ended: the growth of the tokens held, plus one (the last token is never put into the cache),
  or on older builds the growth of the kept `n_decoded`.
Not seen: the last tokens of a request whose slot serves the next one already, and requests that came and
went between two looks. The server's own total, which moves when a request ends, has them: `settle` adds what
was missed. Until then, or without it, the engine's rate is a lower bound (`Rates.floor`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from agenttop.collect.engine.kinds.llamacpp.slots import Slot

WINDOW_S = 3.0


class SlotRates(msgspec.Struct, frozen=True):
    """Rates of one slot in tokens per second; None where there is no second look at the same task yet."""

    decode: float | None = None
    prefill: float | None = None


class Rates(msgspec.Struct, frozen=True):
    """Rates of the whole engine over `window_s`, and of its slots."""

    window_s: float | None = None
    decode: float | None = None
    prefill: float | None = None
    """None where the build does not count processed prompt tokens per slot."""
    slots: dict[int, SlotRates] = {}
    floor: bool = False
    """Tokens of requests that ended in the window may be missing from `decode`."""


@dataclass(slots=True)
class _Step:
    """What happened between two looks."""

    begin: float
    end: float
    decoded: int
    processed: int | None
    """Prompt tokens; None where the build does not count them per slot."""
    unsettled: bool
    """A slot changed its task: tokens may have been missed."""


class RateMeter:
    """Fed with every look at the slots."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._at: float | None = None
        self._slots: dict[int, Slot] = {}
        self._steps: deque[_Step] = deque()
        self._tracks: dict[int, _Track] = {}
        self._per_slot: dict[int, SlotRates] = {}
        self._settled: int | None = None
        """All tokens the server had decoded at the look at which the account was last settled."""
        self._counted = 0
        """Tokens counted since then."""

    @property
    def in_flight(self) -> int:
        """Tokens decoded so far by the requests in progress at the last look."""
        return sum(slot.decoded or 0 for slot in self._slots.values() if slot.processing)

    def update(self, at: float, slots: Sequence[Slot]) -> Rates:
        """Rates as of this look; `at` is when the reply arrived."""
        if self._at is not None and at > self._at:
            decoded = sum(_decoded_since(self._slots.get(slot.number), slot) for slot in slots)
            processed = [_processed_since(self._slots.get(slot.number), slot) for slot in slots]
            counts = any(slot.processed is not None for slot in slots) or not any(
                slot.processing for slot in slots
            )
            unsettled = any(_may_have_missed(self._slots.get(slot.number), slot) for slot in slots)
            self._steps.append(_Step(self._at, at, decoded, sum(processed) if counts else None, unsettled))
            self._counted += decoded
        self._at = at
        while len(self._steps) > 1 and self._steps[0].end <= at - self._window_s:
            self._steps.popleft()
        self._slots = {slot.number: slot for slot in slots}
        self._look_at_slots(at, slots)
        return self.rates()

    @property
    def unsettled(self) -> bool:
        """Whether tokens may be missing from the rate."""
        return any(step.unsettled for step in self._steps)

    def settle(self, total: int) -> Rates:
        """Rates with what was missed put right; `total` is all the server had decoded at the last look:
        its own counter plus what was `in_flight`. What was missed counts to the newest interval."""
        if self._settled is not None and total >= self._settled:
            missed = max(0, total - self._settled - self._counted)
            if self._steps:
                self._steps[-1].decoded += missed
            for step in self._steps:
                step.unsettled = False
        self._settled, self._counted = total, 0
        return self.rates()

    def _look_at_slots(self, at: float, slots: Sequence[Slot]) -> None:
        per_slot: dict[int, SlotRates] = {}
        tracks: dict[int, _Track] = {}
        for slot in slots:
            if not slot.processing:
                continue
            track = self._tracks.get(slot.number)
            if track is None or track.task != slot.task:
                track = _Track(slot.task)
            track.add(at, slot, self._window_s)
            tracks[slot.number] = track
            per_slot[slot.number] = track.rates(slot)
        self._tracks, self._per_slot = tracks, per_slot

    def rates(self) -> Rates:
        """Rates as of the last look."""
        if not self._steps:
            return Rates(slots=self._per_slot)
        window = self._steps[-1].end - self._steps[0].begin
        processed = [step.processed for step in self._steps if step.processed is not None]
        return Rates(
            window,
            sum(step.decoded for step in self._steps) / window,
            sum(processed) / window if len(processed) == len(self._steps) else None,
            self._per_slot,
            self.unsettled,
        )


class _Track:
    """The looks at one task of one slot."""

    def __init__(self, task: int | None) -> None:
        self.task = task
        self._decode: deque[tuple[float, int]] = deque()
        self._prefill_start: tuple[float, int] | None = None
        self._prefill_last: tuple[float, int] | None = None

    def add(self, at: float, slot: Slot, window_s: float) -> None:
        if slot.decoded:
            # The looks before the first token belong to prefill.
            self._decode.append((at, slot.decoded))
            while len(self._decode) > 2 and self._decode[1][0] <= at - window_s:
                self._decode.popleft()
        elif slot.processed is not None:
            if self._prefill_start is None:
                self._prefill_start = self._prefill_last = (at, slot.processed)
            elif self._prefill_last is not None and slot.processed > self._prefill_last[1]:
                self._prefill_last = (at, slot.processed)

    def rates(self, slot: Slot) -> SlotRates:
        if slot.phase == "decode":
            return SlotRates(decode=_slope(self._decode[0], self._decode[-1]) if self._decode else None)
        # Prefill moves a batch at a time, which may take longer than the window: so from the first look to
        # the last one at which it had moved.
        if self._prefill_start is None or self._prefill_last is None:
            return SlotRates()
        return SlotRates(prefill=_slope(self._prefill_start, self._prefill_last))


def _slope(first: tuple[float, int], last: tuple[float, int]) -> float | None:
    span, grown = last[0] - first[0], last[1] - first[1]
    return grown / span if span > 0 and grown >= 0 else None


def _may_have_missed(before: Slot | None, now: Slot) -> bool:
    """Whether a request may have ended in this slot with tokens that no look has seen."""
    if before is None or before.task == now.task:
        return False
    return before.processing or not now.processing or before.task is not None


def _decoded_since(before: Slot | None, now: Slot) -> int:
    decoded = now.decoded or 0
    if before is None or before.task != now.task:
        # Idle with a new task: older builds still show what it decoded.
        return decoded if now.task is not None and before is not None else 0
    if decoded >= (before.decoded or 0):
        return decoded - (before.decoded or 0)
    ended = before.processing and not now.processing
    if ended and now.held is not None and before.held is not None and now.held >= before.held:
        grown = now.held - before.held + 1
        return grown if before.remaining is None else min(grown, before.remaining)
    return 0


def _processed_since(before: Slot | None, now: Slot) -> int:
    if before is None or not now.processing:
        return 0
    processed = now.processed or 0
    if before.task != now.task or not before.processing:
        return processed
    return max(0, processed - (before.processed or 0))
