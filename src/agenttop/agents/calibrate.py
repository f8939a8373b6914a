"""What this client can do on this machine: the real driver process against a stub that stamps what it sends.

The error of a time stamp is the arrival time in a turn's record minus the moment at which the stub sent that
event, both of CLOCK_MONOTONIC; the first second of a round is left out.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from agenttop.agents.check import parse
from agenttop.errors import AgenttopError
from agenttop.model.commands import Configure, DriverCommand, HaltAll, LaunchAgent, Shutdown
from agenttop.model.frames import Event, Frame, LoadSample, Turn
from agenttop.oslayer import child_environment
from agenttop.wire.codec import LineSplitter, Unknown, decode_frame, encode

_PROFILE = """
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

SETTLE_S = 1.0
"""Left out at the start of a round."""

FULL_STREAMS = 64
FULL_TOKENS = 8000
"""Each, at full speed."""

START_S = 1.5
START_EACH_S = 0.002
"""Time for the driver, and for each agent, to get ready before the moment all requests are due."""


class CalibrationError(AgenttopError):
    """A round could not be measured; the message says why."""


class Stub:
    """The stub engine, a process."""

    def __init__(self, core: int | None = None) -> None:
        command = [sys.executable, "-m", "agenttop.agents.stub"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=child_environment())
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.strip().isdigit():
            raise CalibrationError("the stub engine did not start")
        self.port = int(line)
        self.url = f"http://127.0.0.1:{self.port}"
        _pin(self._process.pid, core)

    def ask(self, method: str, path: str, body: object = None) -> Any:
        """One JSON request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, json.dumps(body))
            return json.loads(connection.getresponse().read())

    def set(self, rate: float, spread: bool = False, batch: int = 1) -> None:
        """Tokens per second and stream (0: as fast as it goes), their phases, events per send."""
        self.ask("POST", "/set", {"rate": rate, "spread": spread, "batch": batch})

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(10)
        assert self._process.stdout is not None
        self._process.stdout.close()


class DriverProcess:
    """The real driver process; its frames are gathered by a thread."""

    def __init__(self, core: int | None = None) -> None:
        self.origin = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agenttop.agents.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
        )
        _pin(self.process.pid, core)
        self.frames: list[Frame | Unknown] = []
        self.turns = 0
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def send(self, *orders: DriverCommand) -> None:
        """Give orders."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(map(encode, orders)))
        self.process.stdin.flush()

    def wait(self, look: Callable[[], bool], timeout_s: float) -> None:
        """Until `look` is true. Raises CalibrationError when it never is."""
        deadline = time.monotonic() + timeout_s
        while not look():
            if time.monotonic() > deadline or self.process.poll() is not None:
                events = [frame.text for frame in self.frames if isinstance(frame, Event)]
                raise CalibrationError(
                    f"the driver did not finish: {'; '.join(events[-3:]) or 'no reason given'}"
                )
            time.sleep(0.05)

    def close(self) -> None:
        """End it, and gather what it still says."""
        with contextlib.suppress(OSError):
            self.send(HaltAll(now=True), Shutdown())
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._thread.join(10)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        self.process.stdout.close()

    def _read(self) -> None:
        splitter = LineSplitter()
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 1 << 20):
            for line in splitter.feed(data):
                frame = decode_frame(line)
                self.frames.append(frame)
                self.turns += isinstance(frame, Turn)


class Round:
    """What one round showed."""

    def __init__(self, driver: DriverProcess, log: list[dict[str, Any]], planned: float) -> None:
        self.turns = [frame for frame in driver.frames if isinstance(frame, Turn)]
        self.loads = [frame for frame in driver.frames if isinstance(frame, LoadSample)]
        self._log = {f"stub-{row['number']}": row for row in log}
        self._origin, self._planned = driver.origin, planned
        failed = [turn.error for turn in self.turns if turn.error_kind]
        if failed or not self.turns:
            raise CalibrationError(f"{len(failed)} of {len(self.turns)} requests failed: {failed[:1]}")

    def errors(self) -> list[float]:
        """Of all time stamps after the first second, in seconds, sorted."""
        found: list[float] = []
        for turn in self.turns:
            assert turn.arrivals is not None
            assert turn.t_sent is not None
            stamps = self._log[turn.finish_reason or ""]["stamps"]
            arrivals = struct.unpack(f"<{len(turn.arrivals) // 4}I", turn.arrivals)
            if len(stamps) != len(arrivals):
                raise CalibrationError(f"{len(stamps)} events were sent and {len(arrivals)} arrived")
            sent = self._origin + turn.t_sent
            found += [
                sent + arrival / 1e6 - stamp / 1e9
                for stamp, arrival in zip(stamps, arrivals, strict=True)
                if stamp - stamps[0] > SETTLE_S * 1e9
            ]
        return sorted(found)

    def steady(self, name: str) -> list[float]:
        """A figure of the load samples in the middle of the round, sorted."""
        most = max(sample.in_flight for sample in self.loads)
        full = [sample for sample in self.loads if sample.in_flight == most][1:-1]
        return sorted(value for sample in full if (value := getattr(sample, name)) is not None)

    def cold(self) -> tuple[float, float]:
        """Seconds after the planned moment at which the first and the last request reached the stub."""
        rows = [self._log[turn.finish_reason or ""] for turn in self.turns]
        arrived = sorted(row["arrived"] / 1e9 - self._origin - self._planned for row in rows)
        return arrived[0], arrived[-1]

    def full_speed(self) -> tuple[float, float]:
        """Tokens per second over the middle, and CPU seconds per million tokens."""
        first = min(turn.t_first_token or 0.0 for turn in self.turns)
        last = max(turn.t_last_token or 0.0 for turn in self.turns)
        tokens = sum(turn.events or 0 for turn in self.turns)
        inside = [sample for sample in self.loads if first < sample.t <= last + 1]
        cpu = sum((sample.cpu_fraction or 0.0) * (sample.window_s or 0.0) for sample in inside)
        return tokens / (last - first), cpu / tokens * 1e6

    def limited(self) -> str | None:
        """Why the client was the limit, where it says so itself in more than a tenth of the seconds."""
        told = [sample.client_limited for sample in self.loads if sample.in_flight and sample.client_limited]
        flying = sum(sample.in_flight > 0 for sample in self.loads)
        return told[0] if len(told) > 0.1 * flying else None


