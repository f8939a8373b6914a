"""How often the analysis finds what was planted: hundreds of noisy draws of curves whose answer is known.

    python benchmarks/bench_knee.py [--draws 200] [--levels many|doubling]

Prints the table of docs/analysis.md: per curve and noise where the knee was put, how often within one tested
level of the truth, false cliffs, and what the two other methods say on the same draws.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.analyse.curves import (
    MANY,
    batch,
    batch_with_cliff,
    closed_queue,
    hinge,
    noisy,
    straight,
    within_one,
)

from agenttop.analyse.knee import analyse

LEVELS = {"many": MANY, "doubling": (1, 2, 4, 8, 16, 32, 64)}

CASES = (
    ("closed queue, N* 16", closed_queue, 16, None),
    ("straight to 16, then flat", hinge, 16, None),
    ("batch, half the rate at 16", batch, 16, None),
    ("batch with a cliff after 24", batch_with_cliff, 16, 32),
    ("straight line", straight, None, None),
)


def judge(curve, true, cliff, noise, draws, levels):
    """One row of the table."""
    found: Counter[int | None] = Counter()
    hits = cliffs = agreed = asked = held = 0
    bends: list[float] = []
    for seed in range(draws):
        report = analyse(noisy(curve, noise, seed, levels), draws=0)
        agents = report.knee.agents
        found[agents] += 1
        hits += agents is None if true is None else within_one(agents, true, levels)
        cliffs += report.cliff.agents == (cliff if cliff in levels else None)
        opinion = report.knee.second_opinion
        if opinion.agents is not None:
            bends.append(opinion.agents)
        if opinion.agrees is not None:
            asked += 1
            agreed += opinion.agrees
        held += report.scaling.serial_fraction is not None
    usual = " ".join(f"{agents or 'none'} {count / draws:.0%}" for agents, count in found.most_common(3))
    middle = f"{sorted(bends)[len(bends) // 2]:.0f}" if bends else "none"
    return [
        usual,
        f"{hits / draws:.1%}",
        f"{cliffs / draws:.1%}",
        f"{middle}, found {len(bends) / draws:.0%}",
        f"{agreed / asked:.0%}" if asked else "–",
    ]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--levels", choices=LEVELS, default="many")
    arguments = parser.parse_args()
    levels = LEVELS[arguments.levels]
    print(f"levels {', '.join(map(str, levels))}; {arguments.draws} draws a row\n")
    print("| curve | noise | knee put at | within one level | cliff right | two lines meet at | they agree |")
    print("|---|---|---|---|---|---|---|")
    begun = time.process_time()
    for name, curve, true, cliff in CASES:
        for noise in (0.03, 0.10):
            row = judge(curve, true, cliff, noise, arguments.draws, levels)
            print(f"| {name} | {noise:.0%} | {' | '.join(row)} |", flush=True)
    spent = (time.process_time() - begun) / (len(CASES) * 2 * arguments.draws)
    print(f"\n{spent * 1000:.0f} ms of CPU a report, without the draws behind its interval")


if __name__ == "__main__":
    main()
