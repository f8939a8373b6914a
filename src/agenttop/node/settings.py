"""What a node is asked to do, and the command line that asks it: the console starts its node with it."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from agenttop.access.ways import Ways, entries_of_user


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one session."""

    urls: list[str] = []
    """Engines the user named; load may go to these."""
    api_key_env: str | None = None
    """Name of the environment variable with the key of the engines in `urls`; the key itself is never passed
    on."""
    api_key_file: Path | None = None
    """The file with that key."""
    ca_file: Path | None = None
    """Certificates that are believed of the engines in `urls`, besides those of the system."""
    record: bool = True
    out: Path | None = None
    """Where to record; None: a new file in `paths.recordings()`."""
    demo: bool = False
    """Start a demo engine, four agents on it, and end with the console."""
    demo_agents: int = 4
    demo_overrides: dict[str, str] = {}
    """Keys of the demo's profile that the user has set."""
    sim_host: str | None = None
    """The demo engine is a simulated one on this host preset; None: a real one."""
    sim_model: str = "qwen3.5-9b-4bit"
    sim_speedup: float = 1.0
    discover: bool = True
    """Look for engines on this host."""
    scrape_metrics: bool = True
    """Ask engines for `/metrics`. llama.cpp's rate gauges are reset by every scrape, so whoever has a
    Prometheus on the same server may switch this off."""
    interval_s: float = 1.0

    def argv(self, python: str = sys.executable) -> list[str]:
        """The command that starts this node on stdin and stdout."""
        line = [python, "-m", "agenttop", "node"]
        for url in self.urls:
            line += ["--url", url]
        if self.api_key_env:
            line += ["--api-key-env", self.api_key_env]
        if self.api_key_file is not None:
            line += ["--api-key-file", str(self.api_key_file)]
        if self.ca_file is not None:
            line += ["--ca-file", str(self.ca_file)]
        if not self.record:
            line += ["--no-record"]
        if self.out is not None:
            line += ["--out", str(self.out)]
        if self.demo:
            line += ["--demo", "--demo-agents", str(self.demo_agents)]
            for key, value in self.demo_overrides.items():
                line += ["--set", f"{key}={value}"]
        if self.sim_host is not None:
            line += ["--sim-host", self.sim_host, "--sim-model", self.sim_model]
            line += ["--sim-speedup", str(self.sim_speedup)]
        if not self.discover:
            line += ["--no-discovery"]
        if not self.scrape_metrics:
            line += ["--no-metrics"]
        if self.interval_s != 1.0:
            line += ["--interval", str(self.interval_s)]
        return line


def ways_of(settings: NodeSettings) -> Ways:
    """How the engines of a session are reached, the user's `engines.toml` included.

    Raises UsageError for a key, a CA or a file of entries that is of no use, also where only an entry for an
    engine of `settings.urls` names it.
    """
    ways = Ways(
        settings.urls,
        api_key_env=settings.api_key_env,
        api_key_file=settings.api_key_file,
        ca_file=settings.ca_file,
        metrics=settings.scrape_metrics,
        entries=entries_of_user(),
    )
    for url in settings.urls:
        ways.to(url)
    return ways


def recording_path(settings: NodeSettings, session: str, folder: Path) -> Path:
    """The file a session records to."""
    return settings.out if settings.out is not None else folder / f"{session}.agenttop"
