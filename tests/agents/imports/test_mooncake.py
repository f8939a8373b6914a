"""Mooncake traces: what lines of a session hold is found out, or asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agenttop.errors import UsageError
from tests.agents.imports.files import lines, read, told


def rows(prompts: list[int], outputs: list[int], session: str = "a", **more: Any) -> list[dict[str, Any]]:
    return [
        {"session_id": session, "input_length": prompt, "output_length": output, "timestamp": n * 20_000}
        | more
        for n, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
    ]


def test_growing_sizes_are_whole_prompts(tmp_path: Path) -> None:
    prompts, outputs = [1000, 1300, 1500, 1900, 2300, 2600], [100] * 6
    [session], _ = read(lines(tmp_path / "m.jsonl", rows(prompts, outputs)))
    assert [turn.prompt for turn in session.turns] == prompts
    assert [turn.pause_s for turn in session.turns] == [None, 20.0, 20.0, 20.0, 20.0, 20.0]


def test_sizes_that_go_up_and_down_are_what_turns_add(tmp_path: Path) -> None:
    prompts, outputs = [1000, 300, 500, 200, 400], [100, 50, 60, 70, 80]
    [session], _ = read(lines(tmp_path / "m.jsonl", rows(prompts, outputs)))
    assert [turn.prompt for turn in session.turns] == [1000, 1400, 1950, 2210, 2680]


def test_few_lines_tell_nothing_and_the_user_must(tmp_path: Path) -> None:
    path = lines(tmp_path / "m.jsonl", rows([500, 900, 1400], [50, 50, 50]))
    with pytest.raises(UsageError, match="--cumulative or --delta"):
        read(path)
    [whole], _ = read(path, whole=True)
    assert [turn.prompt for turn in whole.turns] == [500, 900, 1400]
    [delta], _ = read(path, whole=False)
    assert [turn.prompt for turn in delta.turns] == [500, 1450, 2900]


def test_block_hashes_tell_even_of_two_lines(tmp_path: Path) -> None:
    whole = rows([1100, 1700], [50, 50])
    whole[0]["hash_ids"], whole[1]["hash_ids"] = [1, 2, 3], [1, 2, 7, 8]
    [session], _ = read(lines(tmp_path / "whole.jsonl", whole))
    assert [turn.prompt for turn in session.turns] == [1100, 1700]
    delta = rows([1100, 1700], [50, 50])
    delta[0]["hash_ids"], delta[1]["hash_ids"] = [1, 2, 3], [9, 10, 11, 12]
    [session], _ = read(lines(tmp_path / "delta.jsonl", delta))
    assert [turn.prompt for turn in session.turns] == [1100, 2850]


def test_a_delay_is_a_pause_in_milliseconds(tmp_path: Path) -> None:
    first, second, third = rows([1000, 400, 300], [100, 60, 30])
    second |= {"delay": 2500}
    third |= {"delay": 45_000}
    [session], reading = read(lines(tmp_path / "m.jsonl", [first, second, third]), whole=False)
    assert told(session)[1:] == [(1500, 60, 2.5, "tool"), (1860, 30, 45.0, "human")]
    assert not reading.report.notes


def test_lines_without_a_session_are_joined_by_their_blocks(tmp_path: Path) -> None:
    made = [
        {"timestamp": 0, "input_length": 1600, "output_length": 40, "hash_ids": [1, 2, 3, 4]},
        {"timestamp": 500, "input_length": 1100, "output_length": 40, "hash_ids": [1, 5, 6]},
        {"timestamp": 9000, "input_length": 2400, "output_length": 40, "hash_ids": [1, 2, 3, 7, 8]},
        {"timestamp": 9500, "input_length": 600, "output_length": 9, "hash_ids": [1, 9]},
    ]
    sessions, _ = read(lines(tmp_path / "m.jsonl", made))
    assert [[turn.prompt for turn in one.turns] for one in sessions] == [[1600, 2400], [1100], [600]]
    assert sessions[0].turns[1].pause_s == 9.0


def test_messages_are_measured_and_say_themselves_what_they_hold(tmp_path: Path) -> None:
    def said(*texts: str) -> list[dict[str, str]]:
        roles = ("user", "assistant")
        return [{"role": roles[n % 2], "content": text} for n, text in enumerate(texts)]

    history = [
        {"session_id": "a", "messages": said("w" * 400), "output_length": 50, "timestamp": 0},
        {"session_id": "a", "messages": said("w" * 400, "x" * 200, "y" * 80), "output_length": 9},
    ]
    [session], reading = read(lines(tmp_path / "m.jsonl", history))
    assert reading.formats == {"mooncake": 1}
    assert reading.report.estimated
    assert [turn.prompt for turn in session.turns] == [104, 182]
    delta = [history[0] | {"message_mode": "delta"}]
    delta.append({"session_id": "a", "messages": said("y" * 80), "message_mode": "delta", "output_length": 9})
    [session], _ = read(lines(tmp_path / "d.jsonl", delta))
    assert [turn.prompt for turn in session.turns] == [104, 178]


def test_lines_that_make_no_sense_are_passed_over(tmp_path: Path) -> None:
    made: list[Any] = rows([1000, 1300, 1500, 1900, 2300, 2600], [100] * 6)
    made[2:2] = ["{broken", '{"input_length": 1e400}', {"input_length": None, "output_length": 3}, "[1]"]
    path = lines(tmp_path / "m.jsonl", made)
    [session], reading = read(path)
    assert len(session.turns) == 6
    assert reading.report.named == [
        f"{path}:3: not JSON",
        f"{path}:4: not JSON",
        f"{path}:5: input_length: expected a number of tokens, found nothing",
        f"{path}:6: not a JSON object",
    ]


def test_a_context_beyond_reason_is_not_kept(tmp_path: Path) -> None:
    path = lines(tmp_path / "m.jsonl", rows([3_000_000, 900_000, 800_000], [50, 50, 50]))
    [session], reading = read(path, whole=False)
    assert [turn.prompt for turn in session.turns] == [3_000_000, 3_900_050]
    assert reading.report.named == ["session s1: a prompt or reply of more than 4000000 tokens"]
