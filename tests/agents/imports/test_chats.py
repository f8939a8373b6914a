"""Formats that hold words: requests are counted from the messages, sizes estimated from their length."""

from __future__ import annotations

import json
from pathlib import Path

from tests.agents.imports.files import lines, read, told


def test_a_chat_makes_one_request_for_each_answer(tmp_path: Path) -> None:
    call = [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]
    chat = {
        "model": "some-model",
        "tools": [{"type": "function", "function": {"name": "read", "parameters": {}}}],
        "messages": [
            {"role": "system", "content": "s" * 396},
            {"role": "user", "content": [{"type": "text", "text": "u" * 200}]},
            {"role": "assistant", "content": None, "tool_calls": call},
            {"role": "tool", "tool_call_id": "c1", "content": "r" * 800},
            {"role": "assistant", "content": "a" * 100},
            {"role": "user", "content": "v" * 40},
        ],
    }
    [session], reading = read(lines(tmp_path / "chat.jsonl", [chat]))
    assert reading.formats == {"openai": 1}
    assert reading.report.estimated
    tools = -(-len(json.dumps(chat["tools"], separators=(",", ":"))) // 4) + 4
    calls = -(-len(json.dumps(call, separators=(",", ":"))) // 4)
    first = tools + 103 + 54
    assert told(session) == [
        (first, calls, None, "human"),
        (first + calls + 4 + 204, 25, None, "tool"),
    ]
    assert session.system == tools + 103


def test_words_are_kept_only_on_request(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "my secret"}, {"role": "assistant", "content": "yes"}]}
    path = lines(tmp_path / "chat.jsonl", [chat])
    assert read(path)[0][0].turns[0].text is None
    assert read(path, with_text=True)[0][0].turns[0].text == "my secret"


def test_sizes_count_bytes_so_that_other_scripts_are_not_made_small(tmp_path: Path) -> None:
    chat = {"messages": [{"role": "user", "content": "読" * 100}, {"role": "assistant", "content": "ok"}]}
    [session], _ = read(lines(tmp_path / "chat.jsonl", [chat]))
    assert session.turns[0].prompt == 75 + 4


def test_share_gpt_as_an_array_longer_than_what_is_read_at_once(tmp_path: Path) -> None:
    conversation = [
        {"from": "human", "value": "q" * 400},
        {"from": "gpt", "value": "a" * 200},
        {"from": "human", "value": "w" * 100},
        {"from": "gpt", "value": "b" * 400},
    ]
    many = [{"id": f"c{n}", "conversations": conversation} for n in range(300)]
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps(many, indent=1))
    assert path.stat().st_size > 300_000
    sessions, reading = read(path)
    assert reading.formats == {"sharegpt": 1}
    assert len(sessions) == 300
    assert told(sessions[-1]) == [(104, 50, None, "human"), (187, 100, None, "human")]
    assert len(read(path, limit=7)[0]) == 7


def test_an_array_that_is_cut_off_gives_what_was_whole(tmp_path: Path) -> None:
    one = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
    path = tmp_path / "sharegpt.json"
    path.write_text(json.dumps([one, "odd", one, one])[:-20])
    sessions, reading = read(path)
    assert len(sessions) == 2
    assert reading.report.named == [
        f"{path} element 2: not a JSON object",
        f"{path} element 4: not JSON; the rest cannot be read",
    ]


def test_conversations_without_an_answer_are_left_out(tmp_path: Path) -> None:
    whole = {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]}
    half = {"conversations": [{"from": "gpt", "value": "a"}]}
    ghost = {"conversations": [{"from": "ghost", "value": "a"}]}
    sessions, reading = read(lines(tmp_path / "s.jsonl", [whole, half, ghost]))
    assert len(sessions) == 1
    assert reading.report.left_out == {"conversations without a reply": 1}
    assert "'ghost' is nobody" in reading.report.named[0]


def test_ai_perf_sessions(tmp_path: Path) -> None:
    made = [
        {
            "session_id": "a",
            "turns": [
                {"role": "system", "text": "s" * 80},
                {"text": "q" * 400, "output_length": 50},
                {"texts": ["w" * 80, "x" * 39], "delay": 1500, "output_length": 20},
            ],
        },
        {"session_id": "b", "turns": [{"text": "alone", "timestamp": 1000, "output_length": 5}]},
        {"session_id": "b", "turns": [{"text": "more", "timestamp": 9000}]},
        {"session_id": "c", "turns": [{"delay": 5}]},
    ]
    path = lines(tmp_path / "a.jsonl", made)
    sessions, reading = read(path)
    assert reading.formats == {"aiperf": 1}
    assert told(sessions[0]) == [(128, 50, None, "human"), (128 + 54 + 34, 20, 1.5, "human")]
    assert sessions[0].system == 24
    assert told(sessions[1]) == [(6, 5, None, "human"), (20, 216, 8.0, "human")]
    assert reading.report.named == [f"{path}:4: a turn without text"]
    assert any("no output length" in note for note in reading.report.notes)
