"""The sentences in which levels end: each says one thing, and what would help."""

import pytest

from agenttop.analyse.row import LevelRow
from agenttop.analyse.search import Belief, Done, Search
from agenttop.analyse.settle import Progress, enough_s
from agenttop.model.frames import Finding, Level, Session, Turn
from agenttop.node import experiment_words as words
from agenttop.node.experiment_frames import LevelBook
from agenttop.node.experiment_report import Reporter
from agenttop.node.experiment_words import LevelOrder
from agenttop.node.hub import Hub
from agenttop.view.store import Store


def order(**fields):
    return LevelOrder(number=0, agents=4, at_most_s=600.0, **fields)


def row(**fields):
    return LevelRow(
        file="", host="h", level=1, agents=4, t_start=0.0, t_end=700.0, warm_up_s=100.0, window_s=600.0,
        **{"steady": "steady", "valid": True} | fields,
    )  # fmt: skip


def turn(agent, sent, took=50.0):
    return Turn(
        t=sent + took, agent=agent, engine="u", profile="p", turn=1, t_queued=sent, t_sent=sent,
        t_first_token=sent + 1, t_last_token=sent + took, output_tokens=50,
    )  # fmt: skip


UNKNOWN = Progress(False, "a steadier total rate (known to ±70 %)", 12, 2, width=0.7, since=100.0)


def test_steady_in_time_and_steady_but_little_known():
    assert words.judged(order(), row(), Progress(True, "", 12, 2, since=100.0), 300.0) == (
        "judged steady over 10 m, 2 or more turns of each agent"
    )
    assert words.judged(order(), row(), UNKNOWN, 600.0) == (
        "its time is up after 10 m: steady, but the total is known to ±70 % only; "
        "--at-most 30m would tell more"
    )
    assert words.judged(order(origin="search"), row(), UNKNOWN, 600.0).endswith(
        "the total is known to ±70 % only; a larger --budget would tell more"
    )
    assert words.cut(row(), UNKNOWN) == (
        "steady",
        "the time for the whole search is up: steady, but the total is known to ±70 % only",
    )


@pytest.mark.parametrize("found", [{"steady": "unclear"}, {"valid": False, "why_invalid": "too few"}])
def test_where_only_some_agents_completed_a_turn_the_time_it_takes_is_estimated(found):
    seen = [turn("a1", 150.0), turn("a2", 300.0), turn("a2", 500.0)]
    state = Progress(False, "a full turn of 2 agents", 3, 0, since=100.0)
    said = words.late(order(), row(**found), state, 600.0, seen)
    assert said.endswith("; --at-most 40m would do, by the turns seen")
    assert enough_s(4, 600.0, seen) == 600.0 * 12 / 3
    none = words.late(order(), row(**found), state, 600.0, [])
    assert none.endswith("; --at-most 30m would tell more")


def test_a_level_of_a_given_time_says_when_agents_completed_nothing():
    level = Level(t=0.0, level=0, agents=4, t_end=100.0)
    all_four = [turn(f"a{number}", 10.0) for number in range(1, 5)]
    assert words.time_up(order(seconds=100.0), level, all_four) == "its time is up"
    assert words.time_up(order(seconds=100.0), level, all_four[:1]) == (
        "its time is up, but 1 of 4 agents completed a turn in it; --for 20m would do, by the turns seen"
    )
    assert words.time_up(order(seconds=100.0, origin="ramp"), level, []) == (
        "its time is up, but no agent completed a turn in it; a hold of 5m would tell more"
    )


def test_the_answer_of_a_search_stands_once_on_the_time_axis():
    session = Session(t=0.0, schema=1, session="s", started_unix=0.0, host="h", os="o")
    hub, store, frames = Hub(lambda: 5.0, None, None), Store(), []
    hub.observe(frames.extend)
    reporter = Reporter(hub, lambda: 5.0, LevelBook(session), None)
    reporter.final(Search(4, 60.0, Belief), Done("every request of the first level failed"))
    store.feed(frames, 5.0)
    (finding,) = [frame for frame in frames if isinstance(frame, Finding)]
    assert [event.text for event in store.events] == [finding.sentence]
