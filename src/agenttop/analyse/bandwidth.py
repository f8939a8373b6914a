"""How much of the memory's bandwidth decoding uses: measured where a device tells it, else worked out.

Worked out: a step of decoding reads the active weights once for all sequences in it, and each sequence gains
one token (more with speculation). So bytes per second are weights read in a step times steps per second, and
steps per second are the rate of one sequence, not of all together.

- Of a mixture of experts, a step with B sequences reads the expected share 1 - (1 - k/E)^B of the experts, if
  they are drawn evenly; the experts' size is what the whole model has beyond the weights of one token.
- KV cache and activations are not in it: for dense weights the figure is a floor.
- Several GPUs: their peaks are added up, as tensor parallel uses them. With layers split between them they
  take turns, and the share of the one at work is that many times as large; the evidence says so.
- Weights that the GPUs do not hold are read from RAM. Of a mixture of experts these are taken to be experts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from agenttop.analyse.chips import Peak, peak_of
from agenttop.analyse.figure import Figure, unknown
from agenttop.analyse.stats import median
from agenttop.model import units
from agenttop.model.frames import EngineSample, GpuSample, Hardware
from agenttop.model.link import link_share

OFFLOADED = 0.05
"""GPUs that hold so much less than the weights leave a part of them elsewhere."""

IMPOSSIBLE = 1.05
"""A larger share of a peak is a mistake in what it rests on."""


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Memory bandwidth that decoding uses."""

    fraction: Figure
    """Of the peak of the GPUs' memory."""
    bytes_s: Figure
    measured: bool = False
    """By the devices, over the whole span; else worked out, while a sequence decodes."""
    ram_fraction: Figure | None = None
    """Of the RAM's peak, by the weights that are read from there; None where all are on GPUs."""
    ram_bytes_s: Figure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """An engine at work, as far as it concerns its memory."""

    rate: float | None
    """Tokens per second of one sequence while it decodes."""
    sequences: float | None
    """Sequences in a step, mean while any runs."""
    tokens_per_step: float | None = 1.0
    """That a sequence gains; None where drafts are taken and it is not told how many."""


@dataclass(frozen=True, slots=True)
class _Reads:
    """Bytes a step reads."""

    gpu: float
    ram: float
    about: str
    floor: bool


def of_engine(
    engine: EngineSample | None,
    decoding: Decoding,
    gpus: Sequence[GpuSample],
    hardware: Hardware | None = None,
    *,
    without: str | None = None,
    held_bytes: int | None = None,
    ram_bytes: int | None = None,
) -> Bandwidth:
    """The bandwidth of an engine on its GPUs.

    Args:
        engine: its newest sample, for the size of its weights.
        decoding: how fast it decodes.
        gpus: samples of the cards and instances that it uses; in order of t.
        hardware: of its machine.
        without: why there are none, unless it works in RAM for want of any.
        held_bytes: GPU memory that its processes hold, where that is known.
        ram_bytes: RAM of its machine.
    """
    newest = {gpu.gpu: gpu for gpu in gpus if gpu.state == "ok"}
    if not newest and (gpus or without is not None):
        lacking = unknown(without or "no GPU answers")
        return Bandwidth(lacking, lacking)
    peaks = {name: peak_of(gpu, hardware, ram_bytes) for name, gpu in newest.items()}
    worked = _worked_out(engine, decoding, list(newest.values()), peaks, hardware, held_bytes)
    measured = _measured(gpus, peaks)
    if measured is None:
        return worked
    fraction, moved = measured
    return Bandwidth(fraction, moved, True, worked.ram_fraction, worked.ram_bytes_s)


