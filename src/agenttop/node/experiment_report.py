"""What a search has found so far, as frames: for the screen while it goes on, and for the recording."""

from __future__ import annotations

from collections.abc import Callable

from agenttop.analyse import knee
from agenttop.analyse.report import KneeReport
from agenttop.analyse.search import Belief, Done, Search, believed
from agenttop.model.frames import Finding
from agenttop.node.experiment_frames import LevelBook
from agenttop.node.hub import Hub


class Reporter:
    """Analyses the levels of the book whenever one has been added."""

    def __init__(self, hub: Hub, now: Callable[[], float], book: LevelBook, slo: str | None) -> None:
        self._hub = hub
        self._now = now
        self._book = book
        self._slo = slo
        self._report: KneeReport | None = None

    def belief(self) -> Belief:
        """What the levels so far say, for the search. Takes up to a second: not for the event loop."""
        points = self._book.points()
        self._report = knee.analyse(points, slo=self._slo) if points else None
        return believed(self._report)

    def interim(self, search: Search) -> None:
        """Publish how it stands."""
        if self._report is not None:
            self._publish(f"so far: {self._report.sentence}", search, None)

    def final(self, search: Search, done: Done) -> None:
        """Publish the answer."""
        report = self._report
        sentence = report.sentence if report is not None else f"nothing could be judged: {done.why}"
        if done.cut_short:
            sentence += f" (cut short: {done.why})"
        # The event first: what follows in the same words is not told a second time.
        self._hub.event("run.found", sentence)
        self._publish(sentence, search, done)

    def _publish(self, sentence: str, search: Search, done: Done | None) -> None:
        report = self._report.as_json() if self._report is not None else {}
        told = {
            "levels": len(search.measured),
            "most": search.most,
            "budget_s": search.budget_s,
            "spent_s": sum(level.took_s for level in search.measured),
            "ended": done.why if done is not None else None,
            "cut_short": done.cut_short if done is not None else None,
        }
        frame = Finding(t=self._now(), what="knee", sentence=sentence, report={**report, "search": told})
        self._hub.publish([frame])
