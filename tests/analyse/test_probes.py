"""Answers to planted facts: counts, honest intervals, and ties that are called ties."""

from __future__ import annotations

import pytest

from agenttop.analyse.probes import VERDICTS, ProbeRow, difference, rows_of, sentences
from agenttop.analyse.stats import wilson
from agenttop.model.frames import Turn


def answers(*verdicts: tuple[float, str]) -> list[Turn]:
    return [
        Turn(
            t=t,
            agent="a1",
            engine="e",
            profile="p",
            turn=1,
            t_queued=t,
            probe=verdict,
            probe_detail=f"depth 50%: {verdict}",
        )
        for t, verdict in verdicts
    ]


def whole(name: str, right: int, asked: int, leaked: int = 0) -> ProbeRow:
    others = asked - right - leaked
    turns = answers(*[(1.0, "right")] * right, *[(1.0, "leaked")] * leaked, *[(1.0, "no-answer")] * others)
    [row] = rows_of(turns, [], f"/some/where/{name}")
    return row


def test_answers_are_counted_by_level_and_in_all() -> None:
    turns = answers((5, "right"), (15, "right"), (16, "leaked"), (19.9, "right"), (20, "no-answer"))
    turns.append(Turn(t=17, agent="a1", engine="e", profile="p", turn=2, t_queued=17))
    rows = rows_of(turns, [(1, 4, 10.0, 20.0), (2, 8, 20.0, 30.0), (3, 16, 30.0, 40.0)], "f")
    assert [(row.level, row.agents, row.asked) for row in rows] == [
        (1, 4, 3),
        (2, 8, 1),
        (0, None, 1),
        (None, None, 5),
    ]
    assert rows[0].verdicts == dict.fromkeys(VERDICTS, 0) | {"right": 2, "leaked": 1}
    assert rows[0].recall == pytest.approx(2 / 3)
    assert rows[-1].details == {
        "leaked, depth 50%: leaked": 1,
        "no-answer, depth 50%: no-answer": 1,
    }


def test_nothing_asked_is_no_row() -> None:
    assert rows_of([Turn(t=1, agent="a", engine="e", profile="p", turn=1, t_queued=1)], []) == []
    assert sentences([]) == []


@pytest.mark.parametrize(
    ("right", "asked", "low", "high"),
    [(9, 10, 0.596, 0.982), (10, 10, 0.722, 1.0), (0, 10, 0.0, 0.278), (50, 100, 0.404, 0.596), (0, 0, 0, 1)],
)
def test_intervals_are_those_of_wilson(right: int, asked: int, low: float, high: float) -> None:
    assert wilson(right, asked) == (pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4))


def test_the_difference_is_that_of_newcombe() -> None:
    """His example: 56 of 70 against 48 of 80."""
    low, high = difference(whole("a", 56, 70), whole("b", 48, 80))
    assert (low, high) == (pytest.approx(0.0524, abs=5e-4), pytest.approx(0.3339, abs=5e-4))


def test_a_tie_at_the_ceiling_is_no_proof_of_equality() -> None:
    [said] = sentences([whole("a.agenttop", 12, 12), whole("b.agenttop", 9, 9)])
    assert said.startswith("a.agenttop and b.agenttop could not be told apart")
    assert "12 of 12 and 9 of 9" in said
    assert "does not make them equal" in said


def test_files_that_may_differ_by_chance_are_not_told_apart() -> None:
    [said] = sentences([whole("a", 11, 12), whole("b", 12, 12)])
    assert said == "a and b could not be told apart (11 of 12 and 12 of 12 right)"


def test_a_plain_difference_is_said_whichever_comes_first() -> None:
    good, bad = whole("good", 48, 50), whole("bad", 20, 50)
    expected = "good answered more of its questions right than bad (48 of 50 against 20 of 50)"
    assert sentences([good, bad]) == sentences([bad, good]) == [expected]


def test_a_leak_is_said_first() -> None:
    said = sentences([whole("a", 12, 12), whole("b", 11, 12, leaked=1)])
    assert said[0] == "b: 1 answer held a number of another agent: prompts are mixed up"
    assert len(said) == 2
