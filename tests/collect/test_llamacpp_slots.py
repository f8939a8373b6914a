"""`/slots` of every captured build, and of shapes that builds before them had."""

from __future__ import annotations

import json

import pytest

from agenttop.collect.engine.kinds.llamacpp.slots import parse_slots
from tests.collect import samples


@pytest.mark.parametrize(
    "name",
    [
        "b8672/idle-slots.txt",
        "b11063/idle-slots.txt",
        "b11434/idle/slots.txt",
        "b11434/sleeping/slots.txt",
        "b11549/idle/slots.txt",
    ],
)
def test_slots_that_never_served(name: str) -> None:
    slots = parse_slots(samples.body(f"llamacpp/{name}"))
    assert [slot.number for slot in slots] == list(range(len(slots)))
    assert {slot.phase for slot in slots} == {"idle"}
    assert {(slot.task, slot.held, slot.decoded, slot.cached) for slot in slots} == {(None, 0, None, None)}


def test_limits_are_per_slot() -> None:
    assert [s.context_limit for s in parse_slots(samples.body("llamacpp/b11434/idle/slots.txt"))] == [
        2048
    ] * 4
    assert [s.context_limit for s in parse_slots(samples.body("llamacpp/b11434/sleeping/slots.txt"))] == [
        512
    ] * 2


@pytest.mark.parametrize("name", ["b11063/after-slots.txt", "b11434/after/slots.txt"])
def test_finished_requests_leave_their_tokens_behind(name: str) -> None:
    slots = parse_slots(samples.body(f"llamacpp/{name}"))
    assert all(slot.phase == "idle" and slot.held and slot.held > 100 for slot in slots)
    assert all(slot.task is not None and slot.decoded == 0 and slot.remaining is None for slot in slots)


def test_a_build_that_does_not_count_held_tokens_says_none_not_zero() -> None:
    slots = parse_slots(samples.body("llamacpp/b8672/after-slots.txt"))
    assert {slot.held for slot in slots} == {None}
    assert {slot.processed for slot in slots} == {None}
    assert {(slot.phase, slot.decoded) for slot in slots} == {("idle", 400)}  # kept from the last task


def test_phases_of_one_request_from_prefill_to_its_end() -> None:
    seen = []
    for _, body in samples.series("llamacpp/b11434/load4/slots.jsonl"):
        slot = parse_slots(body)[3]
        if not seen or seen[-1][0] != slot.phase:
            seen.append((slot.phase, slot.task, slot.held, slot.processed, slot.decoded))
    assert seen == [
        ("idle", None, 0, None, None),
        ("prefill", 9, 144, 1, 0),
        ("decode", 9, 151, 148, 3),
        ("idle", 9, 307, 0, 0),
    ]


def test_cached_prompt_tokens() -> None:
    _, body = samples.series("llamacpp/b11434/load7/slots.jsonl")[1]
    slots = parse_slots(body)
    assert [(slot.phase, slot.cached, slot.processed) for slot in slots[:3]] == [("prefill", 1, 0)] * 3


def older(**fields: object) -> bytes:
    return json.dumps([{"id": 0, "n_ctx": 512, **fields}]).encode()


@pytest.mark.parametrize(
    ("row", "phase", "decoded", "task"),
    [
        # 2024: flat, with a state and the prompt
        (older(state=1, prompt="hi", next_token={"n_decoded": 7, "n_remain": 3}), "decode", 7, None),
        (older(state=0, next_token={"n_decoded": 7, "n_remain": 3}), "idle", 7, None),
        # early 2025: an object, and a task of -1 in a slot that never served
        (older(is_processing=True, id_task=4, next_token={"n_decoded": 7}), "decode", 7, 4),
        (older(is_processing=False, id_task=-1, next_token={"n_decoded": 0}), "idle", 0, None),
        (older(is_processing=True, id_task=2, next_token=[]), "prefill", None, 2),
    ],
)
def test_older_shapes(row: bytes, phase: str, decoded: int | None, task: int | None) -> None:
    (slot,) = parse_slots(row)
    assert (slot.phase, slot.decoded, slot.task) == (phase, decoded, task)


def test_a_prompt_that_is_no_utf8_does_not_spoil_the_rest() -> None:
    (slot,) = parse_slots(
        b'[{"id":3,"is_processing":true,"prompt":"\xff\xfe","next_token":[{"n_decoded":2}]}]'
    )
    assert (slot.number, slot.decoded) == (3, 2)


def test_figures_beyond_reason_are_unknown() -> None:
    huge = 10**400
    (slot,) = parse_slots(
        f'[{{"id":0,"is_processing":true,"n_ctx":{huge},"id_task":{huge},"n_prompt_tokens":{huge},'
        f'"n_prompt_tokens_cache":{1 << 63},"next_token":[{{"n_decoded":{huge}}}]}}]'.encode()
    )
    assert (slot.context_limit, slot.task, slot.held, slot.cached, slot.decoded) == (None,) * 5


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b"<html>",
        b"[1,2]",
        b'[{"id":"x"}]',
        b'[{"id":0,',
        b"[[]]",
        b'[{"id":-5}]',
        b'[{"id":9223372036854775808}]',
        b'[{"id":0,"x":' + b"[" * 50_000 + b"]" * 50_000 + b"}]",
    ],
)
def test_anything_else_is_a_value_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_slots(text)


def test_256_slots() -> None:
    rows = [{"id": i, "n_ctx": 2048, "is_processing": i % 2 == 0, "id_task": i} for i in range(256)]
    slots = parse_slots(json.dumps(rows).encode())
    assert len(slots) == 256
    assert sum(slot.processing for slot in slots) == 128


def test_two_slots_of_one_number_are_no_table_of_slots() -> None:
    with pytest.raises(ValueError, match="same number"):
        parse_slots(b'[{"id":0,"n_ctx":8,"is_processing":true},{"id":0,"n_ctx":8,"is_processing":true}]')
