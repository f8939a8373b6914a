"""Ticks at absolute times, on a clock of our own."""

from __future__ import annotations

import asyncio

import pytest

from agenttop.collect.schedule import Ticker


class Time:
    """A clock that a sleep moves, a little too far each time."""

    def __init__(self, late: float = 0.0) -> None:
        self.now = 100.0
        self.late = late

    def read(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds + self.late


async def test_late_wakings_do_not_add_up() -> None:
    time = Time(late=0.003)
    ticker = Ticker(1.0, now=time.read, sleep=time.sleep)
    woken = []
    for _ in range(50):
        await ticker.wait()
        woken.append(time.now - 100.0)
    assert woken == [pytest.approx(tick + 0.003) for tick in range(1, 51)]
    assert ticker.dropped == 0


async def test_work_that_fits_does_not_move_the_ticks() -> None:
    time = Time()
    ticker = Ticker(1.0, now=time.read, sleep=time.sleep)
    for tick in range(1, 6):
        await ticker.wait()
        assert time.now == pytest.approx(100.0 + tick)
        time.now += 0.9


async def test_ticks_missed_by_long_work_are_dropped_and_counted() -> None:
    time = Time()
    ticker = Ticker(1.0, now=time.read, sleep=time.sleep)
    assert await ticker.wait() == 0
    time.now += 3.4  # 104.4: the ticks at 102, 103 and 104 have gone by
    assert await ticker.wait() == 3
    assert time.now == pytest.approx(105.0)
    assert await ticker.wait() == 0
    assert time.now == pytest.approx(106.0)
    assert ticker.dropped == 3


async def test_a_sleep_that_returns_early_is_continued() -> None:
    time = Time()

    async def early(seconds: float) -> None:
        time.now += min(seconds, 0.3)

    ticker = Ticker(1.0, now=time.read, sleep=early)
    await ticker.wait()
    assert time.now == pytest.approx(101.0)


async def test_the_real_clock() -> None:
    ticker = Ticker(0.01)
    started = asyncio.get_running_loop().time()
    for _ in range(5):
        await ticker.wait()
    assert asyncio.get_running_loop().time() - started >= 0.045


@pytest.mark.parametrize("period", [0, -1])
def test_a_period_must_be_positive(period: float) -> None:
    with pytest.raises(ValueError, match="longer than 0"):
        Ticker(period)
