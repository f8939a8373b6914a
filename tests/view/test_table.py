"""The line above the table: every request once."""

from __future__ import annotations

from collections.abc import Iterator

from agenttop.model.frames import AgentSample, Frame, SlotSample
from agenttop.view.look import Look
from agenttop.view.panels import table
from agenttop.view.rows import rows
from agenttop.view.spans import plain
from tests.view import scenes
from tests.view.draw import folded


def agent(number: int, state: str, slot: int | None = None) -> AgentSample:
    return AgentSample(
        t=2.0,
        agent=f"a{number}",
        engine=scenes.URL,
        profile="human",
        state=state,
        state_since=1.0,
        slot=slot,
    )


def slot(number: int, phase: str) -> SlotSample:
    return SlotSample(t=2.0, engine=scenes.URL, slot=number, phase=phase, task=number + 1)


def title(*frames: Frame) -> str:
    store = folded([scenes.session(), scenes.engine(2.0, slots_total=9), *frames], 2.1)
    return plain(table.title(rows(store, Look()), store, Look()))


def nine() -> Iterator[Frame]:
    """Nine agents, of which the last is in a slot that has not been joined with it yet."""
    for number in range(9):
        state = "decode" if number < 7 else "prefill"
        yield slot(number, state)
        yield agent(number + 1, state, number if number < 8 else None)


def test_an_agent_and_the_slot_not_yet_joined_with_it_are_one_request() -> None:
    assert title(*nine()) == "Slots and agents  7 decode  2 prefill"


def test_it_is_one_request_also_where_the_two_disagree_about_its_state() -> None:
    assert title(agent(1, "decode"), slot(0, "prefill"), slot(1, "idle")).endswith("1 decode  1 idle")


def test_requests_of_others_are_counted() -> None:
    assert "2 decode" in title(agent(1, "tool"), slot(0, "decode"), slot(1, "decode"))
    assert "3 decode" in title(agent(1, "decode"), slot(0, "decode"), slot(1, "decode"), slot(2, "decode"))
