"""kv-cache-tester's traces: sizes and pauses as told, sub-agents apart, compactions found."""

from __future__ import annotations

import json
from pathlib import Path

from tests.agents.imports.files import lines, read, request, told, weka


def test_sizes_pauses_and_kinds_are_taken_as_told(tmp_path: Path) -> None:
    trace = weka(
        [
            request(0.0, 2000, 100, "tool_use", think_time=0.0, api_time=2.0),
            request(14.0, 2300, 50, "end_turn", think_time=12.0, api_time=2.0),
            request(100.0, 2500, 70, "tool_use", think_time=84.0, api_time=3.0),
        ]
    )
    sessions, reading = read(lines(tmp_path / "trace.json", [trace]))
    assert reading.formats == {"weka": 1}
    [session] = sessions
    assert told(session) == [(2000, 100, None, "human"), (2300, 50, 12.0, "tool"), (2500, 70, 84.0, "human")]
    assert session.system == 1000
    assert session.session == "s1"


def test_a_pause_is_what_remains_between_reply_and_request(tmp_path: Path) -> None:
    trace = weka(
        [
            request(0.0, 2000, 100, "tool_use", api_time=4.0),
            request(10.0, 2200, 100, "tool_use", api_time=4.0),
        ]
    )
    [session], reading = read(lines(tmp_path / "trace.json", [trace]))
    assert session.turns[1].pause_s == 6.0
    assert not reading.report.notes


def test_without_the_time_of_the_reply_that_is_said(tmp_path: Path) -> None:
    trace = weka([request(0.0, 2000, 100, "tool_use"), request(10.0, 2200, 100, "tool_use")])
    [session], reading = read(lines(tmp_path / "trace.json", [trace]))
    assert session.turns[1].pause_s == 10.0
    assert "include the time of the reply" in reading.report.notes[0]


def test_sub_agents_are_sessions_of_their_own(tmp_path: Path) -> None:
    child = {
        "t": 5.0,
        "type": "subagent",
        "agent_id": "ab12",
        "subagent_type": "Explore",
        "duration_ms": 4000,
        "status": "completed",
        "tool_tokens": 400,
        "system_tokens": 100,
        "requests": [request(0.0, 900, 20, "tool_use"), request(2.0, 1000, 30, "end_turn")],
    }
    trace = weka(
        [request(0.0, 2000, 100, "tool_use"), child, request(20.0, 2600, 80, "end_turn", think_time=15.0)]
    )
    sessions, _ = read(lines(tmp_path / "trace.json", [trace]))
    assert [(one.session, one.parent, one.system) for one in sessions] == [
        ("s1", None, 1000),
        ("s1-1", "s1", 500),
    ]
    assert [turn.prompt for turn in sessions[0].turns] == [2000, 2600]


def test_cached_tokens_come_from_block_hashes(tmp_path: Path) -> None:
    first, second = list(range(31)), [*range(30), 99, 100, 101]
    trace = weka(
        [
            request(0, 2000, 10, "tool_use", hash_ids=first),
            request(9, 2150, 10, "tool_use", hash_ids=second),
        ]
    )
    [session], _ = read(lines(tmp_path / "trace.json", [trace]))
    assert [turn.cached for turn in session.turns] == [None, 30 * 64]


def test_a_big_drop_from_a_big_context_is_a_compaction(tmp_path: Path) -> None:
    sizes = [150_000, 152_000, 34_000, 36_000]
    requests = [request(n * 10.0, size, 200, "tool_use", think_time=4.0) for n, size in enumerate(sizes)]
    [session], _ = read(lines(tmp_path / "trace.json", [weka(requests)]))
    assert [turn.kind for turn in session.turns] == ["human", "tool", "compact", "tool"]


def test_a_drop_from_a_small_context_is_a_new_conversation(tmp_path: Path) -> None:
    sizes = [20_000, 21_000, 5_000, 5_600]
    requests = [request(n * 10.0, size, 200, "tool_use", think_time=4.0) for n, size in enumerate(sizes)]
    sessions, _ = read(lines(tmp_path / "trace.json", [weka(requests)]))
    assert [[turn.prompt for turn in one.turns] for one in sessions] == [[20_000, 21_000], [5_000, 5_600]]
    assert [one.session for one in sessions] == ["s1", "s1.2"]
    assert sessions[1].turns[0].pause_s is None


def test_a_small_request_between_two_big_ones_is_beside_the_conversation(tmp_path: Path) -> None:
    sizes = [100_000, 1_200, 900, 101_000, 102_000]
    requests = [request(n * 10.0, size, 200, "tool_use", think_time=4.0) for n, size in enumerate(sizes)]
    [session], reading = read(lines(tmp_path / "trace.json", [weka(requests)]))
    assert [turn.prompt for turn in session.turns] == [100_000, 101_000, 102_000]
    assert list(reading.report.left_out.values()) == [2]


def test_damaged_requests_are_counted_and_named(tmp_path: Path) -> None:
    requests = [
        request(0.0, 2000, 100, "tool_use"),
        request(1.0, -4, 100, "tool_use"),
        request(2.0, 2000, 100, "tool_use") | {"in": "many"},
        request(3.0, 2400, 100, "tool_use", think_time=-3.0),
        request(4.0, 2500, 100, "tool_use"),
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(weka(requests), indent=2))
    [session], reading = read(path)
    assert [turn.prompt for turn in session.turns] == [2000, 2500]
    assert reading.report.skipped == 3
    assert reading.report.named == [
        f"{path} request 2: in: -4 is not a number of tokens",
        f"{path} request 3: in: expected a number of tokens, found many",
        f"{path} request 4: think_time: -3 s is not a pause",
    ]


def test_rows_of_a_table_are_traces(tmp_path: Path) -> None:
    row = weka([request(0.0, 2000, 100, "end_turn")])
    other = row | {"id": "other", "requests": json.dumps(row["requests"])}
    sessions, _ = read(lines(tmp_path / "rows.jsonl.gz", [row, other]))
    assert [one.session for one in sessions] == ["s1", "s2"]


def test_a_weekend_is_no_longer_than_a_day(tmp_path: Path) -> None:
    requests = [
        request(0.0, 2000, 100, "end_turn"),
        request(1.0, 2400, 100, "end_turn", think_time=3 * 86_400.0),
        request(2.0, 2800, 100, "end_turn", think_time=1e9),
    ]
    [session], reading = read(lines(tmp_path / "trace.json", [weka(requests)]))
    assert [turn.pause_s for turn in session.turns] == [None, 86_400.0]
    assert "pauses longer than a day count as a day" in reading.report.notes
    assert reading.report.skipped == 1
