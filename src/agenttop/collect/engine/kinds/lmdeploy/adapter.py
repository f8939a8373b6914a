"""LMDeploy: `/metrics` for what happens, `/v1/models` for what is served.

Nothing else is asked: it has a GET that stops the server.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.base import KEY_HINT, EngineReading, Reasons, needs_key, restart_event
from agenttop.collect.engine.counters import CounterWindow, LandingRate, Makeup
from agenttop.collect.engine.histogram import LatencyWindow
from agenttop.collect.engine.http import EngineClient, UnauthorisedError
from agenttop.collect.engine.kinds.lmdeploy.metrics import Figures, read
from agenttop.collect.engine.scrape import EMPTY, HIDDEN, LOCKED, Page
from agenttop.collect.engine.served import (
    IN_TURN,
    WENT_BACK,
    ModelList,
    Prefilling,
    Sequences,
    Setbacks,
    settled,
)
from agenttop.model.frames import EngineSample, Event, Missing, PartSample

_DRAFTS_S = 30.0
"""Drafts are few; their shares are taken over so long."""
_OFF = "start LMDeploy without --disable-metrics (older ones: with --enable-metrics)"
_ABSENT = {
    HIDDEN: ("GET /metrics is not there: its metrics are off", _OFF),
    EMPTY: ("GET /metrics holds nothing of LMDeploy's: its metrics are off", _OFF),
    LOCKED: ("GET /metrics needs a key, like everything but /health of a server with --api-keys", KEY_HINT),
}


class LmdeployAdapter:
    """Reads one LMDeploy server, with all its data-parallel engines."""

    name = "LMDeploy"
    allowed_paths = frozenset({"/metrics", "/v1/models"})

    def __init__(self, client: EngineClient, *, pid: int | None = None) -> None:
        """`pid` is of the server's process, where it runs on this host and can be seen."""
        self.client = client
        client.prove_by("/v1/models")
        self._url = client.base_url
        self._pid = pid
        self._page: Page[Figures] = Page(client, "/metrics", read)
        self._list = ModelList(client, "lmdeploy")
        self._locked_told = False
        self._setbacks = Setbacks()
        self._makeup = Makeup()
        self._latencies = LatencyWindow(self._url)
        self._forget()

    def _forget(self) -> None:
        """Another process: nothing seen before belongs to it."""
        self._window = CounterWindow()
        self._drafts = CounterWindow(_DRAFTS_S)
        self._prefill = LandingRate()
        self._prefilling = Prefilling()
        self._sequences = Sequences()
        self._latencies.forget()

    async def alive(self) -> bool:
        """The list of models needs no engine."""
        return await self.client.answers("/v1/models", refusal=True)

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        found = await self._page.look()
        served = await self._list.look(sure=self._page.seen)
        if found is None and served.locked:
            raise UnauthorisedError("answers GET /v1/models with 401", "")
        t = found.at if found is not None else self.client.now()
        sample = EngineSample(
            t=t,
            engine=self._url,
            url=self._url,
            name=self.name,
            state="ok",
            model=served.model,
            pid=self._pid,
            context_limit_tokens=served.context_limit,
        )
        events: list[Event] = []
        parts: list[PartSample] = []
        if found is not None:
            events += self._take_in(found)
            sample, parts = self._with_figures(sample, found), self._parts(found)
        if served.locked and not self._locked_told:
            self._locked_told = True
            events.append(needs_key(t, self.name, self._url, given=self.client.has_key))
        return EngineReading(
            sample=sample,
            latencies=self._latencies.add(found.at, found.histograms) if found is not None else [],
            parts=parts,
            missing=self._missing(sample, found, locked=served.locked),
            events=events,
        )

    def _take_in(self, found: Figures) -> list[Event]:
        if self._makeup.changed(engine.name for engine in found.engines):
            self._forget()
        went_back = self._window.add(found.at, found.counters)
        if went_back:
            self._forget()
            self._window.add(found.at, found.counters)
        self._drafts.add(found.at, found.counters)
        working = self._prefilling.update(found.running, found.waiting, found.first_tokens, found.finished)
        computed = found.prompt
        if computed is not None and found.cached is not None:
            computed = max(0, computed - found.cached)
        self._prefill.add(found.at, computed, working)
        self._sequences.add(found.at, found.running)
        return [restart_event(found.at, self.name, self._url)] if self._setbacks.look(went_back) else []

    def _with_figures(self, sample: EngineSample, found: Figures) -> EngineSample:
        several = len(found.engines) > 1
        fractions = [engine.fraction for engine in found.engines if engine.fraction is not None]
        waits = {"queued": found.waiting or 0, "no free handle": found.api_waiting}
        sure = not self._setbacks.in_doubt
        window = self._window
        rate = window.rate("output") if sure else None
        share, of = self._sequences.share(rate)
        drafted, accepted = self._drafts.growth("drafted"), self._drafts.growth("accepted")
        drafts = self._drafts.growth("drafts")
        return msgspec.structs.replace(
            sample,
            model=sample.model or found.model,
            window_s=window.span_s if sure else None,
            running=found.running,
            waiting=found.waiting + found.api_waiting if found.waiting is not None else None,
            waiting_reasons={reason: count for reason, count in waits.items() if count},
            kv_layout="paged" if fractions else None,
            kv_used_fraction=sum(fractions) / len(fractions) if fractions else None,
            kv_fullest_fraction=max(fractions, default=None) if several else None,
            data_parallel=len(found.engines) if several else None,
            decode_tok_s=rate,
            prefill_tok_s=self._prefill.rate() if sure and window.span_s is not None else None,
            per_sequence_tok_s=share,
            per_sequence_of=of,
            prompt_tokens_total=found.prompt,
            cached_tokens_total=found.cached,
            output_tokens_total=found.output,
            prefix_hit_fraction=found.hit_rate,
            finish_reasons=found.reasons,
            finished_total=found.finished,
            drafted_tokens_total=found.drafted,
            accepted_tokens_total=found.accepted,
            draft_acceptance=min(1.0, accepted / drafted) if drafted and accepted is not None else None,
            tokens_per_step=1 + accepted / drafts if drafts and accepted is not None else None,
        )

    def _parts(self, found: Figures) -> list[PartSample]:
        if len(found.engines) < 2:
            return []
        sure = not self._setbacks.in_doubt
        return [
            PartSample(
                t=found.at,
                engine=self._url,
                part=engine.name or "?",
                role="rank",
                running=engine.running,
                waiting=engine.waiting,
                kv_used_fraction=engine.fraction,
                decode_tok_s=self._window.rate(f"output {engine.name}") if sure else None,
            )
            for engine in found.engines
        ]

    def _missing(self, sample: EngineSample, found: Figures | None, *, locked: bool) -> list[Missing]:
        reasons = Reasons(self._url, sample.t)
        reasons.add("slots_total", "LMDeploy has no slots: requests share one batch and one KV pool")
        reasons.add("version", "LMDeploy tells it nowhere that may be asked")
        why = "GET /v1/models needs a key" if locked else "GET /v1/models does not tell it"
        reasons.add("context_limit_tokens", why, KEY_HINT if locked else None)
        if found is None:
            why, fix = _ABSENT[self._page.absent or EMPTY]
            reasons.add("decode_tok_s prefill_tok_s", why, fix)
            return settled(sample, reasons, why, fix)
        reasons.add(
            "kv_pool_tokens kv_used_tokens", "LMDeploy tells only the share of its pool that is in use"
        )
        reasons.add("preemptions_total", "LMDeploy does not count them")
        if self._setbacks.in_doubt:
            why = IN_TURN if self._setbacks.several else WENT_BACK
            reasons.add("decode_tok_s prefill_tok_s", why)
        elif self._window.span_s is None:
            reasons.add("decode_tok_s prefill_tok_s", "the first looks are still being taken")
        reasons.add("prefill_tok_s", "a prompt is counted with its first token; the rate is known then")
        if found.cached is None:
            why = "this version does not count cached prompt tokens, so prefill_tok_s includes them"
            reasons.add("cached_tokens_total", why)
        off = "no draft has been verified lately, or speculative decoding is off"
        reasons.add("draft_acceptance tokens_per_step", off)
        return settled(sample, reasons, "its metrics do not tell it")
