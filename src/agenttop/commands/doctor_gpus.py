"""Every figure that can be shown of a GPU: what it is now, or why there is none and what would help. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from agenttop.commands.doctor_figures import MISSING, NO_REASON, QUIET, SEEN, UNEXPLAINED, Row
from agenttop.model import units
from agenttop.model.frames import GPU_SUBJECT, GpuSample, Missing
from agenttop.view.gpus import activity, celsius, link_words, memory_used, nvlink, util, watts, watts_of
from agenttop.view.held import shares_of
from agenttop.view.spans import Line, foreign, plain

Words = Callable[[GpuSample], str]


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of a GPU."""

    name: str
    fields: tuple[str, ...]
    """By any of which its adapter says why it is missing."""
    words: Words
    """What it is now; empty where it is not known."""
    expected: bool = False
    """An adapter that leaves it out says why: without a word it is a mistake."""


def report(sample: GpuSample, missing: Sequence[Missing]) -> dict[str, Any]:
    """One GPU as it stands in the JSON."""
    return {
        "gpu": sample.gpu,
        "index": sample.index,
        "vendor": sample.vendor,
        "name": sample.name,
        "state": sample.state,
        "driver": sample.driver,
        "figures": [msgspec.to_builtins(row) for row in rows(sample, missing)],
    }


def rows(sample: GpuSample, missing: Sequence[Missing]) -> list[Row]:
    """All figures; of a device that is not what it should be only the reasons, and no guess."""
    subject = f"{GPU_SUBJECT}{sample.gpu}"
    told = {
        frame.subject_and_field[1]: frame
        for frame in missing
        if frame.why is not None and frame.subject_and_field[0] == subject
    }
    found = [row for figure in FIGURES if (row := _row(figure, sample, told)) is not None]
    known = {field for figure in FIGURES for field in figure.fields}
    found += [
        Row(figure=field, field=field, status=MISSING, text=frame.why or "", fix=frame.fix)
        for field, frame in told.items()
        if field not in known
    ]
    return found


def _row(figure: Figure, sample: GpuSample, told: dict[str, Missing]) -> Row | None:
    """None where there is neither a value nor a reason, and none is expected."""
    words, field = figure.words(sample), figure.fields[0]
    if words:
        return Row(figure=figure.name, field=field, status=SEEN, value=_value(figure, sample), text=words)
    reason = next((told[name] for name in figure.fields if name in told), None)
    if reason is not None:
        why, fix = reason.why or "", reason.fix
        return Row(figure=figure.name, field=field, status=MISSING, text=why, fix=fix)
    if not figure.expected or sample.parent is not None:
        return None
    if sample.state != "ok":
        text = f"nothing to read: it is {foreign(sample.state, 12)}"
        return Row(figure=figure.name, field=field, status=QUIET, text=text)
    return Row(figure=figure.name, field=field, status=UNEXPLAINED, text=NO_REASON)


def _value(figure: Figure, sample: GpuSample) -> Any:
    values = {name: getattr(sample, name, None) for name in figure.fields}
    known = {name: value for name, value in values.items() if value is not None}
    return next(iter(known.values())) if len(figure.fields) == 1 else known


def _text(line: Line) -> str:
    return plain(line).strip()


def _of(value: float | None, most: float | None, unit: str) -> str:
    if value is None:
        return ""
    return f"{value:.0f}{f' of {most:.0f}' if most else ''} {unit}"


def _degrees(value: float | None) -> str:
    return "" if value is None else celsius(value)


def _memory(sample: GpuSample) -> str:
    if sample.mem_used_bytes is None or sample.mem_total_bytes is None:
        return ""
    kind = f", {sample.memory_kind}" if sample.memory_kind else ""
    return f"{_text(memory_used(sample))}{kind}"


def _power(sample: GpuSample) -> str:
    if sample.power_w is None:
        return ""
    of = _text(watts_of(sample))
    return f"{watts(sample, limit=False)}{f', {of}' if of else ''}"


def _energy(sample: GpuSample) -> str:
    if sample.energy_j is None:
        return ""
    source = "its power summed up" if sample.energy_source == "power" else "its own counter"
    return f"{sample.energy_j / 3600:.1f} Wh, {source}"


