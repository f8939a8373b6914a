"""Time stamps from the kernel: true whatever keeps the client from reading, and left out where they fail."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from typing import Any

import pytest

from agenttop.agents import sockets
from agenttop.agents.client import Client, Endpoint, Timeouts
from agenttop.agents.reply import Reply
from tests.agents import scripted as s

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux stamps what it receives")


async def stream(stamps: bool, busy_s: float = 0.0) -> tuple[Reply, list[float]]:
    """A reply of three tokens, and when each was sent; the client does not look for `busy_s` after each."""
    sent: list[float] = []

    async def script(_: s.Request, wire: s.Wire) -> None:
        await wire.send(s.HEAD, s.role())
        for text in "abc":
            await asyncio.sleep(0.02)
            sent.append(time.monotonic())
            wire.writer.write(s.token(text))  # goes out at once
            time.sleep(busy_s)  # the loop that shall be late is this one
        await asyncio.sleep(0.02)  # a read has one stamp, that of its last segment
        await wire.send(s.finish(), s.DONE, s.END)

    async with s.serve(script) as server:
        reply = Reply()
        own = Client(
            Endpoint(server.url), time.monotonic, Timeouts(queue_s=9, stall_s=9), kernel_stamps=lambda: stamps
        )
        await own.send(b"{}", reply)
        own.close()
    assert not reply.failed
    return reply, sent


def errors(reply: Reply, sent: list[float]) -> list[float]:
    assert reply.t_sent is not None
    return [reply.t_sent + after / 1e6 - moment for after, moment in zip(reply.arrivals, sent, strict=True)]


@linux
async def test_a_client_that_looks_late_still_knows_when_tokens_came() -> None:
    late, sent = await stream(stamps=False, busy_s=0.05)
    without = errors(late, sent)
    reply, sent = await stream(stamps=True, busy_s=0.05)
    with_stamps = errors(reply, sent)
    assert reply.kernel_stamped
    assert not late.kernel_stamped
    assert min(without) > 0.04
    assert max(with_stamps) < min(without) / 4
    assert min(with_stamps) > -1e-4


@linux
async def test_a_wall_clock_that_is_set_does_not_move_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's stamps are of the wall clock: a step of an hour between two tokens."""
    real = time.time_ns
    reads = 0

    def stepped() -> int:
        nonlocal reads
        reads += 1
        return real() + (3_600_000_000_000 if reads > 3 else 0)

    monkeypatch.setattr(sockets.time, "time_ns", stepped)
    reply, sent = await stream(stamps=True)
    assert all(-1e-3 < error < 0.5 for error in errors(reply, sent))
    assert list(reply.arrivals) == sorted(reply.arrivals)
    assert reads > 3


@linux
async def test_without_the_kernels_stamps_those_of_the_client_serve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sockets, "_SO_TIMESTAMPNS_NEW", 9999)
    reply, sent = await stream(stamps=True)
    assert not reply.kernel_stamped
    assert all(0 < error < 0.5 for error in errors(reply, sent))


async def test_systems_without_them_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(sockets.sys, "platform", "darwin")
    monkeypatch.setattr(sockets.SocketWire, "_readable_stamped", refuse)
    reply, _ = await stream(stamps=True)
    assert not reply.kernel_stamped


@linux
async def test_stamps_never_run_backwards_after_one_that_was_taken_here() -> None:
    """A read without a stamp of the kernel is stamped late; the next one's true time may lie before it."""
    from agenttop.agents.connection import Connection

    class Ends:
        def write(self, data: bytes) -> None:
            pass

        def pause(self, seconds: float) -> None:
            pass

        def abort(self) -> None:
            pass

    connection = Connection(lambda: 1.0)
    connection.connected(Ends())
    reply = Reply()
    connection.start(b"", reply, True, lambda: None)
    connection.received(s.HEAD + s.role(), 1.5)
    connection.received(s.token("a"), 2.0)
    connection.received(s.token("b"), 1.9, by_kernel=True)
    connection.received(s.token("c"), 2.1, by_kernel=True)
    assert list(reply.arrivals) == [1_000_000, 1_000_000, 1_100_000]
    assert reply.text == "abc"
    assert not reply.kernel_stamped


@linux
def test_the_first_bytes_of_a_process_are_stamped() -> None:
    """The kernel begins to stamp a moment after it was asked to: that moment is waited for."""
    sockets._start_stamping.cache_clear()
    sockets._start_stamping()
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as near:
        near.connect(server.getsockname())
        far, _ = server.accept()
        with far:
            far.setsockopt(socket.SOL_SOCKET, sockets._SO_TIMESTAMPNS_NEW, 1)
            near.send(b"x")
            assert far.recvmsg(9, 64)[1]


@linux
@pytest.mark.parametrize("rate", [1.0, 20.0, 100.0])
async def test_session_time_that_runs_faster_than_life(rate: float) -> None:
    async def script(_: s.Request, wire: s.Wire) -> None:
        await wire.send(s.HEAD, s.role(), s.token("a"))
        await asyncio.sleep(0.05)
        await wire.send(s.token("b"), s.finish(), s.DONE, s.END)

    async with s.serve(script) as server:
        reply = Reply()
        origin = time.monotonic()
        own = Client(
            Endpoint(server.url),
            lambda: (time.monotonic() - origin) * rate,
            Timeouts(queue_s=900, stall_s=900),
            rate=rate,
            kernel_stamps=lambda: True,
        )
        await own.send(b"{}", reply)
        own.close()
    assert reply.kernel_stamped
    first, second = reply.arrivals
    assert second - first > 0.04 * rate * 1e6
