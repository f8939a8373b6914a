"""What one drawing of the console costs: CPU time of its thread, from frames in hand to bytes written.

    python benchmarks/bench_frame.py [--size 200x60] [--agents 16] [--slots 16] [--gpus 2] [--frames 60]

A child runs the real console in a pseudo-terminal; each drawing is fed one second of frames. The
figure includes everything the thread does until the next one: folding, composing, Textual's
compositor, writing. `idle` is the same console with nothing to draw, per second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

BUDGET_MS = 15.0


def main() -> int:
    """Print one line for each size."""
    arguments = _parser().parse_args()
    if arguments.child:
        _child(arguments)
        return 0
    for size in arguments.size or ["80x24", "120x40", "200x60"]:
        figures = _in_terminal(arguments, size)
        verdict = "ok" if figures["median_ms"] <= BUDGET_MS else f"over the budget of {BUDGET_MS:g} ms"
        print(
            f"{size:>7}  median {figures['median_ms']:5.2f} ms  p90 {figures['p90_ms']:5.2f} ms  "
            f"compose {figures['compose_ms']:5.2f} ms  {figures['kilobytes']:5.1f} kB written  "
            f"idle {figures['idle_ms_per_s']:4.2f} ms/s  {verdict}"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", action="append", help="WIDTHxHEIGHT; all three sizes when absent")
    parser.add_argument("--agents", type=int, default=16)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--frames", type=int, default=60)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser


def _in_terminal(arguments: argparse.Namespace, size: str) -> dict[str, float]:
    import fcntl
    import pty
    import struct
    import termios

    columns, rows = (int(part) for part in size.split("x"))
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "figures.json"
        command = [sys.executable, __file__, "--child", str(out), "--frames", str(arguments.frames)]
        for name in ("agents", "slots", "gpus"):
            command += [f"--{name}", str(getattr(arguments, name))]
        environment = {
            **os.environ,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "TEXTUAL_ANIMATIONS": "none",
        }
        child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        written = _Drain(master)
        child.wait(timeout=300)
        os.close(master)
        if not out.exists():
            raise SystemExit(f"the child gave no figures: {bytes(written.tail).decode(errors='replace')}")
        figures: dict[str, float] = json.loads(out.read_text())
    figures["kilobytes"] = written.total / 1000 / arguments.frames
    return figures


class _Drain(threading.Thread):
    """Reads what the console writes, as a terminal would."""

    def __init__(self, master: int) -> None:
        super().__init__(daemon=True)
        self.total = 0
        self.tail = b""
        self._master = master
        self.start()

    def run(self) -> None:
        while True:
            try:
                chunk = os.read(self._master, 65536)
            except OSError:
                return
            if not chunk:
                return
            self.total += len(chunk)
            self.tail = (self.tail + chunk)[-4000:]


def _child(arguments: argparse.Namespace) -> None:

    from tests.tui.sources import FrameSession
    from tests.view import scenes

    from agenttop.model.clock import ManualClock
    from agenttop.model.frames import Frame
    from agenttop.stream.rewind import Deck
    from agenttop.tui.app import Console
    from agenttop.view.layout import compose

    before = 200
    frames = scenes.running(
        before + arguments.frames, arguments.agents, arguments.slots, gpus=arguments.gpus, demo=False
    )
    seconds: dict[int, list[Frame]] = {}
    for frame in frames:
        seconds.setdefault(int(frame.t), []).append(frame)
    session = FrameSession([frame for frame in frames if frame.t < before], before)
    clock = ManualClock(1000.0)
    console = Console(Deck(session, clock), clock=clock)

    found: dict[str, float] = {}

    async def measure() -> None:
        await asyncio.sleep(1.0)
        costs = []
        for second in range(before, before + arguments.frames):
            session.arrive(*seconds.get(second, []), now=second + 0.2)
            clock.advance(1.0)
            start = time.thread_time()
            console.drain()
            await asyncio.sleep(0.06)
            costs.append((time.thread_time() - start) * 1000)
        start = time.thread_time()
        await asyncio.sleep(3.0)
        idle = (time.thread_time() - start) * 1000 / 3.0
        width, height = console.size
        start = time.thread_time()
        for _ in range(20):
            compose(console.store, width, height, console.look())
        composing = (time.thread_time() - start) * 1000 / 20
        costs.sort()
        figures = {
            "median_ms": statistics.median(costs),
            "p90_ms": costs[int(len(costs) * 0.9)],
            "compose_ms": composing,
            "idle_ms_per_s": idle,
        }
        found.update(figures)
        console.exit("quit")

    console.call_later(lambda: console.run_worker(measure()))
    console.run()
    Path(arguments.child).write_text(json.dumps(found))


if __name__ == "__main__":
    sys.exit(main())
