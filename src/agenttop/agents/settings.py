"""What a profile says, as typed values. Sizes are in tokens; times, named `_s`, in seconds."""

from __future__ import annotations

import msgspec

from agenttop.agents.distribution import Distribution


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """When the agents begin."""

    kind: str = "every"
    """at-once; every (`stagger_s` apart); poisson (`stagger_s` apart on average)."""
    stagger_s: float = 10.0
    """0 for at-once."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a conversation, in tokens."""

    limit: int
    """The context grows to this, prompt and output together; then it is compacted."""
    system: int
    """System prompt and tool schemas: the part that survives a compaction word for word."""
    first: Distribution
    """The first message of an agent, system prompt not counted."""
    engine_limit: int | None = None
    """What the engine allows one request. Set when the profile is fitted to an engine, not in a file."""


class TurnSizes(msgspec.Struct, frozen=True, kw_only=True):
    """What each turn adds, in tokens."""

    input: Distribution
    """New input: tool results, messages."""
    output: Distribution


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """How a context that has reached its limit is shortened: a request for a summary, which replaces it."""

    to_fraction: float
    """Size afterwards, as a share of `context.limit`."""
    summary: int
    """Output of the summarising request, in tokens."""


class Pacing(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses between turns."""

    tool_pause_s: Distribution
    """While a tool runs."""
    human_pause_s: Distribution | None = None
    """While a person reads and writes; absent: there is no person."""
    tool_turns: Distribution | None = None
    """Turns that follow a tool run, between two human messages."""


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """What every request asks for, and how long it may be silent."""

    temperature: float = 0.8
    ignore_eos: bool = True
    """llama.cpp only: go on to the planned output size, so that random weights do not end a turn early."""
    queue_s: float = 900.0
    """Longest silence before the first token."""
    stall_s: float = 120.0
    """Longest silence after it."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of agent."""

    name: str
    description: str
    agents: int
    """How many are started when nothing else is said."""
    start: Start
    context: Context
    turn: TurnSizes
    compaction: Compaction
    pacing: Pacing
    request: Requests

    def settings(self) -> dict[str, object]:
        """As plain values, for `Plan.settings` and `Configure.settings`."""
        plain = msgspec.to_builtins(self)
        assert isinstance(plain, dict)
        return plain

    @staticmethod
    def from_settings(settings: dict[str, object]) -> Profile:
        """The inverse of `settings`. Raises ValueError when they are not those of a profile."""
        return msgspec.convert(settings, Profile)
