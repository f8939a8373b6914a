"""TGI: `/metrics` for what happens, `/info` for what is served.

`/health` is left alone: once a generation has failed it runs one to see whether the model still answers.
"""

from __future__ import annotations

import math

import msgspec

from agenttop.collect.engine.base import (
    KEY_HINT,
    ChangedError,
    EngineReading,
    Reasons,
    needs_key,
    restart_event,
)
from agenttop.collect.engine.counters import CounterWindow
from agenttop.collect.engine.histogram import LatencyWindow
from agenttop.collect.engine.http import EngineClient, UnauthorisedError
from agenttop.collect.engine.kinds.tgi.metrics import Figures, read
from agenttop.collect.engine.scrape import EMPTY, HIDDEN, LOCKED, Page
from agenttop.collect.engine.served import IN_TURN, WENT_BACK, Sequences, Setbacks, settled
from agenttop.model.frames import EngineSample, Event, Missing
from agenttop.model.text import clean

_EVERY_S = 60.0
_PASS_ON = "let what is in between pass /metrics on, or name TGI itself"
_ABSENT: dict[str, tuple[str, str | None]] = {
    HIDDEN: ("GET /metrics is not there", _PASS_ON),
    EMPTY: ("TGI writes its figures with the first request; there has been none", None),
    LOCKED: ("GET /metrics needs a key", KEY_HINT),
}


class _Info(msgspec.Struct):
    """What is read of `/info`; other fields come and go."""

    model_id: str = ""
    version: str = ""
    max_total_tokens: int | None = None
    max_batch_total_tokens: int | None = None
    max_batch_size: int | None = None


class TgiAdapter:
    """Reads one TGI server."""

    name = "TGI"
    allowed_paths = frozenset({"/info", "/metrics"})

    def __init__(self, client: EngineClient, *, pid: int | None = None) -> None:
        """`pid` is of the router's process, where it runs on this host and can be seen."""
        self.client = client
        client.prove_by("/info")
        self._url = client.base_url
        self._pid = pid
        self._page: Page[Figures] = Page(client, "/metrics", read)
        self._info = _Info()
        self._info_at = -math.inf
        self._locked = self._locked_told = False
        self._setbacks = Setbacks()
        self._latencies = LatencyWindow(self._url)
        self._forget()

    def _forget(self) -> None:
        """Another process: nothing seen before belongs to it."""
        self._window = CounterWindow()
        self._sequences = Sequences()
        self._latencies.forget()

    async def alive(self) -> bool:
        """`/info` answers from memory."""
        return await self.client.answers("/info", refusal=True)

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`."""
        found = await self._page.look()
        await self._ask_info()
        if found is None and self._locked:
            raise UnauthorisedError("answers GET /info with 401", "")
        info = self._info
        sample = EngineSample(
            t=found.at if found is not None else self.client.now(),
            engine=self._url,
            url=self._url,
            name=self.name,
            state="ok",
            version=clean(info.version, 40) or None,
            model=clean(info.model_id, 80) or None,
            pid=self._pid,
            context_limit_tokens=_whole(info.max_total_tokens),
            kv_pool_tokens=_whole(info.max_batch_total_tokens),
            sequences_max=_whole(info.max_batch_size),
        )
        events: list[Event] = []
        if found is not None:
            events += self._take_in(found)
            sample = self._with_figures(sample, found)
        if self._locked and not self._locked_told:
            self._locked_told = True
            events.append(needs_key(sample.t, self.name, self._url, given=self.client.has_key))
        return EngineReading(
            sample=sample,
            latencies=self._latencies.add(found.at, found.histograms) if found is not None else [],
            missing=self._missing(sample, found),
            events=events,
        )

    async def _ask_info(self) -> None:
        if self.client.now() - self._info_at < _EVERY_S:
            return
        self._info_at = self.client.now()
        try:
            reply = await self.client.get("/info")
        except UnauthorisedError:
            self._locked = True
            return
        self._locked = False
        found = reply.json(_Info) if reply.status == 200 else None
        if reply.status == 404 and not self._page.seen:
            raise ChangedError
        if found is not None:
            self._info = found

    def _take_in(self, found: Figures) -> list[Event]:
        went_back = self._window.add(found.at, found.counters)
        if went_back:
            self._forget()
            self._window.add(found.at, found.counters)
        self._sequences.add(found.at, found.batch)
        return [restart_event(found.at, self.name, self._url)] if self._setbacks.look(went_back) else []

    def _with_figures(self, sample: EngineSample, found: Figures) -> EngineSample:
        sure = not self._setbacks.in_doubt
        rate = self._window.rate("tokens") if sure else None
        share, of = self._sequences.share(rate)
        steps, tokens = self._window.growth("steps"), self._window.growth("tokens")
        drafts = sure and bool(found.skipped) and bool(steps) and tokens is not None
        return msgspec.structs.replace(
            sample,
            window_s=self._window.span_s if sure else None,
            running=found.batch,
            waiting=found.queue,
            decode_tok_s=rate,
            per_sequence_tok_s=share,
            per_sequence_of=of,
            prompt_tokens_total=found.input,
            output_tokens_total=found.tokens if found.tokens is not None else found.generated,
            finished_total=found.finished,
            finish_reasons={f"error: {name}": count for name, count in found.failures.items()},
            accepted_tokens_total=found.skipped or None,
            tokens_per_step=tokens / steps if drafts and steps and tokens is not None else None,
        )

    def _missing(self, sample: EngineSample, found: Figures | None) -> list[Missing]:
        reasons = Reasons(self._url, sample.t)
        reasons.add("slots_total", "TGI has no slots: requests share one batch")
        reasons.add("kv_used_fraction kv_used_tokens", "TGI does not tell how much of its KV cache is in use")
        reasons.add("kv_pool_tokens", "this version does not tell it in GET /info")
        reasons.add(
            "preemptions_total", "TGI lets in only what its KV cache can hold to the end: it preempts nothing"
        )
        reasons.add("draft_acceptance", "TGI counts the drafts that were taken, not those proposed")
        if found is None:
            why, fix = _ABSENT[self._page.absent or EMPTY]
            reasons.add("decode_tok_s prefill_tok_s", why, fix)
            return settled(sample, reasons, why, fix)
        if self._setbacks.in_doubt:
            reasons.add("decode_tok_s", IN_TURN if self._setbacks.several else WENT_BACK)
        elif found.tokens is None:
            why = "this version counts tokens only when a request ends, as other backends than TGI's own do"
            reasons.add("decode_tok_s", why)
        reasons.add("decode_tok_s", "the first looks are still being taken")
        reasons.add("prefill_tok_s", "TGI counts prompt tokens only when a request ends")
        reasons.add("cached_tokens_total", "TGI does not tell what its prefix cache gives")
        reasons.add("tokens_per_step", "no draft has been taken lately, or speculative decoding is off")
        return settled(sample, reasons, "TGI writes it with the first request")


def _whole(value: int | None) -> int | None:
    return value if value is not None and 0 < value < 10**12 else None
