"""What `agenttop doctor` finds out about this machine: program, terminal, files, rights, clock, limits."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

Check = dict[str, Any]
"""what, status (ok, bad, absent), text, fix."""

PACKAGES = (
    ("textual", None),
    ("httpx", None),
    ("psutil", None),
    ("nvidia-ml-py", None),
    ("msgspec", None),
    ("httptools", None),
    ("uvloop", "token time stamps are 2 to 6 times less exact without it: pip install uvloop"),
    ("xllamacpp", "without it `agenttop demo` runs a simulated engine: pip install 'agenttop[demo]'"),
    ("pandas", "recordings as DataFrames: pip install 'agenttop[analysis]'"),
    ("pyarrow", "needed for `export --to parquet`: pip install 'agenttop[parquet]'"),
)
LEAST_FREE_BYTES = 500 * 1024 * 1024
DAY_BYTES = 650e6
"""A recording of a day with 16 agents that never pause (docs/benchmarks.md)."""
_SPARE_FILES = 64
"""Held by a process besides the connections of its agents."""
_FEW_AGENTS = 256
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
_STEP_S = 0.1


def check(what: str, good: bool | None, text: str, fix: str | None = None) -> Check:
    """One finding. `good` is None for what is absent without being an error."""
    status = {True: "ok", False: "bad", None: "absent"}[good]
    return {"what": what, "status": status, "text": text, "fix": fix}


def program() -> list[Check]:
    """agenttop, Python and the packages it uses."""
    import agenttop

    version = ".".join(map(str, sys.version_info[:3]))
    checks = [check("agenttop", True, f"{agenttop.__version__} on Python {version}")]
    for package, use in PACKAGES:
        try:
            checks.append(check(package, True, importlib.metadata.version(package)))
        except importlib.metadata.PackageNotFoundError:
            checks.append(check(package, None, "not installed", use))
    return checks


def plug_ins() -> list[Check]:
    """Engines of other packages: those that are used, and those that are not and why."""
    from agenttop.collect.engine.registry import registry

    known = registry()
    own = __name__.partition(".")[0]
    foreign = [kind.name for kind in known.kinds if kind.adapter.__module__.partition(".")[0] != own]
    checks = [check("plug-in", True, f"{name}, an engine of another package") for name in foreign]
    for refused in known.refused:
        text = f"the engine {refused.entry} of the package {refused.package} is not used: {refused.why}"
        checks.append(check("plug-in", False, text, f"update or uninstall {refused.package}"))
    return checks


def terminal() -> list[Check]:
    """Size, colours and encoding."""
    size = shutil.get_terminal_size()
    term = os.environ.get("TERM", "")
    if not sys.stdout.isatty():
        return [check("terminal", None, "output is not a terminal: commands print plain text")]
    wide = size.columns >= 80 and size.lines >= 24
    encoding = (sys.stdout.encoding or "").lower()
    utf8 = encoding.startswith("utf")
    checks = [
        check(
            "terminal",
            wide and term != "dumb",
            f"{size.columns}x{size.lines}, TERM={term or 'unset'}, {_colours(term)}",
            None if wide else "the console needs 80x24",
        ),
        check(
            "terminal encoding",
            utf8,
            encoding or "unknown",
            None if utf8 else "set a UTF-8 locale, e.g. LANG=C.UTF-8",
        ),
    ]
    if os.environ.get("TMUX"):
        fix = "for the mouse: tmux set -g mouse on; for true colours: tmux set -as terminal-features ',*:RGB'"
        checks.append(check("tmux", True, "the console runs inside of tmux", fix))
    elif term.startswith("screen"):
        checks.append(check("screen", None, "GNU screen passes on no true colours, and the mouse in part"))
    return checks


def _colours(term: str) -> str:
    if os.environ.get("NO_COLOR"):
        return "no colours (NO_COLOR is set)"
    if os.environ.get("COLORTERM", "") in ("truecolor", "24bit"):
        return "true colours"
    return "256 colours" if "256" in term else "few colours (set TERM=xterm-256color if it can do more)"


def _writable(folder: Path) -> Path:
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"you may not write to the folder {folder}")
    return folder


def files() -> list[Check]:
    """Folders, and how long a recording fits."""
    from agenttop import paths
    from agenttop.errors import AgenttopError
    from agenttop.model import units

    checks = []
    try:
        folder = _writable(paths.recordings())
        free = shutil.disk_usage(folder).free
        enough = free >= LEAST_FREE_BYTES
        room = units.seconds(free / DAY_BYTES * 86400) if free < DAY_BYTES else f"{free / DAY_BYTES:.0f} days"
        text = f"{folder}, {units.size(free)} free: room for {room} of 16 busy agents (0.65 GB a day)"
        fix = None if enough else "set AGENTTOP_RECORDINGS to a folder with more room"
        checks.append(check("recordings", enough, text, fix))
    except (AgenttopError, OSError) as error:
        fix = "set AGENTTOP_RECORDINGS to a folder you may write to"
        checks.append(check("recordings", False, str(error), fix))
    try:
        folder = paths.sessions()
        checks.append(check("sessions", True, str(_writable(folder))))
    except (AgenttopError, OSError) as error:
        checks.append(
            check("sessions", False, str(error), "set AGENTTOP_RUNTIME to a folder you may write to")
        )
    settings = paths.engines_file()
    if settings.exists():
        checks.append(check("engines.toml", True, str(settings)))
    return checks


def rights(root: Path = Path("/")) -> list[Check]:
    """What of others on this host may be seen."""
    checks = [] if sys.platform == "win32" else [_processes(root)]
    checks += _containers(root)
    if sys.platform == "linux":
        checks += [*_energy(root), *_memory(root), *_pressure(root), *_perf(root), _locked_memory()]
    return checks


def _processes(root: Path) -> Check:
    from agenttop.oslayer import is_root

    inside = any((root / name).exists() for name in (".dockerenv", "run/.containerenv"))
    where = " of this container (those of its host only with --pid=host)" if inside else ""
    if is_root():
        return check("processes", True, f"all{where} can be seen, with their sockets")
    if sys.platform == "linux" and _hides_processes(root):
        text = "those of other users are hidden (/proc is mounted with hidepid)"
        fix = "run agenttop as root, or mount /proc with gid= of a group that you are in"
        return check("processes", None, text, fix)
    text = (
        f"all{where} can be seen; the sockets of other users' cannot: their engines are asked at usual ports"
    )
    return check("processes", True, text, "to see them too, run agenttop as root or as that user")


def _hides_processes(root: Path) -> bool:
    with contextlib.suppress(OSError):
        for mount in (root / "proc/mounts").read_text(errors="replace").splitlines():
            fields = mount.split()
            if len(fields) > 3 and fields[1] == "/proc":
                options = dict(part.partition("=")[::2] for part in fields[3].split(","))
                return options.get("hidepid", "0") not in ("0", "off")
    return False


def _containers(root: Path) -> list[Check]:
    from agenttop.collect.containers import sockets

    checks = []
    for found in sockets(root=root):
        if found.permitted:
            text = f"{found.path} may be asked which image is behind a port"
            checks.append(check(found.engine, True, text))
        else:
            text = f"{found.path} is not permitted: images of containers are not known, published ports are"
            group = "docker" if found.engine == "Docker" else found.path.name
            fix = f"add yourself to the group that owns it (usually {group}; it is as good as root)"
            checks.append(check(found.engine, None, text, fix if found.engine == "Docker" else None))
    return checks


def _energy(root: Path) -> list[Check]:
    from agenttop.collect.host.power import FIX, zones

    packages, memories = zones(str(root).rstrip("/"))
    counters = [f"{zone.folder}/energy_uj" for zone in (*packages, *memories)]
    refused = [counter for counter in counters if not os.access(counter, os.R_OK)]
    if not counters:
        return []
    if refused:
        return [check("CPU energy", None, f"{refused[0]} may be read by root alone", FIX)]
    what = "the CPU and its memory" if memories else "the CPU"
    return [check("CPU energy", True, f"the counters of {what} can be read: {len(counters)} of them")]


def _memory(root: Path) -> list[Check]:
    """The modules and channels; why they are not known is among what the host does not tell."""
    from agenttop.collect.hardware import hardware
    from agenttop.model import units

    found = hardware(0.0, root)
    if found.memory_from is None or found.memory_modules is None:
        return []
    of_slots = f" of {found.memory_slots} slots filled" if found.memory_slots else ""
    kind = " ".join(
        filter(None, [found.memory_type, f"{found.memory_mt_s} MT/s" if found.memory_mt_s else ""])
    )
    text = f"{found.memory_modules}{of_slots}" + (f", {kind}" if kind else "")
    channels, total = found.memory_channels, found.memory_channels_total
    short = channels is not None and total is not None and channels < total
    if channels is not None:
        text += f", {channels} of {total} channels"
    if found.memory_peak_bytes_s is not None:
        text += f": {units.byte_rate(found.memory_peak_bytes_s)} at most"
    fix = "a module in each channel: what is decoded on the CPU is as fast as memory is" if short else None
    return [check("memory modules", None if short else True, f"{text} (from {found.memory_from})", fix)]


def _pressure(root: Path) -> list[Check]:
    if not (root / "proc/pressure").is_dir():
        return []
    return [check("pressure", True, "the kernel tells how long tasks wait for CPU, memory and disks")]


def _perf(root: Path) -> list[Check]:
    try:
        level = int((root / "proc/sys/kernel/perf_event_paranoid").read_text())
    except (OSError, ValueError):
        return []
    text = f"perf_event_paranoid is {level}"
    return [check("perf", True if level <= 1 else None, f"{text}: {'open' if level <= 1 else 'restricted'}")]


def _locked_memory() -> Check:
    from agenttop.model import units
    from agenttop.oslayer import locked_memory_limit

    limit = locked_memory_limit()
    if limit is None:
        return check("locked memory", True, "no limit")
    text = f"{units.size(limit)}: an engine that you start with --mlock can hold no more of its model in RAM"
    return check("locked memory", None, text, "ulimit -l unlimited, before the engine is started")


def limits() -> list[Check]:
    """How many agents the limit of open files allows."""
    from agenttop.oslayer import open_files_limit

    limit = open_files_limit()
    if limit is None:
        return [check("open files", True, "no limit")]
    agents = max(0, limit - _SPARE_FILES)
    enough = agents >= _FEW_AGENTS
    text = f"{limit}: room for {agents} agents, one connection each"
    return [
        check("open files", enough, text, None if enough else "ulimit -n 4096, before agenttop is started")
    ]


class Clock:
    """Looks at the clocks twice: a wall clock that is set in between shows."""

    def __init__(self) -> None:
        self._wall, self._monotonic = time.time(), time.monotonic()

    def checks(self, root: Path = Path("/")) -> list[Check]:
        """After the look."""
        from agenttop.model import units
        from agenttop.oslayer import clock_is_synchronised

        resolution = time.get_clock_info("monotonic").resolution
        checks = [check("clock", resolution <= 1e-3, f"monotonic, steps of {resolution * 1e9:.0f} ns")]
        with contextlib.suppress(OSError):
            folder = root / "sys/devices/system/clocksource/clocksource0"
            source = (folder / "current_clocksource").read_text().strip()
            if source in _SLOW_CLOCKS:
                text = f"the kernel reads the time from {source}, which takes microseconds"
                checks.append(
                    check("clock source", None, text, "boot with clocksource=tsc where it is stable")
                )
        stepped = (time.time() - self._wall) - (time.monotonic() - self._monotonic)
        known = clock_is_synchronised() if root == Path("/") else None
        if abs(stepped) > _STEP_S:
            text = f"it was set by {units.seconds(abs(stepped))} while doctor looked"
            checks.append(check("wall clock", None, text, "recordings are in order all the same"))
        elif known is not None:
            text = "kept right by a time service" if known else "not synchronised: its time may be off"
            fix = None if known else "start a time service, e.g. chrony or systemd-timesyncd"
            checks.append(check("wall clock", True if known else None, text, fix))
        return checks
