"""A multi-turn conversation: what is sent, how it grows, how it is shortened. No I/O, no clock.

Sizes follow the engine's own counts: after each reply the size of the prompt is known, and only what was
added since is estimated (`ratio`). The history is never counted or tokenised again.
"""

from __future__ import annotations

import msgspec

from agenttop.agents.ratio import Parts, TokenRatio
from agenttop.agents.settings import Profile
from agenttop.agents.text import TextSource

ASK_SUMMARY = "Summarise all of the above."
SUMMARY_INTRO = "Summary of the work so far:\n"


class Message(msgspec.Struct):
    """One message as it is sent."""

    role: str
    content: str


class Conversation:
    """The messages of one agent and what is known about their size."""

    def __init__(self, profile: Profile, source: TextSource, ratio: TokenRatio) -> None:
        self._profile = profile
        self._source = source
        self._ratio = ratio
        self._limit = profile.context.limit
        self._engine_limit = profile.context.engine_limit
        self.messages: list[Message] = []
        self.context_tokens: int | None = None
        """After the last turn, by the engine's count: prompt and output. After a compaction: expected."""
        self._known = 0
        self._pending = Parts()
        """What is in the messages beyond the `_known` tokens the engine has counted."""
        self._open = False
        """The last message waits for its reply."""
        self.compactions = 0

    @property
    def limit(self) -> int:
        """Tokens at which it is compacted."""
        return self._limit

    @property
    def target(self) -> int:
        """Tokens it is compacted to."""
        return int(self._limit * self._profile.compaction.to_fraction)

    def expected_tokens(self) -> int:
        """Size of the prompt as it stands."""
        return round(self._known + self._ratio.tokens(self._pending))

    def fit(self, input_tokens: int, output_tokens: int) -> tuple[int, int]:
        """Planned sizes, cut so that a turn fits between a compaction and the limit."""
        kept = self._profile.context.system if not self.messages else self.target
        room = max(2, self._limit - kept)
        if input_tokens + output_tokens > room:
            output_tokens = min(output_tokens, max(room // 2, room - input_tokens))
            input_tokens = min(input_tokens, room - output_tokens)
        return max(1, input_tokens), max(1, output_tokens)

    def must_compact(self, input_tokens: int, output_tokens: int) -> bool:
        """Whether the next turn would pass the limit."""
        if not self.messages or self._known == 0:
            return False
        return self.expected_tokens() + input_tokens + output_tokens > self._limit

    def ask(self, input_tokens: int) -> None:
        """Add the next input; the first one brings the system prompt with it."""
        if not self.messages:
            self._add("system", self._source.opening(self._ratio.chars(self._profile.context.system)))
        wanted = max(1.0, input_tokens - (self._ratio.tokens(Parts(messages=1)) if self._known else 0))
        text = self._source.text(self._ratio.chars(wanted))
        if self._open:  # after a compaction the summary and the next input are one message
            self.messages[-1].content += text
            self._pending = self._pending.plus(chars=len(text))
        else:
            self._add("user", text)
        self._open = True

    def answered(
        self, text: str, *, prompt_tokens: int | None, output_tokens: int | None, fed_back: int
    ) -> None:
        """The reply to the last input. `fed_back`: its output tokens without reasoning, which is dropped."""
        if prompt_tokens is not None:
            self.counted(prompt_tokens)
        else:
            self._known, self._pending = self.expected_tokens(), Parts()
        self.messages.append(Message("assistant", text))
        self._pending = Parts(output_tokens=fed_back, messages=1)
        self._open = False
        self.context_tokens = None
        if prompt_tokens is not None and output_tokens is not None:
            self.context_tokens = prompt_tokens + output_tokens

    def counted(self, prompt_tokens: int) -> None:
        """The engine has counted the prompt as it stands."""
        self._ratio.learn(self._pending, prompt_tokens - self._known)
        self._known, self._pending = prompt_tokens, Parts()

    def output_room(self, wanted: int) -> int:
        """`wanted` output tokens, or what the engine's limit leaves for them (at least one)."""
        if self._engine_limit is None:
            return wanted
        return max(1, min(wanted, self._engine_limit - self.expected_tokens() - 8))

    def summary_request(self) -> list[Message]:
        """The messages of the request that compacts."""
        if self._open:  # a message without a reply: the wish for a summary joins it
            last = self.messages[-1]
            return [*self.messages[:-1], Message(last.role, f"{last.content}\n{ASK_SUMMARY}")]
        return [*self.messages, Message("user", ASK_SUMMARY)]

    def compact(self, summary: str, output_tokens: int | None) -> None:
        """Replace the history by the summary, filled up (as agents attach files again) or cut to the target.

        `output_tokens` is the size of the summary by the engine's count; None: it is estimated.
        """
        fixed = Parts(chars=len(self.messages[0].content) + len(SUMMARY_INTRO), messages=2)
        room = self.target - self._ratio.tokens(fixed)
        size = output_tokens if output_tokens is not None else self._ratio.tokens(Parts(chars=len(summary)))
        size *= self._ratio.tokens(Parts(output_tokens=1))
        if size > room and summary:
            summary = summary[: max(1, int(len(summary) * max(room, 1) / size))]
            size = max(room, 1)
        self._restart(SUMMARY_INTRO + summary, Parts(len(SUMMARY_INTRO), round(size)), max(0.0, room - size))

    def cut(self, share: float) -> None:
        """Shorten without asking the engine: system prompt and fresh text, `share` of the target in all."""
        system = self.messages[0]
        if share < 1:  # not even the system prompt may stay as it is
            system.content = system.content[: max(1, int(len(system.content) * share))]
        room = self.target * share - self._ratio.tokens(Parts(chars=len(system.content), messages=2))
        self._restart("", Parts(), max(1.0, room))

    def shrink_to(self, engine_limit: int) -> None:
        """The engine allows less than was thought (it was started anew with a smaller context)."""
        if self._engine_limit is not None and engine_limit >= self._engine_limit:
            return
        self._engine_limit = engine_limit
        self._limit = min(self._limit, int(engine_limit * 0.85))

    def _restart(self, text: str, parts: Parts, padding_tokens: float) -> None:
        system = self.messages[0]
        padding = self._source.text(self._ratio.chars(padding_tokens)) if padding_tokens >= 1 else ""
        self.messages = [system]
        self._known = 0
        self._pending = Parts(chars=len(system.content), messages=1)
        self._add("user", f"{text}\n{padding}", parts.plus(chars=len(padding) + 1))
        self._open = True
        self.context_tokens = self.expected_tokens()
        self.compactions += 1

    def _add(self, role: str, content: str, parts: Parts | None = None) -> None:
        self.messages.append(Message(role, content))
        parts = Parts(chars=len(content)) if parts is None else parts
        self._pending = self._pending.plus(parts.chars, parts.output_tokens, parts.messages + 1)
