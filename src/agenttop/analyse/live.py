"""What can be derived of an engine and its GPUs now, from the newest sample of each: for a screen. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agenttop.analyse import bandwidth
from agenttop.analyse.figure import Figure, unknown
from agenttop.analyse.used import Used, label, used_gpus
from agenttop.model import units
from agenttop.model.frames import EngineSample, GpuSample, Hardware, HostSample, ProcessSample


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """Figures of now, each with its evidence, or with why it cannot be told."""

    power_w: Figure
    """Of the GPUs that the engine uses together."""
    tokens_per_joule: Figure
    """Output tokens; all the energy of these GPUs is theirs, prefill and idling included."""
    joules_per_token: Figure
    """The inverse."""
    bandwidth_fraction: Figure
    """Memory bandwidth that decoding uses, as a share of the peak: measured, or a floor from the weights."""
    bandwidth_bytes_s: Figure
    """The same in bytes per second."""
    pcie_fraction: Figure
    """The busiest direction of the busiest GPU's link, as a share of what the link carries as it is now."""


def derive(
    engine: EngineSample,
    gpus: Sequence[GpuSample],
    host: HostSample | None = None,
    hardware: Hardware | None = None,
    processes: Sequence[ProcessSample] = (),
) -> Derived:
    """The figures of now, from the newest sample of each.

    Args:
        engine: the engine asked about.
        gpus: those of its host; a simulated engine's own. Which of them it uses is told by `processes`, else
            all of them count as used, and the evidence says so.
        host: of the same machine.
        hardware: of the same machine.
        processes: of the same machine; those of other engines are left.
    """
    alive = [process for process in processes if not process.ended]
    used = used_gpus(engine.engine, [engine], gpus, alive)
    mine = used.of_all(gpus)
    power = _power(used, gpus)
    each = _joules(power, engine)
    held = sum(
        amount
        for process in alive
        if process.engine == engine.engine
        for name, amount in process.gpu_memory.items()
        if name in used.cards | used.parts
    )
    found = bandwidth.of_engine(
        engine,
        _decoding(engine),
        mine,
        hardware,
        without=None if used.in_ram else used.how,
        held_bytes=held or None,
        ram_bytes=host.ram_total_bytes if host is not None else None,
    )
    return Derived(
        power_w=power,
        tokens_per_joule=_inverse(each),
        joules_per_token=each,
        bandwidth_fraction=found.fraction,
        bandwidth_bytes_s=found.bytes_s,
        pcie_fraction=_link(used, mine),
    )


def _power(used: Used, gpus: Sequence[GpuSample]) -> Figure:
    cards = used.of_cards(gpus)
    if not cards:
        return unknown(used.how)
    if used.parts:
        return unknown("it uses MIG instances, and power is told of whole cards only")
    silent = [gpu for gpu in cards if gpu.power_w is None or gpu.state != "ok"]
    if silent:
        return unknown(f"{label(silent[0])} does not tell its power now")
    return Figure(sum(gpu.power_w or 0.0 for gpu in cards), used.how)


def _joules(power: Figure, engine: EngineSample) -> Figure:
    """Of an output token: all the power over all that is decoded."""
    if power.value is None:
        return power
    if engine.state not in ("ok", "busy") or engine.decode_tok_s is None:
        return unknown("the engine tells no rate of now")
    if engine.decode_tok_s <= 0:
        return unknown("nothing is decoded now")
    rates = f"{power.value:.0f} W over {units.rate(engine.decode_tok_s)} tok/s"
    text = f"{rates}, prefill included; {power.evidence}"
    return Figure(power.value / engine.decode_tok_s, text, at_most=engine.decode_is_floor)


def _inverse(figure: Figure) -> Figure:
    if not figure.value:
        return figure
    return Figure(1 / figure.value, figure.evidence, at_least=figure.at_most, at_most=figure.at_least)


def _decoding(engine: EngineSample) -> bandwidth.Decoding:
    """One sequence's rate now: where the engine does not tell it, all together over those that run, which is
    less while some of them prefill."""
    running = engine.per_sequence_of or engine.running
    rate = engine.per_sequence_tok_s
    if rate is None and engine.decode_tok_s is not None and running:
        rate = engine.decode_tok_s / running
    drafts = engine.tokens_per_step is None and engine.draft_acceptance is not None
    return bandwidth.Decoding(
        rate=rate,
        sequences=float(running) if running else None,
        tokens_per_step=None if drafts else engine.tokens_per_step or 1.0,
    )


def _link(used: Used, gpus: Sequence[GpuSample]) -> Figure:
    if not gpus:
        return unknown(used.how)
    shares = [(share, gpu) for gpu in gpus if (share := bandwidth.link_of(gpu)) is not None]
    if not shares:
        return unknown("no GPU tells what its PCIe link carries")
    share, gpu = max(shares, key=lambda pair: pair[0])
    how = "" if gpu.pcie_source != "sample" else ", by samples of 20 ms"
    link = f"generation {gpu.pcie_generation} x{gpu.pcie_width}"
    return Figure(share, f"{label(gpu)}, {link}{how}")
