"""The bytes below a connection: an own reader on a plain socket, or a transport of the event loop.

Plain TCP is read here rather than by a transport for two reasons. A request is sent in the call that sends
it and not at the end of the loop's turn, so `t_sent` is true. And on Linux the kernel can say when bytes
arrived (SO_TIMESTAMPNS, read with `recvmsg`), whatever kept this process from looking. TLS, and event loops
that cannot watch a socket, take a transport.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
import struct
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, Protocol, cast

READ_BYTES = 65536

_SO_TIMESTAMPNS_NEW = 64
"""Linux 5.1 and later, the same number on every architecture we know; a pair of 64-bit integers."""
_STAMP = struct.Struct("qq")
_ANCILLARY_BYTES = 64

CLOCK_JUMP_S = 20e-6
"""The wall clock and ours, read right after each other, differ by the same every time. More than this: one
of the two reads was held up, or the wall clock was set."""

OLDEST_S = 60.0
"""A stamp older than this is none."""

START_S = 0.02
"""The kernel stamps nothing until 0.4 to 1.3 ms (measured on 6.18) after the first socket of the host has
asked for it; so long at most is that waited for, once a process."""


class Ears(Protocol):
    """Who is told."""

    def received(self, data: bytes, now: float, by_kernel: bool = False) -> None:
        """Bytes, and the session time of their arrival."""
        ...

    def lost(self, error: Exception | None) -> None:
        """The connection is closed, by whichever side."""
        ...


class Wire(Protocol):
    """What a connection needs of it."""

    def write(self, data: bytes) -> None:
        """Send it."""
        ...

    def pause(self, seconds: float) -> None:
        """Read nothing for so long (real time)."""
        ...

    def abort(self) -> None:
        """Close at once, and report nothing more."""
        ...


class Inbox:
    """What has been read and not been looked at: one for all sockets of a driver.

    All sockets that can be read are read first, and stamped; what they held is taken apart after that, still
    in the same turn of the loop. So no stamp waits for another agent's tokens to be parsed, and the code of
    the kernel and ours push each other out of the processor's caches once a turn and not once a token.
    """

    __slots__ = ("_items", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._items: list[tuple[Ears, bytes | None, float, bool, Exception | None]] = []

    def put(self, ears: Ears, data: bytes, now: float, by_kernel: bool) -> None:
        """Bytes for `ears`."""
        if not self._items:
            self._loop.call_soon(self._deliver)
        self._items.append((ears, data, now, by_kernel, None))

    def lost(self, ears: Ears, error: Exception | None) -> None:
        """The end of a connection, after all that came on it."""
        if not self._items:
            self._loop.call_soon(self._deliver)
        self._items.append((ears, None, 0.0, False, error))

    def _deliver(self) -> None:
        items, self._items = self._items, []
        for ears, data, now, by_kernel, error in items:
            if data is not None:
                ears.received(data, now, by_kernel)
            else:
                ears.lost(error)


_inboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Inbox] = weakref.WeakKeyDictionary()


def _inbox(loop: asyncio.AbstractEventLoop) -> Inbox:
    found = _inboxes.get(loop)
    if found is None:
        found = _inboxes[loop] = Inbox(loop)
    return found


def can_stamp() -> bool:
    """Whether this system may stamp what it receives."""
    return sys.platform == "linux"


@functools.cache
def _start_stamping() -> None:
    """Have the kernel stamp from here on: without this, what comes first on an idle host has no stamp.

    Blocks for about half a millisecond, at the first connection of a process.
    """
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        asks.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS_NEW, 1)
        asks.detach()  # it stays open as long as the process: the kernel stops with the last one that asks
        with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as near:
            near.connect(server.getsockname())
            far, _ = server.accept()
            with far:
                far.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS_NEW, 1)
                deadline = time.monotonic() + START_S
                stamped = False
                while not stamped and time.monotonic() < deadline:
                    near.send(b".")
                    stamped = bool(far.recvmsg(1, _ANCILLARY_BYTES)[1])
                    time.sleep(0.0002)


async def open_wire(
    ears: Ears,
    address: str,
    port: int,
    *,
    now: Callable[[], float],
    rate: float,
    kernel_stamps: bool,
    tls: ssl.SSLContext | None,
    server_name: str | None,
) -> Wire:
    """Connect. Raises OSError."""
    loop = asyncio.get_running_loop()
    if tls is None and _watches_sockets(loop):
        if kernel_stamps and can_stamp():
            _start_stamping()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(sock, (address, port))
            return SocketWire(sock, loop, ears, now, rate, kernel_stamps)
        except BaseException:
            sock.close()
            raise
    _, protocol = await loop.create_connection(
        lambda: TransportWire(ears, now), address, port, ssl=tls, server_hostname=server_name
    )
    return protocol


def _watches_sockets(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the loop can tell that a socket is readable: all can but that of Windows for pipes."""
    return sys.platform != "win32" or "Proactor" not in type(loop).__name__


