"""A multi-turn conversation: what is sent, how it grows, how it is shortened. No I/O, no clock.

Sizes follow the engine's own counts: after each reply the size of the prompt is known, and only what was
added since is estimated (`ratio`). The history is never counted or tokenised again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from agenttop.agents.messages import Function, History, Message, ToolCall
from agenttop.agents.prefix import Dialect, Prefix, Prefixes, ToolSet
from agenttop.agents.ratio import Parts, TokenRatio
from agenttop.agents.settings import Profile
from agenttop.agents.text import TextSource

__all__ = ["Conversation", "Message"]

ASK_SUMMARY = "Summarise all of the above."
SUMMARY_INTRO = "Summary of the work so far:\n"


class Conversation:
    """The messages of one agent and what is known about their size."""

    def __init__(
        self,
        profile: Profile,
        source: TextSource,
        ratio: TokenRatio,
        prefixes: Prefixes | None = None,
        dialect: Dialect | None = None,
    ) -> None:
        self._profile = profile
        self._source = source
        self._ratio = ratio
        self._dialect = dialect or Dialect()
        self._prefixes = prefixes or Prefixes("", ratio, self._dialect)
        self._prefix: Prefix | None = None
        self._native = self._roles = True
        """How it is written down now; see `Dialect`."""
        self._limit = profile.context.limit
        self._engine_limit = profile.context.engine_limit
        self._history = History()
        self.context_tokens: int | None = None
        """After the last turn, by the engine's count: prompt and output. After a compaction: expected."""
        self._known = 0
        self._pending = Parts()
        """What is in the messages beyond the `_known` tokens the engine has counted."""
        self._open = False
        """The last message waits for its reply."""
        self._calls = 0
        self.compactions = 0
        self.compacted_from: int | None = None
        """Between a compaction and the next counted turn: the context before it."""
        self._aim: int | None = None
        self._base: int | None = None
        """Size the context was meant to have after a compaction."""
        self.planned_tokens: int | None = None
        """Size the plan wants the prompt to have that is being written."""

    # What it holds

    @property
    def messages(self) -> list[Message]:
        """As they are sent."""
        return self._history.messages

    @property
    def tools(self) -> ToolSet | None:
        """Tool schemas to send beside the messages."""
        return self._prefix.tools if self._prefix is not None and self._native else None

    @property
    def has_results(self) -> bool:
        """Whether it holds results of tools as such."""
        return any(message.role == "tool" for message in self.messages)

    @property
    def limit(self) -> int:
        """Tokens at which it is compacted."""
        return self._limit

    @property
    def target(self) -> int:
        """Tokens it is compacted to."""
        if self._aim is not None:
            return max(self._fixed + 1, min(self._aim, self._limit))
        return self._profile.compacted_below(self._limit)

    def aim(self, tokens: int) -> None:
        """From now on it is compacted to this size."""
        self._aim = tokens

    def room_to(self, prompt_tokens: int) -> int:
        """What the next input must add so that the prompt has this size; at least one token."""
        held = self.expected_tokens() if self.messages else self._opening_tokens()
        return max(1, prompt_tokens - held)

    def expected_tokens(self) -> int:
        """Size of the prompt as it stands."""
        return round(self._known + self._ratio.tokens(self._pending))

    def fit(self, input_tokens: int, output_tokens: int) -> tuple[int, int]:
        """Planned sizes, cut so that a turn fits between a compaction and the limit."""
        kept = self._fixed if not self.messages else self.target
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

    def output_room(self, wanted: int) -> int:
        """`wanted` output tokens, or what the engine's limit leaves for them (at least one)."""
        if self._engine_limit is None:
            return wanted
        return max(1, min(wanted, self._engine_limit - self.expected_tokens() - 8))

    # How it grows

    def begin_anew(self) -> None:
        """Forget everything but the system prompt and the tools: the next input opens a new conversation."""
        self._history.clear()
        self._known, self._pending, self._open = 0, Parts(), False
        self._base = self.compacted_from = None

    def ask(
        self,
        input_tokens: int,
        *,
        result: bool = False,
        planted: Sequence[tuple[float, str]] = (),
        question: str | None = None,
        words: str | None = None,
        meant: int | None = None,
    ) -> None:
        """Add the next input; the first one brings the system prompt, the tools and a shared document.

        `result`: it is that of a tool, not a person's. `planted`: (depth, text) of lines that shall stand at
        these shares of the new text. `question`: its last line. Neither makes it longer than `input_tokens`,
        as long as there is room. `words`: the input itself, whatever its size; else it is generated.
        `meant`: the size the plan wants the prompt to have; None: what it held, and `input_tokens`.
        """
        first = not self.messages
        if self._base is None:
            self._base = self._fixed if first else self.expected_tokens()
        self.planned_tokens, self._base = meant or self._base + input_tokens, None
        document = self._begin() if first else ""
        as_result = self._as_result(result)
        overhead = Parts(
            messages=2 if first else 0 if self._open else 1, calls=int(as_result), openings=int(first)
        )
        wanted = max(1.0, input_tokens - self._ratio.tokens(overhead))
        text = words if words is not None else self._source.text(self._ratio.chars(wanted))
        text = document + _with(text, planted, question)
        if self._open:  # after a compaction the summary and the next input are one message
            self._history.extend_last(text, Parts(chars=len(text)))
            self._pending = self._pending.plus(chars=len(text))
        elif as_result:
            self._add_result(text)
        else:
            self._add(Message("user", text), Parts(chars=len(text)))
        self._open = True

    def answered(
        self,
        text: str,
        *,
        prompt_tokens: int | None,
        output_tokens: int | None,
        fed_back: int,
        reasoning: str = "",
        calls: Sequence[ToolCall] = (),
    ) -> None:
        """The reply to the last input, as it goes back with the next one.

        `fed_back`: its output tokens without reasoning, which goes back only where the profile keeps it.
        """
        if prompt_tokens is not None:
            self.counted(prompt_tokens)
        else:
            self._known, self._pending = self.expected_tokens(), Parts()
        message, parts = Message("assistant", text), Parts(output_tokens=fed_back)
        if reasoning and self._profile.context.reasoning == "keep":
            message.reasoning_content = reasoning
            parts = msgspec.structs.replace(parts, reasoning_tokens=max(0, (output_tokens or 0) - fed_back))
        if calls:
            message.tool_calls = list(calls)
            message = message if self._tool_role else message.plain()
        self._pending = self._history.add(message, parts)
        self._open = False
        self.compacted_from = None
        self.context_tokens = None
        if prompt_tokens is not None and output_tokens is not None:
            self.context_tokens = prompt_tokens + output_tokens

    def counted(self, prompt_tokens: int) -> None:
        """The engine has counted the prompt as it stands."""
        self._ratio.learn(self._pending, prompt_tokens - self._known)
        self._known, self._pending = prompt_tokens, Parts()

    def adapt(self) -> None:
        """Write it all in the dialect of the engine, should that have been learnt since."""
        dialect = self._dialect
        if not self.messages or (self._native, self._roles) == (dialect.tools, dialect.tool_role):
            return
        if not dialect.tool_role:
            self._history.without_tools()
        if self._native and not dialect.tools and self._prefix is not None and self._prefix.tools is not None:
            text = self._prefix.tools.text()
            self.messages[0].content += text
            self._history.add_parts(0, Parts(chars=len(text)))
        self._native, self._roles = dialect.tools, dialect.tool_role
        self._known, self._pending = 0, self._whole()

    # How it is shortened

    def summary_request(self) -> list[Message]:
        """The messages of the request that compacts."""
        *before, last = self.messages
        if self._open:  # a message without a reply: the wish for a summary joins it
            return [*before, msgspec.structs.replace(last, content=f"{last.content}\n{ASK_SUMMARY}")]
        return [*before, last.plain() if last.tool_calls else last, Message("user", ASK_SUMMARY)]

    def compact(self, summary: str, output_tokens: int | None) -> None:
        """Replace the history by the summary, filled up (as agents attach files again) or cut to the target.

        `output_tokens` is the size of the summary by the engine's count; None: it is estimated.
        """
        fixed = self._system_parts().add(Parts(chars=len(SUMMARY_INTRO), messages=1))
        room = self.target - self._ratio.tokens(fixed)
        size = output_tokens if output_tokens is not None else self._ratio.tokens(Parts(chars=len(summary)))
        size *= self._ratio.tokens(Parts(output_tokens=1))
        if size > room and summary:
            summary = summary[: max(1, int(len(summary) * max(room, 1) / size))]
            size = max(room, 1)
        self._restart(SUMMARY_INTRO + summary, Parts(len(SUMMARY_INTRO), round(size)), max(0.0, room - size))

    def truncate(self) -> None:
        """Leave out the oldest messages, and the beginning of the oldest that stays, down to the target."""
        room = self.target - self._ratio.tokens(self._system_parts())
        messages = self.messages
        asked = max(index for index in range(1, len(messages)) if messages[index].role != "assistant")
        first = len(messages)
        while first > 1:
            size = self._ratio.tokens(self._history.parts_of(first - 1))
            if size > room:
                break
            room -= size
            first -= 1
        self._shortened()
        if first > asked or (first > 1 and messages[first - 1].role != "assistant"):
            first = min(first - 1, asked)  # a conversation begins with a user
            self._cut_head(first, room)
        self._history.keep(first)
        self._history.replace(1, self.messages[1].plain(), self._history.parts_of(1))
        self._known, self._pending = 0, self._whole()
        self.context_tokens = self._base = self.expected_tokens()

    def cut(self, share: float) -> None:
        """Shorten without asking the engine: system prompt and fresh text, `share` of the target in all.

        It never grows: a context that is below the target already goes down to `share` of what it is.
        """
        most = min(self.target, self.expected_tokens() - 1) * share
        system = self.messages[0]
        if share < 1:  # not even the system prompt may stay as it is
            system.content = system.content[: max(1, int(len(system.content) * share))]
            self._history.replace(0, system, Parts(chars=len(system.content), messages=1))
            if self._prefix is not None:
                self._prefix = msgspec.structs.replace(self._prefix, tools=None)
        room = most - self._ratio.tokens(self._system_parts().plus(messages=1))
        self._restart("", Parts(), max(1.0, room))

    def shrink_to(self, engine_limit: int) -> None:
        """The engine allows less than was thought (it was started anew with a smaller context)."""
        if self._engine_limit is not None and engine_limit >= self._engine_limit:
            return
        self._engine_limit = engine_limit
        self._limit = min(self._limit, int(engine_limit * 0.85))

    # Its parts

    @property
    def _fixed(self) -> int:
        """Tokens that a new conversation begins with, as planned."""
        context = self._profile.context
        return context.fixed + (context.shared_document if context.shared_system else 0)

    def _opening_tokens(self) -> int:
        """Size of what a new conversation begins with: as made, where it has been made."""
        prefix = self._prefix
        if prefix is None:
            return self._fixed
        tools = prefix.tools.chars if prefix.tools is not None else 0
        chars = len(prefix.system) + len(prefix.document)
        return round(self._ratio.tokens(Parts(chars=chars, messages=1, tool_chars=tools)))

    @property
    def _tool_role(self) -> bool:
        """Whether results go as messages of role tool."""
        return self._profile.turn.results == "tool" and self._dialect.tool_role

    def _begin(self) -> str:
        """Open a conversation with its system prompt; returns the document its first message begins with."""
        if self._prefix is None:
            self._prefix = self._prefixes.of(self._profile.context, self._source)
        self._native, self._roles = self._dialect.tools, self._dialect.tool_role
        system = self._prefix.system
        if not self._native and self._prefix.tools is not None:
            system += self._prefix.tools.text()
        self._history.add(Message("system", system), Parts(chars=len(system)))
        self._pending = self._whole()
        return self._prefix.document

    def _as_result(self, result: bool) -> bool:
        """Whether the next input is a message of role tool: only a reply, or what it called, has a result."""
        if self._open or not self.messages or self.messages[-1].role != "assistant" or not self._tool_role:
            return False
        return result or bool(self.messages[-1].tool_calls)

    def _add_result(self, text: str) -> None:
        """The result of what the last reply called; if that was nothing, a call is added to it."""
        asked, index = self.messages[-1], len(self.messages) - 1
        if not asked.tool_calls:
            self._calls += 1
            names = self._prefix.tools.names if self._prefix is not None and self._prefix.tools else ()
            name = names[self._calls % len(names)] if names else "run"
            arguments = msgspec.json.encode({"path": self._source.path()}).decode()
            # Nine digits, since Mistral's templates take nothing else.
            asked.tool_calls = [ToolCall(f"{self._calls:09d}", Function(name, arguments))]
            self._history.add_parts(index, Parts(calls=1))
            self._pending = self._pending.add(Parts(calls=1))
        for number, call in enumerate(asked.tool_calls):
            content = text if number == 0 else "done"
            self._add(Message("tool", content, tool_call_id=call.id), Parts(chars=len(content)))

    def _add(self, message: Message, parts: Parts) -> None:
        self._pending = self._pending.add(self._history.add(message, parts))

    def _opening_parts(self) -> Parts:
        """What stands in a prompt beside its messages."""
        tools = self.tools
        return Parts(tool_chars=0 if tools is None else tools.chars, openings=1)

    def _system_parts(self) -> Parts:
        return self._history.parts_of(0).add(self._opening_parts())

    def _whole(self) -> Parts:
        return self._history.total().add(self._opening_parts())

    def _shortened(self) -> None:
        self.compactions += 1
        if self.compacted_from is None:
            self.compacted_from = self.context_tokens or self.expected_tokens()

    def _restart(self, text: str, parts: Parts, padding_tokens: float) -> None:
        self._shortened()
        padding = self._source.text(self._ratio.chars(padding_tokens)) if padding_tokens >= 1 else ""
        self._history.keep(len(self.messages))
        self._known, self._pending = 0, self._whole()
        self._add(Message("user", f"{text}\n{padding}"), parts.plus(chars=len(padding) + 1))
        self._open = True
        self.context_tokens = self._base = self.expected_tokens()

    def _cut_head(self, index: int, room: float) -> None:
        """Keep only the end of a message: as much as `room` tokens hold."""
        message = self.messages[index]
        size = max(1.0, self._ratio.tokens(self._history.parts_of(index)))
        chars = max(1, int(len(message.content) * min(1.0, max(0.0, room) / size)))
        short = Message("user", message.content[-chars:])
        self._history.replace(index, short, Parts(chars=chars, messages=1))


def _with(text: str, planted: Sequence[tuple[float, str]], question: str | None) -> str:
    """`text` with lines planted at shares of its length and a last line, and no longer than it was."""
    if not planted and question is None:
        return text
    end = f"\n{question}" if question is not None else ""
    lines = [(depth, line.rstrip("\n") + "\n") for depth, line in sorted(planted)]
    body = text[: max(0, len(text) - len(end) - sum(len(line) for _, line in lines))]
    pieces: list[str] = []
    done = 0
    for depth, line in lines:
        place = body.rfind("\n", 0, int(len(body) * depth)) + 1  # the beginning of a line
        place = max(done, place)
        pieces += [body[done:place], line]
        done = place
    return "".join([*pieces, body[done:], end])
