"""Everything that differs between operating systems stands here, and nowhere else.

POSIX-only calls are guarded by `sys.platform`; each has a Windows way beside it or says that it has none.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agenttop.errors import UsageError

if TYPE_CHECKING:
    import asyncio

    Guest = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]

WINDOWS = sys.platform == "win32"


def detached() -> dict[str, Any]:
    """Arguments for `subprocess.Popen` that put a child out of reach of the terminal's signals.

    POSIX: its own session, so that a hang-up or Ctrl-C of the terminal does not reach it.
    """
    if sys.platform == "win32":
        flags = subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW
        return {"creationflags": flags}
    return {"start_new_session": True}


def ignore_hangup() -> None:
    """Live on when the terminal or the ssh connection goes away. Windows has no such signal."""
    if sys.platform != "win32":
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def device_request(handle: int, request: int, buffer: bytearray) -> None:
    """Ask a driver by ioctl; what it answers is in `buffer` afterwards. Raises OSError."""
    if sys.platform == "win32":
        raise OSError("no ioctl on Windows")
    import fcntl

    fcntl.ioctl(handle, request, buffer, True)


def stop_signals() -> list[signal.Signals]:
    """Signals that ask a process to end in order."""
    wanted = [signal.SIGINT, signal.SIGTERM]
    if sys.platform == "win32":
        wanted.append(signal.SIGBREAK)
    return wanted


SOCKET_PATH_BYTES = 100
"""Linux allows 107 bytes in the path of a Unix socket, macOS 103."""


def unix_socket_fits(path: Path) -> bool:
    """Whether this system has Unix sockets, and this path is short enough for one."""
    return sys.platform != "win32" and len(str(path).encode()) <= SOCKET_PATH_BYTES


async def listen_on_unix_socket(path: Path, serve: Guest, limit: int) -> asyncio.Server:
    """Listen at a path; its folder says who may come. Raises OSError, also where there is no such thing."""
    if sys.platform == "win32":
        raise OSError("no Unix sockets on Windows")
    import asyncio

    return await asyncio.start_unix_server(serve, str(path), limit=limit)


def connect_to_unix_socket(path: str, timeout_s: float | None = None) -> socket.socket:
    """A connection to what listens at a path, with a time limit for each step. Raises OSError."""
    if sys.platform == "win32":
        raise OSError("no Unix sockets on Windows")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(timeout_s)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def at_home(path: str | Path) -> Path:
    """A path whose `~` or `~NAME` is a folder. Raises UsageError when that user has none."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise UsageError(f"{path}: there is no home folder for {Path(path).parts[0]}") from None


def names_of_this_host() -> frozenset[str]:
    """Addresses and names, in lower case, by which this host can be reached from itself. Never raises."""
    import psutil

    names = {"localhost", "127.0.0.1", "::1"}
    with contextlib.suppress(OSError, psutil.Error):
        for addresses in psutil.net_if_addrs().values():
            names |= {address.address.partition("%")[0] for address in addresses}
    with contextlib.suppress(OSError):
        names.add(socket.gethostname())
    return frozenset(name.lower() for name in names)


def private_directory(path: Path) -> Path:
    """Create a directory only this user may enter. Windows: the profile folder is private already."""
    path.mkdir(parents=True, exist_ok=True)
    if not WINDOWS:
        with contextlib.suppress(OSError):
            path.chmod(0o700)
    return path


def private_file(path: Path, text: str) -> None:
    """Write a file only this user may read, in one step: readers see the old or the new text."""
    draft = path.with_name(path.name + f".{os.getpid()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    draft.replace(path)


def pid_alive(pid: int) -> bool:
    """Whether a process with this number runs (it may be another one by now); a zombie does not."""
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.AccessDenied:
        return True
    except psutil.Error:
        return False


def give_way() -> None:
    """Run at a lower priority than the processes that measure. Windows: left as it is."""
    if sys.platform != "win32":
        with contextlib.suppress(OSError):
            os.nice(10)


def exit_with_parent(pipe: int = 0, before: Callable[[], None] | None = None) -> None:
    """End this process when the pipe at file descriptor `pipe` is closed by whoever started it.

    The one way to follow a parent's death that works on every system, `kill -9` included: the parent
    holds the other end and the kernel closes it. `before` runs first, in the watching thread.
    """

    def watch() -> None:
        try:
            while os.read(pipe, 4096):
                pass
        except OSError:
            pass
        if before is not None:
            before()
        os._exit(0)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def clean_descriptors() -> int:
    """Keep stray output away from the frame stream.

    Returns a new descriptor for the original stdout; descriptor 1 then leads to stderr, so that a C
    library that prints cannot tear a line of the stream.
    """
    stream = os.dup(1)
    os.dup2(2, 1)
    return stream


def child_environment() -> dict[str, str]:
    """The environment for `python -m agenttop...` children: UTF-8, unbuffered, no .pyc surprises."""
    return {**os.environ, "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"}


def run_loop(main: Any) -> Any:
    """Run a coroutine on uvloop where there is one, else on asyncio's own loop.

    uvloop is worth 1.4 to 2.4 times the CPU and 2 to 6 times the p99 lateness on the streaming path.
    """
    import asyncio

    if not WINDOWS:
        try:
            import uvloop

            return uvloop.run(main)
        except ImportError:
            pass
    return asyncio.run(main)


def open_files_limit() -> int | None:
    """How many files and sockets this process may hold open; None where there is no such limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def locked_memory_limit() -> int | None:
    """How many bytes a process of this user may hold in RAM; None where there is no such limit."""
    if sys.platform != "linux":
        return None
    import resource

    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def clock_is_synchronised() -> bool | None:
    """Whether the kernel says that somebody keeps the wall clock right; None where it does not tell.

    Asking needs no rights: `adjtimex` with nothing to change.
    """
    if sys.platform != "linux":
        return None
    import ctypes

    time_error, size_of_timex = 5, 208
    try:
        adjtimex = ctypes.CDLL(None, use_errno=True).adjtimex
        state = int(adjtimex(ctypes.create_string_buffer(2 * size_of_timex)))
    except (OSError, AttributeError):
        return None
    return state != time_error if state >= 0 else None


def is_root() -> bool:
    """Whether this process may look at everybody's processes."""
    return sys.platform != "win32" and os.geteuid() == 0
