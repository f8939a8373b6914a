"""`agenttop doctor`: what can be seen here, what cannot, and why; engine by engine and figure by figure."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agenttop.commands.arguments import watch_arguments
from agenttop.commands.doctor_host import PACKAGES, Check, check

if TYPE_CHECKING:
    from agenttop.commands.doctor_figures import Seen
    from agenttop.model.frames import EngineSample, GpuSample, HostSample
    from agenttop.view.store import Store

SCHEMA = 1
LOOK_S = 2.0
SEARCH_S = 4.0
"""Where engines have to be found first."""
_NO_ENGINE = "no engine found on this host"
_EPILOG = """\
It makes the same requests as the console, for a few seconds.
Marks: ✓ seen; – not there, and why; · nothing to measure now; ✗ wrong.

Exit codes: 0 what was named can be read; 1 an engine named with --url cannot;
2 the command line is wrong.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `doctor`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _EPILOG
    watch_arguments(parser, recording="never")
    parser.add_argument("--json", action="store_true", help="one JSON object, schema 1")


def run(arguments: argparse.Namespace) -> int:
    """Look around and report. Exit code 1 when a named engine cannot be read."""
    from agenttop.commands.doctor_host import Clock
    from agenttop.commands.gather import look
    from agenttop.commands.once import exit_code
    from agenttop.commands.settings import from_arguments
    from agenttop.node.settings import ways_of
    from agenttop.view.store import Store

    settings = from_arguments(arguments)
    ways = ways_of(settings)
    clock = Clock()
    frames = look(settings, LOOK_S if settings.urls else SEARCH_S)
    store = Store()
    store.feed(frames, max(frame.t for frame in frames))
    seen = seen_engines(store)
    machine = [*_machine(), *clock.checks(), *_host(store)]
    gpus = gpu_reports(store)
    reports = [engine_report(each, ways.to(each.sample.url).in_words()) for each in seen]
    if arguments.json:
        from agenttop.commands.cells import json_text

        checks = [
            *machine,
            *_absent(store, "host:"),
            *_gpus(store),
            *(_engine_checks(seen) or [_no_engine()]),
        ]
        sys.stdout.write(json_text({"schema": SCHEMA, "checks": checks, "gpus": gpus, "engines": reports}))
    else:
        machine += [*_together(_absent(store, "host:")), *_absent(store, "gpu", whole=True)]
        sys.stdout.write(_text(machine, _gpu_lines(store, gpus), seen, reports))
    return exit_code(store, settings.urls)


def _machine() -> list[Check]:
    from agenttop.commands import doctor_host as host

    return [
        *host.program(),
        *host.plug_ins(),
        *host.terminal(),
        *host.files(),
        *host.rights(),
        *host.limits(),
    ]


def _no_engine() -> Check:
    return check("engine", None, _NO_ENGINE, "start one, or name it with --url")


def gpu_reports(store: Store) -> list[dict[str, Any]]:
    """Of each GPU what can be read of it, what cannot, and why."""
    from agenttop.commands.doctor_gpus import report
    from agenttop.view.simulated import in_order

    return [report(gpu, list(store.missing.values())) for gpu in in_order(store.gpus.values())]


def _gpu_lines(store: Store, reports: Sequence[dict[str, Any]]) -> list[str]:
    """Each GPU with its figures."""
    from agenttop.commands import doctor_text as text

    width = text.width_of_terminal()
    heads = [gpu for gpu in _gpus(store) if gpu["what"].startswith("GPU")]
    lines: list[str] = []
    for head, each in zip(heads, reports, strict=True):
        lines += ["", *text.check_line(head, width), *text.figure_lines(each["figures"], width)]
    return lines


def _together(checks: Sequence[Check]) -> list[Check]:
    """Those with one reason in common as one check, by the words that screens have for them."""
    from agenttop.view.figure_words import FIGURES_OF_HOSTS

    reasons: dict[tuple[str, str | None], list[str]] = {}
    for each in checks:
        field = each["what"].removeprefix("host:")
        reasons.setdefault((each["text"], each["fix"]), []).append(FIGURES_OF_HOSTS.get(field, field))
    return [
        check(names[0], None, f"{text} (so, too: {', '.join(names[1:])})" if names[1:] else text, fix)
        for (text, fix), names in reasons.items()
    ]


