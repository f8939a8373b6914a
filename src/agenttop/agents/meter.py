"""Whether the driver keeps up: its own delays, measured, and the verdict whether they falsify figures.

Limits as in docs/decisions.md (a level is not the engine's when the client was late):
- the event loop is late by more than a fifth of the time between two tokens,
- the process takes more than 70 % of a core,
- requests leave late by more than a twentieth of the time to the first token,
- tokens come in bunches with one time stamp, because something in between buffers the stream.
Delays below 10 ms are never held against it: that is what time stamps are good to.

With an engine that is simulated faster than life all of this is measured and compared in real time. There
single tokens come closer together than any clock can tell apart, so the event loop is held against the time
a whole reply takes, of which it may be late by a twentieth. Replies over in less than 20 ms are mostly the
way there and back, for however short a time the loop was late.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from agenttop.agents.reply import Reply
from agenttop.model.units import percent

TICK_S = 0.010
CPU_LIMIT = 0.70
LAG_SHARE = 0.20
LATE_SHARE = 0.05
LEAST_DELAY_S = 0.010
"""A shorter delay moves neither a TTFT nor the decode rate of a turn, however fast its tokens come."""

LEAST_REPLY_S = 0.020
"""Of a faster engine's replies: what comes and goes over a connection takes milliseconds by itself."""

BUNCHED_EVENTS = 32
BUNCHED_SHARE = 0.9
"""Ten events in a read, on average over a reply of this many: no engine sends so, a buffering proxy does."""

LEAST_WINDOW_S = 0.25
"""A shorter window is left open for the next reading."""

_RECENT = 64


class Readings(msgspec.Struct, frozen=True, kw_only=True):
    """One window. Named and measured as in LoadSample."""

    window_s: float | None = None
    """None: too short for a rate, and so are all of them."""
    loop_lag_p99_s: float | None = None
    cpu_fraction: float | None = None
    send_late_p99_s: float | None = None
    shared_reads_fraction: float | None = None
    client_limited: str | None = None


