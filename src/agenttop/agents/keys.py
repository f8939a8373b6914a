"""Every key a profile file may hold: its meaning and what it accepts. The one list behind check and show."""

from __future__ import annotations

import msgspec


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """One key. `kind`: text, choice, flag, whole, number, or spread (a number or a distribution)."""

    path: str
    kind: str
    doc: str
    low: float = 0
    high: float = 0
    choices: tuple[str, ...] = ()
    required: bool = False

    def expected(self) -> str:
        """What a value must be, in words."""
        within = f"from {self.low:.12g} to {self.high:.12g}"
        if self.kind == "choice":
            return "one of " + ", ".join(f'"{choice}"' for choice in self.choices)
        return {
            "text": "text in quotes",
            "flag": "true or false",
            "whole": f"a whole number {within}",
            "number": f"a number {within}",
            "spread": 'a number, or a distribution such as { kind = "log-normal", mu = 6.6, sigma = 1.1 }',
        }[self.kind]


TOKENS = 10_000_000
DAY_S = 86_400

KEYS = (
    Key(path="description", kind="text", doc="What it imitates, one line", required=True),
    Key(path="agents", kind="whole", low=1, high=4096, doc="Agents started when nothing else is said"),
    Key(path="start.kind", kind="choice", choices=("at-once", "every", "poisson"), doc="When agents begin"),
    Key(path="start.stagger_s", kind="number", low=0, high=DAY_S, doc="Seconds between starts (their mean)"),
    Key(
        path="context.limit",
        kind="whole",
        low=256,
        high=TOKENS,
        required=True,
        doc="Tokens of prompt and output at which the context is compacted",
    ),
    Key(
        path="context.system",
        kind="whole",
        low=1,
        high=TOKENS,
        required=True,
        doc="Tokens of system prompt and tool schemas",
    ),
    Key(path="context.first", kind="spread", high=TOKENS, required=True, doc="Tokens of the first message"),
    Key(path="turn.input", kind="spread", high=TOKENS, required=True, doc="New input tokens per turn"),
    Key(path="turn.output", kind="spread", high=TOKENS, required=True, doc="Output tokens per turn"),
    Key(
        path="compaction.to_fraction",
        kind="number",
        low=0.01,
        high=0.9,
        required=True,
        doc="Context after a compaction, as a share of the limit",
    ),
    Key(
        path="compaction.summary",
        kind="whole",
        low=1,
        high=TOKENS,
        required=True,
        doc="Output tokens of the request that compacts",
    ),
    Key(path="pacing.tool_pause_s", kind="spread", high=DAY_S, required=True, doc="Seconds a tool runs"),
    Key(path="pacing.human_pause_s", kind="spread", high=DAY_S, doc="Seconds a person takes; absent: none"),
    Key(path="pacing.tool_turns", kind="spread", high=1e6, doc="Tool turns between two human messages"),
    Key(path="request.temperature", kind="number", low=0, high=5, doc="Sampling temperature"),
    Key(
        path="request.ignore_eos",
        kind="flag",
        doc="llama.cpp: generate up to the planned output size although the model would end earlier",
    ),
    Key(
        path="request.queue_s",
        kind="number",
        low=0.1,
        high=DAY_S,
        doc="Silence borne before the first token",
    ),
    Key(
        path="request.stall_s",
        kind="number",
        low=0.1,
        high=DAY_S,
        doc="Silence borne after the first token",
    ),
)

BY_PATH = {key.path: key for key in KEYS}
SECTIONS = {key.path.partition(".")[0] for key in KEYS if "." in key.path}
