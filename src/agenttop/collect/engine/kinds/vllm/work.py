"""What is kept of vLLM's figures from look to look, wherever they are read: rates and latencies. Pure."""

from __future__ import annotations

from agenttop.collect.engine.counters import WINDOW_S, CounterWindow, LandingRate, Makeup
from agenttop.collect.engine.histogram import LatencyWindow
from agenttop.collect.engine.kinds.vllm.frames import Rates
from agenttop.collect.engine.kinds.vllm.metrics import Figures
from agenttop.collect.engine.served import Prefilling
from agenttop.model.frames import LatencySample


class Work:
    """Of one process, or of all replicas of one page."""

    def __init__(self, engine: str, window_s: float = WINDOW_S) -> None:
        """`engine` is its identity, as in the frames."""
        self._engine = engine
        self._window_s = window_s
        self._makeup = Makeup()
        self.forget()

    def forget(self) -> None:
        """Another process, or other ranks: nothing seen before belongs to it."""
        self._window = CounterWindow(self._window_s)
        self._prefill = LandingRate(self._window_s)
        self._prefills = Prefilling()
        self._latency = LatencyWindow(self._engine)
        self.prefilling = False
        """Whether at least one request is being prefilled."""

    def add(self, found: Figures) -> bool:
        """Take in one look. Whether a counter has gone back: then everything begins anew."""
        if self._makeup.changed(part.name for part in found.parts):
            self.forget()
        gauges: dict[str, float | None] = {"running": found.running}
        went_back = self._window.add(found.at, found.counters, gauges)
        if went_back:
            self.forget()
            self._window.add(found.at, found.counters, gauges)
        self.prefilling = self._prefills.update(
            found.running, found.waiting, found.first_tokens, found.finished
        )
        self._prefill.add(found.at, found.computed, self.prefilling)
        return went_back

    def latencies(self, found: Figures) -> list[LatencySample]:
        """What there is to tell of latencies after this look."""
        return self._latency.add(found.at, found.histograms)

    def rates(self, found: Figures) -> Rates:
        """Over the newest window."""
        window, span = self._window, self._window.span_s
        return Rates(
            window_s=span,
            decode=window.rate("output"),
            prefill=self._prefill.rate() if span is not None else None,
            running=window.mean("running"),
            drafts=window.rate("drafts"),
            drafted=window.rate("drafted"),
            accepted=window.rate("accepted"),
            parts={part.name: window.rate(f"output/{part.name}") for part in found.parts},
        )