class Meter:
    """Gathers over a window; `read` closes one and opens the next."""

    def __init__(self, now: Callable[[], float], rate: float = 1.0) -> None:
        """`now`: session time, which passes `rate` times as fast as real time."""
        self._now = now
        self._rate = rate
        self._lags: list[float] = []
        self._lates: list[float] = []
        self._late_by_us: list[float] = []
        self._ttfts: deque[float] = deque(maxlen=_RECENT)
        self._periods: deque[float] = deque(maxlen=_RECENT)
        self._decodes: deque[float] = deque(maxlen=_RECENT)
        self._replies: deque[float] = deque(maxlen=_RECENT)
        self._bunches: deque[float] = deque(maxlen=_RECENT)
        """Events per read of replies, 0 where they came one by one."""
        self._reads = self._shared = 0
        self._reads_before = self._shared_before = 0
        self._window_start = now()
        self._cpu_start = time.process_time()
        self._due: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def run_ticker(self, on: bool) -> None:
        """The ticker costs a little, so it runs only while there are requests to be late for."""
        if on and self._timer is None:
            self._arm()
        elif not on and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def ended(self, reply: Reply, t_queued: float, first_try: bool) -> None:
        """A request has ended."""
        self._reads += reply.reads
        self._shared += reply.shared_reads
        if reply.t_sent is None:
            return
        if first_try:
            late = max(0.0, reply.t_sent - t_queued)
            self._lates.append(late)
            # Opening a connection takes the network's time, not ours.
            self._late_by_us.append(max(0.0, late - reply.connect_s))
        if reply.t_first_token is not None:
            self._ttfts.append(reply.t_first_token - reply.t_sent)
            self._replies.append((reply.t_last_token or reply.t_first_token) - reply.t_sent)
        if reply.events >= BUNCHED_EVENTS:
            bunched = reply.merged >= BUNCHED_SHARE * reply.events
            self._bunches.append(reply.events / reply.reads if bunched else 0.0)
        period = _period(reply)
        if period is not None:
            self._periods.append(period)
            self._decodes.append(period * (reply.events - 1))

    def read(self, in_flight: Iterable[Reply]) -> Readings:
        """The figures of the window that ends now."""
        replies = list(in_flight)
        now, cpu = self._now(), time.process_time()
        window = now - self._window_start
        if window < LEAST_WINDOW_S:
            return Readings()
        fraction = max(0.0, cpu - self._cpu_start) / window * self._rate
        lag, late, ours = self._real(self._lags), self._real(self._lates), self._real(self._late_by_us)
        readings = Readings(
            window_s=window,
            loop_lag_p99_s=lag,
            cpu_fraction=fraction,
            send_late_p99_s=late,
            shared_reads_fraction=self._shared_fraction(replies),
            client_limited=self._verdict(replies, lag, fraction, ours),
        )
        self.restart()
        return readings

    def _real(self, values: list[float]) -> float | None:
        """The 99th percentile of session times, in real seconds."""
        top = _p99(values)
        return None if top is None else top / self._rate

    def restart(self) -> None:
        """Open a new window; what was gathered is forgotten."""
        self._window_start, self._cpu_start = self._now(), time.process_time()
        self._lags.clear()
        self._lates.clear()
        self._late_by_us.clear()

    def _arm(self) -> None:
        self._due = self._now() + TICK_S * self._rate
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        if self._due is not None:
            self._lags.append(max(0.0, self._now() - self._due))
        self._arm()

    def _shared_fraction(self, replies: list[Reply]) -> float | None:
        reads = self._reads + sum(reply.reads for reply in replies)
        shared = self._shared + sum(reply.shared_reads for reply in replies)
        fresh, fresh_shared = reads - self._reads_before, shared - self._shared_before
        self._reads_before, self._shared_before = reads, shared
        return fresh_shared / fresh if fresh > 0 else None

    def _verdict(self, replies: list[Reply], lag: float | None, cpu: float, late: float | None) -> str | None:
        if cpu > CPU_LIMIT:
            return f"the driver took {percent(cpu)} of a core"
        if self._rate != 1.0:
            return self._verdict_faster_than_life(lag)
        periods = [period for reply in replies if (period := _period(reply)) is not None]
        if lag is not None and lag > LEAST_DELAY_S and periods:
            between = statistics.median(periods)
            if lag > LAG_SHARE * between:
                return f"the driver's loop was {_ms(lag)} late (p99) with {_ms(between)} between tokens"
        if late is not None and late > LEAST_DELAY_S and self._ttfts:
            ttft = statistics.median(self._ttfts)
            if late > LATE_SHARE * ttft:
                return f"requests left {_ms(late)} late (p99) with a TTFT of {_ms(ttft)}"
        bunch = statistics.median(self._bunches) if self._bunches else 0.0
        if bunch:
            return f"tokens came {bunch:.0f} at a time with one time stamp: something in between buffers them"
        return None

    def _verdict_faster_than_life(self, lag: float | None) -> str | None:
        too_fast = f"{self._rate:g} times as fast as life is too fast for this machine"
        whole = statistics.median(self._replies) / self._rate if self._replies else LEAST_REPLY_S
        if whole < LEAST_REPLY_S:
            return f"a reply takes {_ms(whole)} of real time, much of it on the way: {too_fast}"
        if lag is None or lag <= LEAST_DELAY_S or not self._decodes:
            return None
        takes = statistics.median(self._decodes) / self._rate
        if lag <= LATE_SHARE * takes:
            return None
        return (
            f"the driver's loop was {_ms(lag)} late (p99) with {_ms(takes)} of real time for a reply:"
            f" {too_fast}"
        )


def _period(reply: Reply) -> float | None:
    """Mean time between the events of a reply."""
    if reply.t_first_token is None or reply.t_last_token is None or reply.events < 2:
        return None
    return (reply.t_last_token - reply.t_first_token) / (reply.events - 1)


def _p99(values: list[float]) -> float | None:
    """The value that 99 % do not exceed (nearest rank)."""
    if not values:
        return None
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, -(-99 * len(ranked) // 100) - 1)]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"
