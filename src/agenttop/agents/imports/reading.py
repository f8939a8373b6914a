"""Files of any known format to the sessions of one trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agenttop.agents.imports import (
    aiperf,
    claude_code,
    compose,
    mooncake,
    openai_chat,
    sharegpt,
    weka,
)
from agenttop.agents.imports.detect import NAMES, detect
from agenttop.agents.imports.source import Recorded, Report, Source
from agenttop.agents.tracefile import TraceSession
from agenttop.errors import AgenttopError
from agenttop.model.text import printable
from agenttop.oslayer import at_home

ENDINGS = (".json", ".jsonl", ".ndjson", ".json.gz", ".jsonl.gz", ".ndjson.gz")
"""What is taken of a folder."""


@dataclass
class Wanted:
    """How files are to be read."""

    form: str | None = None
    """One of `detect.NAMES`; None: find out."""
    whole: bool | None = None
    """Mooncake: lines of a session hold whole prompts, or what they add; None: find out."""
    with_text: bool = False
    limit: int | None = None
    """Sessions, sub-agents not counted."""


@dataclass
class Reading:
    """What is read so far; `sessions` may be iterated once."""

    paths: list[Path]
    wanted: Wanted
    report: Report = field(default_factory=Report)
    formats: dict[str, int] = field(default_factory=dict)
    """Files read, by format."""

    def sessions(self) -> Iterator[TraceSession]:
        """All sessions, numbered `s1`, `s2`, ...; names of the source are not kept.

        Raises AgenttopError when a named file cannot be opened or is of no known format, UsageError when
        the user must say how to read it.
        """
        numbers: dict[str, str] = {}
        main = 0
        for recorded in self._recorded():
            if recorded.parent is None:
                if self.wanted.limit is not None and main >= self.wanted.limit:
                    return
                main += 1
                name = numbers[recorded.name] = f"s{main}"
            else:
                recorded.parent = numbers.get(recorded.parent, "s0")
                count = numbers[""] = str(int(numbers.get("", "0")) + 1)
                name = f"{recorded.parent}-{count}"
            yield from compose.sessions(recorded, self.report, name)

    def _recorded(self) -> Iterator[Recorded]:
        logs: list[Path] = []
        for path in self.paths:
            form = self.wanted.form or detect(path)
            if form is None:
                self._unknown(path)
                continue
            self.formats[form] = self.formats.get(form, 0) + 1
            if form == "claude-code":
                logs.append(path)
            else:
                yield from self._read(form, path)
        yield from claude_code.read(_mains(logs), self.report, self.wanted.with_text)

    def _read(self, form: str, path: Path) -> Iterator[Recorded]:
        values, report, text = Source(path, self.report).values(), self.report, self.wanted.with_text
        match form:
            case "weka":
                return weka.read(values, report)
            case "mooncake":
                return mooncake.read(values, report, self.wanted.whole, text)
            case "aiperf":
                return aiperf.read(values, report, text)
            case "sharegpt":
                return sharegpt.read(values, report, text)
            case "openai":
                return openai_chat.read(values, report, text)
        raise AssertionError(form)

    def _unknown(self, path: Path) -> None:
        if len(self.paths) == 1:
            raise AgenttopError(
                f"{printable(str(path))}: no format of recorded agents that is known here",
                f"known: {', '.join(NAMES)}; --format NAME reads it as one of them",
            )
        self.report.leave_out("files of no known format")


def files_in(places: Sequence[str]) -> list[Path]:
    """The files named, and those in folders named. Raises AgenttopError for a place that is not there."""
    found: list[Path] = []
    for place in places:
        path = at_home(place)
        if path.is_dir():
            inside = [one for one in sorted(path.rglob("*")) if one.name.endswith(ENDINGS) and one.is_file()]
            if not inside:
                raise AgenttopError(f"{printable(place)}: no .json or .jsonl file in this folder")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise AgenttopError(f"{printable(place)}: no such file")
    return list(dict.fromkeys(found))


def _mains(logs: list[Path]) -> list[Path]:
    """Logs of sub-agents are read with the session they belong to, where that is among them."""
    present = {log.with_name(log.name.removesuffix(".gz").removesuffix(".jsonl")) for log in logs}
    return [log for log in logs if not (log.parent.name == "subagents" and log.parent.parent in present)]
