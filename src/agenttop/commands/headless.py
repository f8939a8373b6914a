"""Runs without a console: progress on stderr, figures on stdout at the end."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

from agenttop.errors import AgenttopError
from agenttop.model import units
from agenttop.model.clock import SystemClock
from agenttop.model.commands import FindKnee, Quit, RunPlan
from agenttop.model.frames import AgentSample, Event, Finding, Level, LoadSample, Session
from agenttop.model.text import printable
from agenttop.node.settings import NodeSettings
from agenttop.stream.lines import ChildSource

START_S = 30.0
"""What a run may take on top of its levels: engine found, driver started, agents stopped."""

GIVE_UP_S = 60.0
"""What a node may take from the word to end until it has: longer than any of its parts is waited for."""

REFRESH_S = 0.5


class Progress:
    """One line on stderr: rewritten in place on a terminal, else one line per event."""

    def __init__(self, total_s: float | None) -> None:
        """`total_s`: how long it will take; None where it ends when it can be judged."""
        self._total_s = total_s
        self._tty = sys.stderr.isatty()
        self._load: LoadSample | None = None
        self._level: Level | None = None
        self._agents: dict[str, AgentSample] = {}
        self.session: Session | None = None
        self.finding: Finding | None = None
        """The newest: the last one is the answer of a search."""
        self.failure: str | None = None
        self.abandoned = False
        """Somebody stopped all agents from a console that is attached: the run is over."""

    def feed(self, frames: list[Any], now: float) -> None:
        """Take in frames and show where the run is."""
        for frame in frames:
            if isinstance(frame, Session):
                self.session = frame
            elif isinstance(frame, LoadSample):
                self._load = frame
            elif isinstance(frame, Level):
                self._level = frame
            elif isinstance(frame, Finding):
                self.finding = frame
                self._say(frame.t, frame.sentence)
            elif isinstance(frame, Event):
                self._event(frame)
        if self._tty:
            self._draw(now)

    def finish(self) -> None:
        """Leave the terminal on a fresh line."""
        if self._tty:
            sys.stderr.write("\r\x1b[K")

    def _event(self, event: Event) -> None:
        if event.event in ("command.refused", "run.failed", "demo.failed"):
            self.failure = event.text
        elif event.event == "run.abandoned":
            self.failure, self.abandoned = event.text, True
        if event.event != "run.found":  # the finding has said it
            self._say(event.t, event.text)

    def _say(self, t: float, text: str) -> None:
        clear = "\r\x1b[K" if self._tty else ""
        sys.stderr.write(f"{clear}{units.clock(t)} {printable(text)}\n")
        sys.stderr.flush()

    def _draw(self, now: float) -> None:
        load = self._load
        text = "starting"
        if load is not None:
            rate = units.rate(load.decode_tok_s)
            text = f"{load.active}/{load.target} agents  {rate} tok/s  {load.turns_done} turns"
            if load.failures:
                text += f"  {load.failures} failed"
        sys.stderr.write(f"\r\x1b[K{units.clock(now)} {self._place(now)}  {text}")
        sys.stderr.flush()

    def _place(self, now: float) -> str:
        """Where the run is: a bar where its end is known, else the level and how long it has lasted."""
        if self._total_s is None:
            level = self._level
            if level is None:
                return "level –"
            of = f" of {level.of}" if level.of else ""
            return f"level {level.level + 1}{of}, {units.seconds(max(0.0, now - level.t))}"
        share = min(1.0, now / self._total_s) if self._total_s > 0 else 1.0
        filled = round(share * 24)
        return f"{'█' * filled}{'·' * (24 - filled)} {share * 100:3.0f} %"


def run_plan(
    settings: NodeSettings, plan: RunPlan | FindKnee, *, as_json: bool, slo: str | None = None
) -> int:
    """Run the levels of a plan, or a search, and print the figures. Exit code 1 when none could be judged."""
    source = ChildSource(settings.argv(), SystemClock())
    source.send(plan)
    total: float | None
    if isinstance(plan, FindKnee):
        total, longest = plan.budget_s, plan.budget_s
    else:
        total = None if plan.settle else plan.seconds * len(plan.levels)
        # A level that settles also takes the time until all its agents have been started.
        longest = plan.seconds * len(plan.levels) if total is not None else units.LONGEST_S
    progress = _follow(source, total, limit=longest, slack_s=START_S + 60.0)
    return _finish(progress, as_json=as_json, slo=slo)


def run_for(settings: NodeSettings, seconds: float, *, as_json: bool) -> int:
    """Let a session run for `seconds` after its start, then end it."""
    source = ChildSource(settings.argv(), SystemClock())
    progress = _follow(source, seconds, limit=seconds, quit_at_limit=True)
    return _finish(progress, as_json=as_json, recorded=settings.record)


def _follow(
    source: ChildSource,
    total: float | None,
    *,
    limit: float,
    slack_s: float = 0.0,
    quit_at_limit: bool = False,
) -> Progress:
    """Show a session until it ends. `limit` is in session time, `slack_s` on top of it in real time."""
    progress = Progress(total)
    # Whoever ends us in order (a time limit, a CI job) wants the agents gone, too. A hang-up leaves them.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    interrupted = False
    told_at: float | None = None  # when the node was told to end
    now = 0.0
    while True:
        try:
            source.wait(REFRESH_S)
            batch = source.take()
            progress.feed(batch.frames, batch.now)
            now = batch.now
            speedup = progress.session.speedup if progress.session is not None else 1.0
            if batch.ended:
                break
            if told_at is not None:
                if now >= told_at + GIVE_UP_S * speedup:
                    raise AgenttopError(f"the node (pid {source.process.pid}) does not end when told to")
            elif progress.abandoned or now >= limit + slack_s * speedup:
                if not (progress.abandoned or quit_at_limit):
                    progress.failure = f"the run did not end within {limit:.0f} s"
                told_at = now
                source.send(Quit())
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted, told_at = True, now
            progress.failure = "interrupted"
            source.send(Quit())
    progress.finish()
    code = source.wait_exit(20.0)
    source.close()
    if code != 0 or progress.session is None:
        raise AgenttopError(batch.ended or "the node did not start")
    asked_for = told_at is not None or batch.ended in ("the run has ended", "the search has ended")
    if not asked_for or batch.ended.startswith(("the run failed", "the search failed")):
        progress.failure = batch.ended
    return progress


def _finish(progress: Progress, *, as_json: bool, slo: str | None = None, recorded: bool = True) -> int:
    from agenttop.commands.figures import Figures

    session = progress.session
    assert session is not None
    path = session.recording
    if not recorded or path is None or not Path(path).exists():
        if progress.failure:
            raise AgenttopError(progress.failure)
        return 0
    figures = Figures.of(Path(path), slo=slo, finding=progress.finding)
    if progress.failure and figures.empty and not as_json:
        raise AgenttopError(progress.failure)  # tables of nothing would only bury the reason
    if as_json:
        sys.stdout.write(figures.as_json(path, progress.failure))
    else:
        sys.stdout.write(f"{figures.as_text()}\nrecording: {path}\n")
    sys.stdout.flush()
    if progress.failure:
        raise AgenttopError(progress.failure)
    return 0 if figures.judged else 1