def _held(sample: GpuSample) -> str:
    if sample.throttle is None:
        return ""
    return (
        f"by {', '.join(foreign(reason, 30) for reason in sample.throttle)}"
        if sample.throttle
        else "by nothing"
    )


def _shares(sample: GpuSample) -> str:
    """Which reasons are counted in time."""
    shares = shares_of(sample) if sample.throttle_shares else None
    if not shares:
        return ""
    counted = [reason for reason in shares if reason in sample.throttle_shares]
    return f"counted for {', '.join(foreign(reason, 30) for reason in counted)}"


def _rates(sample: GpuSample) -> str:
    rates = (("in", sample.pcie_received_bytes_s), ("out", sample.pcie_sent_bytes_s))
    told = [f"{units.byte_rate(rate)} {name}" for name, rate in rates if rate is not None]
    source = f", {sample.pcie_source}" if told and sample.pcie_source else ""
    return f"{', '.join(told)}{source}"


def _health(sample: GpuSample) -> str:
    if sample.health is None:
        return ""
    return "; ".join(foreign(each, 60) for each in sample.health) or "well, as far as it tells"


def _errors(sample: GpuSample) -> str:
    if sample.ecc_uncorrected_total is None:
        return ""
    return f"{sample.ecc_uncorrected_total} uncorrected, {sample.ecc_corrected_total or 0} corrected"


def _margin(sample: GpuSample) -> str:
    if sample.temperature_margin_c is not None:
        return f"{sample.temperature_margin_c:.0f} °C left"
    return _degrees(sample.temperature_limit_c)


def _fan(sample: GpuSample) -> str:
    if sample.fan_fraction is not None:
        return units.percent(sample.fan_fraction)
    return "" if sample.fan_rpm is None else f"{sample.fan_rpm} rpm"


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


def _share(value: float | None) -> str:
    return "" if value is None else units.percent(value)


def _figure(name: str, fields: str, words: Words, *, expected: bool = False) -> Figure:
    return Figure(name=name, fields=tuple(fields.split()), words=words, expected=expected)


FIGURES = (
    _figure(
        "utilisation",
        "util_fraction",
        lambda gpu: "" if gpu.util_fraction is None else util(gpu),
        expected=True,
    ),
    _figure("memory", "mem_used_bytes mem_total_bytes", _memory, expected=True),
    _figure(
        "clock",
        "sm_clock_mhz sm_clock_max_mhz",
        lambda gpu: _of(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, "MHz"),
        expected=True,
    ),
    _figure("temperature", "temperature_c", lambda gpu: _degrees(gpu.temperature_c), expected=True),
    _figure("heat limit", "temperature_limit_c temperature_margin_c", _margin),
    _figure("hotspot", "hotspot_c", lambda gpu: _degrees(gpu.hotspot_c)),
    _figure("memory heat", "mem_temperature_c", lambda gpu: _degrees(gpu.mem_temperature_c)),
    _figure("fan", "fan_fraction fan_rpm", _fan),
    _figure("power", "power_w", _power, expected=True),
    _figure("power limit", "power_limit_w", lambda gpu: _of(gpu.power_limit_w, None, "W")),
    _figure("energy", "energy_j", _energy),
    _figure("held down", "throttle", _held, expected=True),
    _figure("time held down", "throttle_shares throttle_power_fraction throttle_thermal_fraction", _shares),
    _figure("PCIe", "pcie_received_bytes_s pcie_sent_bytes_s", _rates),
    _figure("PCIe link", "pcie_generation pcie_width", link_words),
    _figure("PCIe replays", "pcie_replays_total", lambda gpu: _count(gpu.pcie_replays_total)),
    _figure(
        "NVLink",
        "nvlink_received_bytes_s nvlink_sent_bytes_s nvlink_links",
        lambda gpu: _text(nvlink(gpu)[1:]),
    ),
    _figure("memory bus", "mem_util_fraction", lambda gpu: _share(gpu.mem_util_fraction)),
    _figure(
        "work inside",
        "sm_active_fraction sm_occupancy_fraction tensor_active_fraction dram_active_fraction "
        "dram_read_bytes_s dram_write_bytes_s",
        lambda gpu: ", ".join(_text(part) for part in activity(gpu)),
    ),
    _figure("memory errors", "ecc_uncorrected_total ecc_corrected_total", _errors),
    _figure("health", "health remapped_rows_total", _health),
)
