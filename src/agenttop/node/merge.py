"""What several driver processes report about themselves, as one sample. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from agenttop.model.frames import LoadSample


class Past(msgspec.Struct):
    """Totals of processes that have ended: a session's totals never fall."""

    turns: int = 0
    compactions: int = 0
    failures: int = 0
    output_tokens: int = 0
    kinds: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, last: LoadSample) -> None:
        """The last sample of a process that has ended."""
        self.turns += last.turns_done
        self.compactions += last.compactions
        self.failures += last.failures
        self.output_tokens += last.output_tokens_total
        self.kinds.update(last.failure_kinds)


def merge(samples: Sequence[LoadSample], past: Past, drivers: int) -> LoadSample:
    """Counts are summed; of what tells whether the client keeps up, the worst is taken.

    `samples`: the newest of each process, in their order, at least one.
    """
    newest = max(samples, key=lambda sample: sample.t)
    if len(samples) == 1 and drivers == 1 and past == Past():
        return newest
    kinds = Counter(past.kinds)
    for sample in samples:
        kinds.update(sample.failure_kinds)
    return msgspec.structs.replace(
        newest,
        drivers=drivers,
        target=sum(sample.target for sample in samples),
        active=sum(sample.active for sample in samples),
        in_flight=sum(sample.in_flight for sample in samples),
        stalled=sum(sample.stalled for sample in samples),
        paused=any(sample.paused for sample in samples),
        window_s=_most(samples, lambda sample: sample.window_s),
        decode_tok_s=_rate(samples),
        turns_done=past.turns + sum(sample.turns_done for sample in samples),
        compactions=past.compactions + sum(sample.compactions for sample in samples),
        failures=past.failures + sum(sample.failures for sample in samples),
        output_tokens_total=past.output_tokens + sum(sample.output_tokens_total for sample in samples),
        failure_kinds=dict(kinds),
        loop_lag_p99_s=_most(samples, lambda sample: sample.loop_lag_p99_s),
        cpu_fraction=_most(samples, lambda sample: sample.cpu_fraction),
        send_late_p99_s=_most(samples, lambda sample: sample.send_late_p99_s),
        shared_reads_fraction=_most(samples, lambda sample: sample.shared_reads_fraction),
        client_limited=next((sample.client_limited for sample in samples if sample.client_limited), None),
        stamps=_stamps(samples),
    )


def _most(samples: Sequence[LoadSample], field: Callable[[LoadSample], float | None]) -> float | None:
    return max((value for sample in samples if (value := field(sample)) is not None), default=None)


def _rate(samples: Sequence[LoadSample]) -> float | None:
    """The sum, where every process that has requests in flight could count."""
    if any(sample.decode_tok_s is None and sample.in_flight for sample in samples):
        return None
    rates = [sample.decode_tok_s for sample in samples if sample.decode_tok_s is not None]
    return sum(rates) if rates else None


def _stamps(samples: Sequence[LoadSample]) -> str | None:
    found = {sample.stamps for sample in samples if sample.stamps is not None}
    return "mixed" if len(found) > 1 else next(iter(found), None)
