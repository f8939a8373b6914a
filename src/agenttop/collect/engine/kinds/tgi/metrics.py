"""What is read of TGI's `/metrics`. Pure.

`tgi_request_skipped_tokens` is observed once for every message that carries tokens to a request, that is for
each sequence at each step, with the tokens beyond the first one (drafts that were taken). So its count is the
steps of all sequences, and count and sum together are the tokens generated: a counter that moves with the
work, which no other sample of TGI is. `tgi_request_generated_tokens` and the durations are observed when a
request ends.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.exposition import Catalogue
from agenttop.collect.engine.histogram import Histogram

CATALOGUE = Catalogue(
    ("tgi_",),
    {
        "queue": ("queue_size",),
        "batch": ("batch_current_size",),
        "steps": ("request_skipped_tokens_count",),
        "skipped": ("request_skipped_tokens_sum",),
        "generated": ("request_generated_tokens_sum",),
        "input": ("request_input_length_sum",),
        "success": ("request_success",),
        "failure": ("request_failure",),
    },
    histograms={"e2e": ("request_duration",), "queue": ("request_queue_duration",)},
)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape; None: not told. Counters are since the start of the server."""

    at: float
    queue: int | None
    batch: int | None
    """Sequences in the batch."""
    steps: int | None
    skipped: int | None
    generated: int | None
    input: int | None
    success: int | None
    failures: dict[str, int]
    histograms: dict[str, Histogram]

    @property
    def tokens(self) -> int | None:
        """Generated so far, those of requests in progress included."""
        return self.steps + self.skipped if self.steps is not None and self.skipped is not None else None

    @property
    def finished(self) -> int | None:
        """Requests that ended, well or not."""
        if self.success is None and not self.failures:
            return None
        return (self.success or 0) + sum(self.failures.values())

    @property
    def counters(self) -> dict[str, float | None]:
        """What never goes back while the server lives."""
        return {
            "tokens": self.tokens,
            "steps": self.steps,
            "input": self.input,
            "success": self.success,
        }


def read(text: str, at: float) -> Figures | None:
    """None when there is no sample of TGI's own in the text."""
    found = CATALOGUE.read(text)
    if not found.is_the_engines:
        return None
    return Figures(
        at=at,
        queue=found.count("queue"),
        batch=found.count("batch"),
        steps=found.count("steps"),
        skipped=found.count("skipped"),
        generated=found.count("generated"),
        input=found.count("input"),
        success=found.count("success"),
        failures={name: count for name, count in found.counts("failure", "err").items() if count},
        histograms=dict(found.histograms),
    )
