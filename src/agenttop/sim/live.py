"""A simulated engine against the wall clock: its emissions come out when their simulated time has come."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from agenttop.sim.engine import SimEngine
from agenttop.sim.requests import Emission, EngineState, GpuReading, SimRequest

LEAST_WAIT_S = 0.001
"""Timers are no finer. An engine that runs much faster than life says several things in one go."""
BITE_S = 0.05
"""The most of the past that is caught up with in one go, in real seconds of the engine's time ..."""
WORK_S = 0.01
"""... and about how long that may take, so that connections are served in between."""
_GPUS_EVERY = 0.5
"""Simulated seconds: readers share a reading, for each begins a new window for its rates."""
_KEPT = 4096


class LiveEngine:
    """Runs one engine after another (a restart brings a new one) on one axis of simulated time."""

    def __init__(
        self,
        engine: SimEngine,
        speedup: float,
        deliver: Callable[[list[Emission]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.engine = engine
        self.speedup = speedup
        self._deliver = deliver
        self._clock = clock
        self._begun = clock()
        self._timer: asyncio.TimerHandle | None = None
        self._late: deque[float] = deque(maxlen=_KEPT)
        self._gpus: list[GpuReading] = []
        self._gpus_at = float("-inf")
        self._bite_s = BITE_S
        self._telling = False
        """Emissions are being delivered: what that brings about must not move time."""

    @property
    def now(self) -> float:
        """Simulated seconds since the server began."""
        return (self._clock() - self._begun) * self.speedup

    def submit(self, request: SimRequest) -> None:
        """Queue a request as of now. Raises RejectedError."""
        self._catch_up()
        self.engine.submit(request)
        self._arm()

    def cancel(self, request_id: str) -> None:
        """Forget a request."""
        self._catch_up()
        self.engine.cancel(request_id)
        self._arm()

    def state(self) -> EngineState:
        """The engine as of now."""
        self._catch_up()
        self._arm()
        return self.engine.state()

    def gpus(self) -> list[GpuReading]:
        """Its GPUs, as of now or a moment ago."""
        self._catch_up()
        self._arm()
        if self.engine.now - self._gpus_at >= _GPUS_EVERY:
            self._gpus, self._gpus_at = self.engine.gpus(max(1.0, self.speedup)), self.engine.now
        return self._gpus

    def replace(self, engine: SimEngine) -> None:
        """A new engine, empty and cold; time goes on."""
        engine.advance(self.now)
        self.engine = engine
        self._arm()

    def late_s(self) -> float | None:
        """How late the newest emissions were sent, in real seconds: the 99th percentile. None before any."""
        if not self._late:
            return None
        ordered = sorted(self._late)
        return ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]

    def stop(self) -> None:
        """No more emissions."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _catch_up(self) -> None:
        """What is due, or a bite of it; what is left is for the next turn of the loop."""
        if self._telling:
            return
        now, begun, due = self.now, self.engine.now, self.engine.next_time()
        if due is None:
            self.engine.advance(max(now, begun))
            return
        until = min(now, max(due, begun + self._bite_s * self.speedup))
        started = self._clock()
        self._tell(self.engine.advance(max(begun, until)), now)
        took = self._clock() - started
        if took > WORK_S:
            self._bite_s /= 2
        elif self._bite_s < BITE_S:
            self._bite_s = min(BITE_S, self._bite_s * 1.5)

    def _tell(self, emissions: list[Emission], now: float) -> None:
        """Hand emissions on, and note how late they are."""
        last = -1.0
        for emission in emissions:
            if emission.t != last:
                last = emission.t
                self._late.append(max(0.0, (now - last) / self.speedup))
        if emissions:
            self._telling = True
            try:
                self._deliver(emissions)
            finally:
                self._telling = False

    def _arm(self) -> None:
        """Wake when there is next something to say."""
        self.stop()
        due = self.engine.next_time()
        if due is None:
            return
        wait = (due - self.now) / self.speedup
        delay = 0.0 if wait < -2 * LEAST_WAIT_S else max(LEAST_WAIT_S, wait)
        self._timer = asyncio.get_running_loop().call_later(delay, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._catch_up()
        self._arm()
