"""What watching costs: `python benchmarks/bench_idle.py [SECONDS]`.

The real console in a terminal of 120x40, its node, and an idle llama.cpp server with 4 slots, at 1 Hz.
Prints the time to the first frame, CPU-seconds per minute and proportional set size of console and node.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import tempfile
import termios
import time
from pathlib import Path

import psutil

from agenttop.demo.engine import DemoEngine, demo_model
from agenttop.demo.gguf import Shape

SETTLE_S = 10.0
"""Imports and the first screens are not part of the running cost."""


def open_console(url: str, folder: Path) -> tuple[int, int, float]:
    """Start the console in a pseudo-terminal. Returns its pid, the terminal, and when it was started."""
    begun = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "AGENTTOP_RECORDINGS": str(folder / "recordings"),
            "AGENTTOP_RUNTIME": str(folder / "run"),
        }
        os.execv(sys.executable, [sys.executable, "-m", "agenttop", "--url", url])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    return pid, terminal, begun


def read(terminal: int, seconds: float, until: bytes | None = None) -> bytes:
    """What the console draws in `seconds`, or up to a piece of text."""
    drawn = b""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([terminal], [], [], left)
        if ready:
            drawn += os.read(terminal, 65536)
        if until is not None and until in drawn:
            break
    return drawn


def cost(pids: list[int]) -> list[tuple[float, float]]:
    """(CPU-seconds so far, PSS in MB) of each process."""
    spent = []
    for pid in pids:
        process = psutil.Process(pid)
        times = process.cpu_times()
        spent.append((times.user + times.system, process.memory_full_info().pss / 1e6))
    return spent


def main() -> None:
    """Measure and print."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    tiny = Shape(width=64, layers=2, heads=4, kv_heads=2, feed_forward=160)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["AGENTTOP_CACHE"] = name
        engine = DemoEngine.start(demo_model(folder, tiny), slots=4, context=8192)
        try:
            pid, terminal, begun = open_console(engine.url, folder)
            drawn = read(terminal, 20.0, until=b"llama.cpp")
            first = time.perf_counter() - begun
            assert b"llama.cpp" in drawn, "the console never showed the engine"
            read(terminal, SETTLE_S)
            (node,) = psutil.Process(pid).children()
            before = cost([pid, node.pid])
            drawn = read(terminal, seconds)
            after = cost([pid, node.pid])
            print(f"first frame with the engine on it   {first:6.2f} s")
            for role, (cpu0, _), (cpu1, pss) in zip(("console", "node"), before, after, strict=True):
                print(f"{role:8} {(cpu1 - cpu0) * 60 / seconds:6.2f} CPU-s a minute  {pss:6.1f} MB PSS")
            total = sum(after[i][0] - before[i][0] for i in range(2)) * 60 / seconds
            print(f"together {total:6.2f} CPU-s a minute  {sum(pss for _, pss in after):6.1f} MB PSS")
            print(f"drawn    {len(drawn) / seconds / 1000:6.2f} kB a second")
            os.write(terminal, b"q")
            read(terminal, 5.0, until=b"recording:")
            os.close(terminal)
            os.waitpid(pid, 0)
        finally:
            engine.stop()


if __name__ == "__main__":
    main()
