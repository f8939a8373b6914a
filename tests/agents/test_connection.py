"""What a connection makes of its bytes, wherever reads end and however the server frames them."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.agents.connection import Connection
from agenttop.agents.reply import Reply
from tests.agents import scripted as s


class Ends:
    """A wire that only takes note."""

    def __init__(self) -> None:
        self.pauses = 0
        self.aborted = False

    def write(self, data: bytes) -> None:
        pass

    def pause(self, seconds: float) -> None:
        self.pauses += 1

    def abort(self) -> None:
        self.aborted = True


def read(pieces: list[bytes]) -> tuple[Reply, Connection, Ends]:
    """A reply from these reads, one a second."""
    return asyncio.run(_read(pieces))


async def _read(pieces: list[bytes]) -> tuple[Reply, Connection, Ends]:
    wire, reply = Ends(), Reply()
    connection = Connection(lambda: 0.0)
    connection.connected(wire)
    connection.start(b"", reply, True, lambda: None)
    for number, piece in enumerate(pieces, start=1):
        if connection.open:
            connection.received(piece, float(number))
    return reply, connection, wire


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(at)]


def data_of(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode()


def plain(text: str) -> bytes:
    return s.chunked(data_of(text) + b"\n\n")


def upper(text: str) -> bytes:
    event = data_of(text) + b"\n\n"
    return b"%X\r\n%s\r\n" % (len(event), event)


def extended(text: str) -> bytes:
    event = data_of(text) + b"\n\n"
    return b"%x;name=value\r\n%s\r\n" % (len(event), event)


def padded(text: str) -> bytes:
    event = data_of(text) + b"\n\n"
    return b"000%x\r\n%s\r\n" % (len(event), event)


def crlf(text: str) -> bytes:
    return s.chunked(data_of(text) + b"\r\n\r\n")


def commented(text: str) -> bytes:
    return s.chunked(b": alive\n\n" + data_of(text) + b"\n\n")


def named(text: str) -> bytes:
    return s.chunked(data_of(text) + b"\nevent: token\n\n")


def halved(text: str) -> bytes:
    event = data_of(text) + b"\n\n"
    return s.chunked(event[:9]) + s.chunked(event[9:])


def two_lines(text: str) -> bytes:
    event = data_of(text).replace(b'{"choices": ', b'{"choices":\ndata: ', 1)
    return s.chunked(event + b"\n\n")


FRAMINGS = (plain, upper, extended, padded, crlf, commented, named, halved, two_lines)


@given(
    st.lists(st.tuples(st.sampled_from(FRAMINGS), st.text(min_size=1, max_size=8)), min_size=1, max_size=12),
    st.lists(st.integers(0, 5000), max_size=30),
)
@settings(max_examples=300, deadline=None)
def test_reads_may_end_anywhere(tokens: list[tuple[Any, str]], cuts: list[int]) -> None:
    body = b"".join(framing(text) for framing, text in tokens)
    reply, connection, _ = read(split(s.HEAD + s.role() + body + s.finish() + s.DONE + s.END, cuts))
    assert (reply.error, reply.done) == (None, True)
    assert reply.text == "".join(text for _, text in tokens)
    assert reply.events == len(tokens) == len(reply.arrivals)
    assert list(reply.arrivals) == sorted(reply.arrivals)
    assert reply.reads == len(set(reply.arrivals))  # one time stamp a read
    shared = sum(reply.arrivals.count(at) > 1 for at in set(reply.arrivals))
    assert reply.shared_reads == shared
    assert connection.open


@given(st.lists(st.booleans(), min_size=1, max_size=20))
@settings(max_examples=50, deadline=None)
def test_a_read_of_whole_chunks_is_as_good_as_one_chunk_at_a_time(joined: list[bool]) -> None:
    pieces = [s.HEAD + s.role()]
    for number, together in enumerate(joined):
        chunk = plain(f"{number} ")
        if together and len(pieces) > 1:
            pieces[-1] += chunk
        else:
            pieces.append(chunk)
    pieces.append(s.finish() + s.DONE + s.END)
    reply, _, _ = read(pieces)
    assert reply.text == "".join(f"{number} " for number in range(len(joined)))
    assert reply.reads == len(pieces) - 2


def test_an_error_among_whole_chunks_ends_the_reply_there() -> None:
    broken = s.event({"error": {"message": "out of memory", "code": 500}})
    reply, connection, wire = read([s.HEAD + s.role(), plain("a"), plain("b") + broken + plain("c")])
    assert (reply.text, reply.error_kind, reply.error) == ("ab", "stream-error", "out of memory")
    assert not connection.open
    assert wire.aborted


def test_a_size_that_lies_is_a_broken_reply() -> None:
    reply, _, _ = read([s.HEAD + s.role(), plain("a"), b"2\r\n" + plain("x"), s.DONE + s.END])
    assert (reply.text, reply.error_kind) == ("a", "protocol")


def test_the_reader_rests_from_a_flood_of_comments_only() -> None:
    flood = s.chunked(b": ping\n\n" * 1000)
    _, _, wire = read([s.HEAD + s.role(), *[flood] * 9])
    assert wire.pauses == 1  # 32 kB
    _, _, wire = read([s.HEAD + s.role(), *[flood, plain("x")] * 9])
    assert wire.pauses == 0
