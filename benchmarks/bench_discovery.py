"""What the search for engines costs on a host with many processes and sockets.

    python benchmarks/bench_discovery.py [--processes N] [--sockets N] [--connections N]

Starts processes that do nothing, a process that listens at many ports and holds many connections, and an
engine (the simulator). Then the searches a session makes: the first one, those while nothing new listens, and
those after something new does. CPU is this process's own; a session searches every 5 s.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from agenttop.collect import discovery, procfs
from agenttop.collect.discovery import Finder, process_at
from agenttop.node.sampling import DISCOVERY_S
from agenttop.sim.launch import SimProcess

CROWD = """
import socket, sys
sockets, connections = int(sys.argv[1]), int(sys.argv[2])
held = [socket.create_server(("127.0.0.1", 0), backlog=connections) for _ in range(sockets)]
for number in range(connections):
    held.append(socket.create_connection(held[number % sockets].getsockname()))
    held.append(held[number % sockets].accept()[0])
print("up", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def crowd(processes: int, sockets: int, connections: int) -> Iterator[None]:
    """A host full of what is no engine."""
    pipe = subprocess.PIPE
    words = [sys.executable, "-c", CROWD, str(sockets), str(connections)]
    started = [subprocess.Popen(words, stdin=pipe, stdout=pipe)]
    started += [subprocess.Popen(["sleep", "600"]) for _ in range(processes)]
    assert started[0].stdout is not None
    started[0].stdout.readline()
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def measured(work: Callable[[], object], times: int) -> tuple[float, float]:
    """Median (CPU seconds, wall seconds) of a call."""
    spent = []
    for _ in range(times):
        cpu, wall = time.process_time(), time.perf_counter()
        work()
        spent.append((time.process_time() - cpu, time.perf_counter() - wall))
    spent.sort()
    return spent[len(spent) // 2]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--processes", type=int, default=500)
    parser.add_argument("--sockets", type=int, default=300)
    parser.add_argument("--connections", type=int, default=200)
    options = parser.parse_args()
    discovery.usual_ports = lambda: frozenset()  # nobody else's port is asked
    engine = SimProcess.start("rtx-5090", "tiny")
    try:
        with crowd(options.processes, options.sockets, options.connections):
            finder = Finder()
            cold = measured(finder.find, 1)
            assert engine.url in {each.url for each in finder.find()}
            still = measured(finder.find, 50)

            def all_again() -> None:
                finder._sockets = None  # noqa: SLF001 - as if something else listened
                finder.find()

            changed = measured(all_again, 20)
            owner = measured(lambda: process_at(engine.url), 5)
            print(
                f"{sum(1 for _ in procfs.processes())} processes, {len(procfs.listeners())} listening sockets"
            )
    finally:
        engine.stop()
    rows = {
        "first search, kinds of engines loaded": cold,
        "search while nothing new listens": still,
        "search after something new listens": changed,
        "process behind one address": owner,
    }
    for name, (cpu, wall) in rows.items():
        print(f"{name:<40} {cpu * 1e3:7.1f} ms CPU {wall * 1e3:7.1f} ms")
    quiet, full = 60 / DISCOVERY_S, 60 / discovery.LOOK_AT_ALL_S
    minute = (quiet - full) * still[0] + full * changed[0]
    print(f"{'a quiet minute of a session':<40} {minute * 1e3:7.1f} ms CPU")


if __name__ == "__main__":
    main()
