"""The messages of a conversation as they are sent, and what each of them is made of."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agenttop.agents.ratio import Parts
from agenttop.wire import openai


class Function(msgspec.Struct):
    """The function that a call names; its arguments are JSON in a string."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct):
    """One call of a tool."""

    id: str
    function: Function
    type: str = "function"

    def text(self) -> str:
        """As it reads in a conversation without tools."""
        return f"{self.function.name}({self.function.arguments})"


class Message(msgspec.Struct, omit_defaults=True):
    """One message. What is not set is not sent."""

    role: str
    content: str
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None

    def plain(self) -> Message:
        """The same without tools: a result as a user's message, calls as text where there is no other."""
        role = "user" if self.role == "tool" else self.role
        content = self.content or " ".join(call.text() for call in self.tool_calls or [])
        return Message(role, content, self.reasoning_content)


def whole_calls(pieces: Iterable[openai.ToolCall]) -> list[ToolCall]:
    """The calls that a reply made, put together from the pieces they came in."""
    found: dict[int, ToolCall] = {}
    for piece in pieces:
        index = piece.index if piece.index is not None else max(0, len(found) - (piece.id is None))
        call = found.setdefault(index, ToolCall(f"{index:09d}", Function("", "")))
        call.id = piece.id or call.id
        if piece.function is not None:
            call.function.name += piece.function.name or ""
            call.function.arguments += piece.function.arguments or ""
    return [call for call in found.values() if call.function.name]


class History:
    """Messages in order, with the parts of each, so that some can be left out and the rest still be sized."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._parts: list[Parts] = []

    def clear(self) -> None:
        """Forget all."""
        self.messages, self._parts = [], []

    def add(self, message: Message, parts: Parts) -> Parts:
        """Append a message. Returns its parts, the message itself included."""
        parts = parts.plus(messages=1)
        self.messages.append(message)
        self._parts.append(parts)
        return parts

    def extend_last(self, text: str, parts: Parts) -> None:
        """More text for the last message."""
        self.messages[-1].content += text
        self._parts[-1] = self._parts[-1].add(parts)

    def parts_of(self, index: int) -> Parts:
        """Of one message."""
        return self._parts[index]

    def add_parts(self, index: int, parts: Parts) -> None:
        """A message has grown by something other than text."""
        self._parts[index] = self._parts[index].add(parts)

    def total(self) -> Parts:
        """Of all messages."""
        total = Parts()
        for parts in self._parts:
            total = total.add(parts)
        return total

    def replace(self, index: int, message: Message, parts: Parts) -> None:
        """Another message in its place; `parts` with the message itself."""
        self.messages[index], self._parts[index] = message, parts

    def keep(self, first: int) -> None:
        """Leave out what stands between the system prompt and message `first`."""
        self.messages[1:first] = []
        self._parts[1:first] = []

    def without_tools(self) -> None:
        """All of it in messages that every chat template takes."""
        for index, message in enumerate(self.messages):
            if message.role == "tool" or message.tool_calls:
                parts = self._parts[index]
                self.replace(index, message.plain(), msgspec.structs.replace(parts, calls=0))
