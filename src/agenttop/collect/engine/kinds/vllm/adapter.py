"""vLLM: `/metrics` for what happens now, `/v1/models` and `/version` for what it is.

None of its GETs changes anything, and `--api-key` guards only `/v1`: figures are read without a key, and
it is said that requests need one. How the figures come about stands in `vllm_metrics` and `counters`.
"""

from __future__ import annotations

import math

import msgspec

from agenttop.collect.engine.base import ChangedError, EngineReading, needs_key, restart_event
from agenttop.collect.engine.http import (
    CutError,
    EngineClient,
    UnauthorisedError,
    UnexpectedError,
)
from agenttop.collect.engine.kinds.openai import Models
from agenttop.collect.engine.kinds.vllm import frames
from agenttop.collect.engine.kinds.vllm.metrics import Figures, read
from agenttop.collect.engine.kinds.vllm.stillness import Stillness
from agenttop.collect.engine.kinds.vllm.work import Work
from agenttop.collect.engine.preemption import PreemptionWatch
from agenttop.collect.process import Command
from agenttop.model.frames import EngineSample, Event, LatencySample
from agenttop.model.text import clean

METRICS_LIMIT = 8_000_000
"""48 kB for one engine; data-parallel engines add up."""
_MODELS_EVERY_S = 60.0
_MOST_MARKERS = 64
_GATEWAY = (502, 503, 504)
"""What a proxy says while vLLM is away."""
_BELIEVED_AFTER = 3


class _Version(msgspec.Struct):
    version: str = ""


class _Identity(msgspec.Struct):
    """What does not move while the server lives."""

    model: str | None = None
    context_limit: int | None = None
    locked: bool = False
    """`/v1` needs a key that was not given, or is not accepted."""
    at: float = -math.inf


