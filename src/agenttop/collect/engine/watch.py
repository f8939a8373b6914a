"""One engine for a whole session: recognised, asked, and found again after a restart."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from functools import partial

import msgspec

from agenttop.access.ways import PLAIN, Access
from agenttop.collect.discovery import process_at
from agenttop.collect.engine import sound
from agenttop.collect.engine.base import (
    KEY_HINT,
    ChangedError,
    EngineAdapter,
    EngineReading,
    UnrecognisedError,
)
from agenttop.collect.engine.http import (
    CutError,
    EngineError,
    OtherServerError,
    RefusedError,
    TimedOutError,
    UnauthorisedError,
    UnreachableError,
)
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.engine.pace import Pace
from agenttop.collect.engine.recognise import recognise
from agenttop.collect.engine.standing import Failure, Standing
from agenttop.model.frames import EngineSample
from agenttop.model.text import clean
from agenttop.model.url import is_local, normalise

PATIENCE_S = 0.8
"""How long one `poll` waits for an answer before it returns without."""
_BACK_OFF_S = (1.0, 1.0, 2.0, 2.0, 5.0)
"""Between attempts at an address where nothing answers; the last one repeats."""
_HOPELESS_S = 10.0
"""Between attempts where something answers that is no engine, or wants another key."""
_EARLY_S = 0.3
"""A tick may come a little before its time."""


class EngineWatch:
    """Watches one address. Call `poll` about once a second."""

    def __init__(
        self,
        url: str,
        *,
        access: Access = PLAIN,
        now: Callable[[], float] = time.monotonic,
        load_allowed: bool = False,
        metrics: bool = True,
        polls_host: bool = True,
        patience_s: float = PATIENCE_S,
        rate: float = 1.0,
    ) -> None:
        """Nothing is asked yet.

        Args:
            url: as people write it. Raises UsageError when it is no address.
            access: how it is reached; the key goes to this origin only.
            now: session time.
            load_allowed: the user named or confirmed this engine; may be set later.
            metrics: whether llama.cpp's `/metrics` may be asked: a scrape resets two of its gauges.
            polls_host: whether the process behind an address of this host may be looked at.
            patience_s: see `PATIENCE_S`.
            rate: session seconds per second: above 1 where the session follows a simulated engine that runs
                faster than life. An engine at another pace is not read in it: its figures would be wrong.
            rate: seconds of `now` per real second.
        """
        self.url = normalise(url)
        self.load_allowed = load_allowed
        self._access = access
        self._now = now
        self._metrics = metrics
        self._looks_at_process = polls_host and is_local(self.url)
        self._patience_s = patience_s
        self._rate = rate
        self._standing = Standing(self.url, rate)
        self._adapter: EngineAdapter | None = None
        self._task: asyncio.Task[EngineReading | Failure] | None = None
        self._next_at = 0.0
        self._asked_at = 0.0
        self._pace = Pace()
        self._failures = 0

    async def poll(self) -> EngineReading:
        """What is known now. Returns within `patience_s` or so, and never raises.

        While an answer is due no second question is put: the reading then holds the last figures with
        their age, and says `busy` when they are late. `slots` is empty in a reading without news. An engine
        whose replies are slow is asked less often (`pace.Pace`).
        """
        if self._task is None and self._now() >= self._next_at:
            self._asked_at = self._now()
            self._task = asyncio.create_task(self._ask(), name=f"ask {self.url}")
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=self._patience_s)
            if self._task.done():
                task, self._task = self._task, None
                return self._allowed(await self._settle(task.result()))
        return self._allowed(self._standing.waiting(self._now()))

    async def close(self) -> None:
        """Give up the question in flight and close the connection."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self._drop()

    def _allowed(self, reading: EngineReading) -> EngineReading:
        sample = msgspec.structs.replace(reading.sample, load_allowed=self.load_allowed)
        return msgspec.structs.replace(reading, sample=sample)

    async def _settle(self, outcome: EngineReading | Failure) -> EngineReading:
        now = self._now()
        if isinstance(outcome, Failure):
            self._failures += 1
            self._next_at = now + (self._pause(outcome.state) - _EARLY_S) * self._rate
            if outcome.works:
                self._next_at = self._asked_at + self._pace.wait_s * self._rate
            return self._standing.failed(now, outcome)
        self._failures = 0
        self._next_at = 0.0 if self._pace.is_usual else self._asked_at + self._pace.wait_s * self._rate
        reply_s = self._adapter.client.reply_s if self._adapter is not None else None
        reading = self._standing.answered(now, outcome, reply_s, self._pace.every_s * self._rate)
        if any(event.event == "engine.restart" for event in outcome.events):
            await self._drop()  # another process: its command line may differ, and so may the engine
        return reading

    def _pause(self, state: str) -> float:
        if state in ("unsupported", "unauthorised"):
            return _HOPELESS_S
        if state == "down":
            return _BACK_OFF_S[min(self._failures, len(_BACK_OFF_S)) - 1]
        return 1.0

    async def _ask(self) -> EngineReading | Failure:
        """One look, or why there is none; how long it took sets the pace."""
        known = self._adapter is not None
        outcome = await self._outcome()
        if known:  # to recognise it takes many questions, once
            self._pace.took((self._now() - self._asked_at) / self._rate)
        return outcome

    async def _outcome(self) -> EngineReading | Failure:
        try:
            try:
                return await self._look()
            except (ChangedError, OtherServerError):
                await self._drop()
                return await self._look()
        except UnrecognisedError as verdict:
            await self._drop()
            return Failure(state=verdict.state, note=verdict.note, name=verdict.name)
        except (ChangedError, OtherServerError):
            await self._drop()
            return Failure(state="unsupported", note=f"{self.url} keeps changing what it is")
        except EngineError as error:
            return await self._explain(error)
        except BaseException as error:
            # One strange reply must not end the session, nor may an adapter of another package.
            if isinstance(error, KeyboardInterrupt | GeneratorExit) or _is_ours(error):
                raise
            await self._drop()
            what = clean(f"{type(error).__name__}: {error}", 120)
            return Failure(
                state="unsupported", note=f"agenttop could not read {self.url} ({what}); please report it"
            )

    async def _look(self) -> EngineReading:
        if self._adapter is None:
            self._adapter = await recognise(
                self.url,
                access=self._access,
                now=self._now,
                metrics=self._metrics,
                process=self._process if self._looks_at_process else None,
            )
        reading = await self._adapter.poll()
        if not type(self._adapter).__module__.startswith("agenttop."):
            reading = sound.check(self.url, reading)
        self._refuse_another_pace(reading.sample)
        return reading

    def _refuse_another_pace(self, sample: EngineSample) -> None:
        """Raises UnrecognisedError where a second of this engine is no second of the session."""
        pace = sample.speedup or 1.0
        if math.isclose(pace, self._rate, rel_tol=1e-6):
            return
        if sample.simulated is None:
            note = (
                f"this session runs in simulated time, {self._rate:g} times as fast as life, in which the "
                f"figures of a real engine would be wrong; look at {self.url} in a session of its own"
            )
        else:
            note = (
                f"{self.url} is simulated at {pace:g} times the speed of life and this session runs at "
                f"{self._rate:g}: start a session with its loopback address as --url, which follows its clock"
            )
        raise UnrecognisedError("unsupported", note, sample.name)

    async def _process(self) -> Circumstances:
        process = await asyncio.to_thread(process_at, self.url)
        return Circumstances(process=process, look_again=partial(process_at, self.url))

    async def _explain(self, error: EngineError) -> Failure:
        if isinstance(error, TimedOutError):
            alive = self._adapter is not None and await self._adapter.alive()
            why = "it is alive, and busy" if alive else "it takes connections and answers nothing"
            return Failure(state="busy", note=f"{self.url} {error}: {why}", works=alive)
        name = self._adapter.name if self._adapter is not None else None
        if isinstance(error, RefusedError):
            await self._drop()
            note = f"nothing listens at {self.url}; start the engine, or check host and port"
            return Failure(state="down", note=note, name=name, ended=True)
        if isinstance(error, UnreachableError | CutError):
            return Failure(state="down", note=f"{self.url} {error}", name=name)
        await self._drop()
        if isinstance(error, UnauthorisedError):
            key = self._access.key
            hint = f"the key from {key.source} is not accepted" if key is not None else KEY_HINT
            return Failure(state="unauthorised", note=f"{self.url} {error}; {hint}", name=name)
        return Failure(state="unsupported", note=f"{self.url} {error}", name=name)

    async def _drop(self) -> None:
        adapter, self._adapter = self._adapter, None
        if adapter is not None:
            await adapter.client.close()


def _is_ours(error: BaseException) -> bool:
    """Whether it is our own cancelling of the task, not an adapter's doing."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
