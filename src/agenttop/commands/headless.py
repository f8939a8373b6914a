"""Runs without a console: progress on stderr, figures on stdout at the end."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

from agenttop.errors import AgenttopError
from agenttop.model import units
from agenttop.model.clock import SystemClock
from agenttop.model.commands import Quit, RunPlan
from agenttop.model.frames import AgentSample, Event, LoadSample, Session
from agenttop.node.settings import NodeSettings
from agenttop.stream.lines import ChildSource

START_S = 30.0
"""What a run may take on top of its levels: engine found, driver started, agents stopped."""

GIVE_UP_S = 60.0
"""What a node may take from the word to end until it has: longer than any of its parts is waited for."""

REFRESH_S = 0.5


class Progress:
    """One line on stderr: rewritten in place on a terminal, else one line per event."""

    def __init__(self, total_s: float) -> None:
        self._total_s = total_s
        self._tty = sys.stderr.isatty()
        self._load: LoadSample | None = None
        self._agents: dict[str, AgentSample] = {}
        self.session: Session | None = None
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
        clear = "\r\x1b[K" if self._tty else ""
        sys.stderr.write(f"{clear}{units.clock(event.t)} {event.text}\n")
        sys.stderr.flush()

    def _draw(self, now: float) -> None:
        share = min(1.0, now / self._total_s) if self._total_s > 0 else 1.0
        filled = round(share * 24)
        bar = "█" * filled + "·" * (24 - filled)
        load = self._load
        text = "starting"
        if load is not None:
            rate = units.rate(load.decode_tok_s)
            text = f"{load.active}/{load.target} agents  {rate} tok/s  {load.turns_done} turns"
            if load.failures:
                text += f"  {load.failures} failed"
        sys.stderr.write(f"\r\x1b[K{units.clock(now)} {bar} {share * 100:3.0f} %  {text}")
        sys.stderr.flush()


def run_plan(settings: NodeSettings, plan: RunPlan, *, as_json: bool) -> int:
    """Run the levels of a plan and print their figures. Exit code 1 when none could be judged."""
    source = ChildSource(settings.argv(), SystemClock())
    source.send(plan)
    total = plan.seconds * len(plan.levels)
    progress = _follow(source, total, limit=total + START_S + 60.0)
    return _finish(progress, as_json=as_json)


def run_for(settings: NodeSettings, seconds: float, *, as_json: bool) -> int:
    """Let a session run for `seconds` after its start, then end it."""
    source = ChildSource(settings.argv(), SystemClock())
    progress = _follow(source, seconds, limit=seconds, quit_at_limit=True)
    return _finish(progress, as_json=as_json, recorded=settings.record)


def _follow(source: ChildSource, total: float, *, limit: float, quit_at_limit: bool = False) -> Progress:
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
            if batch.ended:
                break
            if told_at is not None:
                if now >= told_at + GIVE_UP_S:
                    raise AgenttopError(f"the node (pid {source.process.pid}) does not end when told to")
            elif progress.abandoned or now >= limit:
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
    asked_for = told_at is not None or batch.ended == "the run has ended"
    if not asked_for or batch.ended.startswith("the run failed"):
        progress.failure = batch.ended
    return progress


def _finish(progress: Progress, *, as_json: bool, recorded: bool = True) -> int:
    from agenttop.analyse.compare import level_rows

    session = progress.session
    assert session is not None
    path = session.recording
    if not recorded or path is None or not Path(path).exists():
        if progress.failure:
            raise AgenttopError(progress.failure)
        return 0
    rows = level_rows([Path(path)])
    if as_json:
        import msgspec

        out = {"schema": 1, "recording": path, "levels": rows, "failure": progress.failure}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(out), indent=2).decode() + "\n")
    else:
        from agenttop.commands.compare import render

        sys.stdout.write(render(rows, "table") + f"\nrecording: {path}\n")
    sys.stdout.flush()
    if progress.failure:
        raise AgenttopError(progress.failure)
    return 0 if any(row["turns"] for row in rows) else 1
