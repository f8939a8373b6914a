"""What a run keeps of its levels while it is under way."""

from array import array

import pytest

from agenttop.model.frames import AgentSample, Event, Level, LoadSample, Session, Turn
from agenttop.node import experiment_frames
from agenttop.node.experiment_frames import LevelBook

RATE = 20.0


def turn(agent, sent, tokens=40):
    arrivals = array("I", [round(1e6 * (0.5 + number / RATE)) for number in range(tokens)])
    first, last = sent + 0.5, sent + 0.5 + (tokens - 1) / RATE
    return Turn(
        t=last,
        agent=agent,
        engine="u",
        profile="p",
        turn=1,
        t_queued=sent,
        t_sent=sent,
        t_first_token=first,
        t_last_token=last,
        output_tokens=tokens,
        events=tokens,
        prompt_tokens=100,
        cached_tokens=90,
        arrivals=arrivals.tobytes(),
    )


def load(t, active):
    rate = RATE * active
    return LoadSample(
        t=t, engine="u", profile="p", active=active, target=active, decode_tok_s=rate, window_s=1.0
    )


def run_level(book, number, agents, start, end, tokens=40):
    """Frames of a level whose agents send one request after another."""
    level = Level(t=start, level=number, agents=agents)
    book.take([level])
    book.begin(level)
    frames = [load(float(t), agents) for t in range(int(start) + 1, int(end) + 1)]
    period = 0.5 + tokens / RATE
    for name in range(agents):
        sent = start + 0.1
        while sent + period < end:
            frames.append(turn(f"a{name}", sent, tokens))
            sent += period
    book.take(sorted(frames, key=lambda frame: frame.t))
    book.take([AgentSample(t=end, agent="a0", engine="u", profile="p", state="decode", state_since=0.0)])
    return level


def book():
    return LevelBook(Session(t=0.0, schema=1, session="s", started_unix=0.0, host="h", os="o"))


def test_rows_and_points_of_levels_that_are_over():
    kept = book()
    for number, agents in enumerate((1, 2, 4)):
        level = run_level(kept, number, agents, number * 60.0, number * 60.0 + 60.0)
        row = kept.end(level, number * 60.0 + 60.0)
        assert row.agents == agents
        assert row.valid, row.why_invalid
    assert [point.agents for point in kept.points()] == [1, 2, 4]
    assert all(point.served for point in kept.points())


def test_requests_still_in_flight_at_the_end_count_for_the_level_they_ran_in():
    kept = book()
    long = 800  # forty seconds of tokens: written long after most of them came
    level = run_level(kept, 0, 1, 0.0, 60.0)
    row = kept.end(level, 60.0)
    assert row.decode_tok_s == pytest.approx(RATE, rel=0.2)
    following = run_level(kept, 1, 2, 60.0, 120.0)
    kept.take([turn("a9", 30.0, long)])
    kept.end(following, 120.0)
    # By now the request that ended in the second level has been written, and the first has its tokens.
    assert kept.over[0].row.decode_tok_s > 1.3 * row.decode_tok_s


def test_the_drivers_own_count_stands_in_for_requests_that_are_not_written_yet():
    kept = book()
    level = Level(t=0.0, level=0, agents=1)
    kept.take([level])
    kept.begin(level)
    kept.take([load(float(t), 1) for t in range(1, 61)])
    kept.take([turn("a0", 1.0)])
    row = kept.end(level, 60.0)
    assert row.decode_tok_s == pytest.approx(RATE, rel=0.05)


def test_frames_of_older_levels_are_let_go():
    kept = book()
    for number in range(4):
        level = run_level(kept, number, 1, number * 60.0, number * 60.0 + 60.0)
        kept.end(level, number * 60.0 + 60.0)
    assert kept.turns(0.0)[0].t >= 120.0
    assert kept.loads(0.0)[0].t >= 120.0
    assert len(kept.points()) == 4


def test_memory_is_bounded_and_counts_survive(monkeypatch):
    monkeypatch.setattr(experiment_frames, "MOST_ARRIVALS_BYTES", 2000)
    monkeypatch.setattr(experiment_frames, "MOST_TURNS", 15)
    kept = book()
    level = run_level(kept, 0, 2, 0.0, 60.0)
    turns = kept.turns(0.0)
    assert len(turns) == 15
    assert sum(len(each.arrivals or b"") for each in turns) <= 2000
    assert all(each.output_tokens == 40 for each in turns)
    assert kept.end(level, 60.0).decode_tok_s is not None


def test_other_events_are_not_kept():
    kept = book()
    level = run_level(kept, 0, 1, 0.0, 60.0)
    kept.take([Event(t=30.0, event="agent.compact", text="x"), Event(t=31.0, event="mark", text="y")])
    assert kept.row(60.0).agents == level.agents
    assert kept._material.events == []
