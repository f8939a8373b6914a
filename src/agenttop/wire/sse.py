"""Server-sent events (WHATWG HTML, section 9.2) from bytes in pieces of any size.

Only what a token stream needs: the `data` of each event. Comments (`: keep-alive`) are counted,
`event:`, `id:` and `retry:` lines are read over. Some older llama.cpp builds send failures in a field
called `error`; its value is handed out like data, for the decoder above to recognise.
"""

from __future__ import annotations

MAX_EVENT_BYTES = 1024 * 1024
"""A single event larger than this comes from no engine: it is refused rather than collected."""


_CR = 13
"""As a number: looking for a byte is quicker that way than for a string of one byte."""


class SseError(ValueError):
    """The stream is not one of server-sent events we are willing to read; the message says why."""


class SseParser:
    """Feed it what the socket delivers; it returns the data of the events completed by it.

    Events may be split over reads and several may share one. Line ends may be `\\n`, `\\r\\n` or `\\r`.
    Work per byte is constant, however small the pieces are.
    """

    __slots__ = ("_after_cr", "_first", "_limit", "_searched", "_tail", "between", "comments")

    def __init__(self, limit: int = MAX_EVENT_BYTES) -> None:
        self._limit = limit
        self._tail = bytearray()
        self._searched = 0
        self._after_cr = False
        self._first = True
        self.between = False
        """Nothing is left over from the last read."""
        self.comments = 0
        """Comment lines seen: an engine's keep-alives."""

    def feed(self, data: bytes) -> list[bytes]:
        """Data of each event that `data` completes, in order. Raises SseError beyond the size limit."""
        # One whole event of one line: nearly every read of a token stream.
        if (
            self.between
            and data.find(b"\n") == len(data) - 2
            and data.startswith(b"data: ")
            and data.endswith(b"\n")
            and _CR not in data
        ):
            return [data[6:-2]]
        return self._feed(data)

    def _feed(self, data: bytes) -> list[bytes]:
        if self._first:
            if not data:
                return []
            self._first = False
            data = data.removeprefix(b"\xef\xbb\xbf")
        if self._after_cr or _CR in data:
            data = self._plain_line_ends(data)
        if not self._tail:
            head, end, rest = data.rpartition(b"\n\n")
            if not end:
                self._keep(data)
                return []
            if rest:
                self._keep(rest)
            self.between = not rest and not self._after_cr
            return self._events(head)
        self._tail += data
        end_at = self._tail.rfind(b"\n\n", max(0, self._searched - 1))
        if end_at < 0:
            self._check_size()
            return []
        head = bytes(self._tail[:end_at])
        del self._tail[: end_at + 2]
        self._check_size()
        self.between = not self._tail and not self._after_cr
        return self._events(head)

    def finish(self) -> list[bytes]:
        """The stream has ended: an event whose lines are whole counts although its blank line is missing."""
        tail = bytes(self._tail)
        self._tail.clear()
        self._searched = 0
        return self._events(tail) if tail.endswith(b"\n") else []

    def _keep(self, data: bytes) -> None:
        self.between = False
        self._tail += data
        self._check_size()

    def _check_size(self) -> None:
        self._searched = len(self._tail)
        if self._searched > self._limit:
            self._tail.clear()
            raise SseError(f"an event is larger than {self._limit} bytes")

    def _plain_line_ends(self, data: bytes) -> bytes:
        """Every line end as one newline; a pair may be split over two reads."""
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
            if not data:
                self._after_cr = False
                return data
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _events(self, head: bytes) -> list[bytes]:
        found: list[bytes] = []
        for block in head.split(b"\n\n"):
            # Nearly every event of a token stream is one line of data.
            if block.startswith(b"data: ") and b"\n" not in block:
                found.append(block[6:])
            else:
                payload = self._lines(block)
                if payload is not None:
                    found.append(payload)
        return found

    def _lines(self, block: bytes) -> bytes | None:
        data: list[bytes] = []
        for line in block.split(b"\n"):
            if not line:
                continue
            if line.startswith(b":"):
                self.comments += 1
                continue
            name, _, value = line.partition(b":")
            if name in (b"data", b"error"):
                data.append(value.removeprefix(b" "))
        return b"\n".join(data) if data else None
