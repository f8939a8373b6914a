"""Where a simulated engine listens: a port of this machine that can be closed and opened again."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable

from agenttop.errors import AgenttopError, UsageError

LOOPBACK = {"127.0.0.1": socket.AF_INET, "localhost": socket.AF_INET, "::1": socket.AF_INET6}
_BACKLOG = 1024


class Door:
    """A bound port. While it is shut, connections are refused; nobody else gets the port meanwhile."""

    def __init__(self, address: str, port: int, visitor: Callable[[], asyncio.Protocol]) -> None:
        """Bind; 0 is any free port. Raises UsageError for an address that is not of this machine alone,
        AgenttopError for a port that cannot be had."""
        if address not in LOOPBACK:
            raise UsageError(
                f"a simulated engine serves this machine only, not {address}",
                "leave --bind out, or 127.0.0.1",
            )
        self._family = LOOPBACK[address]
        self.address = "127.0.0.1" if address == "localhost" else address
        self._visitor = visitor
        self._server: asyncio.Server | None = None
        try:
            self._socket: socket.socket | None = self._bind(port)
        except (OSError, OverflowError) as error:
            reason = error.strerror if isinstance(error, OSError) else "there is no such port"
            raise AgenttopError(f"cannot listen on {self.address}:{port}: {reason}") from error
        self.port = int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        """Where it is."""
        host = f"[{self.address}]" if self._family == socket.AF_INET6 else self.address
        return f"http://{host}:{self.port}"

    @property
    def is_open(self) -> bool:
        """Whether connections are accepted."""
        return self._server is not None

    async def open(self) -> None:
        """Accept connections. Raises AgenttopError when somebody else has begun to listen there meanwhile."""
        if self._server is None:
            loop = asyncio.get_running_loop()
            bound = self._socket or await self._rebind()
            try:
                bound.listen(_BACKLOG)  # here, because uvloop does not tell when it fails
                self._server = await loop.create_server(self._visitor, sock=bound, backlog=_BACKLOG)
            except OSError as error:
                raise AgenttopError(self._taken) from error
            self._socket = None  # the server owns it now

    @property
    def is_kept(self) -> bool:
        """Whether the port is ours: always, but for a moment after `slam`."""
        return self._server is not None or self._socket is not None

    def slam(self) -> None:
        """Refuse connections from this moment on; `shut` must follow, to keep the port."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def shut(self) -> None:
        """Refuse connections; those that stand are not touched."""
        self.slam()
        if self._socket is None:
            self._socket = await self._rebind()

    def close(self) -> None:
        """For good."""
        if self._server is not None:
            self._server.close()
        if self._socket is not None:
            self._socket.close()

    def _bind(self, port: int) -> socket.socket:
        bound = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            with contextlib.suppress(OSError):  # Windows gives the flag another meaning and does without
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.setblocking(False)
            bound.bind((self.address, port))
        except BaseException:
            bound.close()
            raise
        return bound

    async def _rebind(self) -> socket.socket:
        """The same port again; the loop may take a moment to let go of it."""
        for _ in range(100):
            try:
                return self._bind(self.port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
            await asyncio.sleep(0.01)
        raise AgenttopError(self._taken)

    @property
    def _taken(self) -> str:
        return f"cannot listen on {self.address}:{self.port}: another program does now"