def _text(
    machine: Sequence[Check],
    gpus: Sequence[str],
    seen: Sequence[Seen],
    reports: Sequence[dict[str, Any]],
) -> str:
    from agenttop.commands import doctor_text as text

    width = text.width_of_terminal()
    lines: list[str] = []
    for each in text.together(machine, [package for package, _ in PACKAGES]):
        lines += text.check_line(each, width)
    lines += gpus
    if not seen:
        lines += ["", *text.check_line(_no_engine(), width)]
    for one, report in zip(seen, reports, strict=True):
        lines += ["", *text.check_line(_engine(one.sample), width)]
        read = report["read"]
        lines += text.plain_line("may be asked", _asked(read), width)
        lines += text.plain_line("reached", read["access"], width)
        for part in report["parts"]:
            lines += text.plain_line(part["role"], _part(part), width)
        lines += text.figure_lines(report["figures"], width)
        for other in report["notes"]:
            lines += text.line("absent", other["what"], other["why"], other["fix"], width, indent=2)
    return "\n".join(lines) + "\n"


def _asked(read: dict[str, Any]) -> str:
    from agenttop.model import units

    words = f"GET {' '.join(read['paths'])}" if read["paths"] else "nothing"
    if read["every_s"] is not None:
        words += f"; every {units.seconds(read['every_s'])}"
    if read["reply_s"] is not None:
        words += f"; the last reply took {units.seconds(read['reply_s'])}"
    if read["age_s"] is not None:
        words += f", {units.seconds(read['age_s'])} ago"
    return words


def _part(part: dict[str, Any]) -> str:
    told = [part["part"], part["state"], part["note"]]
    return ", ".join(str(each) for each in told if each)


def seen_engines(store: Store) -> list[Seen]:
    """What a look has shown of each engine that is still there."""
    from agenttop.commands.doctor_figures import Seen

    return [
        Seen(
            sample=sample,
            slots=[slot for (engine, _), slot in sorted(store.slots.items()) if engine == url],
            latencies=list(store.latencies.get(url, {}).values()),
            parts=list(store.parts.get(url, {}).values()),
            missing=[each for each in store.missing.values() if each.subject_and_field[0] == url],
        )
        for url, sample in store.engines.items()
    ]


def engine_report(seen: Seen, access: str) -> dict[str, Any]:
    """One engine as it stands in the JSON."""
    import msgspec

    from agenttop.commands.doctor_figures import rows, unread

    sample = seen.sample
    readable = sample.state in ("ok", "busy", "asleep")
    return {
        "url": sample.url,
        "engine": sample.name,
        "version": sample.version,
        "state": sample.state,
        "note": sample.note,
        "simulated": sample.simulated,
        "front": sample.front,
        "behind": sample.behind,
        "read": {
            "paths": _paths(sample),
            "every_s": sample.poll_every_s,
            "reply_s": sample.reply_s,
            "age_s": sample.age_s,
            "access": access,
        },
        "figures": [msgspec.to_builtins(row) for row in rows(seen)] if readable else [],
        "parts": [
            {"part": part.part, "role": part.role, "state": part.state, "url": part.url, "note": part.note}
            for part in seen.parts
        ],
        "notes": [
            {"what": each.subject_and_field[1], "why": each.why, "fix": each.fix}
            for each in unread(seen.missing)
        ],
    }


def _paths(sample: EngineSample) -> list[str]:
    """What may be asked of this engine: no more than its adapter's list allows."""
    from agenttop.collect.engine.kinds import openai, simulated
    from agenttop.collect.engine.registry import registry

    kind = (
        openai.KIND
        if sample.name == openai.KIND.name
        else registry().named(sample.name.removesuffix(" router"))
    )
    paths = set(kind.allowed_paths) if kind is not None else set()
    return sorted(paths | ({simulated.PATH} if sample.simulated else set()))


