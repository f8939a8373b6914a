"""How good the driver's time stamps are, what it costs, and how much it can take: against the stub server.

    python benchmarks/bench_driver.py [--streams 256] [--rate 50] [--seconds 8] [--no-pin]

Runs the real driver process with real agents and prints one line per figure. The error of a time stamp is the
arrival time in the turn's record minus the moment at which the stub sent that event (both CLOCK_MONOTONIC);
the first second is left out. On Linux the stub is pinned to one core and the driver to another.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import struct
import subprocess
import sys
import threading
import time

from agenttop.agents.check import parse
from agenttop.model.commands import Configure, HaltAll, LaunchAgent, Shutdown
from agenttop.model.frames import Event, LoadSample, Turn
from agenttop.oslayer import child_environment
from agenttop.wire.codec import LineSplitter, decode_frame, encode

PROFILE = """
description = "one long turn"
[start]
kind = "at-once"
[context]
limit = 4_000_000
system = 200
first = 200
[turn]
input = 10
output = {output}
[compaction]
to_fraction = 0.1
summary = 10
[pacing]
tool_pause_s = 80_000
"""


class Bench:
    """The stub server and rounds against it."""

    def __init__(self, pin: bool) -> None:
        command = [sys.executable, "-m", "agenttop.agents.stub"]
        self.stub = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.stub.stdout is not None
        self.port = int(self.stub.stdout.readline())
        self.pin = pin
        if pin:
            os.sched_setaffinity(self.stub.pid, {min(os.sched_getaffinity(0))})

    def ask(self, method: str, path: str, body: object = None) -> object:
        """One JSON request to the stub."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body))
            return json.loads(connection.getresponse().read())

    def run(self, streams: int, rate: float, tokens: int, spread: bool = False, batch: int = 1) -> Result:
        """One round: `streams` agents, one turn of `tokens` each, all sent in the same moment."""
        self.ask("POST", "/set", {"rate": rate, "spread": spread, "batch": batch})
        driver = Driver(self.pin)
        profile, problems = parse(PROFILE.format(output=tokens), "bench")
        assert profile is not None, problems
        url = f"http://127.0.0.1:{self.port}"
        driver.send(
            Configure(
                origin=driver.origin, engine=url, model=None, api_key_env=None, profile="bench",
                settings=profile.settings(), seed=0, slots_like="openai",
            )
        )  # fmt: skip
        at = time.monotonic() - driver.origin + 2.0 + streams * 0.002
        driver.send(*(LaunchAgent(agent=f"a{n}", number=n, at=at) for n in range(1, streams + 1)))
        driver.wait(lambda: sum(isinstance(f, Turn) for f in driver.frames) >= streams, 120)
        driver.send(HaltAll(now=True), Shutdown())
        driver.process.wait(20)
        log = self.ask("GET", "/log")
        assert isinstance(log, list)
        return Result(driver, log, at)

    def close(self) -> None:
        """Stop the stub."""
        self.stub.terminate()
        self.stub.wait(10)


class Driver:
    """The real driver process, its frames gathered by a thread."""

    def __init__(self, pin: bool) -> None:
        self.origin = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agenttop.agents.driver"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment(),
        )  # fmt: skip
        if pin:
            os.sched_setaffinity(self.process.pid, {max(os.sched_getaffinity(0))})
        self.frames: list = []
        threading.Thread(target=self._read, daemon=True).start()

    def send(self, *orders) -> None:
        """Give orders."""
        self.process.stdin.write(b"".join(map(encode, orders)))
        self.process.stdin.flush()

    def wait(self, look, timeout_s: float) -> None:
        """Until `look` is true; ends the program when it never is."""
        deadline = time.monotonic() + timeout_s
        while not look():
            if time.monotonic() > deadline or self.process.poll() is not None:
                events = [f.text for f in self.frames if isinstance(f, Event)]
                raise SystemExit(f"the round did not end: {events[-3:]}")
            time.sleep(0.05)

    def _read(self) -> None:
        splitter = LineSplitter()
        while data := os.read(self.process.stdout.fileno(), 1 << 20):
            self.frames += [decode_frame(line) for line in splitter.feed(data)]


