"""What follows from the levels of several recordings, in words: nobody should have to compute it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from agenttop.analyse.knee import analyse
from agenttop.analyse.points import LevelPoint, point_of
from agenttop.analyse.pool import merged
from agenttop.analyse.row import LevelRow
from agenttop.analyse.sentence import throttled
from agenttop.model import units

ALIKE = 0.05
"""Shares that differ by less are called alike."""

USEFUL_TOK_S = 20.0
"""A coding agent that decodes more slowly keeps its user waiting: where it falls below is said."""

CONSTANT = 0.15
"""Prefill rates this close to one another are one budget."""

MOST_SERIES = 12


@dataclass(frozen=True, slots=True)
class Series:
    """The levels of one recording that can be judged, one point per number of agents, in order."""

    name: str
    model: str | None
    profile: str | None
    points: list[LevelPoint]
    all_points: list[LevelPoint]
    rows: list[LevelRow]
    sentence: str | None = None
    """What is known of its knee and cliff already."""

    def at(self, agents: int) -> LevelPoint:
        """The level of so many agents, which must be one of them."""
        return next(point for point in self.points if point.agents == agents)


def story(
    rows: Sequence[Mapping[str, Any]],
    points: Mapping[str, Sequence[LevelPoint]] | None = None,
    sentences: Mapping[str, str] | None = None,
) -> list[str]:
    """Sentences on all files: who falls off and who scales, who against whom, where each one ends.

    Args:
        rows: the levels of all files, as `compare.level_rows` gives them.
        points: by file, the same levels with their requests: their scatter tells what is beyond chance. So
            what is said of a knee is what `agenttop knee` says of the same file.
        sentences: by file, what is known of its knee and cliff already, e.g. from the search that made it.
    """
    series = _series(rows, points or {}, sentences or {})
    if not series:
        return []
    lines: list[str] = []
    if len(series) > 1:
        lines += _differing(series)
        joined = _joined(series)
        if joined is not None:
            return [*lines, *_each(joined)]
        shared = _shared(series)
        if not shared:
            lines.append(
                "they have no level in common that can be judged, so they are not set against each other"
            )
        elif len(shared) > 1:
            lines += _who_falls(series, shared) + _who_scales(series, shared)
        for other in series[1:]:
            both = _shared([series[0], other])
            if both:
                lines.append(_against(other, series[0], both))
    return lines + [line for one in series for line in _each(one)]


def _series(
    rows: Sequence[Mapping[str, Any]],
    points_by_file: Mapping[str, Sequence[LevelPoint]],
    sentences: Mapping[str, str],
) -> list[Series]:
    by_file: dict[str, list[LevelRow]] = {}
    for row in rows:
        by_file.setdefault(row["file"], []).append(msgspec.convert(dict(row), LevelRow))
    names = _names(by_file)
    series = []
    for file, levels in list(by_file.items())[:MOST_SERIES]:
        points = list(points_by_file.get(file) or map(point_of, levels))
        series.append(
            Series(
                name=names[file],
                model=next((level.model for level in levels if level.model), None),
                profile=next((level.profile for level in levels if level.profile), None),
                points=[point for point in merged(points) if point.valid],
                all_points=points,
                rows=levels,
                sentence=sentences.get(file),
            )
        )
    return series


def _names(by_file: Mapping[str, Sequence[LevelRow]]) -> dict[str, str]:
    """Hosts where they tell files apart, else hosts with models, else names of files."""
    hosts = {file: levels[0].host for file, levels in by_file.items()}
    if len(set(hosts.values())) == len(hosts):
        return hosts
    longer = {
        file: f"{hosts[file]} with {Path(levels[0].model).name}" if levels[0].model else hosts[file]
        for file, levels in by_file.items()
    }
    if len(set(longer.values())) == len(longer):
        return longer
    stems = {file: Path(file).stem for file in by_file}
    counts = Counter(stems.values())
    return {file: stem if counts[stem] == 1 else file for file, stem in stems.items()}


def _differing(series: Sequence[Series]) -> list[str]:
    lines = []
    for what in ("model", "profile"):
        values = {value for one in series if (value := getattr(one, what))}
        if len(values) > 1:
            some = ", ".join(sorted(values)[:4])
            lines.append(f"they ran different {what}s ({some}): differences are not of the hosts alone")
    return lines


def _shared(series: Sequence[Series]) -> list[int]:
    """Levels that all have and whose figures are known."""
    sets = [{p.agents for p in one.points if p.decode_tok_s and p.decode_tok_s_per_agent} for one in series]
    return sorted(set.intersection(*sets))


def _who_falls(series: Sequence[Series], shared: Sequence[int]) -> list[str]:
    """Of the per-agent rate, the share that is left from the smallest common level to the largest."""
    few, many = shared[0], shared[-1]
    kept = {one.name: _ratio(one, "decode_tok_s_per_agent", few, many) for one in series}
    span = f"of its rate per agent from {few} to {many} agents"
    return [_ranked(kept, ("falls off quickest", "keeps most"), span, "they fall off alike: each keeps")]


def _who_scales(series: Sequence[Series], shared: Sequence[int]) -> list[str]:
    few, many = shared[0], shared[-1]
    grown = {one.name: _ratio(one, "decode_tok_s", few, many) for one in series}
    order = sorted(grown, key=lambda name: grown[name])
    low, high = order[0], order[-1]
    if grown[high] < grown[low] * (1 + ALIKE):
        return [
            f"they scale alike: the total grows about {grown[high]:.1f} times from {few} to {many} agents"
        ]
    others = ", ".join(f"{name} {grown[name]:.1f} times" for name in reversed(order[:-1]))
    span = f"from {few} to {many} agents"
    return [f"{high} scales furthest: {span} its total becomes {grown[high]:.1f} times as much ({others})"]


def _ratio(one: Series, name: str, few: int, many: int) -> float:
    return float(getattr(one.at(many), name)) / float(getattr(one.at(few), name))


def _ranked(kept: Mapping[str, float], words: tuple[str, str], span: str, alike: str) -> str:
    order = sorted(kept, key=lambda name: kept[name])
    low, high = order[0], order[-1]
    if kept[high] - kept[low] < ALIKE:
        return f"{alike} about {units.percent(kept[high])} {span}"
    rest = ", ".join(f"{name} {units.percent(kept[name])}" for name in order[1:])
    return f"{low} {words[0]}: it keeps {units.percent(kept[low])} {span} ({rest})"


def _against(one: Series, base: Series, shared: Sequence[int]) -> str:
    """Ratios of two recordings, at the largest common level and their range over all."""
    parts = []
    for title, field in (
        ("decode per agent", "decode_tok_s_per_agent"),
        ("decode in total", "decode_tok_s"),
        ("prefill", "prefill_tok_s"),
        ("wait per turn", "wait_s"),
    ):
        ratios = [
            mine / theirs
            for agents in shared
            if (mine := getattr(one.at(agents), field)) and (theirs := getattr(base.at(agents), field))
        ]
        if len(ratios) == len(shared):
            low, high = min(ratios), max(ratios)
            around = f" ({_span(low, high)})" if high - low > ALIKE * high else ""
            parts.append(f"{_times(ratios[-1])} {title}{around}")
    levels = f"{shared[0]} to {shared[-1]}" if len(shared) > 1 else str(shared[0])
    over = f" (over {levels})" if len(shared) > 1 else ""
    return (
        f"{one.name} against {base.name} with {units.plural(shared[-1], 'agent')}{over}: {', '.join(parts)}"
    )


def _times(ratio: float) -> str:
    """A ratio for eyes: percent near one, else how many times."""
    if 0.5 <= ratio < 2:
        change = round((ratio - 1) * 100)
        return f"{change:+d} %" if change else "the same"
    return f"{ratio:.1f} times the" if ratio >= 2 else f"{1 / ratio:.1f} times less"


def _joined(series: Sequence[Series]) -> Series | None:
    """Recordings of one host and profile that share no level, e.g. one per number of slots: one curve."""
    hosts = {row.host for one in series for row in one.rows}
    profiles = {one.profile for one in series}
    tested = [row.agents for one in series for row in one.rows]
    if len(hosts) > 1 or len(profiles) > 1 or len(set(tested)) < len(tested):
        return None
    return Series(
        name=f"{next(iter(hosts))}, all files together",
        model=None,
        profile=series[0].profile,
        points=sorted((point for one in series for point in one.points), key=lambda point: point.agents),
        all_points=[point for one in series for point in one.all_points],
        rows=[row for one in series for row in one.rows],
    )


def _span(low: float, high: float) -> str:
    """Two ratios, said briefly where both are told alike."""
    if low < 0.5 and high < 1:
        return f"{1 / high:.1f} to {1 / low:.1f} times"
    if low > 1 and high >= 2:
        return f"{low:.1f} to {high:.1f} times"
    return f"{_times(low)} to {_times(high)}"


def _each(one: Series) -> list[str]:
    """Where one recording ends: knee and cliff, when it becomes too slow, and what binds."""
    if not one.points:
        return [f"{one.name}: no level can be judged"]
    lines = []
    if len(one.points) > 1:
        found = one.sentence or analyse(one.all_points).sentence
        sentence = found[0].lower() + found[1:].rstrip(".")
        lines.append(f"{one.name}: {_still(one)}{sentence}")
    parts = [*_slow(one), *_budget(one), *_bound(one)]
    if parts:
        lines.append(f"{one.name}: {'; '.join(parts)}")
    return lines + [f"{one.name}: {line}" for line in (throttled(merged(one.all_points)), _host(one)) if line]


def _host(one: Series) -> str | None:
    """That CPU and RAM were no bottleneck on any level, where that can be said of all of them."""
    rows = [row for row in one.rows if row.valid]
    if not rows or any(row.host_verdict is None for row in rows):
        return None
    worst = max(rows, key=lambda row: (row.cpu_max_fraction or 0.0, row.ram_used_max_fraction or 0.0))
    cpu = units.percent(worst.cpu_max_fraction)
    ram = units.percent(max(row.ram_used_max_fraction or 0.0 for row in rows))
    return f"CPU never above {cpu}, RAM never above {ram}: not the bottleneck"


def _still(one: Series) -> str:
    """Whether the total still rises at the end."""
    known = [point for point in one.points if point.decode_tok_s]
    if len(known) < 2:
        return ""
    before, last = known[-2], known[-1]
    assert before.decode_tok_s is not None
    assert last.decode_tok_s is not None
    if last.decode_tok_s < before.decode_tok_s * (1 + ALIKE):
        return ""
    grown = f"{units.rate(before.decode_tok_s)} to {units.rate(last.decode_tok_s)} tok/s"
    return f"the total still rises at {last.agents} agents ({grown} from {before.agents}); "


def _slow(one: Series) -> list[str]:
    for point in one.points:
        rate = point.decode_tok_s_per_agent
        if rate is not None and rate < USEFUL_TOK_S:
            if point is one.points[0]:
                return [f"an agent gets only {units.rate(rate)} tok/s with {point.agents} already"]
            return [
                f"from {point.agents} agents on each gets less than {USEFUL_TOK_S:.0f} tok/s"
                f" ({units.rate(rate)}): too slow for most work"
            ]
    return []


def _budget(one: Series) -> list[str]:
    """One prefill budget: the total stays while waits grow."""
    known = [point for point in one.points if point.prefill_tok_s and point.wait_s]
    if len(known) < 2:
        return []
    rates = [point.prefill_tok_s for point in known if point.prefill_tok_s]
    first, last = known[0], known[-1]
    assert first.wait_s is not None
    assert last.wait_s is not None
    more, waits = last.agents / first.agents, last.wait_s / first.wait_s
    if max(rates) > min(rates) * (1 + CONSTANT) or waits < 1 + (more - 1) / 2:
        return []
    if not any("prefill budget" in (row.bottleneck, *_also(row)) for row in one.rows if row.valid):
        return []
    return [
        f"one prefill budget of about {units.rate(sum(rates) / len(rates))} tok/s, which {first.agents} to"
        f" {last.agents} agents divide and do not multiply: the wait grows {waits:.1f} times"
    ]


def _also(row: LevelRow) -> list[str]:
    """Limits that lie behind the first one of a level."""
    parts = (row.bottleneck_evidence or "").split("; also ")[1:]
    return [part.partition(":")[0] for part in parts]


def _bound(one: Series) -> list[str]:
    """What binds at the largest level, and whether memory ever did."""
    last = max((row for row in one.rows if row.valid), key=lambda row: row.agents)
    parts = []
    if last.bottleneck is not None:
        parts.append(f"limit at {last.agents}: {last.bottleneck} ({last.bottleneck_evidence})")
    elif last.bottleneck_evidence is not None:
        parts.append(f"its limit at {last.agents} {last.bottleneck_evidence}")
    fills = [row.kv_max_fraction for row in one.rows if row.valid and row.kv_max_fraction is not None]
    preempted = [row.preemptions for row in one.rows if row.valid and row.preemptions is not None]
    if fills and preempted and not sum(preempted) and max(fills) < 0.9:
        parts.append(
            f"the KV pool was never more than {units.percent(max(fills))} full and nothing was preempted:"
            " more memory would not carry more agents"
        )
    return parts
