"""What a profile says, as typed values. Sizes are in tokens; times, named `_s`, in seconds."""

from __future__ import annotations

import msgspec

from agenttop.agents.distribution import Distribution
from agenttop.agents.probe import Probes
from agenttop.agents.tracefile import Trace


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """When the agents begin."""

    kind: str = "every"
    """at-once; every (`stagger_s` apart); spread (evenly over one cycle); poisson (`stagger_s` apart on
    average); steady (each somewhere in the middle of its life, its context filled beforehand)."""
    stagger_s: float = 10.0
    """0 for at-once, spread and steady, unless they say otherwise."""
    cycle_s: float | None = None
    """spread: what the starts are spread over; None: one cycle as the profile plans it."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Size of a conversation, in tokens."""

    limit: int
    """The context grows to this, prompt and output together; then it is compacted."""
    system: int
    """System prompt: with `tools` the part that survives a compaction word for word."""
    first: Distribution
    """The first message of an agent, its own part of it."""
    tools: int = 0
    """Tool schemas, sent as `tools`."""
    shared_system: bool = False
    """All agents of a session have the same system prompt and tools: a prefix cache may serve them."""
    shared_document: int = 0
    """The first message begins with a document of this size that all agents of a session share."""
    turns: Distribution | None = None
    """Turns of a conversation before the agent begins a new one; None: it goes on."""
    reasoning: str = "drop"
    """Whether the reasoning of a reply goes back to the engine: drop or keep."""
    engine_limit: int | None = None
    """What the engine allows one request. Set when the profile is fitted to an engine, not in a file."""

    @property
    def fixed(self) -> int:
        """What a compaction does not touch."""
        return self.system + self.tools


class TurnSizes(msgspec.Struct, frozen=True, kw_only=True):
    """What each turn adds, in tokens."""

    input: Distribution
    """New input: tool results, messages."""
    output: Distribution
    results: str = "user"
    """How tool results are sent: as messages of role `user` or `tool`."""
    fill_rate: Distribution | None = None
    """A factor on all inputs of an agent, drawn once for each agent; None: 1."""


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """How a context that has reached its limit is shortened."""

    to_fraction: float
    """Size afterwards, as a share of `context.limit`; at least system prompt, tools and summary."""
    kind: str = "summary"
    """summary: a request for one, which replaces the history; truncate: the oldest turns are left out."""
    summary: int = 0
    """Output of the summarising request, in tokens; 0 where there is none."""


class Pacing(msgspec.Struct, frozen=True, kw_only=True):
    """Pauses between turns."""

    tool_pause_s: Distribution
    """While a tool runs."""
    human_pause_s: Distribution | None = None
    """While a person reads and writes; absent: there is no person."""
    tool_turns: Distribution | None = None
    """Turns that follow a tool run, between two human messages."""


class Children(msgspec.Struct, frozen=True, kw_only=True):
    """Sub-agents: after some turns the agent sends some out, with contexts of their own, and awaits them."""

    count: Distribution
    """How many at a time."""
    turns: Distribution
    """Turns each of them makes."""
    first: Distribution
    """Its task: the first message, in tokens."""
    every: int | None = None
    """After every so many turns; None: by `chance`."""
    chance: float | None = None
    """Share of turns after which it happens."""
    system: int = 500
    """System prompt of a sub-agent, in tokens."""
    shared_document: int = 0
    """Its first message begins with a document of this size that all sub-agents of a session share."""
    input: Distribution | None = None
    """New input per turn; None: as the agent's own."""
    output: Distribution | None = None
    """Output per turn; None: as the agent's own."""
    tool_pause_s: Distribution | None = None
    """None: as the agent's own."""


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """What every request asks for, and how long it may be silent."""

    temperature: float = 0.8
    ignore_eos: bool = True
    """llama.cpp only: go on to the planned output size, so that random weights do not end a turn early."""
    tool_choice: str = "none"
    """none: the model writes text, of the planned size; auto: it may call the tools."""
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
    children: Children | None = None
    probe: Probes | None = None
    """Facts planted and asked for; None: there are none."""
    trace: Trace | None = None
    """Recorded sessions that are replayed; None: turns are drawn."""

    def settings(self) -> dict[str, object]:
        """As plain values, for `Plan.settings` and `Configure.settings`."""
        plain = msgspec.to_builtins(self)
        assert isinstance(plain, dict)
        return plain

    @staticmethod
    def from_settings(settings: dict[str, object]) -> Profile:
        """The inverse of `settings`. Raises ValueError when they are not those of a profile."""
        return msgspec.convert(settings, Profile)

    @property
    def compacted(self) -> int:
        """Tokens a context is compacted to."""
        return self.compacted_below(self.context.limit)

    def compacted_below(self, limit: int) -> int:
        """The same for another limit: never less than what stays and the summary, nor the whole of it."""
        least = self.context.fixed + max(self.compaction.summary, 16)
        return min(max(int(limit * self.compaction.to_fraction), least), int(limit * 0.95))


def child_profile(profile: Profile) -> Profile:
    """The profile of the sub-agents of `profile`, which has some: small contexts, no people, no tools."""
    children = profile.children
    assert children is not None
    return msgspec.structs.replace(
        profile,
        start=Start(kind="at-once", stagger_s=0.0),
        context=msgspec.structs.replace(
            profile.context,
            system=children.system,
            tools=0,
            first=children.first,
            shared_document=children.shared_document,
            turns=None,
        ),
        turn=msgspec.structs.replace(
            profile.turn,
            input=children.input or profile.turn.input,
            output=children.output or profile.turn.output,
            fill_rate=None,
        ),
        pacing=Pacing(tool_pause_s=children.tool_pause_s or profile.pacing.tool_pause_s),
        children=None,
        probe=None,
        trace=None,
    )
