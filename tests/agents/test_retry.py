"""Waits grow, have a limit, and depend on what went wrong."""

from __future__ import annotations

from agenttop.agents.reply import Reply
from agenttop.agents.retry import DOWN_FOR_S, LONGEST_DELAY_S, Retry


def failed(kind: str, status: int | None = None) -> Reply:
    reply = Reply()
    reply.fail(kind, "x")
    reply.status = status
    return reply


def test_waits_double_up_to_a_limit() -> None:
    retry = Retry(lambda: 1.0)
    delays = [retry.after(failed("cut"), 0.0) for _ in range(10)]
    assert delays == [0.5, 1, 2, 4, 8, 15, 15, 15, 15, None]
    retry.clear()
    assert retry.after(failed("cut"), 0.0) == 0.5


def test_waits_are_varied_but_never_longer_than_the_longest() -> None:
    retry = Retry(lambda: 1.5)
    delays = [retry.after(failed("refused"), 0.0) for _ in range(8)]
    assert delays[:2] == [0.75, 1.5]
    assert max(delays) == LONGEST_DELAY_S


def test_an_engine_that_is_away_is_waited_for_by_time() -> None:
    retry = Retry(lambda: 1.0)
    for number in range(200):
        assert retry.after(failed("refused"), float(number)) is not None
        assert retry.after(failed("http-5xx", 503), float(number)) is not None
    assert retry.after(failed("refused"), DOWN_FOR_S + 1) is None


def test_a_refusal_is_not_repeated_often() -> None:
    retry = Retry(lambda: 1.0)
    assert [retry.after(failed("http-4xx", 422), 0.0) is None for _ in range(3)] == [False, False, True]
    retry = Retry(lambda: 1.0)
    assert [retry.after(failed("http-4xx", 429), 0.0) is None for _ in range(5)] == [False] * 5
