"""What vllm-mlx's requests do from look to look: slots, rates and sums. Pure; the caller brings the times.

Output tokens are counted request by request. Of a request that has ended since the look before, the last
tokens are in the growth of the server's total, but only where every request that is gone has ended and none
came and went unseen: a client that hangs up takes its tokens with it, and a request that is not streamed
counts all of its own when it ends. In doubt they are left out, and the rate is called a floor.
"""

from __future__ import annotations

import math

from agenttop.collect.engine.counters import WINDOW_S, CounterWindow, LandingRate
from agenttop.collect.engine.kinds.vllm_mlx.status import Request, Status

MOST_SLOTS = 64
"""Requests beyond them are counted, not shown."""


class _Followed:
    """One request, for as long as it runs."""

    def __init__(self, task: int, slot: int | None) -> None:
        self.task = task
        self.slot = slot
        self.window = CounterWindow()
        self.landed = False
        """Its prompt has been computed."""
        self.last: Request | None = None


class Work:
    """Follows the requests of one server."""

    def __init__(self) -> None:
        self._followed: dict[str, _Followed] = {}
        self._before: Status | None = None
        self._tasks = 0
        self._decoded = 0
        self._computed = 0
        self._window = CounterWindow()
        self._prefill = LandingRate()
        self._drafts = CounterWindow()
        self._unsure_until = self._unseen_until = self._untold_until = -math.inf
        self.slots_used = 0
        """Slot numbers that have been given out."""

    def went_back(self, now: Status) -> bool:
        """Whether the server was started anew since the look before."""
        before = self._before
        if before is None:
            return False
        pairs = [
            (before.finished, now.finished),
            (before.output_total, now.output_total),
            (before.prompt_total, now.prompt_total),
        ]
        younger = (
            before.uptime_s is not None and now.uptime_s is not None and now.uptime_s < before.uptime_s - 1
        )
        return younger or any(
            was is not None and is_now is not None and is_now < was for was, is_now in pairs
        )

    def update(self, now: Status) -> None:
        """Take in one look."""
        if self._before is not None and now.at <= self._before.at:
            return
        present = {request.id: request for request in now.at_work}
        self._count_those_gone(now, set(present))
        for request in now.at_work:
            self._follow(now, request)
        if now.hidden:
            self._unsure_until = self._unseen_until = now.at + WINDOW_S
        self._window.add(now.at, {"decoded": self._decoded})
        busy = any(request.phase == "prefill" for request in now.at_work)
        self._prefill.add(now.at, self._computed, busy)
        self._drafts.add(now.at, {"drafted": now.drafted, "accepted": now.accepted})
        self._before = now

    def _count_those_gone(self, now: Status, present: set[str]) -> None:
        gone = [self._followed.pop(name) for name in set(self._followed) - present]
        before = self._before
        if before is None:
            return
        ended = _growth(before.finished, now.finished)
        total = _growth(before.output_total, now.output_total)
        counted = sum(each.last.decoded for each in gone if each.last is not None)
        if ended == len(gone) and total is not None and total >= counted:
            self._decoded += total - counted
        elif gone or ended or total:
            self._unsure_until = now.at + WINDOW_S
        if ended is None or ended > len(gone):
            self._unseen_until = now.at + WINDOW_S

    def _follow(self, now: Status, request: Request) -> None:
        followed = self._followed.get(request.id)
        is_new = followed is None
        if followed is None:
            self._tasks += 1
            followed = self._followed[request.id] = _Followed(self._tasks, self._free_slot())
        if self._before is None:  # what it did before the first look belongs to no window
            followed.landed = request.phase == "decode"
        else:
            grown = request.decoded - (followed.last.decoded if followed.last is not None else 0)
            self._decoded += max(0, grown)
        if request.phase == "decode":
            if not followed.landed and request.prompt is not None and request.cached is not None:
                self._computed += max(0, request.prompt - request.cached)
            elif not followed.landed:
                self._untold_until = now.at + WINDOW_S
            followed.landed = True
            followed.window.add(now.at, {"decoded": request.decoded})
        elif request.cached is None:
            self._untold_until = now.at + WINDOW_S
        followed.last = request
        if is_new and followed.slot is not None:
            self.slots_used = max(self.slots_used, followed.slot + 1)

    def _free_slot(self) -> int | None:
        taken = {each.slot for each in self._followed.values()}
        return next((number for number in range(MOST_SLOTS) if number not in taken), None)

    # Telling

    @property
    def window_s(self) -> float | None:
        """Of all rates; None while it is too short."""
        return self._window.span_s

    @property
    def decode_tok_s(self) -> float | None:
        """All requests. None while only requests run that tell no counts."""
        before = self._before
        if before is not None and before.hidden and not before.at_work:
            return None
        return self._window.rate("decoded")

    @property
    def decode_is_floor(self) -> bool:
        """Tokens may be missing from the window."""
        return self._before is not None and self._before.at < self._unsure_until

    @property
    def prefill_tok_s(self) -> float | None:
        """Prompt tokens that were computed; None where some of them are not told, see `prefill_why`."""
        return self._prefill.rate() if self.prefill_why is None and self.window_s is not None else None

    @property
    def prefill_why(self) -> str | None:
        """Why there is no prefill rate."""
        at = self._before.at if self._before is not None else 0.0
        if at < self._untold_until:
            return "this engine of vllm-mlx does not tell how much of a prompt came from its cache"
        if at < self._unseen_until:
            return "requests came and went between two looks, and their prompts were not seen"
        return None

    @property
    def draft_acceptance(self) -> float | None:
        """Share of the drafted tokens that was taken, over the window."""
        drafted, accepted = self._drafts.growth("drafted"), self._drafts.growth("accepted")
        return min(1.0, accepted / drafted) if drafted and accepted is not None else None

    def shown(self) -> list[tuple[int, int, Request, float | None]]:
        """(slot, task, request, decode rate) of those that run and have a slot."""
        return [
            (each.slot, each.task, each.last, each.window.rate("decoded"))
            for each in self._followed.values()
            if each.slot is not None and each.last is not None
        ]


def _growth(was: int | None, now: int | None) -> int | None:
    return now - was if was is not None and now is not None else None
