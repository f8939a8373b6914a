"""Requests for text: from their bodies to the engine, and from its emissions to their replies."""

from __future__ import annotations

import time
from collections.abc import Callable

from agenttop.sim.asking import Job, own_length
from agenttop.sim.books import Books
from agenttop.sim.delivery import Delivery, comments
from agenttop.sim.faults import Treatment
from agenttop.sim.http import Exchange
from agenttop.sim.live import LiveEngine
from agenttop.sim.prompt import PromptReader
from agenttop.sim.requests import Emission, RejectedError, SimRequest
from agenttop.sim.wire import Answer, Facts, RefusedError, Wire
from agenttop.sim.words import Words


class Completions:
    """All requests in progress. `jobs` are those the engine has, a reply may outlive its job."""

    def __init__(
        self,
        wire: Wire,
        facts: Facts,
        *,
        speedup: float,
        seed: int,
        live: Callable[[], LiveEngine],
        restart: Callable[[float], None],
    ) -> None:
        """`restart` is called, with the seconds it takes, when a fault in the middle of a reply wants it."""
        self._wire, self._facts = wire, facts
        self._speedup, self._seed = speedup, seed
        self._live = live
        self._restart = restart
        self._words = Words(seed)
        self._prompts = PromptReader(facts.options.block_tokens)
        self._deliveries: dict[str, Delivery] = {}
        self.jobs: dict[str, Job] = {}
        self.books = Books(facts.context_limit)

    def begin(self, exchange: Exchange, number: int, chat: bool, treatment: Treatment) -> None:
        """The `number`-th request, with the faults that hit it."""
        if (refusal := self._refusal(treatment)) is not None:
            exchange.answer(refusal.status, refusal.body, refusal.headers, close=refusal.close)
        elif treatment.get("queue-timeout") is not None:
            exchange.gone = None  # taken, and never answered
        elif (every_s := treatment.number("comments")) is not None:
            comments(exchange, self._wire, every_s, self._speedup)
        else:
            try:
                self._submit(exchange, self._read(exchange, number, chat, treatment), treatment)
            except RefusedError as refused:
                answer = refused.answer
                exchange.answer(answer.status, answer.body, answer.headers, close=answer.close)

    def deliver(self, emissions: list[Emission]) -> None:
        """What the engine has said, in order of time."""
        touched: dict[str, Delivery] = {}
        for emission in emissions:
            job = self.jobs.get(emission.request)
            if job is not None:
                self._note(job, emission)
            delivery = self._deliveries.get(emission.request)
            if delivery is not None:
                delivery.take(emission)
                touched[emission.request] = delivery
        for delivery in touched.values():
            delivery.flush()

    def drop_all(self) -> None:
        """The engine has died: every reply ends where it is, and counting begins anew."""
        self.jobs.clear()  # before the connections go: the engine that had them is gone too
        for delivery in list(self._deliveries.values()):
            delivery.drop()
        self.books = Books(self._facts.context_limit)

    def _refusal(self, treatment: Treatment) -> Answer | None:
        """A fault that answers in place of the engine."""
        for kind in ("refuse", "5xx", "4xx"):
            if (status := treatment.number(kind)) is not None:
                return self._wire.failure(int(status), f"status {status:.0f} on purpose: --fault {kind}")
        return None

    def _read(self, exchange: Exchange, number: int, chat: bool, treatment: Treatment) -> Job:
        """Raises RefusedError."""
        body = self._wire.read(exchange.request, chat)
        if chat:
            prompt = self._prompts.chat(body.messages or (), body.schemas)
        else:
            prompt = self._prompts.plain(body.prompt_text())
        if treatment.get("context") is not None:
            raise RefusedError(self._wire.too_long(prompt.tokens, self._facts.context_limit))
        options = body.stream_options
        return Job(
            number=number,
            id=self._wire.job_id(number, self._seed, chat),
            created=int(time.time()),
            chat=chat,
            stream=bool(body.stream),
            model=self._facts.model,
            prompt=prompt,
            words=self._words.start(prompt.mark),
            limit=self._wire.check(body, prompt.tokens),
            arrived=self._live().now,
            usage=bool(options and options.include_usage),
            continuous=bool(options and options.include_usage and options.continuous_usage_stats),
            timings=bool(body.timings_per_token),
            progress=bool(body.return_progress),
            ignore_eos=bool(body.ignore_eos),
        )

    def _submit(self, exchange: Exchange, job: Job, treatment: Treatment) -> None:
        """Raises RefusedError."""
        room = self._facts.context_limit - job.prompt.tokens
        own_end = None
        if job.limit is None and not job.ignore_eos:
            own_end = own_length(job.prompt.mark, self._seed)
        planned = max(1, min(room, job.limit or own_end or room))
        job.reasoning = int(planned * (treatment.number("reasoning") or 0.0))
        if (lie := treatment.get("wrong-usage")) is not None:
            job.usage_factor = lie.value if isinstance(lie.value, float) else None
        request = SimRequest(
            id=job.id,
            blocks=self._prompts.with_reply(job.prompt, self._words.text(job.words, planned)),
            prompt_tokens=job.prompt.tokens,
            max_tokens=job.limit,
            stop_tokens=own_end,
        )
        try:
            self._live().submit(request)
        except RejectedError:
            raise RefusedError(self._wire.too_long(job.prompt.tokens, self._facts.context_limit)) from None
        self.jobs[job.id] = job
        self._deliveries[job.id] = Delivery(
            exchange,
            job,
            self._wire,
            self._words,
            treatment,
            self._speedup,
            over=self._over,
            restart=self._restart,
        )

    def _over(self, delivery: Delivery) -> None:
        """Nothing more will be sent; if the engine is not done with the request, it is cancelled."""
        job = delivery.job
        self._deliveries.pop(job.id, None)
        if self.jobs.pop(job.id, None) is not None:
            self.books.end(job, self._live().now, "abort")
            self._live().cancel(job.id)

    def _note(self, job: Job, emission: Emission) -> None:
        """Keep the job and the books up to date."""
        t, kind = emission.t, emission.kind
        if kind in ("first", "token"):
            job.done = emission.tokens
            self.books.token(job, t)
            job.last = t
            if job.first is None:
                job.first = t
        elif kind == "start":
            job.cached = emission.cached_tokens
            if job.started is None:
                job.started = t
        elif kind == "progress":
            self.books.slot_steps += 1
        else:
            job.reason = emission.reason
            self.jobs.pop(job.id, None)
            self.books.end(job, t, (emission.reason or "stop") if kind == "finish" else "error")