class VllmAdapter:
    """Reads one vLLM server, with all its data-parallel engines."""

    name = "vLLM"
    allowed_paths = frozenset({"/metrics", "/v1/models", "/version"})

    def __init__(
        self, client: EngineClient, *, pid: int | None = None, command: Command | None = None
    ) -> None:
        """`pid` and `command` are of the server's process, where it runs on this host and can be seen."""
        self.client = client
        client.prove_by("/version")
        self._url = client.base_url
        self._pid = pid
        self._given = frames.settings(command)
        self._who = _Identity()
        self._version: str | None = None
        self._asked_version = False
        self._locked_told = False
        self._had_figures = False
        self._absent: str | None = None
        self._markers: list[float] = []
        """Start times of the server processes seen so far, the newest last."""
        self._several = False
        self._stood = 0
        """Looks at which the newest start time has been seen again."""
        self._forget()

    def _forget(self) -> None:
        """Another process: nothing seen before belongs to it."""
        self._work = Work(self._url)
        self._preemption = PreemptionWatch(self.name, self._url)
        self._stillness = Stillness()
        self._frozen_s: float | None = None

    async def alive(self) -> bool:
        """`/version` needs no engine core and no key."""
        return await self.client.answers("/version")

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        found = await self._scrape()
        await self._identify()
        t = found.at if found is not None else self.client.now()
        events = self._told_once(t)
        rates = frames.Rates()
        sample = EngineSample(
            t=t,
            engine=self._url,
            url=self._url,
            name=self.name,
            state="ok",
            version=self._version,
            model=self._who.model,
            pid=self._pid,
            context_limit_tokens=self._who.context_limit,
        )
        latencies: list[LatencySample] = []
        if found is not None:
            events += self._take_in(found)
            rates = self._work.rates(found)
            if not self._several:
                latencies = self._work.latencies(found)
            sample = frames.with_figures(sample, found, rates, self._given, self._frozen_s is None)
        doubts = frames.Doubts(
            absent=self._absent,
            locked=self._who.locked,
            context_known=self._who.context_limit is not None,
            several_servers=self._several,
            frozen=found is not None and self._frozen_s is not None,
        )
        return EngineReading(
            sample=sample,
            latencies=latencies,
            parts=(
                frames.parts(t, self._url, found, rates, "rank", self._frozen_s is None)
                if found is not None
                else []
            ),
            missing=frames.missing(t, self._url, found, rates, self._given, doubts),
            events=events,
        )

    # Asking

    async def _scrape(self) -> Figures | None:
        """None where `/metrics` holds nothing of vLLM's; then `_absent` says why."""
        reply = await self.client.get("/metrics", limit=METRICS_LIMIT)
        if "llama.cpp" in reply.headers.get("server", ""):
            raise ChangedError
        if reply.status in _GATEWAY:
            raise CutError(f"answers GET /metrics with {reply.status}: what serves it is gone, or starts")
        if reply.status not in (200, 404, 501):
            raise UnexpectedError(f"answers GET /metrics with {reply.status}")
        found = read(reply.text(), reply.at) if reply.status == 200 else None
        if found is None:
            if self._had_figures:
                raise ChangedError  # a server that lives does not lose its figures
            self._absent = "off" if reply.status == 200 else "hidden"
            self._who.at = -math.inf  # only /v1/models can show now that another engine has come
            return None
        self._had_figures, self._absent = True, None
        return found

    async def _identify(self) -> None:
        if self.client.now() - self._who.at >= _MODELS_EVERY_S:
            self._who = await self._ask_models()
        if not self._asked_version:
            self._asked_version = True
            told = (await self.client.get("/version")).json(_Version)
            self._version = clean(told.version, 40) or None if told is not None else None

    async def _ask_models(self) -> _Identity:
        try:
            reply = await self.client.get("/v1/models")
        except UnauthorisedError:
            return _Identity(locked=True, at=self.client.now())
        if reply.status == 404 and not self._had_figures:
            raise ChangedError
        listed = reply.json(Models) if reply.status == 200 else None
        models = listed.data if listed is not None else []
        if models and (models[0].owned_by or "vllm").lower() != "vllm":
            raise ChangedError
        if not models:
            return _Identity(at=reply.at)
        # Adapters follow the model they belong to.
        limit = models[0].max_model_len or 0
        return _Identity(
            model=clean(models[0].id, 80) or None,
            context_limit=limit if 0 < limit < 10**9 else None,
            at=reply.at,
        )

    # Taking in

    def _take_in(self, found: Figures) -> list[Event]:
        """Bring the rates up to date; a restart, and what else this look shows, as events."""
        restarted = self._is_another_process(found)
        if self._work.add(found):
            restarted = not self._several
            self._forget()
            self._work.add(found)
        events = self._preemption.look(
            found.at,
            running=found.running,
            waiting=found.waiting,
            finished=found.finished,
            preemptions=found.preemptions,
            kv_fraction=found.pool.fullest_fraction,
        )
        was_frozen, self._frozen_s = self._frozen_s, self._stillness.look(found, self._work.prefilling)
        if was_frozen is None and self._frozen_s is not None:
            events.append(self._frozen(found, self._frozen_s))
        return [restart_event(found.at, self.name, self._url), *events] if restarted else events

    def _is_another_process(self, found: Figures) -> bool:
        """By the start time of the process.

        Behind one address several servers may answer in turn: a start time that comes again gives them
        away, so a new one is believed when it has stood for a few looks. (A restart between two looks is
        rare anyway: loading takes longer, and meanwhile the connection is refused.)
        """
        marker = found.process
        if marker is None:
            return False
        if not self._markers or marker == self._markers[-1]:
            self._markers = self._markers or [marker]
            self._stood += 1
            return self._stood == _BELIEVED_AFTER and len(self._markers) > 1 and not self._several
        self._several = self._several or marker in self._markers
        self._markers = [*(each for each in self._markers if each != marker), marker][-_MOST_MARKERS:]
        self._stood = 0
        self._forget()
        return False

    def _told_once(self, t: float) -> list[Event]:
        if not self._who.locked or self._locked_told:
            return []
        self._locked_told = True
        return [needs_key(t, self.name, self._url, given=self.client.has_key)]

    def _frozen(self, found: Figures, still_s: float) -> Event:
        text = (
            f"vLLM at {self._url} says that {found.running} requests run, but has generated nothing for "
            f"{still_s:.0f} s: it hangs, or they were given up and its gauges stand still"
        )
        return Event(
            t=found.at, event="engine.frozen", text=text, source="engine", severity="warn", subject=self._url
        )
