"""`agenttop doctor`: what can be seen here, what cannot, and why."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import sys
from typing import TYPE_CHECKING, Any

from agenttop.commands.arguments import watch_arguments

if TYPE_CHECKING:
    from agenttop.view.store import Store

SCHEMA = 1

PACKAGES = (
    ("textual", None),
    ("httpx", None),
    ("psutil", None),
    ("nvidia-ml-py", None),
    ("msgspec", None),
    ("httptools", None),
    ("uvloop", "token time stamps are 2 to 6 times less exact without it"),
    ("xllamacpp", "without it `agenttop demo` runs a simulated engine: pip install 'agenttop[demo]'"),
    ("pandas", "recordings as DataFrames: pip install 'agenttop[analysis]'"),
    ("pyarrow", "needed for `export --to parquet`: pip install 'agenttop[parquet]'"),
)

LEAST_FREE_BYTES = 500 * 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `doctor`."""
    watch_arguments(parser, recording="never")
    parser.add_argument("--json", action="store_true", help="one JSON object, schema 1")


def run(arguments: argparse.Namespace) -> int:
    """Look around and report. Exit code 1 when a named engine cannot be read."""
    from agenttop.commands.gather import look
    from agenttop.commands.once import exit_code
    from agenttop.commands.settings import from_arguments
    from agenttop.view.store import Store

    settings = from_arguments(arguments)
    frames = look(settings, 2.0)
    store = Store()
    store.feed(frames, max(frame.t for frame in frames))
    checks = [*_program(), *_terminal(), *_files(), *_host(store), *_gpus(store), *_engines(store)]
    if not store.engines:
        checks.append(
            _check("engine", None, "no engine found on this host", "start one, or name it with --url")
        )
    if arguments.json:
        from agenttop.commands.cells import json_text

        sys.stdout.write(json_text({"schema": SCHEMA, "checks": checks}))
    else:
        sys.stdout.write("\n".join(map(_line, checks)) + "\n")
    return exit_code(store, settings.urls)


def _check(what: str, good: bool | None, text: str, fix: str | None = None) -> dict[str, Any]:
    """One finding. `good` is None for what is absent without being an error."""
    return {
        "what": what,
        "status": {True: "ok", False: "bad", None: "absent"}[good],
        "text": text,
        "fix": fix,
    }


def _line(check: dict[str, Any]) -> str:
    glyph = {"ok": "✓", "bad": "✗", "absent": "–"}[check["status"]]
    fix = f"  → {check['fix']}" if check["fix"] else ""
    return f"{glyph} {check['what']:<22} {check['text']}{fix}"


def _program() -> list[dict[str, Any]]:
    import agenttop

    version = ".".join(map(str, sys.version_info[:3]))
    checks = [_check("agenttop", True, f"{agenttop.__version__} on Python {version}")]
    for package, use in PACKAGES:
        try:
            checks.append(_check(package, True, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            checks.append(_check(package, None, "not installed", use))
    return checks


def _terminal() -> list[dict[str, Any]]:
    size = shutil.get_terminal_size()
    term = os.environ.get("TERM", "")
    tty = sys.stdout.isatty()
    if not tty:
        return [_check("terminal", None, "output is not a terminal: commands print plain text")]
    wide = size.columns >= 80 and size.lines >= 24
    colours = os.environ.get("COLORTERM", "") or ("256 colours" if "256" in term else "few colours")
    encoding = (sys.stdout.encoding or "").lower()
    return [
        _check(
            "terminal",
            wide,
            f"{size.columns}x{size.lines}, TERM={term or 'unset'}, {colours}",
            None if wide else "the console needs 80x24",
        ),
        _check(
            "terminal encoding",
            encoding.startswith("utf"),
            encoding or "unknown",
            None if encoding.startswith("utf") else "set a UTF-8 locale, e.g. LANG=C.UTF-8",
        ),
    ]


def _files() -> list[dict[str, Any]]:
    from agenttop import paths
    from agenttop.errors import AgenttopError
    from agenttop.model import units

    checks = []
    try:
        folder = paths.recordings()
        free = shutil.disk_usage(folder).free
        enough = free >= LEAST_FREE_BYTES
        text = f"{folder}, {units.size(free)} free"
        checks.append(
            _check("recordings", enough, text, None if enough else "set AGENTTOP_RECORDINGS elsewhere")
        )
    except (AgenttopError, OSError) as error:
        checks.append(
            _check("recordings", False, str(error), "set AGENTTOP_RECORDINGS to a folder you may write to")
        )
    try:
        checks.append(_check("sessions", True, str(paths.sessions())))
    except (AgenttopError, OSError) as error:
        checks.append(
            _check("sessions", False, str(error), "set AGENTTOP_RUNTIME to a folder you may write to")
        )
    return checks


def _host(store: Store) -> list[dict[str, Any]]:
    from agenttop.model import units

    checks = []
    session, host = store.session, store.host
    if session is not None:
        cpu = f"{session.cpu or 'unknown CPU'}, {session.cores_logical} logical cores"
        checks.append(_check("host", True, f"{session.host}, {session.os}, {cpu}"))
    if host is not None:
        text = f"{units.size(host.ram_used_bytes)} of {units.size(host.ram_total_bytes)} used"
        checks.append(_check("memory", True, text))
    return [*checks, *_absent(store, "host")]


def _gpus(store: Store) -> list[dict[str, Any]]:
    from agenttop.model import units
    from agenttop.view.simulated import is_simulated

    checks = [
        _check(
            f"GPU{gpu.index}",
            gpu.state == "ok",
            f"{gpu.name}, {units.size(gpu.mem_total_bytes)}, {gpu.state}"
            + (", SIMULATED" if is_simulated(gpu) else ""),
        )
        for gpu in store.gpus.values()
    ]
    absent = _absent(store, "gpu")
    if any(engine.simulated for engine in store.engines.values()):
        absent = [
            check | {"text": f"of this machine, not of the simulated one: {check['text']}"}
            for check in absent
        ]
    return [*checks, *absent]


def _absent(store: Store, prefix: str) -> list[dict[str, Any]]:
    """What is missing under a prefix, and why."""
    return [
        _check(missing.what, None, missing.why, missing.fix)
        for missing in store.missing.values()
        if missing.why is not None and missing.what.startswith(prefix)
    ]


def _engines(store: Store) -> list[dict[str, Any]]:
    checks = []
    for url, engine in store.engines.items():
        if engine.state == "unsupported" and (told := _other_pace(url)) is not None:
            checks.append(told)
            continue
        good = engine.state in ("ok", "busy", "asleep")
        text = f"{engine.name} {engine.version or ''} at {url}: {engine.state}".replace("  ", " ")
        if engine.model:
            text += f", {engine.model}"
        if engine.simulated:
            text += f"; SIMULATED {engine.simulated}, {engine.speedup or 1:g}x as fast as life"
        checks.append(_check("engine", good, text, engine.note))
        absent = _absent(store, url + ":")
        checks += [check | {"what": "engine " + check["what"].removeprefix(url + ":")} for check in absent]
    return checks


def _other_pace(url: str) -> dict[str, Any] | None:
    """An engine that only seems unknown: a simulated one, faster than this look, which goes at the pace of
    life; None for any other. Asks the engine."""
    from agenttop.collect.engine.kinds.simulated import speedup_of
    from agenttop.model.text import printable

    pace, host = speedup_of(url)
    if host is None or pace == 1.0:
        return None
    text = f"SIMULATED {printable(host)} at {url}: runs {pace:g} times as fast as life, this look does not"
    return _check("engine", True, text, f"watch it in a session of its own: agenttop --url {url}")
