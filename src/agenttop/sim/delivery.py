"""One reply on its way to its client: from emissions to events, with the faults that were asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from agenttop.sim.asking import Job
from agenttop.sim.faults import Fault, Treatment
from agenttop.sim.http import Exchange
from agenttop.sim.requests import Emission
from agenttop.sim.wire import COMMENT, Wire
from agenttop.sim.words import Words

COMMENT_EVERY_S = 5.0
"""Simulated seconds between the keep-alives of a stream that stalls with them."""

_MIDDLE = ("cut", "error", "stall", "restart")
_Act = bytes | Callable[[], None]


class Delivery:
    """Takes the emissions of one request; `flush` after each batch of them sends what they amount to."""

    def __init__(
        self,
        exchange: Exchange,
        job: Job,
        wire: Wire,
        words: Words,
        treatment: Treatment,
        speedup: float,
        *,
        over: Callable[[Delivery], None],
        restart: Callable[[float], None],
    ) -> None:
        """`over` is called when nothing more will be sent and the engine may forget the request;
        `restart` when the fault of that name strikes."""
        self.exchange = exchange
        self.job = job
        self._wire = wire
        self._words = words
        self._speedup = speedup
        self._over = over
        self._restart = restart
        self._events: list[bytes] = []
        self._fresh: list[tuple[int, float]] = []
        """Output tokens not sent yet: their number in the reply and when they were made."""
        self._opened = False
        self._finished = False
        self._told_end = False
        """The chunk that ends the output has been made."""
        self._failure: str | None = None
        self._t = job.arrived
        self._middle = _first_of(treatment)
        self._together = int(treatment.number("tokens-per-chunk") or 1)
        self._slow_s = treatment.number("slow")
        self._queue: deque[_Act] | None = deque() if self._slow_s is not None else None
        """What waits, when the reply is held up; None: events go out at once."""
        self._held = False
        self._timers: set[asyncio.TimerHandle] = set()
        exchange.gone = self._gone
        if treatment.get("role-only") and job.stream:
            self._open()
            self.flush()

    def take(self, emission: Emission) -> None:
        """One more emission, in order of time."""
        job, kind, t = self.job, emission.kind, emission.t
        self._t = t
        if kind in ("first", "token"):
            self._fresh.append((emission.tokens, t))
        elif kind in ("start", "progress"):
            if job.stream and job.progress:
                processed = emission.tokens if kind == "progress" else emission.cached_tokens
                self._events.append(self._wire.progress(job, processed, t))
        elif kind == "finish":
            self._finished = True
        elif kind == "error":
            self._failure = emission.message or "aborted"

    def flush(self) -> None:
        """Send what has come since the last flush."""
        if self.job.stream:
            self._write_output()
            if self._events:
                self._send(self._events)
                self._events = []
        elif self._finished or self._failure is not None:
            self._answer()

    def drop(self) -> None:
        """The engine has died: the connection ends where it is."""
        self._let_go()
        self.exchange.cut()

    # Streams

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            self._events.append(self._wire.opening(self.job))

    def _write_output(self) -> None:
        """Chunks of the fresh tokens, and the end of the reply if it has come."""
        if self._fresh:
            self._open()
        while self._fresh and (count := self._next_count()):
            first, (done, t) = self._fresh[0][0], self._fresh[count - 1]
            del self._fresh[:count]
            self._chunk(first, done, t, ended=self._finished and not self._fresh)
            if self._middle is not None and done >= self._middle.tokens and self._strike():
                return
        if self._failure is not None:
            self._break(self._failure)
        elif self._finished:
            self._finish()

    def _next_count(self) -> int:
        """Tokens of the next chunk; 0 while it is not full. A fault's place and the end of the thinking are
        ends of a chunk too."""
        first = self._fresh[0][0]
        wanted = self._together
        if self._middle is not None:
            wanted = min(wanted, max(1, self._middle.tokens - first + 1))
        if first <= self.job.reasoning:
            wanted = min(wanted, self.job.reasoning - first + 1)
        whole = len(self._fresh) >= wanted or self._finished or self._failure is not None
        return min(wanted, len(self._fresh)) if whole else 0

    def _chunk(self, first: int, done: int, t: float, *, ended: bool) -> None:
        job = self.job
        at = job.words + first - 1
        if done == first:
            text = self._words.escaped(at)
        else:
            text = b"".join(self._words.escaped(position) for position in range(at, job.words + done))
        thinking = done <= job.reasoning
        self._told_end = ended
        self._events.append(self._wire.chunk(job, text, done, t, thinking=thinking, ended=ended))

    def _finish(self) -> None:
        if self._middle is not None and self._strike():
            return  # a reply shorter than the fault's place is hit at its end
        if not self._told_end:
            self._open()
            last = self._wire.chunk(self.job, b"", self.job.done, self._t, thinking=False, ended=True)
            self._events.append(last)
        self._events += self._wire.closing(self.job, self._t)
        self._end_with(self.exchange.close_stream)

    def _break(self, message: str) -> None:
        self._open()
        self._events += self._wire.broken(message)
        self._end_with(self.exchange.close_stream)

    def _strike(self) -> bool:
        """The fault in the middle happens now; whether the reply ends with it."""
        fault, self._middle = self._middle, None
        assert fault is not None
        if fault.kind == "stall":
            self._stall(fault)
            return False
        self._fresh.clear()
        if fault.kind == "cut":
            self._end_with(self.exchange.cut)
        elif fault.kind == "error":
            self._break(str(fault.value or ""))
        else:
            seconds = fault.value if isinstance(fault.value, float) else 0.0
            self._end_with(lambda: self._restart(seconds))
        return True

    def _end_with(self, act: Callable[[], None]) -> None:
        events, self._events = self._events, []
        self._send([*events, act, self._let_go])

    # What is held up

    def _stall(self, fault: Fault) -> None:
        """From here on everything waits."""
        events, self._events = self._events, []
        self._send(events)
        if self._queue is None:
            self._queue = deque()
        self._queue.append(lambda: self._hold(fault))
        self._pump()

    def _hold(self, fault: Fault) -> None:
        self._held = True
        if isinstance(fault.value, float):
            self._later(fault.value, self._release)
        if fault.comments:
            self._comment()

    def _comment(self) -> None:
        if self._held and not self.exchange.over:
            if self.job.stream:
                self.exchange.send([COMMENT])
            self._later(COMMENT_EVERY_S, self._comment)

    def _release(self) -> None:
        self._held = False
        self._pump()

    def _send(self, acts: Sequence[_Act]) -> None:
        if self._queue is not None:
            self._queue.extend(acts)
            self._pump()
            return
        events: list[bytes] = []
        for act in acts:
            if isinstance(act, bytes):
                events.append(act)
                continue
            self._put(events)
            events = []
            act()
        self._put(events)

    def _put(self, events: list[bytes]) -> None:
        if events and not self.exchange.over:
            if not self.exchange.streaming:
                self.exchange.open_stream(self._wire.stream_headers())
            self.exchange.send(events)

    def _pump(self) -> None:
        """Send from the queue as far as nothing holds it up."""
        assert self._queue is not None
        while self._queue and not self._held and not self.exchange.over:
            act = self._queue.popleft()
            if not isinstance(act, bytes):
                act()
            elif act:
                self._put([act])
                if self._slow_s is not None:
                    self._held = True
                    self._later(self._slow_s, self._release)

    # Replies in one piece

    def _answer(self) -> None:
        job, fault = self.job, self._middle
        if fault is not None and fault.kind == "stall":
            self._middle = None
            if isinstance(fault.value, float):
                self._later(fault.value, self._answer)
            return
        if fault is not None and fault.kind == "cut":
            self._end_with(self.exchange.cut)
        elif fault is not None and fault.kind == "restart":
            self._strike()
        elif fault is not None or self._failure is not None:
            text = self._failure or str(fault.value if fault is not None else "")
            answer = self._wire.failure(500, text or "Internal server error")
            self._end_with(lambda: self.exchange.answer(answer.status, answer.body, answer.headers))
        else:
            thinking = self._words.text(job.words, job.reasoning)
            text = self._words.text(job.words + job.reasoning, job.done - job.reasoning).decode("ascii")
            reply = self._wire.whole(job, text, thinking.decode("ascii"), self._t)
            self._end_with(lambda: self.exchange.answer(reply.status, reply.body, reply.headers))

    # The end

    def _gone(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self._over(self)

    def _later(self, simulated_s: float, act: Callable[[], None]) -> None:
        handle: asyncio.TimerHandle

        def run() -> None:
            self._timers.discard(handle)
            act()

        handle = asyncio.get_running_loop().call_later(simulated_s / self._speedup, run)
        self._timers.add(handle)


def _first_of(treatment: Treatment) -> Fault | None:
    """The fault in the middle that comes first."""
    faults = [fault for kind in _MIDDLE if (fault := treatment.get(kind)) is not None]
    return min(faults, key=lambda fault: fault.tokens, default=None)


def comments(exchange: Exchange, wire: Wire, every_s: float, speedup: float) -> None:
    """Status 200 and then nothing but comments, for as long as the client listens."""
    exchange.open_stream(wire.stream_headers())

    def say() -> None:
        if not exchange.over:
            exchange.send([COMMENT])
            loop.call_later(max(0.001, every_s / speedup), say)

    loop = asyncio.get_running_loop()
    say()
