"""How often `--find-knee` finds a knee planted in a simulated 5090, and invents one on a straight line.

    python benchmarks/bench_find_knee.py [--seeds 0-9] [--straight 0-19] [--speedup 30] [--jobs 1]

The step time of the simulated engine is made up (`agenttop sim --plant`): up to the planted number of agents
the total decode rate is a straight line, from there on it stands still; on a straight line it never bends.
Everything else is real: HTTP, driver, node, recording, the search, and its answer in JSON. A knee counts as
found when it is the planted number or a tested level next to it. One search takes its budget over its speedup
in real time at most, 40 minutes at 30 times the speed are 80 s, and about half of that as a rule: both rows
take about 20 minutes.
Slices may run side by side on machines with cores to spare: each starts its own engine on a free port.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PLANTED = (4, 6, 8, 10, 12)
"""The knees, taken in turn by seed."""

STEP_S = 0.1

PROFILE = """
description = "Short turns without pauses: as many requests run as there are agents"
agents = 1
[start]
kind = "at-once"
[context]
limit = 3000
system = 150
first = 300
[turn]
input = { kind = "uniform", min = 40, max = 120 }
output = { kind = "uniform", min = 120, max = 280 }
[compaction]
to_fraction = 0.3
summary = 60
[pacing]
tool_pause_s = 0.2
[request]
ignore_eos = true
"""


@dataclass(frozen=True)
class Search:
    """One search and what came of it."""

    seed: int
    planted: int | None
    found: int | None
    levels: list[int]
    hit: bool
    took_s: float
    said: str


def search(seed: int, planted: int | None, options: argparse.Namespace) -> Search:
    """Start an engine, search on it, stop it."""
    plant = f"step={STEP_S}" + (f",knee={planted}" if planted else "")
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="agenttop-knee-") as folder:
        profile = Path(folder) / "short.toml"
        profile.write_text(PROFILE)
        environment = {**os.environ, "AGENTTOP_RUNTIME": folder, "AGENTTOP_RECORDINGS": folder}
        line = ["sim", "--host", "rtx-5090", "--plant", plant, "--seed", str(seed), "--json", "--with-parent"]
        engine = subprocess.Popen(
            [sys.executable, "-m", "agenttop", *line, "--speedup", str(options.speedup)],
            stdin=subprocess.PIPE,  # it ends when this process does
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        try:
            assert engine.stdout is not None
            url = json.loads(engine.stdout.readline())["url"]
            wish = ["run", str(profile), "--find-knee", "--json", "--url", url, "--seed", str(seed)]
            wish += ["--max-agents", str(options.most), "--budget", options.budget]
            done = subprocess.run(
                [sys.executable, "-m", "agenttop", *wish],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env=environment,
            )
        finally:
            engine.terminate()
            engine.wait()
    took = time.monotonic() - begun
    if done.returncode != 0:
        return Search(seed, planted, None, [], False, took, done.stderr.strip().splitlines()[-1])
    answer = json.loads(done.stdout)
    found = answer["knee"]["knee"]["agents"]
    levels = [row["agents"] for row in answer["levels"]]
    hit = found is None if planted is None else near(found, planted, levels)
    return Search(seed, planted, found, levels, hit, took, answer["knee"]["sentence"])


def near(found: int | None, planted: int, levels: list[int]) -> bool:
    """Whether the two are the same tested level or neighbours."""
    if found is None:
        return False
    tested = sorted({*levels, planted})
    return abs(tested.index(found) - tested.index(planted)) <= 1


def numbers(text: str) -> list[int]:
    """`0-9`, `3` or `1,4,7` to numbers; nothing of an empty text."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def row(name: str, seeds: list[int], planted: bool, options: argparse.Namespace) -> None:
    """One kind of curve over its seeds."""
    if not seeds:
        return
    begun = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        work = [
            pool.submit(search, seed, PLANTED[seed % len(PLANTED)] if planted else None, options)
            for seed in seeds
        ]
        results = []
        for each in work:
            result = each.result()
            results.append(result)
            mark = "hit " if result.hit else "MISS"
            print(
                f"{mark} seed {result.seed}: planted {result.planted}, found {result.found},"
                f" levels {result.levels}, {result.took_s:.0f} s: {result.said}",
                flush=True,
            )
    hits = sum(result.hit for result in results)
    print(f"{name}: {hits} of {len(results)} in {time.monotonic() - begun:.0f} s", flush=True)


def main() -> None:
    """Print one line per search, and the rates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-9", help="searches with a planted knee (0-9); '' for none")
    parser.add_argument("--straight", default="0-19", help="searches on a straight line (0-19); '' for none")
    parser.add_argument("--speedup", type=float, default=30.0)
    parser.add_argument("--budget", default="40m")
    parser.add_argument("--most", type=int, default=32)
    parser.add_argument("--jobs", type=int, default=1, help="searches side by side (1)")
    options = parser.parse_args()
    row("planted knee found within one level", numbers(options.seeds), True, options)
    row("straight line: no knee", numbers(options.straight), False, options)


if __name__ == "__main__":
    main()