def play(
    stub: Stub,
    streams: int,
    tokens: int,
    *,
    kernel_stamps: bool | None = None,
    core: int | None = None,
    timeout_s: float = 120.0,
) -> Round:
    """One round: `streams` agents, one turn of `tokens` each, all sent in the same moment.

    `kernel_stamps` as in `Configure`. `core`: pin the driver to it. Raises CalibrationError.
    """
    profile, problems = parse(_PROFILE.format(output=tokens), "calibrate")
    if profile is None:
        raise CalibrationError(f"its own profile is wrong: {problems}")
    driver = DriverProcess(core)
    try:
        driver.send(
            Configure(
                origin=driver.origin,
                engine=stub.url,
                model=None,
                api_key_env=None,
                profile="calibrate",
                settings=profile.settings(),
                seed=0,
                slots_like="openai",
                kernel_stamps=kernel_stamps,
            )
        )
        planned = time.monotonic() - driver.origin + START_S + streams * START_EACH_S
        agents = (LaunchAgent(agent=f"a{n}", number=n, at=planned) for n in range(1, streams + 1))
        driver.send(*agents)
        driver.wait(lambda: driver.turns >= streams, timeout_s)
    finally:
        driver.close()
    return Round(driver, stub.ask("GET", "/log"), planned)


class Stamps(msgspec.Struct, frozen=True, kw_only=True):
    """Errors of time stamps in one round, in seconds."""

    agents: int
    p50_s: float
    p99_s: float
    max_s: float
    cpu_fraction: float | None


class Calibration(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. Times in seconds, rates in tokens per second."""

    streams: int
    rate_tok_s: float
    usual: Stamps
    limited: str | None
    """Why the client was the limit at the usual load already."""
    cold_spread_s: float
    """From the first to the last of the requests that were all due in one moment."""
    kernel: Stamps | None
    """None: this system gives no stamps."""
    full_speed_tok_s: float
    full_speed_cpu_s_per_million: float


def stamps_of(played: Round, streams: int) -> Stamps:
    """The errors of one round."""
    errors, cpu = played.errors(), played.steady("cpu_fraction")
    if not errors:
        raise CalibrationError("the round was too short to measure anything; give it longer with --for")
    return Stamps(
        agents=streams,
        p50_s=share(errors, 0.5),
        p99_s=share(errors, 0.99),
        max_s=errors[-1],
        cpu_fraction=share(cpu, 0.5) if cpu else None,
    )


def share(ranked: list[float], fraction: float) -> float:
    """A quantile of sorted values."""
    return ranked[min(len(ranked) - 1, int(len(ranked) * fraction))]


def calibrate(
    streams: int, rate: float, seconds: float, kernel_agents: int, told: Callable[[str], None]
) -> Calibration:
    """Play all rounds. `told` is called with what comes next. Raises CalibrationError."""
    tokens = max(2, round(rate * seconds))
    stub = Stub()
    try:
        told(f"{streams} agents at {rate:g} tok/s, {seconds:.0f} s")
        stub.set(rate)
        usual = play(stub, streams, tokens, kernel_stamps=False, timeout_s=seconds * 3 + 60)
        few = min(streams, kernel_agents)
        told(f"{few} agents at {rate:g} tok/s with the kernel's time stamps, {seconds:.0f} s")
        stub.set(rate)
        stamped = play(stub, few, tokens, kernel_stamps=True, timeout_s=seconds * 3 + 60)
        by_kernel = any(sample.stamps == "kernel" for sample in stamped.loads)
        told(f"{FULL_STREAMS} agents as fast as it goes")
        stub.set(0)
        full = play(stub, FULL_STREAMS, FULL_TOKENS).full_speed()
    finally:
        stub.close()
    first, last = usual.cold()
    return Calibration(
        streams=streams,
        rate_tok_s=rate,
        usual=stamps_of(usual, streams),
        limited=usual.limited(),
        cold_spread_s=last - first,
        kernel=stamps_of(stamped, few) if by_kernel else None,
        full_speed_tok_s=full[0],
        full_speed_cpu_s_per_million=full[1],
    )


def _pin(pid: int, core: int | None) -> None:
    if core is not None and sys.platform == "linux":
        os.sched_setaffinity(pid, {core})
