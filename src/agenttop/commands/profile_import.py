"""`agenttop profile import FILE...`: a profile from recorded agents."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agenttop.commands.cells import aligned
from agenttop.errors import AgenttopError, UsageError
from agenttop.model.text import clean, printable
from agenttop.oslayer import at_home

if TYPE_CHECKING:
    from agenttop.agents.imports.fit import Fit, Observed
    from agenttop.agents.imports.profile import Made
    from agenttop.agents.imports.reading import Reading

FORMATS = ("weka", "claude-code", "mooncake", "aiperf", "sharegpt", "openai")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `profile import`, without `--json`, which all of `profile` has."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="files, or folders of them; .gz too")
    parser.add_argument("--format", choices=FORMATS, help="what the files are (else it is found out)")
    parser.add_argument(
        "--as",
        dest="form",
        choices=("trace", "fitted"),
        default="trace",
        help="trace: replay every size and pause; fitted: draw from distributions (trace)",
    )
    parser.add_argument("--name", help="name of the profile (else from the first file)")
    parser.add_argument("--out", metavar="FILE.toml", help="where to write it (else among your own profiles)")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--cumulative", action="store_true", help="mooncake: lines hold whole prompts")
    mode.add_argument("--delta", action="store_true", help="mooncake: lines hold what a turn adds")
    parser.add_argument(
        "--with-text", action="store_true", help="keep and replay what was said, where the files hold it"
    )
    parser.add_argument("--limit", type=_count, metavar="N", help="no more than N sessions")


def run(arguments: argparse.Namespace) -> tuple[int, dict[str, Any], str]:
    """(exit code, value for --json, text). Raises AgenttopError when nothing can be read or written."""
    from agenttop import paths
    from agenttop.agents.imports import write
    from agenttop.agents.imports.reading import Reading, Wanted, files_in

    trace_wanted = arguments.form == "trace"
    if arguments.with_text and not trace_wanted:
        raise UsageError("--with-text needs --as trace", "distributions hold no text")
    wanted = Wanted(
        form=arguments.format,
        whole=True if arguments.cumulative else False if arguments.delta else None,
        with_text=arguments.with_text,
        limit=arguments.limit,
    )
    files = files_in(arguments.files)
    name = _name(arguments, files)
    out = at_home(arguments.out) if arguments.out else None
    profile, trace = write.places(name, out, paths.user_profiles(), trace_wanted)
    reading = Reading(files, wanted)
    writer = write.TraceWriter(trace) if trace_wanted else None
    try:
        observed = write.gather(reading, writer)
        if not observed.sessions:
            raise AgenttopError(_nothing(files, reading))
        made = _profile(observed, reading, trace.name if trace_wanted else None, profile.stem)
        if writer is not None:
            writer.finish(reading, made.notes)
    finally:
        if writer is not None:
            writer.close()
    try:
        write.store(profile, made.text)
    except AgenttopError:
        if writer is not None:
            trace.unlink(missing_ok=True)
        raise
    written = [profile, trace] if trace_wanted else [profile]
    return 0, _value(observed, reading, made, written), _text(observed, reading, made, written)


def _profile(observed: Observed, reading: Reading, trace: str | None, name: str) -> Made:
    from agenttop.agents.check import parse
    from agenttop.agents.imports.profile import make

    formats = ", ".join(sorted(reading.formats))
    how = "replayed" if trace is not None else "fitted"
    what = "session" if observed.sessions == 1 else "sessions"
    made = make(observed, f"{observed.sessions} recorded {what} ({formats}), {how}", trace)
    problems = parse(made.text, name)[1]
    if problems:
        raise AgenttopError(
            f"what was read makes no sound profile: {problems[0].sentence(name)}",
            "--limit or other files may do",
        )
    return made


def _name(arguments: argparse.Namespace, files: list[Path]) -> str:
    raw = arguments.name
    if raw is None:
        raw = re.sub(r"(\.(gz|jsonl|json|ndjson))+$", "", files[0].name)
        raw = re.sub(r"[^A-Za-z0-9_-]+", "-", raw).strip("-")[:40] or "imported"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", raw):
        raise UsageError(f"'{clean(raw, 60)}' is not a name for a profile", "letters, digits, dots, dashes")
    return str(raw)


def _nothing(files: list[Path], reading: Reading) -> str:
    what = printable(str(files[0])) if len(files) == 1 else f"{len(files)} files"
    found = reading.report.named
    why = f": {found[0]}" if found else ""
    return f"nothing in {what} can be used as a recorded agent{why}"


def _value(observed: Observed, reading: Reading, made: Made, written: list[Path]) -> dict[str, Any]:
    report = reading.report
    return {
        "written": [str(path) for path in written],
        "formats": reading.formats,
        "sessions": observed.sessions,
        "subagents": observed.subagents,
        "turns": observed.output.seen,
        "sizes": "estimated" if report.estimated else "counted",
        "skipped": report.skipped,
        "skipped_first": report.named,
        "left_out": report.left_out,
        "notes": [*report.notes, *made.notes],
        "fits": [_fit_value(fit) for fit in made.fits],
    }


def _fit_value(fit: Fit) -> dict[str, Any]:
    import msgspec

    return {
        "quantity": fit.name,
        "unit": fit.unit,
        "values": fit.values,
        "p10": fit.quantiles[0],
        "p50": fit.quantiles[1],
        "p90": fit.quantiles[2],
        "distribution": msgspec.to_builtins(fit.distribution),
        "distance": fit.distance,
        "why": fit.why,
    }


def _text(observed: Observed, reading: Reading, made: Made, written: list[Path]) -> str:
    report = reading.report
    formats = ", ".join(f"{count} {name}" for name, count in sorted(reading.formats.items()))
    also = f", {observed.subagents} sub-agents" if observed.subagents else ""
    lines = [
        f"read {observed.sessions} sessions{also}, {observed.output.seen} turns (files: {formats}; sizes "
        f"{'estimated from text' if report.estimated else 'as counted by their engine'})",
    ]
    if report.skipped:
        lines.append(f"not usable: {report.skipped}")
        lines += [f"  {printable(one)}" for one in report.named]
        if report.skipped > len(report.named):
            lines.append(f"  and {report.skipped - len(report.named)} more")
    lines += [f"left out: {count} {what}" for what, count in report.left_out.items()]
    header = ["quantity", "described as", "values", "p10", "p50", "p90", "KS"]
    rows = [
        [
            f"{fit.name} ({fit.unit})",
            fit.distribution.describe(),
            str(fit.values),
            *(f"{mark:.4g}" if mark < 1e4 else f"{mark:.0f}" for mark in fit.quantiles),
            "–" if fit.distance is None else f"{fit.distance:.3f}",
        ]
        for fit in made.fits
    ]
    lines += ["", aligned(header, rows, 2).rstrip("\n")]
    lines.append("KS: largest difference between the shares of values below any point, 0 is perfect")
    lines += ["", *(f"note: {note}" for note in [*report.notes, *made.notes])]
    lines += [f"wrote {printable(str(path))}" for path in written]
    return "\n".join(lines) + "\n"


def _count(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of sessions: 1 or more")
    return number