class Result:
    """What one round showed."""

    def __init__(self, driver: Driver, log: list, at: float) -> None:
        self.turns = {int(f.agent[1:]): f for f in driver.frames if isinstance(f, Turn)}
        self.loads = [f for f in driver.frames if isinstance(f, LoadSample)]
        rows = {f"stub-{row['number']}": row for row in log}
        self.log = {number: rows[turn.finish_reason] for number, turn in self.turns.items()}
        self.origin = driver.origin
        self.at = at
        failed = [turn.error for turn in self.turns.values() if turn.error_kind]
        if failed or len(self.log) != len(self.turns):
            raise SystemExit(f"{len(failed)} of {len(self.turns)} requests failed: {failed[:1]}")

    def errors(self) -> list[float]:
        """Seconds, sorted."""
        found: list[float] = []
        for number, turn in self.turns.items():
            stamps = self.log[number]["stamps"]
            arrivals = struct.unpack(f"<{turn.events}I", turn.arrivals)
            assert len(stamps) == len(arrivals), "an event was lost"
            sent = self.origin + turn.t_sent
            found += [
                sent + arrival / 1e6 - stamp / 1e9
                for stamp, arrival in zip(stamps, arrivals, strict=True)
                if stamp - stamps[0] > 1e9
            ]
        return sorted(found)

    def steady(self, name: str) -> list[float]:
        """A figure of the load samples in the middle of the round."""
        most = max(sample.in_flight for sample in self.loads)
        full = [sample for sample in self.loads if sample.in_flight == most][1:-1]
        return [value for sample in full if (value := getattr(sample, name)) is not None]

    def cold(self) -> tuple[float, float]:
        """Seconds after the planned moment at which the first and the last request reached the server."""
        arrived = sorted(row["arrived"] / 1e9 - self.origin - self.at for row in self.log.values())
        return arrived[0], arrived[-1]

    def rate(self) -> tuple[float, float]:
        """Tokens per second over the middle, and CPU seconds per million tokens."""
        first = min(turn.t_first_token for turn in self.turns.values())
        last = max(turn.t_last_token for turn in self.turns.values())
        tokens = sum(turn.events for turn in self.turns.values())
        cpu = sum((s.cpu_fraction or 0) * (s.window_s or 0) for s in self.loads if first < s.t <= last + 1)
        return tokens / (last - first), cpu / tokens * 1e6


def share(values: list[float], fraction: float) -> float:
    """A quantile of sorted values."""
    return values[min(len(values) - 1, int(len(values) * fraction))]


def ms(seconds: float) -> str:
    """As milliseconds."""
    return f"{seconds * 1000:.2f} ms"


def main() -> int:
    """Run all rounds and print their figures."""
    parser = argparse.ArgumentParser(description="Benchmark of the driver against the stub server.")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--no-pin", action="store_true")
    arguments = parser.parse_args()
    pin = not arguments.no_pin and hasattr(os, "sched_setaffinity")
    tokens = int(arguments.rate * arguments.seconds)
    bench = Bench(pin)
    if hasattr(os, "getloadavg"):
        print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    try:
        for spread in (False, True):
            result = bench.run(arguments.streams, arguments.rate, tokens, spread)
            errors, cpu = result.errors(), sorted(result.steady("cpu_fraction"))
            lag = sorted(result.steady("loop_lag_p99_s"))
            name = f"{arguments.streams} x {arguments.rate:g} tok/s {'spread' if spread else 'burst'}"
            shared = sorted(result.steady("shared_reads_fraction"))
            print(
                f"{name}: error p50 {ms(share(errors, 0.5))}, p99 {ms(share(errors, 0.99))}, "
                f"max {ms(errors[-1])}; CPU {share(cpu, 0.5):.1%} of a core; "
                f"loop lag p99 {ms(share(lag, 0.5))}; shared reads {share(shared, 0.5):.1%}"
            )
            if not spread:
                first, last = result.cold()
                print(
                    f"{arguments.streams} cold requests: first {ms(first)}, last {ms(last)} after the "
                    f"planned moment ({ms(last - first)} apart)"
                )
        for batch in (1, 8):
            rate, cost = bench.run(64, 0, 16_000, batch=batch).rate()
            print(f"full speed, {batch} events a send: {rate:,.0f} tok/s, {cost:.1f} CPU s per million")
    finally:
        bench.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
