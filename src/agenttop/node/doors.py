"""The door a running session keeps open for `agenttop attach`: a private socket on this host.

A Unix socket in a directory only the user may enter; where there is none (Windows, or a path too long for
one), a port on 127.0.0.1. Either way a newcomer says the token of the session's private file first.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable
from pathlib import Path

import msgspec

from agenttop.model.door import Door, Knock
from agenttop.model.frames import Session
from agenttop.oslayer import listen_on_unix_socket, private_file, unix_socket_fits
from agenttop.wire.codec import MAX_LINE_BYTES

UNREAD_BYTES = 32 * 1024 * 1024
"""A console that has stopped reading is let go beyond this."""

KNOCK_S = 5.0


class SocketListener:
    """One attached console."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    def offer(self, lines: bytes) -> None:
        """Pass lines on; a console that does not read is disconnected, the session goes on."""
        transport = self._writer.transport
        if transport.is_closing():
            return
        if transport.get_write_buffer_size() > UNREAD_BYTES:
            transport.abort()
            return
        self._writer.write(lines)


class Doorman:
    """Opens the door, lets consoles in, and keeps the session's file true."""

    def __init__(
        self,
        folder: Path,
        session: Session,
        *,
        enter: Callable[[SocketListener], None],
        leave: Callable[[SocketListener], None],
        line: Callable[[bytes], None],
        unix: bool | None = None,
    ) -> None:
        self._file = folder / f"{session.session}.json"
        self._socket = folder / f"{session.session}.sock"
        self._session = session
        self._enter, self._leave, self._line = enter, leave, line
        self._unix = unix_socket_fits(self._socket) if unix is None else unix
        self._server: asyncio.Server | None = None
        self._guests: set[asyncio.Task[None]] = set()
        self.door = Door(
            session=session.session,
            pid=session.node_pid or 0,
            host=session.host,
            started_unix=session.started_unix,
            token=secrets.token_urlsafe(24),
            recording=session.recording,
            demo=session.demo,
            simulated=session.simulated,
            speedup=session.speedup,
        )

    async def open(self) -> None:
        """Start to listen and write the session's file. Raises OSError; then there is no door."""
        if self._unix:
            self._socket.unlink(missing_ok=True)
            self._server = await listen_on_unix_socket(self._socket, self._guest, MAX_LINE_BYTES)
            self.update(unix=str(self._socket))
        else:
            self._server = await asyncio.start_server(self._guest, "127.0.0.1", 0, limit=MAX_LINE_BYTES)
            self.update(port=self._server.sockets[0].getsockname()[1])

    def update(self, **changes: object) -> None:
        """Change fields of the session's file; writes only when something did change."""
        if self._server is None:
            return
        door = msgspec.structs.replace(self.door, **changes)
        if door != self.door or not self._file.exists():
            self.door = door
            with contextlib.suppress(OSError):
                private_file(self._file, msgspec.json.encode(door).decode())

    async def close(self) -> None:
        """Take the session's file away, then let everybody go."""
        if self._server is None:
            return
        self._file.unlink(missing_ok=True)
        self._server.close()
        for guest in list(self._guests):
            guest.cancel()
        await asyncio.gather(*self._guests, return_exceptions=True)
        self._socket.unlink(missing_ok=True)

    async def _guest(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._guests.add(task)
        try:
            if await self._knows_token(reader):
                await self._serve(reader, writer)
        except (OSError, asyncio.CancelledError, ValueError):
            pass
        finally:
            self._guests.discard(task)
            with contextlib.suppress(OSError, RuntimeError):
                writer.close()

    async def _knows_token(self, reader: asyncio.StreamReader) -> bool:
        try:
            line = await asyncio.wait_for(reader.readline(), KNOCK_S)
            knock = msgspec.json.decode(line, type=Knock)
        except (TimeoutError, msgspec.DecodeError, UnicodeDecodeError):
            return False
        return hmac.compare_digest(knock.token.encode(), self.door.token.encode())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        listener = SocketListener(writer)
        self._enter(listener)
        try:
            while line := await reader.readline():
                self._line(line)
        finally:
            self._leave(listener)
            # What was written last (a Bye) still has to reach the console.
            with contextlib.suppress(OSError, TimeoutError):
                await asyncio.wait_for(writer.drain(), 1.0)