def _host(store: Store) -> list[Check]:
    from agenttop.model import units

    checks = []
    session, host = store.session, store.host
    if session is not None:
        cpu = f"{session.cpu or 'unknown CPU'}, {session.cores_logical} logical cores"
        checks.append(check("host", True, f"{session.host}, {session.os}, {cpu}"))
    if host is not None:
        text = f"{units.size(host.ram_used_bytes)} of {units.size(host.ram_total_bytes)} used"
        checks.append(check("memory", True, text))
        checks += _limits(host)
    return checks


def _limits(host: HostSample) -> list[Check]:
    """A container's, or what else keeps this process from the whole machine."""
    from agenttop.model import units

    told = []
    if host.cpu_limit_cores is not None:
        told.append(f"{host.cpu_limit_cores:g} cores")
    elif host.cpus_allowed is not None:
        told.append(f"{host.cpus_allowed} logical cores may be used")
    if host.ram_limit_bytes is not None:
        used = f", {units.size(host.ram_limited_used_bytes)} used" if host.ram_limited_used_bytes else ""
        told.append(f"{units.size(host.ram_limit_bytes)} of memory{used}")
    return [check("limits", True, f"of this container: {'; '.join(told)}")] if told else []


def _gpus(store: Store) -> list[Check]:
    from agenttop.model import units
    from agenttop.view.simulated import in_order, is_simulated

    checks = []
    for gpu in in_order(store.gpus.values()):
        name = f"GPU{gpu.index}" if gpu.parent is None else f"GPU{gpu.index} MIG {gpu.mig_instance}"
        text = f"{gpu.name}, {units.size(gpu.mem_total_bytes)}, {gpu.state}"
        text += f", driver {gpu.driver}" if gpu.driver else ""
        text += ", SIMULATED" if is_simulated(gpu) else ""
        checks.append(check(name, _well(gpu), text))
    return [*checks, *_absent(store, "gpu")]


def _well(gpu: GpuSample) -> bool | None:
    """A GPU that sleeps is neither well nor sick."""
    return None if gpu.state == "asleep" else gpu.state == "ok" and not gpu.health


def _absent(store: Store, prefix: str, *, whole: bool = False) -> list[Check]:
    """What is missing under a prefix, and why; `whole`: of nothing in particular."""
    simulated = any(engine.simulated for engine in store.engines.values())
    note = "of this machine, not of the simulated one: " if prefix == "gpu" and simulated else ""
    return [
        check(missing.what, None, f"{note}{missing.why}", missing.fix)
        for missing in store.missing.values()
        if missing.why is not None
        and missing.what.startswith(prefix)
        and (not whole or missing.what == prefix)
    ]


def _engine_checks(seen: Sequence[Seen]) -> list[Check]:
    """The engines as checks, and what is missing of them."""
    checks = []
    for each in seen:
        checks.append(_engine(each.sample))
        checks += [
            check(f"engine {frame.subject_and_field[1]}", None, frame.why, frame.fix)
            for frame in each.missing
            if frame.why is not None
        ]
    return checks


def _engine(engine: EngineSample) -> Check:
    if engine.state == "unsupported" and (told := _other_pace(engine.url)) is not None:
        return told
    good = engine.state in ("ok", "busy", "asleep")
    text = f"{engine.name} {engine.version or ''} at {engine.url}: {engine.state}".replace("  ", " ")
    if engine.model:
        text += f", {engine.model}"
    if engine.behind:
        text += f", behind {engine.behind}"
    if engine.simulated:
        text += f"; SIMULATED {engine.simulated}, {engine.speedup or 1:g}x as fast as life"
    return check("engine", good, text, engine.note)


def _other_pace(url: str) -> Check | None:
    """An engine that only seems unknown: a simulated one, faster than this look, which goes at the pace of
    life; None for any other. Asks the engine."""
    from agenttop.collect.engine.kinds.simulated import speedup_of
    from agenttop.model.text import printable

    pace, host = speedup_of(url)
    if host is None or pace == 1.0:
        return None
    text = f"SIMULATED {printable(host)} at {url}: runs {pace:g} times as fast as life, this look does not"
    return check("engine", True, text, f"watch it in a session of its own: agenttop --url {url}")
