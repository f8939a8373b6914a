"""How long silence may last before it is shown as a stall: against what was usual before."""

from __future__ import annotations

import pytest

from agenttop.agents import silence
from agenttop.agents.reply import Reply
from agenttop.agents.silence import Habit


def whole(ttft: float, gaps: list[float], prompt: int = 1000) -> Reply:
    """A reply that has ended well."""
    from agenttop.wire.openai import Usage

    reply = Reply()
    reply.t_sent = 0.0
    reply.usage = Usage(prompt_tokens=prompt, completion_tokens=len(gaps) + 1)
    at = reply.t_first_token = ttft
    reply.arrivals.append(int(at * 1e6))
    for gap in gaps:
        at += gap
        reply.arrivals.append(int(at * 1e6))
    reply.t_last_token = at
    return reply


def waiting(sent: float = 0.0) -> Reply:
    reply = Reply()
    reply.t_sent = reply.t_progress = reply.t_any_byte = sent
    return reply


def decoding(last: float) -> Reply:
    reply = waiting()
    reply.t_first_token, reply.t_last_token = 1.0, last
    return reply


def test_without_a_past_patience_is_long() -> None:
    habit = Habit()
    assert habit.allowed_s(waiting(), 1000, 1.0) == silence.FIRST_UNKNOWN_S
    assert habit.allowed_s(decoding(2.0), 1000, 3.0) == silence.NEXT_UNKNOWN_S


def test_the_first_token_is_waited_for_by_the_size_of_the_prompt() -> None:
    habit = Habit()
    habit.ended(whole(ttft=5.0, gaps=[0.02] * 10, prompt=1000))
    assert habit.allowed_s(waiting(), 1000, 1.0) == pytest.approx(4 * 5.0)
    assert habit.allowed_s(waiting(), 8000, 1.0) == pytest.approx(4 * 5.0 * 8)
    assert habit.allowed_s(waiting(), 10, 1.0) == pytest.approx(4 * 5.0)  # a small one may queue as long
    habit.ended(whole(ttft=0.1, gaps=[0.02]))
    assert habit.allowed_s(waiting(), 1000, 1.0) == pytest.approx(4 * 5.0)


def test_between_tokens_the_longest_gap_before_counts() -> None:
    habit = Habit()
    habit.ended(whole(ttft=0.1, gaps=[0.02, 0.9, 0.02]))
    assert habit.allowed_s(decoding(2.0), None, 3.0) == silence.NEXT_FLOOR_S
    habit.ended(whole(ttft=0.1, gaps=[0.02, 5.0, 0.02]))
    assert habit.allowed_s(decoding(2.0), None, 3.0) == pytest.approx(20.0)
    quick = Habit()
    quick.ended(whole(ttft=0.1, gaps=[0.02] * 50))
    assert quick.allowed_s(decoding(2.0), None, 3.0) == silence.NEXT_FLOOR_S


def test_a_keep_alive_lengthens_patience_and_stale_ones_do_not() -> None:
    habit = Habit()
    habit.ended(whole(ttft=0.1, gaps=[3.0] * 5))
    reply = decoding(last=10.0)
    assert habit.allowed_s(reply, None, 24.0) == pytest.approx(12.0)
    reply.t_any_byte = 23.0
    assert habit.allowed_s(reply, None, 24.0) == pytest.approx(36.0)
    assert habit.allowed_s(reply, None, 37.0) == pytest.approx(12.0)


def test_an_agent_without_a_past_goes_by_the_others() -> None:
    shared = Habit()
    old, new = Habit(shared=shared), Habit(shared=shared)
    old.ended(whole(ttft=6.0, gaps=[5.0]))
    assert new.allowed_s(waiting(), 1000, 1.0) == pytest.approx(24.0)
    assert new.allowed_s(decoding(2.0), None, 3.0) == pytest.approx(20.0)
    new.ended(whole(ttft=3.0, gaps=[0.1]))
    # What the engine lets others wait is no stall of this one.
    assert new.allowed_s(waiting(), 1000, 1.0) == pytest.approx(24.0)
    assert new.allowed_s(decoding(2.0), None, 3.0) == pytest.approx(20.0)


def test_queued_behind_the_prompts_of_others_is_not_stalled() -> None:
    shared = Habit()
    habits = [Habit(shared=shared) for _ in range(3)]
    replies = [waiting() for _ in habits]
    for habit, reply in zip(habits, replies, strict=True):
        habit.began(reply)
    mine = replies[0]
    replies[1].t_progress = 95.0
    assert habits[0].allowed_s(mine, 1000, 100.0) == 3 * silence.FIRST_UNKNOWN_S
    # Nobody gets on: the engine does nothing for anyone.
    assert habits[0].allowed_s(mine, 1000, 110.0) == silence.FIRST_UNKNOWN_S
    habits[1].ended(replies[1])
    habits[2].ended(replies[2])
    assert shared.flying == [mine]


