"""The processes of each engine, and whoever else holds memory of a GPU: CPU, memory, faults.

So that "the host does not matter here" can be shown or refuted: an engine's figures are those of its whole
tree of processes (`tree`), with the GPU memory that drivers tell by process joined to it (`holders`). What
is read of a process stands in `linux` and `elsewhere`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from agenttop.collect.engine_processes.figures import Figures, ProcessTable
from agenttop.collect.engine_processes.holders import Holders as Holders
from agenttop.collect.engine_processes.holders import Share, Sight, join, reasons
from agenttop.collect.engine_processes.tree import members
from agenttop.model.clock import Clock
from agenttop.model.frames import Missing, ProcessSample

MOST_STRANGERS = 64
"""Processes of no engine that are told; those that hold most GPU memory come first."""
LEAST_WINDOW_S = 0.2
"""The system counts CPU time in steps of 10 ms: over less than this a share would be made of steps."""


_AS_OWNER = "run agenttop as the user of the engine, or as root"


class _Last(msgspec.Struct):
    """A process at the look before."""

    at: float
    figures: Figures
    sample: ProcessSample


class _Root(msgspec.Struct, frozen=True):
    """The process of an engine at the newest look at which it was the engine's."""

    pid: int
    started: float
    name: str


class EngineProcesses:
    """Samples process trees. Used from one thread."""

    def __init__(
        self,
        clock: Clock,
        root: Path = Path("/"),
        *,
        own: int | None = None,
        table: ProcessTable | None = None,
        sight: Sight | None = None,
    ) -> None:
        """`own`: the process that is agenttop's; this one. `table` and `sight` stand in for the system's."""
        self._clock = clock
        self._holds_device: Callable[[int], bool] = _nobody
        if table is None:
            on_linux = sys.platform == "linux" or root != Path("/")
            table, sight, self._holds_device = (
                _linux(clock, root, own) if on_linux else _elsewhere(clock, own)
            )
        self._table = table
        self._sight = sight or Sight()
        self._roots: dict[str, _Root] = {}
        self._last: dict[int, _Last] = {}
        self.missing: list[Missing] = []
        """Why figures lack, of the newest look: all reasons that hold now."""

    def sample(self, t: float, engines: Mapping[str, int], holders: Holders) -> list[ProcessSample]:
        """One look; every process that was in the look before and has gone is told once, as ended.

        `engines`: URL of each engine on this host to its process id.
        """
        roots = self._same_as_ever(engines)
        parents = self._table.parents(set(roots))
        belongs = members(roots, parents, self._table.is_own)
        joined = join(holders, self._table.exists, self._sight, self._holds_device)
        wanted = [*belongs, *_strangers(joined.shares, belongs)]
        samples: list[ProcessSample] = []
        current: dict[int, _Last] = {}
        for pid in wanted:
            figures = self._table.figures(pid)
            if figures is None:
                continue
            before = self._last.get(pid)
            if before is not None and before.figures.started != figures.started:
                samples.append(_ended(t, before.sample))
                before = None
            at = self._clock.monotonic()
            sample = _sample(t, pid, figures, at, before, belongs.get(pid), joined.shares.get(pid))
            current[pid] = _Last(at=at, figures=figures, sample=sample)
            samples.append(sample)
        gone = [_ended(t, last.sample) for pid, last in self._last.items() if pid not in current]
        self._last = current
        self._table.forget(current.keys() | joined.shares.keys())
        self.missing = [*_reasons(t, current), *reasons(t, joined, self._sight)]
        return [*gone, *samples]

    def _same_as_ever(self, engines: Mapping[str, int]) -> dict[int, str]:
        """Process to engine, without numbers that have meanwhile been given to another program.

        An engine that was restarted under its old number (in a container it always is) has its old name.
        """
        roots: dict[int, str] = {}
        known: dict[str, _Root] = {}
        for engine, pid in engines.items():
            figures = self._table.figures(pid)
            if figures is None:
                continue
            first = self._roots.get(engine)
            again = first is not None and first.pid == pid and first.started != figures.started
            if first is not None and again and first.name != figures.name:
                known[engine] = first
                continue
            known[engine] = _Root(pid, figures.started, figures.name)
            roots.setdefault(pid, engine)
        self._roots = known
        return roots


