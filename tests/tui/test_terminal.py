"""The console at a real terminal: what it survives there."""

import contextlib
import os
import subprocess
import sys
import threading

import pytest

from tests.record.build import small
from tests.waiting import until

pty = pytest.importorskip("pty", reason="no pseudo-terminals on this system")


class Pty:
    """agenttop in a pseudo-terminal; all that it draws is read, or it would wait."""

    def __init__(self, *arguments, **redirected):
        self.master, inner = pty.openpty()
        streams = {"stdin": inner, "stdout": inner, "stderr": inner, **redirected}
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
        command = [sys.executable, "-m", "agenttop", *arguments]
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, **streams)
        os.close(inner)
        self.drawn = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        try:
            while data := os.read(self.master, 65536):
                self.drawn += data
        except OSError:  # the other end is closed
            pass

    def types(self, raw):
        with contextlib.suppress(OSError):  # the program has ended
            os.write(self.master, raw)

    def close(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        os.close(self.master)


@pytest.fixture
def recording(tmp_path):
    return str(small(tmp_path / "a.agenttop", seconds=5, agents=1))


def test_bytes_that_are_no_utf_8_do_not_end_the_console(recording):
    terminal = Pty("replay", recording)
    try:
        until(lambda: b"REPLAY" in terminal.drawn)
        terminal.types(b"\x9b\xff\xe9caf\xe9")
        # A key that is read together with such bytes is lost with them.
        for _ in range(20):
            terminal.types(b"q")
            with contextlib.suppress(subprocess.TimeoutExpired):
                terminal.process.wait(1)
                break
        assert terminal.process.poll() == 0
        assert b"Traceback" not in terminal.drawn
    finally:
        terminal.close()


def test_a_console_that_nobody_would_see_is_plain_text_instead(recording, tmp_path):
    with (tmp_path / "errors").open("wb") as errors:
        terminal = Pty("replay", recording, "--at", "3", stderr=errors)
        try:
            assert terminal.process.wait(20) == 0
            assert b"agenttop" in terminal.drawn
        finally:
            terminal.close()
    assert (tmp_path / "errors").read_bytes() == b""
