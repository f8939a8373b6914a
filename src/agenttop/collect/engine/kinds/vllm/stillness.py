"""Gauges that stand still while they say that work goes on. Pure.

vLLM refreshes its gauges only when it takes a step. When all requests are given up at once, no step may
follow, and running, waiting and the fill of the pool stay as they were, for hours. An engine that hangs looks
the same from outside. Either way nothing is generated, and that is what shows it.
"""

from __future__ import annotations

from agenttop.collect.engine.kinds.vllm.metrics import Figures

DECODING_S = 30.0
"""So long no request that is past its first token goes without another one."""
PREFILLING_S = 300.0
"""A long prompt on slow hardware takes minutes, in which nothing is counted."""


class Stillness:
    """Fed with every look at one engine."""

    def __init__(self) -> None:
        self._before: tuple[object, ...] | None = None
        self._since = 0.0

    def look(self, found: Figures, prefilling: bool) -> float | None:
        """Seconds for which running requests have shown no work; None while all is well."""
        now = (
            found.running,
            found.waiting,
            found.pool.fraction,
            found.output,
            found.prompt,
            found.finished,
            found.preemptions,
        )
        if now != self._before or not found.running or found.output is None:
            self._before, self._since = now, found.at
            return None
        still = found.at - self._since
        return still if still >= (PREFILLING_S if prefilling else DECODING_S) else None
