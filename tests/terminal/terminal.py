"""The real program in a real terminal, driven through tmux as a person drives it.

    terminal.start("demo", size=(120, 40))   -> agenttop in a new terminal; one terminal runs one program
    terminal.keys("a", "Enter", "C-c")       -> keys, by tmux's names
    terminal.types("kettle on")              -> a text, letter by letter
    terminal.screen()                        -> what is shown now, as text
    terminal.until("REC")                    -> the screen once it holds the text, or satisfies a predicate
    terminal.resize(80, 24)
    terminal.exit_code()                     -> waits for the program's end
    terminal.processes()                     -> {"console": [pid], "node": [pid], "engine": [pid], ...}
    terminal.hang_up()                       -> the terminal goes away, as an ssh connection does

Every terminal has a tmux server of its own, and whatever is started in it carries a mark in its environment.
So `processes` finds all of them however they have detached themselves, and no others.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.waiting import until

PROGRAM = (sys.executable, "-m", "agenttop")

PATIENCE_S = 60.0
"""For what a busy machine may take its time with; a test that holds does not wait so long."""

LOOK_S = 0.1
"""Between two looks at a screen, each of which is a process, or at all processes of the host."""

ROLES = {
    "trap : INT": "shell",
    "agenttop.agents.driver": "driver",
    "agenttop.demo.server": "engine",
    "agenttop node": "node",
}
"""What stands in a command line, and what the process is; else it is a console."""

NAMED_KEYS = re.compile(r"Space|Enter|Escape|Home|End|Left|Right|Up|Down|BSpace|[CMS]-.+")


class Terminal:
    """One terminal with one program in it."""

    def __init__(self, folder: Path) -> None:
        self._mark = f"mark-{uuid.uuid4().hex}"
        self._folder = folder
        self._socket = folder / f"{self._mark[-8:]}.tmux"
        self._code = folder / f"{self._mark[-8:]}.code"
        self._server: int | None = None
        self._open = False

    def start(
        self, *arguments: str, size: tuple[int, int] = (120, 40), shell: str = "", **environment: str
    ) -> Terminal:
        """Run `agenttop ARGUMENTS` in a terminal of this size. `shell` is appended, e.g. `> file`."""
        settings = {"TERM": "xterm-256color", **environment}
        words = ["env", *(f"{name}={value}" for name, value in settings.items()), *PROGRAM, *arguments]
        # tmux loses exit codes now and then, so the shell keeps it. The trap has it live through Ctrl-C.
        script = f"trap : INT; {shlex.join(words)} {shell}; echo $? > {shlex.quote(str(self._code))}"
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("TMUX")}
        subprocess.run(
            [*self._tmux(), "-f", os.devnull, "start-server", ";",
             "set-option", "-g", "remain-on-exit", "on", ";",
             "set-option", "-g", "history-limit", "2000", ";",
             "set-option", "-g", "escape-time", "0", ";",
             "new-session", "-d", "-x", str(size[0]), "-y", str(size[1]), "-c", str(self._folder),
             "sh", "-c", script],
            check=True,
            env={**inherited, "AGENTTOP_TEST_MARK": self._mark},
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        self._open = True
        self._server = int(self._ask("display-message", "-p", "#{pid}"))
        return self

    # As the person in front of it

    def keys(self, *keys: str) -> None:
        """Press keys. Escape has to be the last one of a call: what follows it at once is another key."""
        for key in keys:
            self._ask("send-keys", *(() if NAMED_KEYS.fullmatch(key) else ("-l",)), "--", key)

    def types(self, text: str) -> None:
        """Type a text."""
        self._ask("send-keys", "-l", "--", text)

    def screen(self, *, escapes: bool = False) -> str:
        """What is shown now; with `escapes` the colours too. Trailing blanks of a line are left out."""
        return self._ask("capture-pane", "-p", *(("-e",) if escapes else ()))

    def printed(self) -> str:
        """All lines, also those that have moved out of the screen: what a program leaves behind."""
        return self._ask("capture-pane", "-p", "-J", "-S", "-").strip()

    def until(self, seen: str | Callable[[str], object], timeout_s: float = PATIENCE_S) -> str:
        """Wait until the screen holds a text or satisfies a predicate; returns that screen."""
        deadline = time.monotonic() + timeout_s
        while True:
            screen = self.screen()
            if seen in screen if isinstance(seen, str) else seen(screen):
                return screen
            what = f"waited {timeout_s:g} s in vain for {seen}; it shows:\n{screen}"
            assert time.monotonic() < deadline, what
            time.sleep(LOOK_S)

    def resize(self, width: int, height: int) -> None:
        """Make the window another size."""
        self._ask("resize-window", "-x", str(width), "-y", str(height))

    @property
    def is_taken_over(self) -> bool:
        """Whether a program has the whole screen, or the mouse."""
        return "1" in self._ask("display-message", "-p", "#{alternate_on}#{mouse_any_flag}")

    def exit_code(self, timeout_s: float = PATIENCE_S) -> int:
        """The program's exit code, once it has ended and all it printed is on the screen."""

        def ended() -> bool:
            return self._code.exists() and self._ask("display-message", "-p", "#{pane_dead}").strip() == "1"

        try:
            until(ended, timeout_s, "the end of the program")
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen:\n{self.screen()}") from None
        return int(self._code.read_text())

    def hang_up(self) -> None:
        """The terminal is gone: the kernel sends SIGHUP to what runs in it."""
        self.close()

    def close(self) -> None:
        """End this terminal's tmux server, and nothing else."""
        if self._open:
            self._open = False
            subprocess.run([*self._tmux(), "kill-server"], capture_output=True, check=False, timeout=60)

    # As the tester behind it

    def processes(self) -> dict[str, list[int]]:
        """Everything that was started in here and lives, by what it is."""
        found: dict[str, list[int]] = {}
        for process in psutil.process_iter():
            try:
                if process.pid == self._server or process.status() == psutil.STATUS_ZOMBIE:
                    continue
                if process.environ().get("AGENTTOP_TEST_MARK") == self._mark:
                    line = " ".join(process.cmdline())
                    role = next((role for part, role in ROLES.items() if part in line), "console")
                    found.setdefault(role, []).append(process.pid)
            except psutil.Error:
                continue
        return found

    def until_runs(self, *roles: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until exactly these are running, of all that was started in here."""
        deadline = time.monotonic() + timeout_s
        while set(running := self.processes()) != set(roles):
            what = f"waited {timeout_s:g} s in vain for {roles or 'the end of all processes'}: {running}"
            assert time.monotonic() < deadline, what
            time.sleep(LOOK_S)

    def until_nothing_runs(self, timeout_s: float = 20.0) -> None:
        """Wait until all that was started in here has ended."""
        self.until_runs(timeout_s=timeout_s)

    def _tmux(self) -> list[str]:
        return ["tmux", "-u", "-S", str(self._socket)]

    def _ask(self, *command: str) -> str:
        done = subprocess.run([*self._tmux(), *command], capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, f"tmux {shlex.join(command)}: {done.stderr.decode()}"
        return done.stdout.decode()
