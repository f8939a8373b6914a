"""What was observed, as the text of a profile: fitted distributions, and the trace to replay where wanted."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from agenttop.agents.distribution import Distribution
from agenttop.agents.imports.fit import Fit, Observed, Values, fit, quantile

DEFAULT_TO_FRACTION = 0.22
DEFAULT_SUMMARY = 2_000
DEFAULT_TOOL_PAUSE = Distribution(kind="log-normal", mu=2.51, sigma=1.22, max=60)
DEFAULT_INPUT = Distribution(kind="log-normal", mu=6.61, sigma=1.10, min=16, max=20_000)
"""Those of the bundled profile `human`, from 709 recorded sessions, where a source is silent."""

DEFAULT_AGENTS = 4

MOST_LIMIT = 10_000_000
"""A profile allows no larger one."""


@dataclass
class Made:
    """A profile that was made."""

    text: str
    """TOML."""
    fits: list[Fit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is a default, and why."""


@dataclass
class _Fits:
    """What was made of each quantity of a profile."""

    first: Fit | None
    input: Fit | None
    output: Fit | None
    tool_pause: Fit | None
    human_pause: Fit | None
    tool_turns: Fit | None
    turns: Fit | None

    def least(self, system: int) -> float:
        """Tokens of the smallest turn, first or later."""
        later = sum(one.distribution.lowest for one in (self.input, self.output) if one is not None)
        return system + max(later, self.first.distribution.lowest if self.first is not None else 0.0)


def make(observed: Observed, description: str, trace: str | None = None) -> Made:
    """The profile of what was observed. `trace`: name of the file to replay, next to the profile.

    What the source does not tell is taken from the bundled profiles, and a note says so.
    """
    notes: list[str] = []
    system = _system(observed, notes)
    human = fit(observed.human_pause, "s")
    fits = _Fits(
        first=fit(_first(observed, system), "tokens"),
        input=fit(observed.input, "tokens"),
        output=fit(observed.output, "tokens"),
        tool_pause=fit(observed.tool_pause, "s"),
        human_pause=human,
        tool_turns=fit(observed.tool_turns, "turns", counts=True) if human is not None else None,
        turns=fit(observed.turns, "turns"),
    )
    compaction = _compaction(observed, system, fits.least(system), trace is not None, notes)
    notes += _silences(observed, fits)
    others = [fit(values, "tokens") for values in (observed.system, observed.before, observed.after)]
    return Made(
        text=_toml(fits, description, trace, system, *compaction),
        fits=[one for one in (*vars(fits).values(), *others) if one is not None],
        notes=notes,
    )


def _silences(observed: Observed, fits: _Fits) -> list[str]:
    """What the source does not tell, and what stands in for it."""
    notes = []
    if fits.input is None:
        notes.append("no turn after a first one: what turns add is taken from the profile human")
    if fits.tool_pause is None:
        notes.append("no pauses for tools in the source: those of the profile human are taken")
    if observed.shrunk:
        notes.append(
            f"{observed.shrunk} turns added nothing (reasoning or old results had been dropped): they are "
            "not in the fit of the input"
        )
    return notes


def _toml(
    fits: _Fits, description: str, trace: str | None, system: int, limit: int, fraction: float, summary: int
) -> str:
    head = "[trace]  # replayed turn by turn; the figures below stand in where it is silent"
    replay = [head, f"file = {_text(trace)}", ""] if trace is not None else []
    turns = [f"turns = {_spread(fits.turns, least=1)}"] if fits.turns is not None and trace is None else []
    human = [f"human_pause_s = {_spread(fits.human_pause)}"] if fits.human_pause is not None else []
    runs = [f"tool_turns = {_spread(fits.tool_turns)}"] if fits.tool_turns is not None else []
    lines = [
        f"description = {_text(description)}",
        f"agents = {DEFAULT_AGENTS}",
        "",
        *replay,
        "[start]",
        'kind = "poisson"',
        "stagger_s = 15",
        "",
        "[context]  # tokens",
        f"limit = {limit}",
        f"system = {system}",
        f"first = {_spread(fits.first)}",
        *turns,
        "",
        "[turn]  # tokens",
        f"input = {_spread(fits.input, DEFAULT_INPUT)}",
        f"output = {_spread(fits.output)}",
        "",
        "[compaction]",
        f"to_fraction = {fraction:g}",
        f"summary = {summary}",
        "",
        "[pacing]  # seconds",
        f"tool_pause_s = {_spread(fits.tool_pause, DEFAULT_TOOL_PAUSE)}",
        *human,
        *runs,
    ]
    return "\n".join(lines) + "\n"


def _system(observed: Observed, notes: list[str]) -> int:
    """One size for all agents: no larger than nearly every prompt."""
    least = sorted(observed.least.kept())
    room = max(1, int(quantile(least, 0.1) * 0.9))
    told = sorted(observed.system.kept())
    if told:
        return max(1, min(room, round(quantile(told, 0.5))))
    notes.append("the source tells no system prompt: half of its smallest prompts is taken for one")
    return max(1, room // 2)


def _first(observed: Observed, system: int) -> Values:
    """First messages, the system prompt not counted."""
    if observed.first.seen == observed.sessions:
        return observed.first
    first = Values("first")
    for prompt in observed.opening.kept():
        first.add(max(1.0, prompt - system))
    return first


def _compaction(
    observed: Observed, system: int, least: float, replay: bool, notes: list[str]
) -> tuple[int, float, int]:
    """(limit, share after a compaction, tokens of the summary). `least`: of the smallest turn there is."""
    peaks = sorted(observed.peak.kept())
    longest = quantile(sorted(observed.output.kept()), 1.0)
    before, after = sorted(observed.before.kept()), sorted(observed.after.kept())
    if replay:
        limit = peaks[-1] + longest
    elif before:
        limit = quantile(before, 0.5)
    else:
        limit = quantile(peaks, 0.9)
        notes.append("no compaction was seen: the limit is a size that 90 % of the sessions stay below")
    limit = min(MOST_LIMIT, max(256, 2.5 * system, 1.5 * least, limit))
    fraction = DEFAULT_TO_FRACTION
    if after:
        fraction = quantile(after, 0.5) / limit
        notes.append("the request that writes a summary is not in such sources: its size is a default")
    elif replay:
        notes.append("no compaction was seen: none will happen in the replay")
    fraction = min(0.9, max(fraction, 1.15 * system / limit, 0.02))
    return round(limit), round(fraction, 3), max(1, min(DEFAULT_SUMMARY, round(limit / 8)))


def _spread(made: Fit | None, default: Distribution | None = None, least: float = 0) -> str:
    """A distribution as TOML."""
    distribution = made.distribution if made is not None else default
    assert distribution is not None
    if distribution.kind == "constant":
        return f"{max(distribution.value or 0.0, least):g}"
    parts = [f'kind = "{distribution.kind}"']
    for name in ("mu", "sigma", "mean", "min", "max"):
        value = getattr(distribution, name)
        if value is not None:
            parts.append(f"{name} = {_number(max(value, least) if name == 'min' else value)}")
    if distribution.quantiles is not None:
        parts.append(f"quantiles = [{', '.join(map(_number, distribution.quantiles))}]")
    return "{ " + ", ".join(parts) + " }"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def _text(text: str) -> str:
    """A TOML string: JSON's is one, for text without control characters."""
    return json.dumps(text, ensure_ascii=False)
