"""TensorRT-LLM: `/prometheus/metrics` for what has happened, `/v1/models` and `/version` for what is served.

Its `/metrics` and `/perf_metrics` give every figure once and then forget it, so that whoever reads them
takes them away from everybody else: they are not on the list. `/health` only looks whether the engine's
threads live, and tells nothing that the list of models does not.
"""

from __future__ import annotations

import math

import msgspec

from agenttop.collect.engine.base import KEY_HINT, EngineReading, Reasons, needs_key, restart_event
from agenttop.collect.engine.counters import CounterWindow
from agenttop.collect.engine.histogram import LatencyWindow
from agenttop.collect.engine.http import EngineClient, UnauthorisedError
from agenttop.collect.engine.kinds.tensorrt_llm.metrics import Figures, read
from agenttop.collect.engine.scrape import EMPTY, HIDDEN, LOCKED, Page
from agenttop.collect.engine.served import ModelList, Setbacks, settled
from agenttop.model.frames import EngineSample, Event, Missing
from agenttop.model.text import clean

FRESH_S = 2.0
"""So long after a request has ended the gauges are called of now."""
_DRAFTS_S = 60.0
_ON = "start trtllm-serve with return_perf_metrics: true in the YAML file of --extra_llm_api_options"
_STEPS = "also write enable_iter_perf_stats: true into the YAML file of --extra_llm_api_options"
_GAUGES = "running waiting kv_used_fraction kv_used_tokens"
_ABSENT: dict[str, tuple[str, str | None]] = {
    HIDDEN: ("GET /prometheus/metrics is not there: return_perf_metrics is off", _ON),
    EMPTY: ("TensorRT-LLM writes its figures when a request ends; none has ended yet", None),
    LOCKED: ("GET /prometheus/metrics needs a key", KEY_HINT),
}


class _Version(msgspec.Struct):
    version: str = ""


