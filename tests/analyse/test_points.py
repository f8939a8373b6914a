"""Sessions to points: in memory as from a file, at simulated speed, with sub-agents and retries."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from agenttop.analyse.compare import levels_of, rows_of
from agenttop.analyse.knee import analyse
from agenttop.analyse.material import Material, of_frames, of_recording
from agenttop.analyse.points import points_of
from agenttop.analyse.row import LevelRow
from agenttop.model.frames import EngineSample, Event, Frame, Level, LoadSample, Turn
from agenttop.record.read import Recording
from tests.record.build import URL, record, session, session_frames, turn


def load(t: float, agents: int = 2) -> LoadSample:
    return LoadSample(t=t, engine=URL, profile="human", target=agents, active=agents)


def scene(*more: Frame, end: float = 101.0, speedup: float = 1.0, **changes: object) -> Material:
    """Two agents from 0 to `end` with a turn of 100 tokens every 10 s; a load sample each real second."""
    frames: list[Frame] = [Level(t=0.0, level=0, agents=2, t_end=end, purpose="refine")]
    t = 0.5
    while t < end:
        frames.append(load(t))
        t += speedup
    for number in range(int(end) // 10):
        for agent, offset in (("a1", 0.5), ("a2", 1.5)):
            sent = 10.0 * number + offset
            made = turn(
                sent=sent, first=sent + 0.5, tokens=100, rate=20.0, agent=agent, number=number + 1,
                prompt_tokens=1000, cached_tokens=900, context_tokens=1000 + 100 * number,
            )  # fmt: skip
            frames.append(msgspec.structs.replace(made, t_queued=sent - 0.25))
    frames += more
    return of_frames(session(speedup=speedup, **changes), sorted(frames, key=lambda frame: frame.t))


def row_of(material: Material) -> LevelRow:
    (row,) = rows_of(material)
    return row


def test_frames_in_memory_and_their_recording_give_the_same_rows(tmp_path: Path) -> None:
    frames = session_frames([(1, 60), (3, 60)])
    path = record(tmp_path / "a.agenttop", frames)
    material = of_frames(session(), frames)
    with Recording(path) as recording:
        assert rows_of(material, str(path)) == levels_of(recording)
        assert points_of(material) == points_of(of_recording(recording))


def test_frames_that_come_late_are_put_in_order() -> None:
    material = Material(session())
    for t in (3.0, 1.0, 2.0):
        material.add(load(t))
    assert [one.t for one in material.loads] == [1.0, 2.0, 3.0]
    assert material.duration == 3.0


def test_waits_count_from_the_plan_and_calls_from_their_sending() -> None:
    row = row_of(scene())
    assert row.wait_s_p50 == pytest.approx(0.25 + 0.5 + 99 / 20)
    assert row.turn_s_p50 == pytest.approx(0.5 + 99 / 20)
    assert row.purpose == "refine"
    assert row.steady == "steady"
    # By time, over the window: each keeps 1000, 1100, … 1900 tokens for about ten seconds.
    assert row.context_mean_tokens == pytest.approx(1430, abs=60)


def test_what_went_wrong_is_counted_by_kind() -> None:
    wrong: list[Frame] = [
        turn(sent=50.0, agent="a1", number=90, t=51.0, error_kind="stall", error="x"),
        turn(sent=52.0, agent="a1", number=91, t=53.0, error_kind="stall", error="x", attempt=2),
        turn(sent=54.0, agent="a1", number=92, t=55.0, error_kind="http-5xx", error="x", attempt=3),
        turn(sent=56.0, agent="a1", number=93, t=57.0, error_kind="cancelled", error="x"),
    ]
    material = scene(*wrong)
    row = row_of(material)
    assert row.failure_kinds == {"stall": 2, "http-5xx": 1}
    assert (row.failures, row.stalls, row.retries) == (3, 2, 2)
    (point,) = points_of(material)
    assert (point.refused, point.requests) == (1, (row.turns or 0) + 3)
    assert sum(one.failed for one in point.served) == 3


def test_a_compaction_costs_its_request_and_the_prefill_after_it() -> None:
    more: list[Frame] = [
        turn(sent=30.0, first=31.0, tokens=41, rate=20.0, agent="a1", number=70, turn_kind="compact"),
        turn(
            sent=40.0, first=41.0, tokens=11, rate=20.0, agent="a1", number=71, prompt_tokens=500,
            cached_tokens=100, compacted_from_tokens=5000,
        ),
    ]  # fmt: skip
    row = row_of(scene(*more))
    assert (row.compactions, row.compaction_s_p50, row.compaction_prefill_tokens_p50) == (
        1,
        pytest.approx(3.0),
        400,
    )


def test_priming_counts_nowhere_and_sub_agents_for_the_engine_only() -> None:
    bare = row_of(scene())
    prime: list[Frame] = [
        turn(sent=50.0, first=55.0, tokens=1, agent="a1", number=80, turn_kind="prime", prompt_tokens=9000)
    ]
    assert row_of(scene(*prime)) == bare
    subs: list[Frame] = [
        turn(
            sent=50.0, first=51.0, tokens=100, rate=80.0, agent="a1.1", number=1, turn_kind="sub", parent="a1"
        )
    ]
    with_sub = row_of(scene(*subs))
    assert with_sub.turns == bare.turns
    assert with_sub.warm_up_s == bare.warm_up_s
    assert with_sub.decode_tok_s_per_agent_p50 == bare.decode_tok_s_per_agent_p50
    assert (with_sub.decode_tok_s or 0) * with_sub.window_s == pytest.approx(
        (bare.decode_tok_s or 0) * bare.window_s + 100
    )


def test_a_simulated_session_is_named_after_its_host_and_its_samples_lie_further_apart() -> None:
    plain = scene(end=401.0, speedup=20.0)
    assert row_of(plain).valid
    assert msgspec.structs.replace(row_of(plain), speedup=1.0).host == "box1"
    slow = scene(end=401.0, speedup=20.0)
    slow.session = msgspec.structs.replace(slow.session, speedup=1.0)
    assert "hole" in (row_of(slow).why_invalid or "")
    named = row_of(scene(simulated="RTX 5090"))
    assert (named.host, named.simulated) == ("RTX 5090", True)
    seen = EngineSample(t=50.0, engine=URL, url=URL, name="vLLM", state="ok", simulated="H100")
    assert (row_of(scene(seen)).host, row_of(scene(seen)).simulated) == ("H100", True)


def test_a_level_ends_where_its_event_says() -> None:
    material = scene(Event(t=80.0, event="run.level-end", text=""))
    material.levels[0] = msgspec.structs.replace(material.levels[0], t_end=None)
    assert row_of(material).t_end == 80.0


def test_an_agent_whose_requests_fail_does_not_hold_up_the_level() -> None:
    failing: list[Turn] = [
        turn(sent=float(t), agent="a3", number=t, t=t + 0.5, error_kind="refused", error="x")
        for t in range(2, 100)
    ]
    material = scene(*failing)
    row = row_of(material)
    assert row.window_s > 90
    assert "requests failed (most: refused)" in (row.why_invalid or "")
    (point,) = points_of(material)
    report = analyse([point])
    assert (report.cliff.agents, report.cliff.cause) == (2, "requests refused")


def test_raw_requests_carry_cycles_that_add_up_to_the_window() -> None:
    (point,) = points_of(scene())
    assert sum(one.cycle_s for one in point.served) == pytest.approx(2 * 95, abs=12)
    rate = point.agents * sum(one.tokens for one in point.served) / sum(one.cycle_s for one in point.served)
    assert rate == pytest.approx(point.decode_tok_s, rel=0.08)