def _measured(gpus: Sequence[GpuSample], peaks: dict[str, Peak]) -> tuple[Figure, Figure] | None:
    """By the devices' own meters: medians of each GPU, added up. None where one of them has none."""
    shares: dict[str, list[float]] = defaultdict(list)
    moved: dict[str, list[float]] = defaultdict(list)
    floor = False
    for gpu in gpus:
        if gpu.state != "ok":
            continue
        if gpu.dram_active_fraction is not None:
            shares[gpu.gpu].append(gpu.dram_active_fraction)
        elif gpu.dram_read_bytes_s is not None:
            moved[gpu.gpu].append(gpu.dram_read_bytes_s + (gpu.dram_write_bytes_s or 0.0))
            floor |= gpu.dram_is_floor
    total = sum(peak.bytes_s or 0.0 for peak in peaks.values())
    known = bool(peaks) and all(peak.bytes_s for peak in peaks.values())
    if peaks and set(shares) == set(peaks):
        middles = {name: median(some) or 0.0 for name, some in shares.items()}
        share = sum(middles.values()) / len(middles)
        about = f"measured: GPU memory moved {units.percent(share)} of its peak (median)"
        rate = sum(middles[name] * (peak.bytes_s or 0.0) for name, peak in peaks.items())
        return Figure(share, about), Figure(rate, about) if known else unknown(_peakless(peaks))
    if peaks and set(moved) == set(peaks):
        rate = sum(median(some) or 0.0 for some in moved.values())
        least = " at least: the meter wraps" if floor else ""
        about = f"measured: GPU memory moved {units.byte_rate(rate)}{least} (median)"
        fraction = unknown(_peakless(peaks))
        if known:
            fraction = Figure(rate / total, f"{about} of {_peak(peaks)}", floor)
        return fraction, Figure(rate, about, floor)
    return None


def _worked_out(
    engine: EngineSample | None,
    decoding: Decoding,
    gpus: Sequence[GpuSample],
    peaks: dict[str, Peak],
    hardware: Hardware | None,
    held_bytes: int | None,
) -> Bandwidth:
    steps = _steps(decoding)
    reads = _reads(engine, decoding, _share_off(engine, gpus, held_bytes))
    if steps.value is None or isinstance(reads, Figure):
        lacking = steps if steps.value is None or not isinstance(reads, Figure) else reads
        return Bandwidth(lacking, lacking)
    copies = engine.data_parallel if engine is not None and engine.data_parallel else 1
    per_second = steps.value * copies
    ram, ram_share = _of_ram(reads, per_second, hardware)
    if reads.gpu <= 0:
        none = unknown("its weights are in RAM")
        return Bandwidth(none, none, False, ram_share, ram)
    moved = Figure(reads.gpu * per_second, f"{reads.about}, {steps.evidence}", reads.floor)
    if not peaks or not all(peak.bytes_s for peak in peaks.values()):
        return Bandwidth(unknown(_peakless(peaks)), moved, False, ram_share, ram)
    total = sum(peak.bytes_s or 0.0 for peak in peaks.values())
    turns = (
        f"; {len(peaks)} peaks added up: with layers split it is {len(peaks)} times that"
        if len(peaks) > 1
        else ""
    )
    share = Figure(
        moved.value / total if moved.value is not None else None,
        f"{moved.evidence}: {units.byte_rate(moved.value)} of {_peak(peaks)}{turns}",
        reads.floor,
    )
    return Bandwidth(_possible(share), moved, False, ram_share, ram)


def _possible(share: Figure) -> Figure:
    if share.value is not None and share.value > IMPOSSIBLE:
        return unknown(f"more than the memory can move ({share.evidence}): something told is not so")
    return share


def _steps(decoding: Decoding) -> Figure:
    if not decoding.rate:
        return unknown("nothing was decoded")
    if not decoding.tokens_per_step:
        return unknown("drafts are taken, and the engine does not tell how many tokens a step gives")
    rate = decoding.rate / decoding.tokens_per_step
    return Figure(rate, f"{units.rate(rate)} steps/s")


