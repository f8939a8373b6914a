"""Token rates of llama.cpp from successive looks at its slots. Pure; the caller brings the times.

The counters of a slot move in steps, a batch at a time, and all busy slots step together: polls of 250 ms of
four slots that decode 52 tok/s read 16 to 96. So rates are taken over a window of about three seconds.

What is counted between two looks at one slot:
- same task: the growth of `n_decoded` and of `n_prompt_tokens_processed`;
- a new task: all it has so far, for it began within the interval;
- the request ended: the growth of the tokens held, plus one (the last token is never put into the cache),
  or on older builds the growth of the kept `n_decoded`.
Not seen: the last tokens of a request whose slot serves the next one already, at most one interval of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from agenttop.collect.engine.llamacpp_slots import Slot

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


class RateMeter:
    """Fed with every look at the slots."""

    def __init__(self, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._at: float | None = None
        self._slots: dict[int, Slot] = {}
        self._steps: deque[tuple[float, float, int, int | None]] = deque()
        """(from, to, tokens decoded, prompt tokens processed)."""
        self._tracks: dict[int, _Track] = {}

    def update(self, at: float, slots: Sequence[Slot]) -> Rates:
        """Rates as of this look; `at` is when the reply arrived."""
        if self._at is not None and at > self._at:
            decoded = sum(_decoded_since(self._slots.get(slot.number), slot) for slot in slots)
            processed = [_processed_since(self._slots.get(slot.number), slot) for slot in slots]
            counts = any(slot.processed is not None for slot in slots) or not any(
                slot.processing for slot in slots
            )
            self._steps.append((self._at, at, decoded, sum(processed) if counts else None))
        self._at = at
        while len(self._steps) > 1 and self._steps[0][1] <= at - self._window_s:
            self._steps.popleft()
        self._slots = {slot.number: slot for slot in slots}
        return self._rates(at, slots)

    def _rates(self, at: float, slots: Sequence[Slot]) -> Rates:
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
        self._tracks = tracks
        if not self._steps:
            return Rates(slots=per_slot)
        window = at - self._steps[0][0]
        processed = [step[3] for step in self._steps if step[3] is not None]
        return Rates(
            window,
            sum(step[2] for step in self._steps) / window,
            sum(processed) / window if len(processed) == len(self._steps) else None,
            per_slot,
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
