"""One synthetic agent: talk, pause, talk again, until it is told to stop."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import partial
from typing import Protocol

from agenttop.agents.asker import Asker
from agenttop.agents.conversation import Conversation
from agenttop.agents.figures import DecodeRate, Sizes, answer_tokens, turn_frame
from agenttop.agents.load import Load, refuses_roles, refuses_tools
from agenttop.agents.messages import whole_calls
from agenttop.agents.plan import Step
from agenttop.agents.reply import Reply
from agenttop.agents.retry import Retry
from agenttop.agents.settings import Profile, child_profile
from agenttop.agents.silence import LEAST_S, Habit
from agenttop.agents.text import TextSource
from agenttop.agents.trace import USUAL_INPUT, plan_for
from agenttop.model.frames import AgentSample, Turn

MAX_CUTS = 6
"""An engine that refuses a context this often, each time half as big, refuses it for another reason."""

WARM_S = 0.3
"""The first connection is opened this long before the start, so that agents can begin in one moment."""

PRIME_OUTPUT = 8
"""Output tokens of the request that fills a context for a steady start."""

EMPTY_REPLY = "(no text)"
"""Stands for a reply without text: some chat templates refuse an empty message."""


class Desk(Protocol):
    """Where an agent reports to: the driver."""

    def changed(self, agent: Agent) -> None:
        """Its state is another one."""
        ...

    def ended(self, turn: Turn, reply: Reply, first_try: bool) -> None:
        """A request has ended."""
        ...

    def noted(self, event: str, text: str, agent: Agent, severity: str) -> None:
        """Something that belongs on the time axis."""
        ...

    def adopt(self, child: Agent) -> asyncio.Task[None]:
        """Run a sub-agent, as any other agent; the task ends when it has stopped."""
        ...


class Agent:
    """Runs as one task; `halt` and `pause` may be called at any time from the same loop."""

    def __init__(
        self,
        name: str,
        number: int | str,
        at: float,
        load: Load,
        desk: Desk,
        *,
        profile: Profile | None = None,
        parent: str | None = None,
        turns: int | None = None,
    ) -> None:
        """`turns`: it ends after so many; None: it goes on. `profile`: None for that of the load."""
        self.name = name
        self.load = load
        self.parent = parent
        self._profile = profile = profile or load.profile
        self._number = number
        self._turns_left = turns
        self._now = load.now
        self._at = at
        self._desk = desk
        self._plan = plan_for(profile, load.seed, number)
        self._asker = Asker(profile.probe, load.book, load.ratio, number, load.seed, load.miss_probes)
        self._conversation = Conversation(
            profile, TextSource(load.salt, number), load.ratio, load.prefixes, load.dialect
        )
        self._children: list[Agent] = []
        self._children_so_far = 0
        self._client = load.client()
        self._retry = Retry(self._plan.jitter)
        self._habit = Habit(load.rate, load.habit)
        self._attempt = 0
        """How often the step in hand has been sent."""
        self._stalled_in, self._moved_last = "", 0.0
        """The state it was in before it stalled, and when it last moved."""
        self.state = "waiting"
        self.started = False
        """Its time has come, so that it is part of the load; before that it waits for its staggered start."""
        self._since = self._now()
        self._until: float | None = at
        self._halting = False
        self._paused = False
        self._wake: asyncio.Future[None] | None = None
        self._prepared: Step | None = None
        self._body = b""
        self._sizes = Sizes()
        self._planned_output = 1
        self._output_limit: int | None = None
        self._ready_at = at
        """When the plan wants the next request sent."""
        self._reply: Reply | None = None
        self._rate = DecodeRate()
        self._turn = 0
        self.turns_done = 0
        self.failures = 0
        self._output_total = 0
        self._ttft: float | None = None
        self._error: str | None = None

    # What the driver calls

    def halt(self, now: bool) -> None:
        """Stop: at once, cancelling the request in flight, or when the turn has ended."""
        self._halting = True
        for child in self._children:
            child.halt(now)
        if self._reply is not None:
            if now:
                self._client.cancel()
            self._enter("stopping")
        self._rouse()

    def pause(self, on: bool) -> None:
        """Hold back the next turn, or let it go. A request in flight goes on."""
        self._paused = on
        self._rouse()

    @property
    def in_flight(self) -> Reply | None:
        """The reply it waits for or receives."""
        return self._reply

    @property
    def silent_s(self) -> float:
        """How long nothing has moved in the request in flight. Before it is sent nothing is to move."""
        sent = self._reply is not None and self._reply.t_sent is not None
        return self._now() - self._reply.t_moved if self._reply is not None and sent else 0.0

    @property
    def kept_alive(self) -> bool:
        """Bytes still come for the request in flight, although nothing moves."""
        return self._reply is not None and self._reply.t_alive > self._reply.t_moved

    @property
    def compactions(self) -> int:
        """How often its context was shortened."""
        return self._conversation.compactions

    @property
    def output_tokens_total(self) -> int:
        """Output tokens received, those of the request in progress included where they are counted."""
        current = self._reply.output_tokens if self._reply is not None else None
        return self._output_total + (current or 0)

    def look(self) -> None:
        """Note how far the request in progress is, and whether it moves; called a few times a second."""
        reply, now = self._reply, self._now()
        if reply is None:
            return
        self._rate.note(reply, now)
        if self._halting:
            return
        if self.state == "stalled":
            if reply.t_moved > self._moved_last:
                self._enter(self._stalled_in)
        elif self.silent_s > LEAST_S and self.silent_s > self._habit.allowed_s(
            reply, self._sizes.expected, now
        ):
            self._stalled_in, self._moved_last = self.state, reply.t_moved
            self._enter("stalled")

    def sample(self) -> AgentSample:
        """The agent as it is now."""
        reply, conversation = self._reply, self._conversation
        context = conversation.context_tokens
        prompt = cached = prefilled = output = None
        if reply is not None:
            prompt, cached = reply.prompt_tokens, reply.cached_tokens
            prefilled, output = reply.prefilled_tokens, reply.output_tokens
            if prompt is not None:
                context = prompt + (output or 0)
        return AgentSample(
            t=self._now(),
            agent=self.name,
            engine=self.load.engine,
            profile=self.load.profile_name,
            state=self.state,
            state_since=self._since,
            state_until=self._until,
            turn=self._turn,
            turns_done=self.turns_done,
            compactions=conversation.compactions,
            failures=self.failures,
            context_tokens=context,
            context_limit_tokens=conversation.limit,
            prompt_tokens=prompt,
            cached_tokens=cached,
            prefilled_tokens=prefilled,
            output_tokens=output,
            output_limit_tokens=self._output_limit if reply is not None else None,
            decode_tok_s=self._rate.of(reply),
            ttft_s=self._ttft,
            output_tokens_total=self.output_tokens_total,
            error=self._error,
            parent=self.parent,
            children=len(self._children) or None,
            silent_s=self.silent_s if self.state == "stalled" else None,
        )

    async def run(self) -> None:
        """The whole life of the agent. Ends in state `stopped`."""
        try:
            await self._live()
        finally:
            for child in self._children:
                child.halt(now=self._error is not None or not self._halting)
            self._client.close()
            self._reply = None
            self._enter("stopped")

    # Its life

    async def _live(self) -> None:
        if not await self._learn_ratio():
            return
        primed = self._plan.primed_tokens
        step = self._plan.next()
        self._prepare(step) if primed is None else self._prepare_prime(primed)
        self._ready_at = max(self._at, self._now())
        if not await self._rest("waiting", self._ready_at, early=WARM_S * self.load.rate):
            return
        self._client.warm()
        if not await self._rest("waiting", self._ready_at):
            return
        self.started = True
        if primed is not None and not (await self._deliver("prime") and await self._pause_before(step)):
            return
        while await self._take(step) and await self._delegate(step.children):
            if self._turns_left is not None and self._turns_left <= self.turns_done:
                return
            step = self._plan.next()
            if not await self._pause_before(step):
                return

    async def _pause_before(self, step: Step) -> bool:
        """The pause that the plan has before a turn. False: it is to stop."""
        if step.fresh:
            self._conversation.begin_anew()
            self._asker.lost()
        if step.pause_s > 0 and not self._must_compact(step):
            self._prepare(step)  # a pause leaves time for it
        self._ready_at += step.pause_s
        return await self._rest(step.pause_kind, self._ready_at)

    async def _delegate(self, turns: tuple[int, ...]) -> bool:
        """Send sub-agents out, one for each number of turns, and await them. False: it is to stop."""
        if not turns or self._halting:
            return not self._halting
        profile = child_profile(self._profile)
        for count in turns:
            self._children_so_far += 1
            own = f".{self._children_so_far}"
            child = Agent(
                f"{self.name}{own}",
                f"{self._number}{own}",
                self._now(),
                self.load,
                self._desk,
                profile=profile,
                parent=self.name,
                turns=count,
            )
            self._children.append(child)
            task = self._desk.adopt(child)
            task.add_done_callback(partial(self._child_ended, child))
        self._enter("children")
        await self._wait_for(lambda: not self._children)
        self._ready_at = self._now()
        return not self._halting

    def _child_ended(self, child: Agent, _: asyncio.Task[None]) -> None:
        self._children.remove(child)
        self._desk.changed(self)
        self._rouse()

    async def _wait_for(self, done: Callable[[], bool]) -> None:
        """Wait until `done`, or until it is to stop; whatever may change that rouses it."""
        while not done() and not self._halting:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
            self._wake = None

    async def _learn_ratio(self) -> bool:
        """False: it is to stop."""
        task = asyncio.ensure_future(self.load.learn_ratio())
        task.add_done_callback(lambda _: self._rouse())
        await self._wait_for(task.done)
        return not self._halting

    async def _take(self, step: Step) -> bool:
        """One turn, with its compaction before it and its retries. False: the agent ends."""
        if self._prepared is not step:
            if self._must_compact(step) and not await self._compact():
                return False
            self._prepare(step)
        return await self._deliver("turn" if self.parent is None else "sub")

    async def _deliver(self, kind: str) -> bool:
        """Send what is prepared until it is answered. False: the agent ends."""
        cuts = self._attempt = 0
        while True:
            reply = await self._request(kind, self._body)
            if not reply.failed:
                return not self._halting
            if reply.error_kind == "context" and not self._halting:
                cuts += 1
                if not self._cut(reply, cuts):
                    return False
            elif not self._speaks_otherwise(reply) and not await self._recover(reply):
                return False
            self._encode()

    def _speaks_otherwise(self, reply: Reply) -> bool:
        """Whether the engine refused tools or roles, and is to be asked again without them, at once."""
        if reply.refusal is None or reply.error_kind not in ("http-4xx", "http-5xx") or self._halting:
            return False
        dialect, why = self.load.dialect, reply.refusal.message
        if dialect.tools and self._conversation.tools is not None and refuses_tools(why):
            self.load.refuse_tools(f"the engine refuses them: {why}")
        elif dialect.tool_role and self._conversation.has_results and refuses_roles(why):
            self.load.refuse_tool_role(f"the engine refuses them: {why}")
        else:
            return False
        return True

    def _must_compact(self, step: Step) -> bool:
        if step.prompt is not None:
            if step.compact and self._conversation.messages:
                self._conversation.aim(step.prompt - min(step.prompt // 10, USUAL_INPUT))
            return step.compact and bool(self._conversation.messages)
        return self._conversation.must_compact(*self._conversation.fit(step.input, step.output))

    def _prepare(self, step: Step) -> None:
        """Write the next message and the request that carries it."""
        conversation = self._conversation
        if step.prompt is not None:
            sizes = conversation.room_to(step.prompt), step.output
        else:
            sizes = conversation.fit(step.input, step.output)
        words = self._asker.words(*sizes)
        self._planned_output = words.output
        conversation.ask(
            sizes[0],
            result=step.pause_kind == "tool",
            planted=words.planted,
            question=words.question,
            words=step.text,
            meant=step.prompt,
        )
        self._prepared = step
        self._encode()

    def _prepare_prime(self, tokens: int) -> None:
        """Write the request that fills the context of a steady start."""
        context = self._profile.context
        size = max(1, tokens - context.fixed - context.shared_document)
        self._conversation.ask(size, planted=self._asker.words(size, PRIME_OUTPUT, may_ask=False).planted)
        self._planned_output = PRIME_OUTPUT
        self._encode()

    def _encode(self) -> None:
        conversation = self._conversation
        conversation.adapt()
        self._output_limit = conversation.output_room(self._planned_output)
        self._body = self.load.body(conversation.messages, self._output_limit, conversation.tools)
        self._sizes = Sizes(
            conversation.planned_tokens, conversation.expected_tokens(), conversation.compacted_from
        )

    async def _compact(self) -> bool:
        """Have the context summarised, or leave out its oldest part. False: the agent ends."""
        conversation, compaction = self._conversation, self._profile.compaction
        if compaction.kind == "truncate":
            conversation.truncate()
            self._asker.lost()
            return True
        self._attempt = 0
        while True:
            conversation.adapt()
            self._output_limit = conversation.output_room(compaction.summary)
            self._sizes = Sizes(expected=conversation.expected_tokens())
            body = self.load.body(conversation.summary_request(), self._output_limit, conversation.tools)
            reply = await self._request("compact", body)
            if not reply.failed:
                return not self._halting
            if reply.error_kind == "context" and not self._halting:
                return self._cut(reply, 1)
            if not self._speaks_otherwise(reply) and not await self._recover(reply):
                return False

    def _cut(self, reply: Reply, cuts: int) -> bool:
        """The engine refused the context: learn its real limit, and shorten without asking it again.

        False: that was tried often enough.
        """
        conversation = self._conversation
        if cuts > MAX_CUTS:
            self._give_up(f"the engine refuses even {conversation.expected_tokens()} tokens: {reply.error}")
            return False
        refusal = reply.refusal
        if refusal is not None:
            limit = refusal.context_tokens or _limit_in(refusal.message)
            if limit is not None:
                conversation.shrink_to(limit)
            if refusal.prompt_tokens is not None:
                conversation.counted(refusal.prompt_tokens)
        conversation.cut(2.0 ** (1 - cuts))
        self._asker.lost()
        self._desk.noted("agent.context-cut", f"{self.name} cut its context: {reply.error}", self, "warn")
        return True

    async def _recover(self, reply: Reply) -> bool:
        """Wait as long as this failure calls for. False: the agent ends."""
        if self._halting:
            return False
        delay = self._retry.after(reply, self._now())
        if delay is None:
            row = self._retry.failures
            self._give_up(f"{row} failures in a row: {reply.error}" if row > 1 else f"{reply.error}")
            return False
        self._ready_at = self._now() + delay
        return await self._rest("backoff", self._ready_at)

    def _give_up(self, why: str) -> None:
        self._desk.noted("agent.gave-up", f"{self.name} gave up: {why}", self, "bad")

    async def _request(self, kind: str, body: bytes) -> Reply:
        """Send one request, account for it, and report it."""
        self._turn += 1
        self._attempt += 1
        self._rate.clear()
        reply = self._reply = Reply(self._on_reply if kind in ("turn", "sub") else None)
        self._enter(kind if kind in ("compact", "prime") else "queued")
        self._habit.began(reply)
        try:
            await self._client.send(body, reply)
        finally:
            self._habit.ended(reply)
        self._reply = None
        self._output_total += reply.output_tokens or 0
        if reply.t_first_token is not None and reply.t_sent is not None:
            self._ttft = reply.t_first_token - reply.t_sent
        if not reply.failed:
            self._succeeded(kind, reply)
        elif reply.error_kind != "cancelled":
            self.failures += 1
            self._error = f"{reply.error_kind}: {reply.error}"
        turn = turn_frame(
            reply,
            now=self._now(),
            agent=self.name,
            engine=self.load.engine,
            profile=self.load.profile_name,
            turn=self._turn,
            kind=kind,
            t_queued=self._ready_at,
            output_limit=self._output_limit,
            context_tokens=self._conversation.context_tokens,
            sizes=self._sizes,
            attempt=self._attempt,
            parent=self.parent,
        )
        turn = self._asker.judged(turn, reply) if kind in ("turn", "sub") else turn
        self._desk.ended(turn, reply, self._attempt == 1)
        self._ready_at = turn.t
        return reply

    def _succeeded(self, kind: str, reply: Reply) -> None:
        output, answer = reply.output_tokens, answer_tokens(reply)
        text = reply.text or EMPTY_REPLY
        if kind == "compact":
            self._conversation.compact(text, answer if output is not None else None)
            self._asker.lost()
        else:
            self.turns_done += kind != "prime"
            self._conversation.answered(
                text if not reply.calls else reply.text,
                prompt_tokens=reply.prompt_tokens,
                output_tokens=output,
                fed_back=answer,
                reasoning="".join(reply.reasoning),
                calls=whole_calls(reply.calls),
            )
            if self.load.dialect.tools and self.load.ratio.tools_are_dropped:
                self.load.refuse_tools("by its counts the engine leaves them out of the prompt")
        if self._retry.failures:
            away = self._now() - self._retry.since
            back = f"{self.name} is back after {self._retry.failures} failures in {away:.1f} s"
            self._desk.noted("agent.recovered", back, self, "info")
            self._retry.clear()
        self._error = None

    def _on_reply(self) -> None:
        """The reply has come to a new stage."""
        reply = self._reply
        if reply is None or self._halting:
            return
        if reply.t_first_token is not None:
            if self.state != "decode":
                self._enter("decode")
        elif self.state == "queued" and reply.status in (None, 200):
            self._enter("prefill")

    async def _rest(self, state: str, until: float, early: float = 0.0) -> bool:
        """Wait until `until`, and on while paused. False: it is to stop.

        With `early`, return that many seconds before; the pause is not over then.
        """
        loop = asyncio.get_running_loop()
        while not self._halting:
            left = until - early - self._now()
            if left > 0:
                if self.state != state or self._until != until:
                    self._enter(state, until)
            elif early or not self._paused:
                return True
            elif self.state != "paused":
                self._enter("paused")
            self._wake = loop.create_future()
            timer = loop.call_later(left / self.load.rate, self._rouse) if left > 0 else None
            try:
                await self._wake
            finally:
                self._wake = None
                if timer is not None:
                    timer.cancel()
            if self.state == "paused" and not self._paused:
                self._ready_at = self._now()  # the plan was held up on purpose
        return False

    def _rouse(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _enter(self, state: str, until: float | None = None) -> None:
        self.state = state
        self._since = self._now()
        self._until = until
        self._desk.changed(self)


def _limit_in(message: str) -> int | None:
    """vLLM says its limit in words only."""
    found = re.search(r"maximum context length is (\d{2,9})", message)
    return int(found[1]) if found else None
