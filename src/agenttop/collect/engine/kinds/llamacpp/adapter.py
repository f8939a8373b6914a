"""llama.cpp's HTTP server: `/slots` for what happens now, `/props` for what it is, `/metrics` now and then.

Watching must not change the host:
- A server with `--sleep-idle-seconds` is woken by `/slots`, and kept awake by it; builds before August 2026
  by `/metrics`, too. While it sleeps only `/props` is asked; while it is idle and might fall asleep,
  `/metrics` of a newer build tells whether anything has happened, or the CPU time of its process.
- A router's `/slots` and `/metrics` load models: a router is left to `router`.
"""

from __future__ import annotations

import math

import msgspec

from agenttop.collect.engine.base import (
    KEY_HINT,
    ChangedError,
    EngineReading,
    UnrecognisedError,
    restart_event,
)
from agenttop.collect.engine.http import (
    BODY_LIMIT,
    EngineClient,
    Reply,
    TooBigError,
    UnauthorisedError,
    UnexpectedError,
)
from agenttop.collect.engine.kinds.llamacpp import frames
from agenttop.collect.engine.kinds.llamacpp.arguments import ServerArguments
from agenttop.collect.engine.kinds.llamacpp.cputime import AT_WORK_S, cpu_seconds
from agenttop.collect.engine.kinds.llamacpp.exhaustion import ExhaustionWatch
from agenttop.collect.engine.kinds.llamacpp.frames import Hidden, Props
from agenttop.collect.engine.kinds.llamacpp.metrics import EXACT_TOTAL, MetricsSource
from agenttop.collect.engine.kinds.llamacpp.pool import Pool, by_gauges, layout_of, pool_of
from agenttop.collect.engine.kinds.llamacpp.rates import RateMeter, Rates
from agenttop.collect.engine.kinds.llamacpp.slots import MAX_COUNT, SLOTS_LIMIT, Slot, parse_slots
from agenttop.model.frames import EngineSample

_PROPS_EVERY_S = 30.0
"""It holds the chat template: tens of kilobytes."""
_QUIET_AFTER = 2
"""Looks at idle slots before a server that may fall asleep is watched without touching its timer."""
_AGAIN_S = 60.0
"""After a table of slots that was too large to be read."""

_OFF = Hidden("this server does not show its slots", "start llama-server with --slots (without --no-slots)")
_LOCKED = Hidden("this server's /slots asks for a key", KEY_HINT)
_TOO_BIG = Hidden(
    f"its table of slots is larger than {SLOTS_LIMIT // 1_000_000} MB: builds before August 2025 put whole "
    "prompts into it",
    "update llama.cpp",
)
_AWAKE_BY_SLOTS = Hidden(
    "watching its slots keeps this server from falling asleep",
    "start llama-server with --metrics: that can be read without keeping it awake",
)
_AWAKE_BY_METRICS = Hidden(
    "watching keeps this server from falling asleep; builds from August 2026 on can be watched without that",
    "update llama.cpp",
)


class _Health(msgspec.Struct):
    """`/health` of 2024; later builds say no more than that all is well."""

    slots_idle: int | None = None
    slots_processing: int | None = None


class _LoadingError(Exception):
    """The server answers 503: it loads its model."""


