"""When the client, not the engine, is the limit: measured delays and the verdict."""

from __future__ import annotations

import asyncio
import time

import pytest

from agenttop.agents.meter import Meter, _p99
from agenttop.agents.reply import Reply


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def reply(sent: float, first: float, last: float, events: int, reads: int = 10, shared: int = 0) -> Reply:
    made = Reply()
    made.t_sent, made.t_first_token, made.t_last_token = sent, first, last
    made.events, made.merged, made.shared_reads = events, events - reads, shared
    return made


def test_p99_is_a_value_that_occurred() -> None:
    assert _p99([]) is None
    assert _p99([3.0]) == 3.0
    assert _p99([float(n) for n in range(1, 101)]) == 99.0
    assert _p99([float(n) for n in range(1, 201)]) == 198.0


def test_lateness_leaves_retries_and_connecting_out_of_the_verdict() -> None:
    clock = Clock()
    meter = Meter(clock)
    made = reply(sent=1.2, first=2.2, last=3.0, events=10)
    made.connect_s = 0.2
    meter.ended(made, t_queued=1.0, first_try=True)
    meter.ended(reply(9.0, 9.5, 9.9, 5), t_queued=1.0, first_try=False)
    clock.now = 1.0
    readings = meter.read([])
    assert readings.send_late_p99_s == pytest.approx(0.2)
    assert readings.client_limited is None


def test_late_requests_are_the_clients_fault() -> None:
    clock = Clock()
    meter = Meter(clock)
    for _ in range(10):
        meter.ended(reply(sent=1.2, first=2.2, last=3.0, events=10), t_queued=1.0, first_try=True)
    clock.now = 1.0
    assert "requests left 200.0 ms late (p99)" in (meter.read([]).client_limited or "")
    clock.now = 2.0
    assert meter.read([]).client_limited is None  # the next window is judged by itself


def test_a_busy_process_is_the_limit() -> None:
    meter = Meter(time.monotonic)
    end = time.monotonic() + 0.3
    while time.process_time() and time.monotonic() < end:
        pass
    readings = meter.read([])
    assert readings.cpu_fraction is not None
    if readings.cpu_fraction > 0.7:  # on a machine that lets us have a core
        assert "of a core" in (readings.client_limited or "")


def test_a_window_too_short_for_rates_has_none_and_stays_open() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.ended(reply(1.2, 2.2, 3.0, 10), t_queued=1.0, first_try=True)
    clock.now = 0.1
    assert meter.read([]).window_s is None
    clock.now = 1.0
    readings = meter.read([])
    assert readings.window_s == 1.0
    assert readings.send_late_p99_s is not None


def test_shared_reads_are_counted_once() -> None:
    clock = Clock()
    meter = Meter(clock)
    running = reply(0, 0.1, 0.9, 30, reads=20, shared=5)
    clock.now = 1.0
    assert meter.read([running]).shared_reads_fraction == 0.25
    running.events, running.merged = 40, 10
    clock.now = 2.0
    assert meter.read([running]).shared_reads_fraction == 0.0
    meter.ended(running, 0.0, True)
    clock.now = 3.0
    assert meter.read([]).shared_reads_fraction is None


async def test_a_blocked_loop_is_noticed() -> None:
    meter = Meter(time.monotonic)
    meter.run_ticker(True)
    await asyncio.sleep(0.1)
    time.sleep(0.3)  # what a slow callback does
    await asyncio.sleep(0.1)
    readings = meter.read([reply(0, 0.1, 0.9, 81)])
    meter.run_ticker(False)
    assert readings.loop_lag_p99_s is not None
    assert readings.loop_lag_p99_s > 0.25
    assert "loop was" in (readings.client_limited or "")
    assert "with 10.0 ms between tokens" in (readings.client_limited or "")


def test_a_stream_that_something_buffers_is_told() -> None:
    clock = Clock()
    meter = Meter(clock)
    meter.ended(reply(0, 0.1, 0.9, 200, reads=200), 0.0, True)
    clock.now = 1.0
    assert meter.read([]).client_limited is None
    for _ in range(3):
        meter.ended(reply(0, 0.1, 0.9, 200, reads=5, shared=5), 0.0, True)
    clock.now = 2.0
    told = meter.read([]).client_limited
    assert told == "tokens came 40 at a time with one time stamp: something in between buffers them"


def test_a_few_tokens_at_a_time_are_an_engines_way() -> None:
    """Speculative decoding sends the tokens of a step together."""
    clock = Clock()
    meter = Meter(clock)
    for _ in range(3):
        meter.ended(reply(0, 0.1, 0.9, 200, reads=40, shared=40), 0.0, True)
    clock.now = 1.0
    assert meter.read([]).client_limited is None


@pytest.mark.parametrize(("rate", "limited"), [(20.0, False), (200.0, True)])
def test_replies_over_in_no_time_are_mostly_the_way_there_and_back(rate: float, limited: bool) -> None:
    clock = Clock()
    meter = Meter(clock, rate)
    for _ in range(10):
        meter.ended(reply(sent=1.0, first=1.8, last=3.0, events=200, reads=20), t_queued=1.0, first_try=True)
    clock.now = 20.0
    verdict = meter.read([]).client_limited
    assert (verdict is not None) is limited
    if verdict:
        assert "a reply takes 10.0 ms of real time" in verdict
        assert "200 times as fast as life is too fast" in verdict
