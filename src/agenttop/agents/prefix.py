"""What a conversation begins with: system prompt, tool schemas, a document that agents share.

Of what agents share there is one text a session, the same in every driver: it is made from the session's
salt, and sized before the first reply has been counted.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from agenttop.agents.ratio import TokenRatio
from agenttop.agents.settings import Context, Profile, child_profile
from agenttop.agents.text import TextSource

_TOOL_CHARS = 1800
"""Typical length of one tool's schema as JSON: some 500 tokens."""

_UNESCAPED = str.maketrans({"\n": " ", '"': "'", "\\": "/"})


class ToolSet(msgspec.Struct, frozen=True):
    """Schemas of some tools."""

    names: tuple[str, ...]
    json: msgspec.Raw
    """The value of `tools` in a request."""

    @property
    def chars(self) -> int:
        """Length as JSON."""
        return len(bytes(self.json))

    def text(self) -> str:
        """As part of a system prompt, for an engine that takes no tools."""
        return f"\n# Tools\n{bytes(self.json).decode()}\n"


class Prefix(msgspec.Struct, frozen=True):
    """The beginning of one conversation."""

    system: str
    tools: ToolSet | None
    document: str
    """Begins the first message; empty where nothing is shared."""


class Dialect(msgspec.Struct):
    """What the engine and its chat template take; learnt once for all agents of a load."""

    tools: bool = True
    """Schemas go as `tools`; else as text in the system prompt."""
    tool_role: bool = True
    """Results go as messages of role `tool`, where the profile wants that; else as a user's."""

    def refuse_tools(self) -> None:
        """An engine without tools has no results of tools either."""
        self.tools = self.tool_role = False


class Prefixes:
    """Makes the beginnings of conversations; what is shared is made once."""

    def __init__(self, salt: str, ratio: TokenRatio, dialect: Dialect | None = None) -> None:
        self._salt = salt
        self._ratio = ratio
        self._dialect = dialect or Dialect()
        self._shared: dict[tuple[int, int, int], Prefix] = {}

    def prepare(self, profile: Profile) -> None:
        """Make what is shared now, while every driver knows equally much of the engine's tokens."""
        for each in (profile, child_profile(profile) if profile.children is not None else profile):
            if each.context.shared_system:
                self.of(each.context, TextSource(self._salt, "unused"))

    def of(self, context: Context, source: TextSource) -> Prefix:
        """The beginning of a conversation of the agent that writes with `source`."""
        if not context.shared_system:
            return self._make(context, source)
        key = (context.system, context.tools, context.shared_document)
        if key not in self._shared:
            name = "shared-" + "-".join(map(str, key))
            self._shared[key] = self._make(context, TextSource(self._salt, name))
        return self._shared[key]

    def _make(self, context: Context, source: TextSource) -> Prefix:
        ratio = self._ratio
        as_text = not self._dialect.tools
        size = ratio.chars(context.tools) if as_text else ratio.tool_chars(context.tools)
        document = context.shared_document if context.shared_system else 0
        return Prefix(
            system=source.opening(ratio.chars(context.system)),
            tools=schemas(source, size) if context.tools else None,
            document=source.text(ratio.chars(document)) if document else "",
        )


def schemas(source: TextSource, chars: int) -> ToolSet:
    """Tool schemas of `chars` characters as JSON, or the few more that one tool needs.

    The first name is the agent's own, like the first line of its system prompt: chat templates may put
    tools before it, and nothing may be found in a cache by accident.
    """
    count = max(1, round(chars / _TOOL_CHARS))
    own = re.sub(r"[^A-Za-z0-9]+", "_", source.name)[-40:].strip("_")
    tools = [_tool(source, f"{source.word()}_{own if number == 0 else number}") for number in range(count)]
    left = chars - len(msgspec.json.encode(tools))
    for number, tool in enumerate(tools):
        share = left // (count - number)
        left -= share
        tool["function"]["description"] += _prose(source, share) if share > 0 else ""
    names = tuple(tool["function"]["name"] for tool in tools)
    return ToolSet(names=names, json=msgspec.Raw(msgspec.json.encode(tools)))


def _tool(source: TextSource, name: str) -> dict[str, Any]:
    """One tool, described in a few words and with three parameters."""
    parameters = {
        source.word(): {"type": kind, "description": _prose(source, 90)}
        for kind in ("string", "integer", "boolean")
    }
    schema = {"type": "object", "properties": parameters, "required": list(parameters)[:1]}
    return {"type": "function", "function": {"name": name, "description": "", "parameters": schema}}


def _prose(source: TextSource, chars: int) -> str:
    """Text that needs no escapes in JSON."""
    return source.text(chars).translate(_UNESCAPED)
