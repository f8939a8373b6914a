"""The machine: host, GPUs and processes, each vendor in a thread of its own, so that a driver that hangs
holds up nobody else.

Rules
- No library of a vendor is called from the event loop.
- A look that has not come back in time is not waited for: its GPUs are told to be late, with the age of their
  figures, and nothing new is asked until it has come back.
- Threads are daemons: one that never returns does not keep the process alive.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import msgspec

from agenttop.collect.engine_processes import EngineProcesses
from agenttop.collect.gpu.base import GpuAdapter, GpuReading
from agenttop.collect.gpu.detect import Detected, detect
from agenttop.collect.hardware import hardware
from agenttop.collect.hardware import missing as missing_of_hardware
from agenttop.collect.host import HostSampler
from agenttop.collect.own import OwnCost
from agenttop.model.clock import Clock
from agenttop.model.frames import Event, Frame, GpuSample, Missing
from agenttop.model.text import clean

T = TypeVar("T")

ANSWER_S = 0.4
"""How long a look is waited for. Most take a millisecond or two."""
OPEN_S = 2.0
LATE_S = 3.0
"""Figures older than this are told to be late."""
PROCESSES_S = 2.0
"""Processes are looked at this often."""


class Worker:
    """A thread that does one thing at a time, and is never waited for longer than asked."""

    def __init__(self, name: str) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._result: asyncio.Future[Any] | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def busy(self) -> bool:
        """The last job has not come back."""
        return self._result is not None and not self._result.done()

    def start(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Begin a job; the one before must have come back."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        self._result = result

        def work() -> None:
            try:
                value = job()
            except Exception as error:  # noqa: BLE001 - handed to whoever waits for the job
                _settle(loop, result, None, error)
            else:
                _settle(loop, result, value, None)

        self._jobs.put(work)
        return result

    def end(self) -> None:
        """No more jobs; the thread ends once the last has come back."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _settle(
    loop: asyncio.AbstractEventLoop, result: asyncio.Future[T], value: Any, error: Exception | None
) -> None:
    def settle() -> None:
        if result.done():
            return
        if error is not None:
            result.set_exception(error)
            result.exception()  # looked at: one that nobody waits for any more is no news
        else:
            result.set_result(value)

    with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
        loop.call_soon_threadsafe(settle)


class GpuWatch:
    """The GPUs of one vendor, asked in a thread of their own."""

    def __init__(self, adapter: GpuAdapter, clock: Clock, now: Callable[[], float]) -> None:
        self._adapter = adapter
        self._clock = clock
        self._now = now
        self._worker = Worker(f"gpu {adapter.vendor}")
        self._look: asyncio.Future[GpuReading] | None = None
        self._asked_at = 0.0
        self.reading = GpuReading()
        """The newest."""

    def ask(self) -> asyncio.Future[GpuReading] | None:
        """Begin a look; None while the one before has not come back."""
        if self._worker.busy:
            return None
        t = self._now()
        self._asked_at = self._clock.monotonic()
        self._look = self._worker.start(lambda: self._adapter.sample(t))
        return self._look

    def take(self) -> list[GpuSample]:
        """The samples of the look that has come back; those before it, told to be late, when none has for a
        while; nothing in between."""
        look = self._look
        if look is not None and look.done():
            self._look = None
            with contextlib.suppress(Exception):  # an adapter never raises; one that does gives no sample
                self.reading = look.result()
                return list(self.reading.samples)
        elif look is not None and (late := self._clock.monotonic() - self._asked_at) > LATE_S:
            now = self._now()
            return [
                msgspec.structs.replace(sample, t=now, state="late", age_s=late)
                for sample in self.reading.samples
            ]
        return []

    async def close(self) -> None:
        """Let go of the library, unless it hangs."""
        if not self._worker.busy:
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._worker.start(self._adapter.close), OPEN_S)
        self._worker.end()