def test_a_prompt_that_is_read_may_hold_up_those_who_decode() -> None:
    shared = Habit()
    mine, reader, third = (Habit(shared=shared) for _ in range(3))
    mine.ended(whole(ttft=90.0, gaps=[0.02] * 5))
    reply, prompt, other = decoding(2.0), waiting(1.0), decoding(3.0)
    mine.began(reply)
    third.began(other)
    assert mine.allowed_s(reply, None, 20.0) == silence.NEXT_FLOOR_S
    reader.began(prompt)
    assert mine.allowed_s(reply, None, 20.0) == 90.0
    other.t_last_token = 19.0  # another one gets its tokens all the same
    assert mine.allowed_s(reply, None, 20.0) == silence.NEXT_FLOOR_S


def test_gaps_of_the_reply_itself_count_and_a_rare_one_is_found() -> None:
    reply = whole(ttft=0.1, gaps=[0.02] * 5000 + [15.0] + [0.02] * 5001)
    assert Habit().allowed_s(reply, None, reply.t_last_token + 1.0) == pytest.approx(60.0)
    habit = Habit()
    habit.ended(reply)
    assert habit.allowed_s(decoding(2.0), None, 3.0) == pytest.approx(60.0)


def test_a_stall_that_is_over_was_as_long_as_it_was_seen() -> None:
    from types import SimpleNamespace

    from agenttop.agents.stalls import Stalls

    stalls, agent = Stalls(), SimpleNamespace(name="a4", state="stalled", silent_s=12.6, kept_alive=False)
    (begun,) = stalls.news([agent])
    assert begun[1] == "a4 stalled: nothing for 13 s, far longer than usual"
    agent.silent_s = 0.044  # it moves, and nobody has looked yet
    assert stalls.news([agent]) == []
    agent.state = "decode"
    (over,) = stalls.news([agent])
    assert over[1] == "a4 no longer stalled: 13 s of silence"


def test_failures_are_no_habit() -> None:
    habit = Habit()
    reply = whole(ttft=100.0, gaps=[50.0])
    reply.fail("stall", "x")
    habit.ended(reply)
    assert habit.allowed_s(waiting(), 1000, 1.0) == silence.FIRST_UNKNOWN_S


def test_faster_than_life_no_shorter_than_a_real_second() -> None:
    habit = Habit(rate=100.0)
    habit.ended(whole(ttft=0.1, gaps=[0.02] * 5))
    assert habit.allowed_s(decoding(2.0), None, 3.0) == 100.0


def test_progress_that_is_no_token_is_life() -> None:
    from agenttop.wire.openai import read_chunk

    reply = waiting()
    progress = b'{"choices":[{"delta":{}}],"prompt_progress":{"total":100,"cache":0,"processed":%d}}'
    reply.take(read_chunk(progress % 10), 5.0)
    assert reply.t_moved == 5.0
    reply.take(read_chunk(progress % 10), 6.0)  # the same again is none
    assert reply.t_moved == 5.0
    reply.take(read_chunk(progress % 20), 7.0)
    assert reply.t_moved == 7.0
    # a parser that holds text back, while the count goes on
    usage = b'{"choices":[{"delta":{"content":""}}],"usage":{"completion_tokens":%d}}'
    reply.take(read_chunk(usage % 1), 8.0)
    reply.take(read_chunk(usage % 2), 9.0)
    assert (reply.t_moved, reply.t_first_token) == (9.0, None)


async def test_a_request_that_still_connects_is_not_stalled() -> None:
    """Late in a session a new agent has been silent since t = 0, but it has asked for nothing yet."""
    from agenttop.agents.agent import Agent
    from agenttop.agents.load import Load
    from agenttop.model.commands import Configure
    from tests.agents.profiles import profile

    class Deaf:
        def __getattr__(self, _: str) -> object:
            return lambda *_: None

    order = Configure(
        origin=0.0,
        engine="http://127.0.0.1:1",
        model=None,
        api_key_env=None,
        profile="any",
        settings=profile().settings(),
        seed=0,
        slots_like="openai",
    )
    load = Load(order, api_key=None, salt="s", now=lambda: 900.0)
    agent = Agent("a1", 1, 900.0, load, Deaf())  # type: ignore[arg-type]
    agent._reply = Reply()
    agent.look()
    assert agent.state != "stalled"
    assert agent.silent_s == 0
    agent._reply.t_sent = 0.0
    agent.look()
    assert agent.state == "stalled"
    assert agent.silent_s == 900.0