def _nobody(_pid: int) -> bool:
    return False


def _linux(clock: Clock, root: Path, own: int | None) -> tuple[ProcessTable, Sight, Callable[[int], bool]]:
    from agenttop.collect.engine_processes.linux import LinuxProcesses

    table = LinuxProcesses(clock.monotonic, str(root), own)
    return table, table.sight(), table.holds_device


def _elsewhere(clock: Clock, own: int | None) -> tuple[ProcessTable, Sight, Callable[[int], bool]]:
    from agenttop.collect.engine_processes.elsewhere import PsutilProcesses

    return PsutilProcesses(clock.monotonic, own), Sight(), _nobody


def _strangers(shares: Mapping[int, Share], belongs: Collection[int]) -> list[int]:
    """Holders of GPU memory that are of no engine, the largest first."""
    found = [pid for pid in shares if pid not in belongs]
    found.sort(key=lambda pid: (-sum(shares[pid].memory.values()), pid))
    return found[:MOST_STRANGERS]


def _sample(
    t: float,
    pid: int,
    figures: Figures,
    at: float,
    last: _Last | None,
    engine: str | None,
    share: Share | None,
) -> ProcessSample:
    window = at - last.at if last is not None and at - last.at >= LEAST_WINDOW_S else None
    before = last.figures if last is not None else None
    return ProcessSample(
        t=t,
        pid=pid,
        name=figures.name,
        parent=figures.parent,
        engine=engine,
        window_s=window,
        cpu_fraction=_rate(figures.cpu_s, before.cpu_s if before else None, window),
        threads=figures.threads,
        rss_bytes=figures.rss_bytes,
        pss_bytes=figures.pss_bytes,
        file_bytes=figures.file_bytes,
        anonymous_bytes=figures.anonymous_bytes,
        swapped_bytes=figures.swapped_bytes,
        major_faults_s=_rate(figures.major_faults, before.major_faults if before else None, window),
        read_bytes_s=_rate(figures.read_bytes, before.read_bytes if before else None, window),
        gpu_memory=dict(share.memory) if share is not None else {},
        gpus=list(share.gpus) if share is not None else [],
    )


def _rate(now: float | None, before: float | None, window: float | None) -> float | None:
    """None in a first look, and where a counter has gone back."""
    if now is None or before is None or window is None or now < before:
        return None
    return (now - before) / window


def _ended(t: float, sample: ProcessSample) -> ProcessSample:
    return ProcessSample(
        t=t, pid=sample.pid, name=sample.name, parent=sample.parent, engine=sample.engine, ended=True
    )


def _reasons(t: float, current: Mapping[int, _Last]) -> Iterator[Missing]:
    """One for each figure of an engine that some of its processes do not tell."""
    by_engine: dict[str, list[_Last]] = {}
    for last in current.values():
        if last.sample.engine is not None:
            by_engine.setdefault(last.sample.engine, []).append(last)
    for engine, processes in by_engine.items():
        figures = [last.figures for last in processes]
        names = sorted({last.sample.name for last in processes if last.figures.read_refused})
        if names:
            why = f"what {_listed(names)} reads is shown to its owner alone"
            yield Missing(t=t, what=f"{engine}:process_read_bytes_s", why=why, fix=_AS_OWNER)
        if any(each.pss_refused for each in figures):
            why = "its proportional share of memory is shown to its owner alone"
            yield Missing(t=t, what=f"{engine}:process_pss_bytes", why=why, fix=_AS_OWNER)
        elif any(each.pss_too_large for each in figures):
            why = "it has so much memory mapped that counting its proportional share would be felt"
            yield Missing(t=t, what=f"{engine}:process_pss_bytes", why=why)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
