"""Which GPUs an engine uses: those its processes hold, else all of its host.

MIG instances count with their card where power and heat are meant, which they share.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agenttop.model.frames import EngineSample, GpuSample, ProcessSample
from agenttop.model.identity import SIMULATED, simulated_gpus
from agenttop.model.url import is_local


@dataclass(frozen=True, slots=True)
class Used:
    """The GPUs of an engine, by `GpuSample.gpu`."""

    cards: frozenset[str]
    """Whole cards, those included of which it uses a MIG instance."""
    parts: frozenset[str]
    """MIG instances."""
    how: str
    """In words which they are and how that is known; without any, why there are none."""
    known: bool = False
    """Told by its processes, and not assumed."""
    others: frozenset[str] = frozenset()
    """Other engines whose processes use these cards, too."""
    in_ram: bool = False
    """It runs on this host, where no GPU was seen."""

    def of_cards(self, gpus: Iterable[GpuSample]) -> list[GpuSample]:
        """The samples of whole cards: their power, heat and throttling."""
        return [gpu for gpu in gpus if gpu.gpu in self.cards]

    def of_all(self, gpus: Iterable[GpuSample]) -> list[GpuSample]:
        """The samples of cards and instances: what is busy."""
        return [gpu for gpu in gpus if gpu.gpu in self.cards or gpu.gpu in self.parts]


def used_gpus(
    engine: str | None,
    engines: Iterable[EngineSample],
    gpus: Iterable[GpuSample],
    processes: Iterable[ProcessSample] = (),
) -> Used:
    """The GPUs that an engine uses.

    Args:
        engine: its identity; None where the load does not tell: any of the host.
        engines: samples of all engines; a front uses what the engines behind it use.
        gpus: samples of all GPUs.
        processes: samples of all processes.
    """
    newest = {gpu.gpu: gpu for gpu in gpus}
    by_engine = {sample.engine: sample for sample in engines}
    if engine is not None and engine in by_engine and by_engine[engine].simulated is not None:
        prefix = simulated_gpus(engine)
        return _of([gpu for gpu in newest.values() if gpu.gpu.startswith(prefix)], "the GPUs it simulates")
    real = [gpu for gpu in newest.values() if not gpu.gpu.startswith(SIMULATED)]
    wanted = {engine} | {sample.engine for sample in by_engine.values() if sample.behind == engine}
    held: dict[str | None, set[str]] = {}
    for process in processes:
        held.setdefault(process.engine, set()).update(process.gpus, process.gpu_memory)
    mine = set().union(*(some for owner, some in held.items() if owner is not None and owner in wanted))
    named = [gpu for gpu in real if gpu.gpu in mine]
    if named:
        theirs = _cards([gpu for gpu in real if gpu.gpu in mine])
        others = {
            owner
            for owner, some in held.items()
            if owner is not None
            and owner not in wanted
            and theirs & _cards([gpu for gpu in real if gpu.gpu in some])
        }
        return _of(named, f"{listed(named)}, which its processes use", known=True, others=frozenset(others))
    if engine is not None and not _here(engine, by_engine.get(engine), wanted, held):
        return _of([], "the engine does not run on this host, as far as can be told")
    if not real:
        return _of([], "no GPU was seen", in_ram=True)
    count = sum(gpu.parent is None for gpu in real)
    whole = (
        "the only GPU of the host" if count == 1 else f"all {count} GPUs of the host, assumed to be its own"
    )
    return _of(real, whole)


def listed(gpus: Iterable[GpuSample]) -> str:
    """`GPU0, GPU1 instance 2`."""
    return ", ".join(sorted(label(gpu) for gpu in {gpu.gpu: gpu for gpu in gpus}.values()))


def label(gpu: GpuSample) -> str:
    """`GPU0`, `GPU0 instance 2`."""
    part = f" instance {gpu.mig_instance}" if gpu.parent is not None and gpu.mig_instance is not None else ""
    return f"GPU{gpu.index}{part}"


def _here(
    engine: str, sample: EngineSample | None, wanted: set[str | None], held: dict[str | None, set[str]]
) -> bool:
    """Whether it runs on this machine: by its address, or by a process of it."""
    return is_local(engine) or (sample is not None and sample.pid is not None) or bool(wanted & held.keys())


def _cards(gpus: Iterable[GpuSample]) -> set[str]:
    return {gpu.parent or gpu.gpu for gpu in gpus}


def _of(
    gpus: Sequence[GpuSample],
    how: str,
    *,
    known: bool = False,
    others: frozenset[str] = frozenset(),
    in_ram: bool = False,
) -> Used:
    parts = frozenset(gpu.gpu for gpu in gpus if gpu.parent is not None)
    return Used(frozenset(_cards(gpus)), parts, how, known, others, in_ram)
