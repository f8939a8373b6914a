"""Older builds of llama.cpp for tests: wheels of xllamacpp, installed once into a folder of their own.

AGENTTOP_TEST_WHEELS names the folder (default: in the user's cache), with one folder for each version in it;
a prepared one needs no package index. Each takes 100 MB.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

GENERATIONS = {
    "8672": "2026.4.8672.1",
    "10068": "2026.7.10068",
    "11063": "2026.9.11063",
}
"""Build to version. 8672: slots do not tell what they hold. 10068: they do; `/slots` waits for the batch in
progress, and `/metrics` wakes a sleeper. 11063: neither, and counters of cached and of drafted tokens."""

_PATIENCE_S = 120.0


class NoWheelError(Exception):
    """It cannot be installed here; one sentence."""


def folder() -> Path:
    """Where they lie."""
    given = os.environ.get("AGENTTOP_TEST_WHEELS")
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(given) if given else Path(cache) / "agenttop-tests" / "wheels"


def installed(build: str) -> Path:
    """The folder that, first on PYTHONPATH, makes `import xllamacpp` this build. Raises NoWheelError.

    Several test workers may ask at the same time: one installs, the others wait.
    """
    target = folder() / f"xllamacpp-{GENERATIONS[build]}"
    lock = target.with_suffix(".lock")
    deadline = time.monotonic() + _PATIENCE_S
    while not target.is_dir():
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            if time.monotonic() > deadline:
                raise NoWheelError(f"{lock} has been there for {_PATIENCE_S:g} s: remove it") from None
            time.sleep(0.2)
            continue
        try:
            if not target.is_dir():
                _install(GENERATIONS[build], target)
        finally:
            lock.unlink(missing_ok=True)
    return target


def _install(version: str, target: Path) -> None:
    unfinished = target.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    words = ["install", "--quiet", "--no-deps", "--disable-pip-version-check", "--retries", "1"]
    command = [sys.executable, "-m", "pip", *words, "--target", str(unfinished), f"xllamacpp=={version}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise NoWheelError(f"pip did not install xllamacpp {version} within {_PATIENCE_S:g} s") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NoWheelError(f"pip did not install xllamacpp {version}: {last}")
    unfinished.rename(target)