class IsRouterError(UnrecognisedError):
    """A router answers, which has no slots of its own: see `router`."""

    def __init__(self, url: str) -> None:
        note = f"{url} is a llama.cpp router: its models run in servers on other ports; watch those"
        super().__init__("unsupported", note, "llama.cpp router")


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
        self._hidden: Hidden | None = None
        """Why the slots are not shown."""
        self._hidden_until = math.inf
        self._health = _Health()
        self._exhaustion = ExhaustionWatch(self._url)
        self._fresh = False
        """Whether the slots are of this look."""
        self._meter = RateMeter()
        self._rates = Rates()
        self._idle_looks = 0
        """Successive looks at which every slot was idle."""
        self._cpu_s = cpu_seconds(pid)
        """Of its process, at the newest look; None where it cannot be seen."""
        self._slept = False
        self._slept_since_slots = False
        """Whether it slept after the last look at its slots: unloading the model forgets them."""

    async def alive(self) -> bool:
        """`/health` answers even while a large batch holds everything else up."""
        return await self.client.answers("/health")

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`. Raises UnrecognisedError for a router."""
        try:
            props = await self._current_props()
            if props.is_sleeping:
                return self._asleep(props)
            self._fresh = False
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
            raise IsRouterError(self._url)
        self._props, self._props_at = props, reply.at
        return props

    async def _look(self, props: Props) -> bool:
        """Read slots and metrics as far as they are due. Whether the server was restarted in between."""
        cpu_before, self._cpu_s = self._cpu_s, cpu_seconds(self._pid)
        if self._watches_quietly(props):
            if self._metrics.leaves_asleep:
                before = self._metrics.latest
                still = not await self._metrics.scrape() and self._metrics.is_still(before)
            else:
                still = (
                    cpu_before is not None
                    and self._cpu_s is not None
                    and self._cpu_s - cpu_before < AT_WORK_S
                )
            if still:
                self._idle_looks += 1
                return False
        if self._hidden is not None and self.client.now() >= self._hidden_until:
            self._hidden = None
        if props.endpoint_slots is False:
            self._hide(_OFF)
        vanished = False if self._hidden is not None else await self._read_slots()
        if vanished and not self._metrics.usable:
            return True
        restarted = False
        if self._metrics.due(self._slots, unsettled=self._meter.unsettled) or vanished:
            restarted = await self._metrics.scrape()
            if self._slots is not None and not vanished and not restarted:
                await self._settle(self._slots)
        if self._hidden is not None and not self._metrics.usable:
            self._health = (await self._get("/health")).json(_Health) or _Health()
        return restarted

    def _hide(self, why: Hidden, for_s: float = math.inf) -> None:
        """Do without the slots."""
        self._hidden, self._hidden_until, self._slots = why, self.client.now() + for_s, None
        self._meter, self._rates = RateMeter(), Rates()

    async def _read_slots(self) -> bool:
        """Take the slots in; whether one that has served looks as if it never had, which only a new process
        or a model loaded again can do."""
        try:
            reply = await self._get("/slots", limit=SLOTS_LIMIT, may_lack=True)
        except TooBigError:
            self._hide(_TOO_BIG, _AGAIN_S)
            return False
        except UnauthorisedError:
            await (
                self._ask_props()
            )  # where the key is not accepted there either, there is nothing to be shown
            self._hide(_LOCKED)
            return False
        if reply.status == 404:
            await self._ask_props()  # another engine has come; or something in between hides the slots
        if reply.status in (404, 501):
            self._hide(_OFF)
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
        self._slots, self._fresh = slots, True
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
        try:
            reply = await self._get("/slots", limit=SLOTS_LIMIT, may_lack=True)
        except TooBigError:
            return False
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
        looked = self._slots is not None and self._idle_looks >= _QUIET_AFTER
        told = self._metrics.leaves_asleep or self._cpu_s is not None
        return looked and told and self._may_sleep(props)

    def _kept_awake(self, props: Props) -> Hidden | None:
        """Why it cannot fall asleep while it is watched; None where it can, or never would."""
        if not self._may_sleep(props) or self._metrics.leaves_asleep or self._cpu_s is not None:
            return None
        if not self._metrics.usable:
            return _AWAKE_BY_SLOTS
        return _AWAKE_BY_METRICS if self._metrics.latest is not None else None

    # Telling

    def _loading(self) -> EngineReading:
        self._slots, self._meter = None, RateMeter()
        self._metrics.forget()
        self._exhaustion = ExhaustionWatch(self._url)
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
        self._exhaustion = ExhaustionWatch(self._url)
        sample, slots = frames.asleep(self._identity(self._props_at, props))
        return EngineReading(sample=sample, slots=slots)

    def _identity(self, t: float, props: Props) -> EngineSample:
        kv_dtype = self._arguments.kv_dtype if self._arguments is not None else None
        return frames.identity(t, self._url, props, self._pid, kv_dtype)

    def _reading(self, props: Props, restarted: bool) -> EngineReading:
        t = self.client.now()
        slots, metrics = self._slots, self._metrics.latest
        pool = Pool() if slots is None else pool_of(slots, *layout_of(slots, self._arguments))
        if metrics is not None:
            pool = by_gauges(pool, metrics.kv_tokens, metrics.kv_fraction)
        sample = frames.with_figures(
            self._identity(t, props),
            slots,
            pool,
            self._rates,
            metrics,
            self._metrics.prefill_tok_s,
            self._metrics.speculation,
        )
        if sample.running is None:
            sample = self._by_health(sample)
        events = [restart_event(t, self.name, self._url)] if restarted else []
        if restarted:
            self._exhaustion = ExhaustionWatch(self._url)
        if self._fresh and slots is not None:
            events += self._exhaustion.look(t, slots, pool)
        missing = frames.missing(
            t,
            self._url,
            sample,
            pool,
            self._metrics,
            hidden=self._hidden,
            kept_awake=self._kept_awake(props),
        )
        return EngineReading(
            sample=sample,
            slots=frames.slot_samples(t, self._url, slots or [], self._rates),
            missing=missing,
            events=events,
        )

    def _by_health(self, sample: EngineSample) -> EngineSample:
        """How many requests run, where nothing but `/health` of an old build tells."""
        busy, idle = self._health.slots_processing, self._health.slots_idle
        if busy is None or idle is None or not 0 <= busy < MAX_COUNT or not 0 <= idle < MAX_COUNT:
            return sample
        return msgspec.structs.replace(sample, running=busy, slots_total=busy + idle)
