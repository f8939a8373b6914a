"""SGLang: `/v1/loads` for what happens now, `/metrics` where it is on for what has happened.

`/health` and `/health_generate` run inference on it and are never asked. `/server_info` gathers the state of
every scheduler, so it is asked once, for settings that nothing else tells.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from agenttop.collect.engine.base import ChangedError, EngineReading, needs_key, restart_event
from agenttop.collect.engine.counters import CounterWindow, Makeup
from agenttop.collect.engine.histogram import LatencyWindow
from agenttop.collect.engine.http import (
    CutError,
    EngineClient,
    Reply,
    TooBigError,
    UnauthorisedError,
    UnexpectedError,
)
from agenttop.collect.engine.kinds.sglang import frames, loads, metrics
from agenttop.collect.engine.kinds.sglang.loads import Loads, SnapshotRates
from agenttop.collect.engine.kinds.sglang.metrics import Figures
from agenttop.collect.engine.preemption import PreemptionWatch
from agenttop.collect.engine.served import IN_TURN, WENT_BACK, ModelList, Sequences, Setbacks
from agenttop.model.frames import EngineSample, Event

METRICS_LIMIT = 8_000_000
"""79 kB for one scheduler; ranks add up."""
_AGAIN_S = 60.0
"""Between questions for something that was not there."""
_GATEWAY = (502, 503, 504)


class SglangAdapter:
    """Reads one SGLang server, with all its data-parallel ranks."""

    name = "SGLang"
    allowed_paths = frozenset(
        {"/v1/loads", "/get_load", "/metrics", "/v1/models", "/server_info", "/get_server_info"}
    )

    def __init__(self, client: EngineClient, *, pid: int | None = None) -> None:
        """`pid` is of the server's process, where it runs on this host and can be seen."""
        self.client = client
        client.prove_by("/v1/models")
        self._url = client.base_url
        self._pid = pid
        self._list = ModelList(client, "sglang")
        self._info: frames.Info | None = None
        self._loads_path: str | None = "/v1/loads"
        self._loads_again = self._metrics_again = -math.inf
        self._shown = False
        """It has shown figures of its own."""
        self._locked_told = False
        self._setbacks = Setbacks()
        self._makeup = Makeup()
        self._latencies = LatencyWindow(self._url)
        self._forget()

    def _forget(self) -> None:
        """Another process: nothing seen before belongs to it."""
        self._window = CounterWindow()
        self._ranks: dict[str, SnapshotRates] = {}
        self._sequences = Sequences()
        self._preemption = PreemptionWatch(self.name, self._url)
        self._pushed_out = 0
        self._retracted = 0
        self._latencies.forget()

    async def alive(self) -> bool:
        """The list of models needs no scheduler."""
        return await self.client.answers("/v1/models", refusal=True)

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        seen, locked = await self._ask_loads()
        found = await self._scrape(locked)
        self._shown = self._shown or seen is not None or found is not None
        served = await self._list.look(sure=self._shown)
        info = await self._ask_info()
        t = max([each.at for each in (seen, found) if each is not None], default=self.client.now())
        sample = EngineSample(
            t=t,
            engine=self._url,
            url=self._url,
            name=self.name,
            state="ok",
            version=info.version,
            model=served.model,
            pid=self._pid,
            context_limit_tokens=served.context_limit,
            quantisation=info.quantisation,
            kv_dtype=info.kv_dtype,
            kv_pool_tokens=info.pool,
            sequences_max=info.sequences_max,
        )
        if seen is not None:
            sample = frames.with_loads(sample, seen)
        if found is not None:
            sample = frames.with_metrics(sample, found, loads=seen is not None)
        events = self._take_in(t, seen, found, sample)
        rates, by_rank = self._rates(seen, found, sample)
        sample = msgspec.structs.replace(
            sample,
            window_s=rates.window_s,
            decode_tok_s=rates.decode,
            decode_is_floor=rates.is_floor,
            prefill_tok_s=rates.prefill,
            per_sequence_tok_s=rates.share,
            per_sequence_of=rates.sequences,
        )
        return EngineReading(
            sample=sample,
            latencies=self._latencies.add(found.at, found.histograms) if found is not None else [],
            parts=frames.parts(t, self._url, seen, self._ranks, by_rank) if seen is not None else [],
            missing=frames.missing(
                sample,
                rates,
                loads=seen is not None,
                metrics=found is not None,
                locked=served.locked or locked,
                drafts=info.drafts,
            ),
            events=events + self._told_once(t, served.locked or locked),
        )

    # Asking

    async def _ask_loads(self) -> tuple[Loads | None, bool]:
        """(what the ranks do, or None where it is not told; whether a key is wanted for it)."""
        if self._loads_path is None and self.client.now() >= self._loads_again:
            self._loads_path = "/v1/loads"
        while self._loads_path is not None:
            try:
                reply = await self.client.get(self._loads_path)
            except UnauthorisedError:
                return None, True
            self._check(reply, self._loads_path)
            found = None
            if reply.status == 200:
                found = loads.read(reply) if self._loads_path == "/v1/loads" else loads.read_older(reply)
            if found is not None:
                return found, False
            older = self._loads_path == "/v1/loads"
            self._loads_path = "/get_load" if older else None
            self._loads_again = self.client.now() + _AGAIN_S
        return None, False

    async def _scrape(self, locked: bool) -> Figures | None:
        """None where the metrics are off. Raises UnauthorisedError where nothing at all may be read."""
        if self.client.now() < self._metrics_again and not locked:
            return None
        reply = await self.client.get("/metrics", limit=METRICS_LIMIT)
        self._check(reply, "/metrics")
        found = metrics.read(reply.text(), reply.at) if reply.status == 200 else None
        if found is None:
            self._metrics_again = self.client.now() + _AGAIN_S
            if locked:
                raise UnauthorisedError("answers GET /v1/loads with 401", "")
        return found

    def _check(self, reply: Reply, path: str) -> None:
        """Raises ChangedError, CutError, UnexpectedError."""
        if "llama.cpp" in reply.headers.get("server", ""):
            raise ChangedError
        if reply.status in _GATEWAY:
            raise CutError(f"answers GET {path} with {reply.status}: what serves it is gone, or starts")
        if reply.status not in (200, 400, 404, 405, 500, 501):
            raise UnexpectedError(f"answers GET {path} with {reply.status}")

    async def _ask_info(self) -> frames.Info:
        """Once; what fails here is not missed."""
        if self._info is None:
            self._info = frames.Info()
            for path in ("/server_info", "/get_server_info"):
                try:
                    reply = await self.client.get(path, answer_s=5.0)
                except (UnauthorisedError, TooBigError):
                    break
                found = reply.json(dict[str, Any]) if reply.status == 200 else None
                if found is not None:
                    self._info = frames.info(found)
                    break
        return self._info

    # Taking in

    def _take_in(
        self, t: float, seen: Loads | None, found: Figures | None, sample: EngineSample
    ) -> list[Event]:
        """Bring the rates up to date; a restart, and what else this look shows, as events."""
        went_back = self._add(seen, found)
        if went_back:
            self._forget()
            self._add(seen, found)
        certain = self._setbacks.look(went_back)
        self._sequences.add(t, sample.running)
        retractions = (found.retractions or 0) if found is not None else self._pushed(seen)
        events = self._preemption.look(
            t,
            running=sample.running,
            waiting=sample.waiting,
            finished=sample.finished_total,
            preemptions=retractions,
            kv_fraction=sample.kv_fullest_fraction or sample.kv_used_fraction,
        )
        return [restart_event(t, self.name, self._url), *events] if certain else events

    def _add(self, seen: Loads | None, found: Figures | None) -> bool:
        """Whether anything that only grows has gone back."""
        went_back = False
        for rank in seen.ranks if seen is not None and self._loads_path == "/v1/loads" else ():
            rates = self._ranks.setdefault(rank.name, SnapshotRates())
            went_back = rates.add(seen.at if seen is not None else 0.0, rank) or went_back
        if found is not None:
            if self._makeup.changed([str(found.ranks)]):
                self._window = CounterWindow()
                self._latencies.forget()
            went_back = self._window.add(found.at, found.counters) or went_back
        return went_back

    def _pushed(self, seen: Loads | None) -> int:
        """Retractions noticed in the states of the ranks: each of them says how many there were lately."""
        now = sum(rank.retracted or 0 for rank in seen.ranks) if seen is not None else 0
        if now > self._retracted:
            self._pushed_out += now - self._retracted
        self._retracted = now
        return self._pushed_out

    def _rates(
        self, seen: Loads | None, found: Figures | None, sample: EngineSample
    ) -> tuple[frames.Rates, dict[str, float | None]]:
        """By the best source there is: `realtime_tokens_total`, else the steps of the ranks, else a gauge."""
        if self._setbacks.several:
            return frames.Rates(why=IN_TURN, fix="name each of them by its own address"), {}
        if self._setbacks.in_doubt:
            return frames.Rates(why=WENT_BACK), {}
        if found is not None and found.decoded is not None:
            window = self._window
            rate = window.rate("decode")
            share, of = self._sequences.share(rate)
            own = {rank: window.rate(f"decode {rank}") for rank in found.decoded if rank}
            rates = frames.Rates(
                window_s=window.span_s,
                decode=rate,
                prefill=window.rate("prefill"),
                share=share,
                sequences=of,
            )
            return rates, own
        ranks = [self._ranks[rank.name] for rank in seen.ranks if rank.name in self._ranks] if seen else []
        decode = [rank.decode for rank in ranks]
        if ranks and None not in decode:
            prefill = [rank.prefill for rank in ranks]
            total = sum(rate for rate in decode if rate is not None)
            share, of = self._sequences.share(total)
            rates = frames.Rates(
                window_s=max(rank.span_s or 0.0 for rank in ranks),
                decode=total,
                is_floor=any(rank.is_floor for rank in ranks),
                prefill=sum(rate for rate in prefill if rate is not None) if None not in prefill else None,
                share=share,
                sequences=of,
            )
            return rates, {}
        return self._by_gauge(seen, found, sample), {}

    def _by_gauge(self, seen: Loads | None, found: Figures | None, sample: EngineSample) -> frames.Rates:
        """`gen_throughput`: of the last 40 steps or so, so it is believed only while requests run."""
        if seen is not None and any(rank.decoded is not None for rank in seen.ranks):
            return frames.Rates(why="no rank has published a second state lately: its steps are slow")
        told = [rank.throughput for rank in seen.ranks] if seen is not None else []
        throughput = sum(rate for rate in told if rate is not None) if told and None not in told else None
        if throughput is None and found is not None:
            throughput = found.throughput
        if sample.running is None or throughput is None:
            why = "this version tells no rate but in its metrics, which are off"
            return frames.Rates(why=why if found is None else "it tells no rate", fix=_fix(found))
        if sample.running == 0:
            return frames.Rates(why="nothing runs; its own figure stays at that of the last batch")
        if throughput <= 0:
            why = "it has not measured its rate yet, which it does every 40 steps or so"
            if found is None:
                why = "it measures its rate only with its metrics on, or every 40 steps or so"
            return frames.Rates(why=why, fix=_fix(found))
        share, of = self._sequences.share(throughput)
        return frames.Rates(decode=throughput, share=share, sequences=of)

    def _told_once(self, t: float, locked: bool) -> list[Event]:
        if not locked or self._locked_told:
            return []
        self._locked_told = True
        return [needs_key(t, self.name, self._url, given=self.client.has_key)]


def _fix(found: Figures | None) -> str | None:
    return frames.METRICS_FIX if found is None else None