class SocketWire:
    """A plain TCP socket, read when the loop says that it can be."""

    __slots__ = (
        "_ears",
        "_fd",
        "_inbox",
        "_loop",
        "_now",
        "_offset",
        "_open",
        "_paused",
        "_rate",
        "_reader",
        "_recv",
        "_recvmsg",
        "_resume",
        "_sock",
        "_unsent",
    )

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        ears: Ears,
        now: Callable[[], float],
        rate: float,
        kernel_stamps: bool,
    ) -> None:
        self._sock, self._loop, self._ears = sock, loop, ears
        self._inbox = _inbox(loop)
        self._now, self._rate = now, rate
        self._fd = sock.fileno()
        self._recv, self._recvmsg = sock.recv, getattr(sock, "recvmsg", None)
        self._open = True
        self._paused = False
        self._resume: asyncio.TimerHandle | None = None
        self._unsent = b""
        self._offset: float | None = None
        """The wall clock minus ours, in real seconds."""
        self._reader = self._readable
        if kernel_stamps and can_stamp() and self._recvmsg is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS_NEW, 1)
                self._reader = self._readable_stamped
        loop.add_reader(self._fd, self._reader)

    def write(self, data: bytes) -> None:
        """Send as much as the socket takes at once, and the rest when it can take more."""
        if not self._open:
            return
        if self._unsent:
            self._unsent += data
            return
        try:
            sent = self._sock.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            return  # reading will find out
        if sent < len(data):
            self._unsent = data[sent:]
            self._loop.add_writer(self._fd, self._writable)

    def pause(self, seconds: float) -> None:
        """Leave what arrives in the kernel's buffer for a while."""
        if self._open and not self._paused:
            self._paused = True
            self._loop.remove_reader(self._fd)
            self._resume = self._loop.call_later(seconds, self._go_on)

    def abort(self) -> None:
        """Close at once, and report nothing more."""
        if self._open:
            self._close()

    def _go_on(self) -> None:
        self._paused = False
        if self._open:
            self._loop.add_reader(self._fd, self._reader)

    def _close(self) -> None:
        self._open = False
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._sock.close()

    def _writable(self) -> None:
        try:
            sent = self._sock.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            sent = len(self._unsent)
        self._unsent = self._unsent[sent:]
        if not self._unsent:
            self._loop.remove_writer(self._fd)

    def _readable(self) -> None:
        now = self._now()
        try:
            data = self._recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if data:
            self._inbox.put(self._ears, data, now, False)
        else:
            self._lose(None)

    def _readable_stamped(self) -> None:
        assert self._recvmsg is not None
        try:
            data, ancillary, _, _ = self._recvmsg(READ_BYTES, _ANCILLARY_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
            return
        if not data:
            self._lose(None)
            return
        wall, now = time.time_ns(), self._now()
        offset = wall * 1e-9 - now / self._rate
        if self._offset is None or abs(offset - self._offset) > CLOCK_JUMP_S:
            wall, now, steady = self._look_again(offset)
            if not steady:
                self._inbox.put(self._ears, data, now, False)
                return
        if ancillary and len(ancillary[0][2]) == _STAMP.size:
            seconds, nanoseconds = _STAMP.unpack(ancillary[0][2])
            age = (wall - seconds * 1_000_000_000 - nanoseconds) * 1e-9
            if 0.0 <= age < OLDEST_S:
                self._inbox.put(self._ears, data, now - age * self._rate, True)
                return
        self._inbox.put(self._ears, data, now, False)

    def _look_again(self, offset: float) -> tuple[int, float, bool]:
        """Both clocks once more, and whether the wall clock goes on as before.

        After it was set, a stamp may be from before that: this read does without, the next one need not.
        """
        before, self._offset = self._offset, offset
        wall, now = time.time_ns(), self._now()
        self._offset = wall * 1e-9 - now / self._rate
        steady = before is None or abs(self._offset - before) <= CLOCK_JUMP_S
        return wall, now, steady

    def _lose(self, error: Exception | None) -> None:
        self._close()
        self._inbox.lost(self._ears, error)


class TransportWire(asyncio.Protocol):
    """A transport of the event loop: for TLS."""

    def __init__(self, ears: Ears, now: Callable[[], float]) -> None:
        self._ears: Ears | None = ears
        self._now = now
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Stamp first."""
        now = self._now()
        if self._ears is not None:
            self._ears.received(data, now)

    def connection_lost(self, exc: Exception | None) -> None:
        """Closed, by whichever side."""
        if self._ears is not None:
            self._ears.lost(exc)

    def write(self, data: bytes) -> None:
        """Send it."""
        assert self._transport is not None
        self._transport.write(data)

    def pause(self, seconds: float) -> None:
        """Read nothing for a while."""
        transport: Any = self._transport
        if transport is not None and not transport.is_closing():
            transport.pause_reading()
            asyncio.get_running_loop().call_later(seconds, self._go_on)

    def abort(self) -> None:
        """Close at once, and report nothing more."""
        self._ears = None
        if self._transport is not None:
            self._transport.abort()

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