def _reads(engine: EngineSample | None, decoding: Decoding, off: float) -> _Reads | Figure:
    """What a step reads, or why that is not known. `off`: the share of the weights that no GPU holds."""
    if engine is None or not engine.weights_active_bytes:
        return unknown("the size of the weights is not known")
    active, whole = float(engine.weights_active_bytes), float(engine.weights_bytes or 0)
    experts, used = engine.experts, engine.experts_used
    if not experts or not used or used >= experts or whole <= active:
        floor = (
            not experts
        )  # of a mixture whose experts are not told a step may still read more: a floor as well
        return _Reads(
            active * (1 - off),
            active * off,
            f"{_gigabytes(active)} of weights a step",
            floor or whole <= active,
        )
    copies = engine.data_parallel or 1
    each = max(1.0, (decoding.sequences or 1.0) / copies)
    all_experts = (whole - active) / (1 - used / experts)
    touched = 1 - (1 - used / experts) ** each
    always = active - all_experts * used / experts
    if always < 0:
        return unknown("the sizes told of its weights and experts do not fit together")
    in_ram = min(1.0, off * whole / all_experts)
    ram = all_experts * in_ram * touched
    total = always + all_experts * touched
    about = f"{_gigabytes(total)} of weights a step"
    if each > 1:
        about += f" ({each:.1f} sequences use {units.percent(touched)} of the experts, if drawn evenly)"
    return _Reads(total - ram, ram, about, each <= 1)


def _share_off(engine: EngineSample | None, gpus: Sequence[GpuSample], held_bytes: int | None) -> float:
    """The share of the weights that is in RAM, at least; 0 where nothing shows that any is."""
    if engine is None:
        return 0.0
    if not gpus:
        return 1.0
    if any(gpu.memory_kind in ("unified", "vram+gtt") for gpu in gpus):
        return 0.0
    if engine.memory_bytes and engine.gpu_memory_bytes is not None:
        off = 1 - engine.gpu_memory_bytes / engine.memory_bytes
    elif engine.weights_bytes:
        used = [gpu.mem_used_bytes for gpu in gpus]
        held = held_bytes if held_bytes is not None else None if None in used else sum(b or 0 for b in used)
        off = 0.0 if held is None else 1 - held / engine.weights_bytes / (engine.data_parallel or 1)
    else:
        return 0.0
    return min(1.0, off) if off >= OFFLOADED else 0.0


def _of_ram(
    reads: _Reads, per_second: float, hardware: Hardware | None
) -> tuple[Figure | None, Figure | None]:
    """Bytes per second from RAM and their share of its peak; None and None where no weights are there."""
    if reads.ram <= 0:
        return None, None
    rate = Figure(reads.ram * per_second, f"{_gigabytes(reads.ram)} of weights a step from RAM", reads.floor)
    peak = hardware.memory_peak_bytes_s if hardware is not None else None
    if not peak:
        return rate, unknown("what the RAM can move is not known")
    half = channels(hardware)
    of_peak = f"{units.byte_rate(rate.value)} of {units.byte_rate(peak)}"
    about = f"{rate.evidence}: {of_peak}{f' ({half})' if half else ''}"
    return rate, _possible(Figure(reads.ram * per_second / peak, about, reads.floor))


def link_of(gpu: GpuSample) -> float | None:
    """The busier direction of a GPU's PCIe link, as a share of what the link carries as it is now."""
    if gpu.memory_kind == "unified":
        return None  # it stands beside the CPU, whatever is told of a link
    return link_share(gpu.pcie_received_bytes_s, gpu.pcie_sent_bytes_s, gpu.pcie_generation, gpu.pcie_width)


def channels(hardware: Hardware | None) -> str | None:
    """`2 of 4 memory channels filled`, where some are empty."""
    if hardware is None:
        return None
    filled, total = hardware.memory_channels, hardware.memory_channels_total
    if filled is None or total is None or filled >= total:
        return None
    return f"{filled} of {total} memory channels filled"


def _peak(peaks: dict[str, Peak]) -> str:
    total = sum(peak.bytes_s or 0.0 for peak in peaks.values())
    names = dict.fromkeys(peak.why.partition(":")[0] for peak in peaks.values())
    return f"{units.byte_rate(total)} ({', '.join(names)})"


def _peakless(peaks: dict[str, Peak]) -> str:
    return next((peak.why for peak in peaks.values() if peak.bytes_s is None), "no GPU was seen")


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 0.95e8 else f"{size / 1e6:.1f} MB"
