"""llama.cpp's HTTP server: `/slots` for what happens now, `/props` for what it is, `/metrics` now and then.

Watching must not change the host:
- A server with `--sleep-idle-seconds` is woken by `/slots`, and kept awake by it. While it sleeps only
  `/props` is asked; while it is idle and might fall asleep, `/metrics` tells whether anything has happened.
- A router's `/slots` and `/metrics` load models: a router is named and left alone.
"""

from __future__ import annotations

import math

from agenttop.collect.engine.base import ChangedError, EngineReading, UnrecognisedError
from agenttop.collect.engine.http import BODY_LIMIT, EngineClient, EngineError, Reply, UnexpectedError
from agenttop.collect.engine.kinds.llamacpp import frames
from agenttop.collect.engine.kinds.llamacpp.arguments import ServerArguments
from agenttop.collect.engine.kinds.llamacpp.frames import Props
from agenttop.collect.engine.kinds.llamacpp.metrics import EXACT_TOTAL, MetricsSource
from agenttop.collect.engine.kinds.llamacpp.pool import Pool, layout_of, pool_of
from agenttop.collect.engine.kinds.llamacpp.rates import RateMeter, Rates
from agenttop.collect.engine.kinds.llamacpp.slots import SLOTS_LIMIT, Slot, parse_slots
from agenttop.model.frames import EngineSample, Event

_PROPS_EVERY_S = 30.0
"""It holds the chat template: tens of kilobytes."""
_QUIET_AFTER = 2
"""Looks at idle slots before a server that may fall asleep is watched without touching its timer."""


class _LoadingError(Exception):
    """The server answers 503: it loads its model."""


