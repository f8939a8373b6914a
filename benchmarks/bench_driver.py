"""How good the driver's time stamps are, what it costs, and how much it can take: against the stub engine.

    python benchmarks/bench_driver.py [--streams 256] [--rate 50] [--seconds 8] [--rounds 1] [--no-pin]

As `agenttop calibrate`, in more rounds: tokens of all streams in one instant and each in its own phase, with
the kernel's time stamps and without, one event a send and eight. On Linux the stub is pinned to one core and
the driver to another. With --rounds each round is played so often, and every figure is printed.
"""

from __future__ import annotations

import argparse
import os
import sys

from agenttop.agents.calibrate import FULL_STREAMS, CalibrationError, Round, Stub, play, share


def ms(seconds: float) -> str:
    """As milliseconds."""
    return f"{seconds * 1000:.2f} ms"


def steady_load(stub: Stub, arguments: argparse.Namespace, core: int | None) -> None:
    """256 agents at 50 tok/s, in the same instant and each in its own phase; 64 with the kernel's stamps."""
    tokens = int(arguments.rate * arguments.seconds)
    for spread, kernel in ((False, False), (True, False), (False, True)):
        streams = min(64, arguments.streams) if kernel else arguments.streams
        stub.set(arguments.rate, spread)
        played = play(stub, streams, tokens, kernel_stamps=kernel, core=core)
        how = f"{'spread' if spread else 'burst'}{', kernel stamps' if kernel else ''}"
        print(f"{streams} x {arguments.rate:g} tok/s {how}: {figures(played, streams * arguments.rate)}")
        if not spread and not kernel:
            first, last = played.cold()
            print(
                f"{streams} cold requests: first {ms(first)}, last {ms(last)} after the planned moment "
                f"({ms(last - first)} apart)"
            )


def figures(played: Round, tok_s: float) -> str:
    """One line."""
    errors, cpu = played.errors(), share(played.steady("cpu_fraction"), 0.5)
    lag, shared = played.steady("loop_lag_p99_s"), played.steady("shared_reads_fraction")
    return (
        f"error p50 {ms(share(errors, 0.5))}, p99 {ms(share(errors, 0.99))}, max {ms(errors[-1])}; "
        f"CPU {cpu:.1%} of a core, {cpu / tok_s * 1e6:.1f} s per million; "
        f"loop lag p99 {ms(share(lag, 0.5))}; shared reads {share(shared, 0.5):.1%}"
    )


def full_speed(stub: Stub, core: int | None) -> None:
    """As fast as it goes."""
    for batch in (1, 8):
        stub.set(0, batch=batch)
        rate, cost = play(stub, FULL_STREAMS, 16_000, kernel_stamps=False, core=core).full_speed()
        print(f"full speed, {batch} events a send: {rate:,.0f} tok/s, {cost:.1f} CPU s per million")


def main() -> int:
    """Play all rounds and print their figures."""
    parser = argparse.ArgumentParser(description="Benchmark of the driver against the stub engine.")
    parser.add_argument("--streams", type=int, default=256)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-pin", action="store_true")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    pin = len(cores) > 1 and not arguments.no_pin
    stub = Stub(cores[0] if pin else None)
    core = cores[-1] if pin else None
    try:
        for _ in range(arguments.rounds):
            if hasattr(os, "getloadavg"):
                print(f"load average: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
            steady_load(stub, arguments, core)
            full_speed(stub, core)
    except CalibrationError as error:
        print(f"not measured: {error}")
        return 1
    finally:
        stub.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
