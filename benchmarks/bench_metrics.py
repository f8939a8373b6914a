"""What reading one vLLM reply costs: from the text of `/metrics` to all figures, histograms included.

    python benchmarks/bench_metrics.py [--runs 200]

The pages are those captured from a vLLM under load; eight ranks are one rank's lines repeated. The least of
many runs, on one thread, in wall time: a busy machine adds to it. `first` reads a page that was never seen,
`again` the next page of the same server, as it happens once a second. `parse` keeps every sample.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from agenttop.collect.engine.exposition import Catalogue  # noqa: E402
from agenttop.collect.engine.kinds.vllm import metrics  # noqa: E402
from agenttop.wire.prometheus import parse  # noqa: E402

SERIES = ROOT / "tests/samples/vllm/load10-preempt/metrics.jsonl.gz"
BUDGETS_MS = {1: 1.0, 8: 5.0}


def main() -> int:
    """Print a line for each page; 1 when a budget is not kept."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=200)
    runs = parser.parse_args().runs
    kept = True
    for ranks, budget in BUDGETS_MS.items():
        pages = [_of_ranks(page, ranks) for page in _pages()]
        again = _again(pages, runs)
        first = _least(lambda: _fresh().read(pages[-1]), max(10, runs // 10))  # noqa: B023
        everything = _least(lambda: parse(pages[-1]), max(10, runs // 10))  # noqa: B023
        kept = kept and again <= budget
        verdict = "ok" if again <= budget else f"over the budget of {budget:g} ms"
        print(
            f"{ranks} rank(s), {pages[-1].count(chr(10)):5} lines, {len(pages[-1]) / 1000:4.0f} kB:  "
            f"again {again:5.2f} ms  first {first:5.2f} ms  parse {everything:5.2f} ms  {verdict}"
        )
    return 0 if kept else 1


def _pages() -> list[str]:
    lines = gzip.decompress(SERIES.read_bytes()).decode().splitlines()
    return [json.loads(line)["body"] for line in lines]


def _of_ranks(page: str, ranks: int) -> str:
    """Every line of the one rank as often as there are ranks."""
    lines: list[str] = []
    for line in page.splitlines():
        own = 'engine="0"' in line
        repeated = [re.sub('engine="0"', f'engine="{rank}"', line) for rank in range(ranks)]
        lines += repeated if own else [line]
    return "\n".join(lines) + "\n"


def _again(pages: list[str], runs: int) -> float:
    """Milliseconds for one page of a server whose pages have been read before."""
    for page in pages:
        metrics.read(page, 0.0)
    number = 0

    def read() -> None:
        nonlocal number
        number += 1
        metrics.read(pages[number % len(pages)], float(number))

    return _least(read, runs)


def _fresh() -> Catalogue:
    """One that has read nothing yet."""
    return Catalogue(metrics.PREFIXES, metrics.FAMILIES, (metrics.PROCESS_START,), metrics.HISTOGRAMS)


def _least(work: Callable[[], object], runs: int) -> float:
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times) * 1000


if __name__ == "__main__":
    raise SystemExit(main())