class LlamaCppAdapter:
    """Reads one llama.cpp server."""

    name = "llama.cpp"
    allowed_paths = frozenset({"/health", "/props", "/slots", "/metrics"})

    def __init__(
        self,
        client: EngineClient,
        *,
        metrics: bool = True,
        arguments: ServerArguments | None = None,
        pid: int | None = None,
    ) -> None:
        """`arguments` and `pid` are of the server's process, where it runs on this host and can be seen."""
        self.client = client
        self._url = client.base_url
        self._arguments = arguments
        self._pid = pid
        self._props: Props | None = None
        self._props_at = -math.inf
        self._metrics = MetricsSource(client, metrics)
        self._slots: list[Slot] | None = None
        self._slots_off = False
        self._meter = RateMeter()
        self._rates = Rates()
        self._idle_looks = 0
        """Successive looks at which every slot was idle."""
        self._slept = False
        self._slept_since_slots = False
        """Whether it slept after the last look at its slots: unloading the model forgets them."""

    async def alive(self) -> bool:
        """`/health` answers even while a large batch holds everything else up."""
        try:
            await self.client.get("/health", answer_s=2.0)
        except EngineError:
            return False
        return True

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`. Raises UnrecognisedError for a router."""
        try:
            props = await self._current_props()
            if props.is_sleeping:
                return self._asleep(props)
            restarted = await self._look(props)
        except _LoadingError:
            return self._loading()
        return self._reading(props, restarted)

    # Asking

    async def _current_props(self) -> Props:
        props = self._props
        if props is not None and self.client.now() - self._props_at < _PROPS_EVERY_S:
            # The timer of a server that may sleep runs only while it is idle.
            may_be_asleep = self._may_sleep(props) and self._idle_looks > 0
            if not may_be_asleep:
                return props
        return await self._ask_props()

    async def _ask_props(self) -> Props:
        reply = await self._get("/props")
        props = reply.json(Props) if reply.status == 200 else None
        if props is None:
            raise UnexpectedError(f"answers GET /props with {reply.status} and no properties")
        if props.role == "router":
            raise UnrecognisedError(
                "unsupported",
                f"{self._url} is a llama.cpp router: its models run in servers on other ports; watch those",
                "llama.cpp router",
            )
        self._props, self._props_at = props, reply.at
        return props

    async def _look(self, props: Props) -> bool:
        """Read slots and metrics as far as they are due. Whether the server was restarted in between."""
        if self._watches_quietly(props):
            before = self._metrics.latest
            restarted = await self._metrics.scrape()
            if not restarted and self._metrics.is_still(before):
                self._idle_looks += 1
                return False
        self._slots_off = self._slots_off or props.endpoint_slots is False
        vanished = False if self._slots_off else await self._read_slots()
        if vanished and not self._metrics.usable:
            return True
        restarted = False
        if self._metrics.due(self._slots, unsettled=self._meter.unsettled) or vanished:
            restarted = await self._metrics.scrape()
            if self._slots is not None and not vanished and not restarted:
                await self._settle(self._slots)
        if self._slots_off and not self._metrics.usable:
            await self._get("/health")
        return restarted

    async def _read_slots(self) -> bool:
        """Take the slots in; whether one that has served looks as if it never had, which only a new process
        or a model loaded again can do."""
        reply = await self._get("/slots", limit=SLOTS_LIMIT, may_lack=True)
        if reply.status == 404:
            await self._ask_props()  # another engine has come; or something in between hides the slots
        if reply.status in (404, 501):
            self._slots_off, self._slots = True, None
            return False
        if reply.status != 200:
            raise UnexpectedError(f"answers GET /slots with {reply.status}")
        try:
            slots = parse_slots(reply.body)
        except ValueError as error:
            raise UnexpectedError("answers GET /slots with something else than a list of slots") from error
        before = {slot.number: slot.task for slot in self._slots or ()}
        vanished = any(slot.task is None and before.get(slot.number) is not None for slot in slots)
        if vanished:
            self._meter = RateMeter()
        self._rates = self._meter.update(reply.at, slots)
        self._slots = slots
        self._idle_looks = 0 if any(slot.processing for slot in slots) else self._idle_looks + 1
        slept, self._slept_since_slots = self._slept_since_slots, False
        return vanished and not slept

    async def _settle(self, slots: list[Slot]) -> None:
        """Put the decode rate right by the server's own total.

        Slots and total come in two replies. When a third one shows the same requests in progress, none
        ended in between, and the two belong together.
        """
        metrics = self._metrics.latest
        if metrics is None or metrics.output_tokens is None or metrics.output_tokens >= EXACT_TOTAL:
            return
        busy = any(slot.processing for slot in slots)
        if not (busy or self._meter.unsettled) or await self._still_shows(slots):
            self._rates = self._meter.settle(metrics.output_tokens + self._meter.in_flight)

    async def _still_shows(self, slots: list[Slot]) -> bool:
        reply = await self._get("/slots", limit=SLOTS_LIMIT, may_lack=True)
        try:
            again = parse_slots(reply.body) if reply.status == 200 else []
        except ValueError:
            return False
        return [(slot.number, slot.task, slot.processing) for slot in again] == [
            (slot.number, slot.task, slot.processing) for slot in slots
        ]

    async def _get(self, path: str, limit: int = BODY_LIMIT, *, may_lack: bool = False) -> Reply:
        reply = await self.client.get(path, limit=limit)
        if reply.status == 503:
            raise _LoadingError
        if reply.status == 404 and not may_lack:
            raise ChangedError
        return reply

    # Not disturbing sleep

    def _may_sleep(self, props: Props) -> bool:
        if props.is_sleeping is None:
            return False
        if self._slept or self._arguments is None:
            return True  # the API does not say; better too careful
        return (self._arguments.sleep_idle_s or -1) >= 0

    def _watches_quietly(self, props: Props) -> bool:
        """Whether `/slots` is left alone, for the reply would be the same and would keep the server awake."""
        looked = self._slots is not None and self._metrics.latest is not None
        return looked and self._idle_looks >= _QUIET_AFTER and self._metrics.usable and self._may_sleep(props)

    # Telling

    def _loading(self) -> EngineReading:
        self._slots, self._meter = None, RateMeter()
        self._metrics.forget()
        sample = EngineSample(
            t=self.client.now(),
            engine=self._url,
            url=self._url,
            name=self.name,
            state="loading",
            note="loading the model",
            pid=self._pid,
        )
        return EngineReading(sample=sample)

    def _asleep(self, props: Props) -> EngineReading:
        self._slept = self._slept_since_slots = True
        self._idle_looks = max(1, self._idle_looks)  # so that /props is asked the next time too
        self._meter = RateMeter()
        sample, slots = frames.asleep(frames.identity(self._props_at, self._url, props, self._pid))
        return EngineReading(sample=sample, slots=slots)

    def _reading(self, props: Props, restarted: bool) -> EngineReading:
        t = self.client.now()
        slots = self._slots
        pool = Pool() if slots is None else pool_of(slots, *layout_of(slots, self._arguments))
        sample = frames.with_figures(
            frames.identity(t, self._url, props, self._pid),
            slots,
            pool,
            self._rates,
            self._metrics.latest,
            self._metrics.prefill_tok_s,
        )
        missing = frames.missing(
            t,
            self._url,
            props,
            pool,
            slots_off=self._slots_off,
            metrics_wanted=self._metrics.wanted,
            metrics_off=self._metrics.refused,
            kept_awake=self._may_sleep(props) and self._arguments is not None and not self._metrics.usable,
        )
        return EngineReading(
            sample=sample,
            slots=frames.slot_samples(t, self._url, slots or [], self._rates),
            missing=missing,
            events=[self._restart(t)] if restarted else [],
        )

    def _restart(self, t: float) -> Event:
        return Event(
            t=t,
            event="engine.restart",
            text=f"llama.cpp at {self._url} was restarted",
            source="engine",
            severity="warn",
            subject=self._url,
        )