class TensorrtLlmAdapter:
    """Reads one `trtllm-serve`."""

    name = "TensorRT-LLM"
    allowed_paths = frozenset({"/prometheus/metrics", "/v1/models", "/version"})

    def __init__(self, client: EngineClient, *, pid: int | None = None) -> None:
        """`pid` is of the server's process, where it runs on this host and can be seen."""
        self.client = client
        self._url = client.base_url
        self._pid = pid
        self._page: Page[Figures] = Page(client, "/prometheus/metrics", read)
        self._list = ModelList(client, "tensorrt_llm")
        self._version: str | None = None
        self._asked_version = False
        self._locked_told = False
        self._setbacks = Setbacks()
        self._latencies = LatencyWindow(self._url)
        self._forget()

    def _forget(self) -> None:
        """Another process: nothing seen before belongs to it."""
        self._drafts = CounterWindow(_DRAFTS_S)
        self._before: Figures | None = None
        self._ended_at = -math.inf
        self._last_decode: float | None = None
        self._latencies.forget()

    async def alive(self) -> bool:
        """`/version` needs no engine."""
        return await self.client.answers("/version", refusal=True)

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        found = await self._page.look()
        served = await self._list.look(
            sure=True
        )  # the server in front of others has no list in older versions
        if found is None and served.locked and self._page.absent != EMPTY:
            raise UnauthorisedError("answers GET /v1/models with 401", "")
        await self._ask_version()
        sample = EngineSample(
            t=found.at if found is not None else self.client.now(),
            engine=self._url,
            url=self._url,
            name=self.name,
            state="ok",
            version=self._version,
            model=served.model,
            pid=self._pid,
            context_limit_tokens=served.context_limit,
        )
        events: list[Event] = []
        if found is not None:
            events += self._take_in(found)
            sample = self._with_figures(sample, found)
        if served.locked and not self._locked_told:
            self._locked_told = True
            events.append(needs_key(sample.t, self.name, self._url, given=self.client.has_key))
        return EngineReading(
            sample=sample,
            latencies=self._latencies.add(found.at, found.histograms) if found is not None else [],
            missing=self._missing(sample, found, locked=served.locked),
            events=events,
        )

    async def _ask_version(self) -> None:
        if self._asked_version:
            return
        self._asked_version = True
        try:
            told = (await self.client.get("/version")).json(_Version)
        except UnauthorisedError:
            return
        self._version = clean(told.version, 40) or None if told is not None else None

    def _take_in(self, found: Figures) -> list[Event]:
        went_back = self._drafts.add(found.at, found.counters)
        if went_back:
            self._forget()
            self._drafts.add(found.at, found.counters)
        before, self._before = self._before, found
        if before is not None and before.finished is not None and found.finished is not None:
            if found.finished > before.finished:
                self._ended_at = found.at
            self._last_decode = _speed(before, found) or self._last_decode
        return [restart_event(found.at, self.name, self._url)] if self._setbacks.look(went_back) else []

    def _is_fresh(self, found: Figures) -> bool:
        return found.at - self._ended_at <= FRESH_S

    def _with_figures(self, sample: EngineSample, found: Figures) -> EngineSample:
        fresh = self._is_fresh(found)
        drafted, accepted = self._drafts.growth("drafted"), self._drafts.growth("accepted")
        return msgspec.structs.replace(
            sample,
            model=sample.model or found.model,
            quantisation=found.quantisation,
            kv_dtype=found.kv_dtype,
            running=found.running if fresh else None,
            waiting=found.waiting if fresh else None,
            sequences_max=found.sequences_max,
            kv_layout="paged" if found.pool is not None else None,
            kv_pool_tokens=found.pool,
            kv_used_tokens=found.used if fresh else None,
            kv_active_tokens=found.used if fresh else None,
            kv_used_fraction=found.fraction if fresh else None,
            prefix_hit_fraction=found.hit_rate,
            prompt_tokens_total=found.prompt,
            cached_tokens_total=found.cached,
            output_tokens_total=found.output,
            finished_total=found.finished,
            finish_reasons=found.reasons,
            last_decode_tok_s=self._last_decode,
            drafted_tokens_total=found.drafted,
            accepted_tokens_total=found.accepted,
            draft_acceptance=min(1.0, accepted / drafted) if drafted and accepted is not None else None,
            tokens_per_step=found.accept_length if drafted else None,
        )

    def _missing(self, sample: EngineSample, found: Figures | None, *, locked: bool) -> list[Missing]:
        reasons = Reasons(self._url, sample.t)
        reasons.add("slots_total", "TensorRT-LLM has no slots: requests share one batch and one KV pool")
        why = "GET /v1/models needs a key" if locked else "GET /v1/models does not tell it"
        reasons.add("context_limit_tokens", why, KEY_HINT if locked else None)
        if found is None:
            why, fix = _ABSENT[self._page.absent or EMPTY]
            return settled(sample, reasons, why, fix)
        reasons.add("decode_tok_s prefill_tok_s", "TensorRT-LLM counts tokens only when a request ends")
        reasons.add("preemptions_total", "TensorRT-LLM does not count them")
        if not found.has_gauges:
            why = "enable_iter_perf_stats is off, or this version (1.2 and older) does not tell it"
            reasons.add(f"{_GAUGES} kv_pool_tokens", why, _STEPS)
        elif not self._is_fresh(found):
            why = "TensorRT-LLM brings its state up to date when a request ends; none has ended just now"
            reasons.add(_GAUGES, why)
        else:
            reasons.add(_GAUGES, "several processes tell different figures, or none that can be")
        reasons.add("last_decode_tok_s", "no request has ended alone between two looks")
        reasons.add(
            "output_tokens_total prompt_tokens_total", "this version (1.2 and older) does not count them"
        )
        return settled(sample, reasons, "its metrics do not tell it")


def _speed(before: Figures, now: Figures) -> float | None:
    """Output tokens a second of the one request that ended between two looks; None where it was not one."""
    if before.token_times is None or now.token_times is None or now.token_times - before.token_times != 1:
        return None
    if before.token_time_s is None or now.token_time_s is None or now.token_time_s <= before.token_time_s:
        return None
    speed = 1.0 / (now.token_time_s - before.token_time_s)
    return speed if speed < 1e6 else None
