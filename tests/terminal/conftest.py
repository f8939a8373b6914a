"""Terminals for tests: `terminal` is one, `new_terminal()` gives as many as a test needs.

Without tmux these tests are skipped, and say so. AGENTTOP_REQUIRE_TMUX=1 makes them fail instead.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.terminal.terminal import Terminal

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("terminal")


@pytest.fixture(scope="session")
def tmux_needed() -> None:
    if shutil.which("tmux"):
        return
    why = "needs a terminal to drive: install tmux"
    if os.environ.get("AGENTTOP_REQUIRE_TMUX") == "1":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@pytest.fixture
def new_terminal(tmux_needed: None, private_places: Path) -> Iterator[Callable[[], Terminal]]:
    """Closes every terminal when the test ends, and fails if something that was started in one lives on."""
    terminals: list[Terminal] = []

    def new() -> Terminal:
        terminals.append(Terminal(private_places))
        return terminals[-1]

    yield new
    for terminal in terminals:
        terminal.close()
    try:
        for terminal in terminals:
            terminal.until_nothing_runs()
    finally:
        for pid in (pid for each in terminals for pids in each.processes().values() for pid in pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def terminal(new_terminal: Callable[[], Terminal]) -> Terminal:
    return new_terminal()
