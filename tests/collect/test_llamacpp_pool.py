"""How slots share the KV cache: from the command line, from the counts, or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from agenttop.collect.engine.kinds.llamacpp.arguments import ServerArguments, read_arguments
from agenttop.collect.engine.kinds.llamacpp.pool import layout_of, pool_of
from agenttop.collect.engine.kinds.llamacpp.slots import Slot, parse_slots
from tests.collect import samples


def slots(count: int, limit: int | None, held: list[int | None] | None = None, busy: int = 0) -> list[Slot]:
    held = held or [0] * count
    return [
        Slot(
            number=number,
            processing=number < busy,
            task=1,
            context_limit=limit,
            held=held[number],
            processed=None,
            cached=None,
            decoded=None,
            remaining=None,
        )
        for number in range(count)
    ]


@pytest.mark.parametrize(
    ("command", "count", "limit", "expected"),
    [
        ("llama-server -m x", 4, 8192, ("unified", 8192)),
        ("llama-server -m x -np 4 -c 8192", 4, 2048, ("split", 8192)),
        ("llama-server -m x -np 4", 4, 2048, ("split", 8192)),
        ("/usr/bin/llama-server --parallel 4 --ctx-size 8192 -kvu", 4, 8192, ("unified", 8192)),
        ("llama-server --parallel -1 --no-kv-unified", 4, 2048, ("split", 8192)),
        ("llama-server.exe -np 8 --kv-unified-per-slot 1000", 8, 1000, ("unified", 8000)),
        ("llama-server -np 8 -c 5000 --kv-unified-per-slot 1000", 8, 1000, ("unified", 5000)),
        ("llama-server -np 3 -c 8192", 3, 2816, ("split", 8448)),
        ("python -m agenttop.demo.server --model x --slots 4 --context 8192", 4, 2048, ("split", 8192)),
        ("python -m agenttop.demo.server --slots 4 --context=8192 --unified", 4, 8192, ("unified", 8192)),
        ("python serve.py --context 8192", 4, 8192, ("unified", 8192)),
        ("python serve.py", 4, 8192, (None, None)),
        ("python serve.py", 1, 8192, ("split", 8192)),
    ],
)
def test_the_command_line_tells(command: str, count: int, limit: int, expected: tuple[Any, Any]) -> None:
    assert layout_of(slots(count, limit), read_arguments(command.split())) == expected


def test_variables_stand_in_for_the_command_line_of_llama_server_only() -> None:
    variables = {"LLAMA_ARG_N_PARALLEL": "4", "LLAMA_ARG_KV_UNIFIED": "1", "LLAMA_API_KEY": "secret"}
    read = read_arguments(["llama-server"], variables)
    assert (read.parallel, read.unified) == (4, True)
    assert "secret" not in repr(read)
    assert read_arguments(["llama-server", "-np", "2"], variables).parallel == 2
    assert read_arguments(["python", "x.py"], variables) == ServerArguments()


def test_odd_command_lines() -> None:
    assert read_arguments([]) == ServerArguments()
    assert read_arguments(["llama-server", "-c"]).context is None
    assert read_arguments(["llama-server", "-c", "many"]).context is None
    read = read_arguments(["llama-server", "--api-key", "sk-1", "--sleep-idle-seconds", "60"])
    assert read.sleep_idle_s == 60
    assert "sk-1" not in repr(read)


def test_without_a_command_line_only_a_contradiction_tells() -> None:
    assert layout_of(slots(4, 2048), None) == (None, None)
    assert layout_of(slots(4, 2048, [600, 600, 600, 600]), None) == ("split", 8192)
    assert layout_of(slots(4, 2048, [500, 500, 500, 500]), None) == (None, None)


def test_a_slot_without_a_limit_makes_the_pool_unknown() -> None:
    assert layout_of([*slots(1, 2048), *slots(1, None)], None) == (None, None)
    assert layout_of([], None) == (None, None)


def test_active_and_idle_tokens() -> None:
    pool = pool_of(slots(4, 2048, [100, 200, 300, 0], busy=1), "split", 8192)
    assert (pool.used, pool.active, pool.idle) == (600, 100, 500)
    assert pool.fraction == pytest.approx(600 / 8192)


def test_fill_is_never_above_one_and_never_made_up() -> None:
    assert pool_of(slots(2, 100, [90, 90]), "unified", 100).fraction == 1.0
    assert pool_of(slots(2, 100, [90, 90]), None, None).fraction is None
    unknown = pool_of(slots(2, 100, [90, None]), "split", 200)
    assert (unknown.used, unknown.active, unknown.idle, unknown.fraction) == (None, None, None, None)
    assert unknown.size == 200


def test_captured_split_pool_of_b11434() -> None:
    table = parse_slots(samples.body("llamacpp/b11434/after/slots.txt"))
    layout = layout_of(table, read_arguments(["llama-server", "-np", "4", "-c", "8192"]))
    pool = pool_of(table, *layout)
    assert (pool.layout, pool.size, pool.active) == ("split", 8192, 0)
    assert pool.used == pool.idle == sum(slot.held or 0 for slot in table) > 0
