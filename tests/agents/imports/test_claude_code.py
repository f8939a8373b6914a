"""Session logs of Claude Code: one call is several lines, sub-agents have their own log."""

from __future__ import annotations

from pathlib import Path

import msgspec

from tests.agents.imports.files import Log, lines, read, told


def two_turns() -> Log:
    log = Log()
    log.person(0, "please look at the parser, quickly")
    log.answer(4, "a", 3, 5000, 10_000, 1)
    log.answer(5, "a", 3, 5000, 10_000, 120)
    log.answer(6.5, "a", 3, 5000, 10_000, 120)
    log.result(10, "found it")
    log.answer(12, "b", 5, 300, 15_000, 80)
    return log


def test_a_call_counts_once_however_many_lines_it_has(tmp_path: Path) -> None:
    [session], reading = read(lines(tmp_path / "s.jsonl", two_turns().lines))
    assert reading.formats == {"claude-code": 1}
    assert told(session) == [(15_003, 120, None, "human"), (15_305, 80, 3.5, "tool")]
    assert [turn.cached for turn in session.turns] == [10_000, 15_000]
    assert reading.report.skipped == 0


def test_a_pause_ends_with_the_last_result_and_persons_go_before_tools(tmp_path: Path) -> None:
    log = two_turns()
    log.result(14, "one of two")
    log.result(19, "the other", tool="toolu_2")
    log.answer(22, "c", 5, 400, 15_400, 60)
    log.person(25, "a caveat that no person wrote", isMeta=True)
    log.person(82, "now do the rest")
    log.answer(90, "d", 5, 400, 15_900, 60)
    [session], _ = read(lines(tmp_path / "s.jsonl", log.lines))
    assert told(session)[2:] == [(15_805, 60, 7.0, "tool"), (16_305, 60, 60.0, "human")]


def test_without_a_request_id_the_message_tells_the_call(tmp_path: Path) -> None:
    log = two_turns()
    for line in log.lines:
        line.pop("requestId", None)
    [session], _ = read(lines(tmp_path / "s.jsonl", log.lines))
    assert [turn.output for turn in session.turns] == [120, 80]


def test_a_resumed_session_does_not_count_its_past_again(tmp_path: Path) -> None:
    log = two_turns()
    first = lines(tmp_path / "s1.jsonl", log.lines)
    log.person(60, "and on we go")
    log.answer(63, "c", 5, 400, 15_400, 60)
    second = lines(tmp_path / "s2.jsonl", log.lines)
    sessions, reading = read(first, second)
    assert [[turn.prompt for turn in one.turns] for one in sessions] == [[15_003, 15_305], [15_805]]
    assert reading.report.left_out == {"lines of calls that another log has already told": 4}


def test_a_compaction_is_marked_even_from_a_small_context(tmp_path: Path) -> None:
    log = two_turns()
    log.system(30, "compact_boundary", compactMetadata={"trigger": "manual", "preTokens": 15_385})
    log.person(30, "This is a summary", isCompactSummary=True)
    log.person(31, "go on")
    log.answer(35, "c", 5, 9_000, 0, 60)
    [session], _ = read(lines(tmp_path / "s.jsonl", log.lines))
    assert told(session)[2] == (9_005, 60, 19.0, "compact")


def test_sub_agents_have_logs_of_their_own(tmp_path: Path) -> None:
    child = Log()
    child.extra |= {"isSidechain": True, "agentId": "ab12"}
    child.person(1, "look around")
    child.answer(3, "x", 3, 4000, 0, 40)
    lines(tmp_path / "s" / "subagents" / "agent-ab12.jsonl", child.lines)
    main = lines(tmp_path / "s.jsonl", two_turns().lines)
    sessions, _ = read(main)
    assert [(one.parent, one.turns[0].prompt) for one in sessions] == [(None, 15_003), ("s1", 4_003)]
    alone, _ = read(tmp_path / "s" / "subagents" / "agent-ab12.jsonl")
    assert [one.parent for one in alone] == [None]


def test_older_logs_hold_their_sub_agents_between_the_lines(tmp_path: Path) -> None:
    log = two_turns()
    log.extra["isSidechain"] = True
    for start in (20, 40):
        log.person(start, "look around")
        log.lines[-1]["parentUuid"] = None
        log.answer(start + 2, f"x{start}", 3, 4000 + start, 0, 40)
        log.result(start + 4, "seen")
        log.answer(start + 6, f"y{start}", 3, 4100 + start, 0, 40)
    log.extra["isSidechain"] = False
    log.person(60, "thanks")
    log.answer(62, "c", 5, 400, 15_400, 60)
    sessions, _ = read(lines(tmp_path / "s.jsonl", log.lines))
    assert [(one.parent, [turn.prompt for turn in one.turns]) for one in sessions] == [
        (None, [15_003, 15_305, 15_805]),
        ("s1", [4023, 4123]),
        ("s1", [4043, 4143]),
    ]


def test_lines_written_in_place_of_an_answer_are_no_calls(tmp_path: Path) -> None:
    log = two_turns()
    log.answer(20, "e", 0, 0, 0, 0)
    log.lines[-1]["message"]["model"] = "<synthetic>"
    log.answer(21, "f", 0, 0, 0, 3)
    log.answer(22, "g", 5, 10, 3, 3, message={"role": "assistant", "content": []})
    [session], reading = read(lines(tmp_path / "s.jsonl", log.lines))
    assert len(session.turns) == 2
    assert list(reading.report.left_out.values()) == [1]
    assert [text.rpartition(": ")[2] for text in reading.report.named] == [
        "an empty prompt",
        "an answer without usage",
    ]


def test_nothing_said_gets_into_what_is_kept(tmp_path: Path) -> None:
    [session], _ = read(lines(tmp_path / "s.jsonl", two_turns().lines))
    kept = msgspec.json.encode(session).decode()
    for secret in ("parser", "found it", "secret", "11112222", "2026", "msg_", "req_"):
        assert secret not in kept


def test_the_first_message_tells_the_size_of_the_system_prompt(tmp_path: Path) -> None:
    log = Log()
    log.person(0, "w" * 4000)
    log.answer(4, "a", 3, 16_000, 0, 120)
    [session], _ = read(lines(tmp_path / "s.jsonl", log.lines))
    assert session.system == 15_003
