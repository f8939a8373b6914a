"""The universal scalability law: X(N) = l N / (1 + s (N - 1) + k N (N - 1)), by Gunther, arXiv 0808.1431.

s is the serial fraction (what is shared, such as one prefill budget), k the crosstalk (what gets worse with
every pair, such as a cache that thrashes).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agenttop.analyse.curve import nonnegative
from agenttop.analyse.report import Scaling
from agenttop.model import units

LEAST_LEVELS = 5
LEAST_SPREAD = 4
"""The largest level has at least so many times the agents of the smallest."""

POOR = 0.15
"""A fit further off than this on average explains nothing."""


def fit(agents: Sequence[float], values: Sequence[float]) -> Scaling:
    """Its parameters, at or above zero, by least squares of relative distances of N / X."""
    if len(agents) < LEAST_LEVELS:
        return Scaling(why=f"needs {LEAST_LEVELS} levels, there are {len(agents)}")
    if agents[-1] < LEAST_SPREAD * agents[0]:
        return Scaling(why=f"needs levels that lie further apart than {agents[0]:g} to {agents[-1]:g} agents")
    # N / X = (1 + s (N - 1) + k N (N - 1)) / l is linear in 1/l, s/l and k/l.
    weights = [value / n for n, value in zip(agents, values, strict=True)]
    columns = [
        weights,
        [(n - 1) * weight for n, weight in zip(agents, weights, strict=True)],
        [n * (n - 1) * weight for n, weight in zip(agents, weights, strict=True)],
    ]
    alone, serial, crosstalk = nonnegative(columns, [1.0] * len(agents), None)
    if alone <= 0:
        return Scaling(why="the law does not fit: it leaves nothing for the first agent")
    serial, crosstalk, first = serial / alone, crosstalk / alone, 1 / alone
    fitted = [first * n / (1 + serial * (n - 1) + crosstalk * n * (n - 1)) for n in agents]
    error = math.sqrt(sum((f / v - 1) ** 2 for f, v in zip(fitted, values, strict=True)) / len(values))
    if error > POOR:
        return Scaling(
            error_fraction=error, why=f"the law does not fit: it is {units.percent(error)} off on average"
        )
    peak = math.sqrt((1 - serial) / crosstalk) if crosstalk > 1e-9 and serial < 1 else None
    return Scaling(
        serial_fraction=round(serial, 6),
        crosstalk=round(crosstalk, 9),
        first_agent=first,
        peak_agents=max(1.0, peak) if peak is not None else None,
        error_fraction=error,
        why=f"fitted to {len(agents)} levels, {units.percent(error)} off on average",
    )