class MachineWatch:
    """Host, GPUs, processes, and the node's own cost."""

    def __init__(
        self, clock: Clock, now: Callable[[], float], engines: Callable[[], Mapping[str, int]]
    ) -> None:
        """`engines`: URL of each engine on this host to its process id, as known now."""
        self._clock = clock
        self._now = now
        self._engines = engines
        self._host_worker = Worker("host")
        self._process_worker = Worker("processes")
        self._search = Worker("gpu search")
        self._detection: asyncio.Future[Detected] | None = None
        self._host: HostSampler | None = None
        self._own: OwnCost | None = None
        self._processes = EngineProcesses(clock)
        self._processes_due = 0.0
        self._process_look: asyncio.Future[list[Frame]] | None = None
        self._gpus: list[GpuWatch] = []
        self._numbers = Numbers()
        self._missing = Changes()
        self._host_missing = Changes()
        self._process_missing = Changes()
        self._hardware_missing: list[Missing] = []
        self._defects: set[str] = set()
        """What has been told already."""

    async def open(self) -> list[Frame]:
        """Find the GPUs and take the base of the first rates."""
        self._detection = self._search.start(lambda: detect(self._now(), clock=self._clock))
        frames = await self._host_worker.start(self._open)
        await asyncio.wait([self._detection], timeout=OPEN_S)
        found = self._take_detected()
        if self._detection is not None:
            why = "the GPU driver has not answered yet"
            found = [Missing(t=self._now(), what="gpu", why=why)]
        return [*frames, *found]

    async def sample(self) -> list[Frame]:
        """One look at everything that answers in time."""
        found = self._take_detected()
        looks = [look for watch in self._gpus if (look := watch.ask()) is not None]
        host = None if self._host_worker.busy else self._host_worker.start(self._sample)
        self._ask_processes()
        waited: list[asyncio.Future[Any]] = [*looks, *([host] if host is not None else [])]
        if waited:
            await asyncio.wait(waited, timeout=ANSWER_S)
        frames: list[Frame] = list(found)
        if host is not None and host.done():
            frames += self._of(host, "the host")
        for number, watch in enumerate(self._gpus):
            frames += self._numbers.given(number, watch.take())
        if self._gpus:
            told = [frame for watch in self._gpus for frame in watch.reading.missing]
            frames += self._missing.of(self._now(), told)
        if self._process_look is not None and self._process_look.done():
            frames += self._of(self._process_look, "processes")
            self._process_look = None
        return frames

    async def close(self) -> None:
        """Let go of the GPU libraries; a call that hangs in a driver is not waited for."""
        await asyncio.gather(*(watch.close() for watch in self._gpus))
        for worker in (self._host_worker, self._process_worker, self._search):
            worker.end()

    def _open(self) -> list[Frame]:
        self._host = HostSampler(self._clock)
        self._own = OwnCost("node")
        found = hardware(self._now())
        self._hardware_missing = missing_of_hardware(found)
        return [found]

    def _sample(self) -> list[Frame]:
        t = self._now()
        frames: list[Frame] = []
        if self._host is not None:
            frames.append(self._host.sample(t))
            frames += self._host_missing.of(t, [*self._host.missing, *self._hardware_missing])
        if self._own is not None:
            frames.append(self._own.sample(t))
        return frames

    def _of(self, look: asyncio.Future[list[Frame]], what: str) -> list[Frame]:
        """The frames of a look; an event instead, once for each thing that can go wrong with it: a defect
        there must not end the session."""
        try:
            return look.result()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told
            text = f"{what} cannot be sampled: {clean(f'{type(error).__name__}: {error}', 120)}"
            if text in self._defects:
                return []
            self._defects.add(text)
            return [Event(t=self._now(), event="host.defect", text=text, source="host", severity="bad")]

    def _take_detected(self) -> list[Frame]:
        if self._detection is None or not self._detection.done():
            return []
        detected, self._detection = self._detection.result(), None
        self._gpus = [GpuWatch(adapter, self._clock, self._now) for adapter in detected.adapters]
        t = self._now()
        refused = [Event(t=t, event="plug-in.refused", text=why, severity="warn") for why in detected.refused]
        missing: list[Frame] = list(detected.missing) or [Missing(t=t, what="gpu")]
        return [*missing, *refused]

    def _ask_processes(self) -> None:
        now = self._clock.monotonic()
        if self._process_worker.busy or self._process_look is not None or now < self._processes_due:
            return
        self._processes_due = now + PROCESSES_S
        t, engines = self._now(), dict(self._engines())
        holders = {gpu: held for watch in self._gpus for gpu, held in watch.reading.holders.items()}

        def look() -> list[Frame]:
            samples = self._processes.sample(t, engines, holders)
            return [*samples, *self._process_missing.of(t, self._processes.missing)]

        self._process_look = self._process_worker.start(look)


class Numbers:
    """Numbers GPUs of several vendors so that no two have the same: each vendor's begin where those of the
    vendor before it ended when they were first seen."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}
        self._next = 0

    def given(self, adapter: int, samples: list[GpuSample]) -> list[GpuSample]:
        """The samples under their numbers."""
        if not samples:
            return []
        if adapter not in self._first:
            self._first[adapter] = self._next
            self._next += max(sample.index for sample in samples) + 1
        first = self._first[adapter]
        if not first:
            return samples
        return [msgspec.structs.replace(sample, index=first + sample.index) for sample in samples]


class Changes:
    """What is missing now, as the frames that tell what has changed since the look before."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str | None, str | None]] = {}

    def of(self, t: float, missing: Iterable[Missing]) -> list[Missing]:
        """Frames for what is newly missing, missing for another reason, or back."""
        now = {frame.what: frame for frame in missing if frame.why is not None}
        changed = [frame for what, frame in now.items() if self._told.get(what) != (frame.why, frame.fix)]
        back = [Missing(t=t, what=what) for what in self._told if what not in now]
        self._told = {what: (frame.why, frame.fix) for what, frame in now.items()}
        return [*changed, *back]
