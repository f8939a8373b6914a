"""Every key a profile file may hold: its meaning and what it accepts. The one list behind check and show."""

from __future__ import annotations

import msgspec


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One key. `kind`: text, file, choice, flag, whole, number, shares (of 1), or spread (distribution)."""

    path: str
    kind: str
    doc: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()
    required: bool = False
    """In a section that may be left out: required once the section is there."""

    @property
    def section(self) -> str:
        """What stands before the dot; empty at the top."""
        return self.path.rpartition(".")[0]

    def expected(self) -> str:
        """What a value must be, in words."""
        within = f"from {self.low:.12g} to {self.high:.12g}"
        if self.kind == "choice":
            return "one of " + ", ".join(f'"{choice}"' for choice in self.choices)
        return {
            "text": "text in quotes",
            "file": "the path of a file in quotes",
            "shares": f"a list of 1 to {MOST_SHARES} shares, such as [0.15, 0.5, 0.85]",
            "flag": "true or false",
            "whole": f"a whole number {within}",
            "number": f"a number {within}",
            "spread": 'a number, or a distribution such as { kind = "log-normal", mu = 6.6, sigma = 1.1 }',
        }[self.kind]


MOST_SHARES = 12
TOKENS = 10_000_000
DAY_S = 86_400

STARTS = ("at-once", "every", "spread", "poisson", "steady")


def _choice(path: str, choices: tuple[str, ...], doc: str) -> Key:
    return Key(path=path, kind="choice", choices=choices, doc=doc)


def _tokens(path: str, doc: str, low: float = 0, *, required: bool = False) -> Key:
    return Key(path=path, kind="whole", low=low, high=TOKENS, required=required, doc=doc)


def _spread(path: str, doc: str, high: float = TOKENS, *, required: bool = False) -> Key:
    return Key(path=path, kind="spread", high=high, required=required, doc=doc)


def _seconds(path: str, doc: str, low: float = 0) -> Key:
    return Key(path=path, kind="number", low=low, high=DAY_S, doc=doc)


KEYS = (
    Key(path="description", kind="text", doc="What it imitates, one line", required=True),
    Key(path="agents", kind="whole", low=1, high=4096, doc="Agents started when nothing else is said"),
    _choice("start.kind", STARTS, "When agents begin"),
    _seconds("start.stagger_s", "Seconds between starts (their mean)"),
    _seconds("start.cycle_s", "Seconds that the starts of kind spread are spread over", 0.1),
    _tokens(
        "context.limit", "Tokens of prompt and output at which the context is compacted", 256, required=True
    ),
    _tokens("context.system", "Tokens of the system prompt", 1, required=True),
    _tokens("context.tools", "Tokens of tool schemas"),
    _spread("context.first", "Tokens of the first message", required=True),
    Key(path="context.shared_system", kind="flag", doc="All agents have the same system prompt and tools"),
    _tokens("context.shared_document", "Tokens of a document all agents begin with"),
    _spread("context.turns", "Turns before the agent begins a new conversation; absent: it goes on", 1e6),
    _choice("context.reasoning", ("drop", "keep"), "Whether reasoning goes back to the engine"),
    _spread("turn.input", "New input tokens per turn", required=True),
    _spread("turn.output", "Output tokens per turn", required=True),
    _choice("turn.results", ("user", "tool"), "Role of the messages that bring tool results"),
    _spread("turn.fill_rate", "Factor on the inputs of an agent, drawn once for each", 1000),
    _choice("compaction.kind", ("summary", "truncate"), "How the context is shortened"),
    Key(
        path="compaction.to_fraction",
        kind="number",
        low=0.01,
        high=0.9,
        required=True,
        doc="Context after a compaction, as a share of the limit (never below what stays)",
    ),
    _tokens("compaction.summary", "Output tokens of the request that compacts", 1, required=True),
    _spread("pacing.tool_pause_s", "Seconds a tool runs", DAY_S, required=True),
    _spread("pacing.human_pause_s", "Seconds a person takes; absent: none", DAY_S),
    _spread("pacing.tool_turns", "Tool turns between two human messages", 1e6),
    Key(
        path="children.every", kind="whole", low=1, high=1_000_000, doc="Sub-agents after every so many turns"
    ),
    Key(path="children.chance", kind="number", low=0, high=1, doc="Sub-agents after this share of turns"),
    _spread("children.count", "Sub-agents at a time", 256, required=True),
    _spread("children.turns", "Turns of each sub-agent", 10_000, required=True),
    _tokens("children.system", "Tokens of a sub-agent's system prompt", 1),
    _spread("children.first", "Tokens of a sub-agent's first message", required=True),
    _tokens("children.shared_document", "Tokens of a document all sub-agents begin with"),
    _spread("children.input", "New input tokens per turn of a sub-agent; absent: as turn.input"),
    _spread("children.output", "Output tokens per turn of a sub-agent; absent: as turn.output"),
    _spread(
        "children.tool_pause_s", "Seconds a sub-agent's tool runs; absent: as pacing.tool_pause_s", DAY_S
    ),
    Key(path="trace.file", kind="file", doc="Recorded sessions to replay, beside the profile", required=True),
    Key(path="trace.subagents", kind="flag", doc="Replay recorded sub-agents too, as agents of their own"),
    Key(path="probe.depths", kind="shares", doc="Where facts are planted in a document"),
    Key(path="probe.decoys", kind="whole", high=12, doc="Lines that look like a fact and are none"),
    Key(
        path="probe.every", kind="whole", low=1, high=10_000, doc="A fact is asked for in every so many turns"
    ),
    _tokens("probe.output", "Tokens the answer may have", 1),
    Key(path="probe.ask", kind="text", doc="The question; {name} is what is asked about"),
    Key(path="request.temperature", kind="number", low=0, high=5, doc="Sampling temperature"),
    Key(
        path="request.ignore_eos",
        kind="flag",
        doc="llama.cpp: generate up to the planned output size although the model would end earlier",
    ),
    _choice("request.tool_choice", ("none", "auto"), "Whether the model may call the tools"),
    _seconds("request.queue_s", "Silence borne before the first token", 0.1),
    _seconds("request.stall_s", "Silence borne after the first token", 0.1),
)

BY_PATH = {key.path: key for key in KEYS}
SECTIONS = {key.section for key in KEYS if key.section}
OPTIONAL_SECTIONS = {"children", "probe", "trace"}
