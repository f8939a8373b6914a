"""What the processes of an engine use together. Pure.

Pages that several processes share are counted once where that can be told: each process's proportional
share (PSS) where it is known of all, else what is each process's own and the largest set of mapped files, for
processes of one engine map the same model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from agenttop.model.frames import ProcessSample


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the processes of one engine. None: none of them tells it."""

    processes: int
    cpu_cores: float | None = None
    """CPU time per time: 1 is one core."""
    busiest_cores: float | None = None
    """Of the process that uses most: near 1 with one busy thread, it may be the limit by itself."""
    threads: int | None = None
    memory_bytes: int | None = None
    """Resident memory, shared pages counted once as far as that can be told; see `memory_from`."""
    memory_from: str | None = None
    """pss; parts (what is of each alone, and the largest set of mapped files); rss (of the only process, or a
    sum that counts shared pages more than once)."""
    file_bytes: int | None = None
    """Mapped files in RAM: of the process that has most, since they map the same."""
    anonymous_bytes: int | None = None
    swapped_bytes: int | None = None
    major_faults_s: float | None = None
    read_bytes_s: float | None = None
    gpu_memory: dict[str, int] = {}
    """Bytes by GPU."""
    gpus: tuple[str, ...] = ()
    floors: frozenset[str] = frozenset()
    """Fields that some processes did not tell: the sum is at least that."""


def totals_by_engine(samples: Iterable[ProcessSample]) -> dict[str, Totals]:
    """The newest sample of each process to what each engine uses; strangers are left out."""
    by_engine: dict[str, list[ProcessSample]] = {}
    for sample in samples:
        if sample.engine is not None and not sample.ended:
            by_engine.setdefault(sample.engine, []).append(sample)
    return {engine: totals(each) for engine, each in by_engine.items()}


def totals(samples: Sequence[ProcessSample]) -> Totals:
    """What some processes use together; the newest sample of each."""
    there = [sample for sample in samples if not sample.ended]
    floors: set[str] = set()

    def summed(field: str, of: Callable[[ProcessSample], float | None]) -> float | None:
        known = [value for sample in there if (value := of(sample)) is not None]
        if known and len(known) < len(there):
            floors.add(field)
        return sum(known) if known else None

    cores = [sample.cpu_fraction for sample in there if sample.cpu_fraction is not None]
    memory, memory_from = _memory(there)
    gpus = sorted({gpu for sample in there for gpu in sample.gpus})
    gpu_memory: dict[str, int] = {}
    for sample in there:
        for gpu, amount in sample.gpu_memory.items():
            gpu_memory[gpu] = gpu_memory.get(gpu, 0) + amount
    if any(gpu not in sample.gpu_memory for sample in there for gpu in sample.gpus):
        floors.add("gpu_memory")
    if memory is not None and any(sample.rss_bytes is None for sample in there):
        floors.add("memory_bytes")
    return Totals(
        processes=len(there),
        cpu_cores=summed("cpu_cores", lambda sample: sample.cpu_fraction),
        busiest_cores=max(cores, default=None),
        threads=_whole(summed("threads", lambda sample: sample.threads)),
        memory_bytes=memory,
        memory_from=memory_from,
        file_bytes=max((each.file_bytes for each in there if each.file_bytes is not None), default=None),
        anonymous_bytes=_whole(summed("anonymous_bytes", lambda sample: sample.anonymous_bytes)),
        swapped_bytes=_whole(summed("swapped_bytes", lambda sample: sample.swapped_bytes)),
        major_faults_s=summed("major_faults_s", lambda sample: sample.major_faults_s),
        read_bytes_s=summed("read_bytes_s", lambda sample: sample.read_bytes_s),
        gpu_memory=gpu_memory,
        gpus=tuple(gpus),
        floors=frozenset(floors),
    )


def _memory(there: Sequence[ProcessSample]) -> tuple[int | None, str | None]:
    resident = [sample for sample in there if sample.rss_bytes is not None]
    if not resident:
        return None, None
    shares = [sample.pss_bytes for sample in resident if sample.pss_bytes is not None]
    if len(shares) == len(resident):
        return sum(shares), "pss"
    if len(resident) > 1:
        own = [each.anonymous_bytes for each in resident if each.anonymous_bytes is not None]
        mapped = [each.file_bytes for each in resident if each.file_bytes is not None]
        if len(own) == len(mapped) == len(resident):
            return sum(own) + max(mapped) + _shared(resident), "parts"
    return sum(sample.rss_bytes or 0 for sample in resident), "rss"


def _shared(resident: Sequence[ProcessSample]) -> int:
    """Shared memory (neither of a file nor a process's own), counted once: of the process that has most."""
    return max(
        max(0, (each.rss_bytes or 0) - (each.anonymous_bytes or 0) - (each.file_bytes or 0))
        for each in resident
    )


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
