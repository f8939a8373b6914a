"""Whatever a server that calls itself llama.cpp sends: no exception but those meant, no absurd figure."""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agenttop.collect.engine.base import ChangedError, EngineReading, UnrecognisedError
from agenttop.collect.engine.http import EngineError, Reply
from agenttop.collect.engine.kinds.llamacpp.adapter import LlamaCppAdapter
from agenttop.collect.engine.kinds.llamacpp.arguments import ServerArguments
from agenttop.collect.engine.watch import EngineWatch
from tests.collect import imitations as imitate
from tests.collect import samples

BODIES = {
    "/props": [
        samples.body(f"llamacpp/{name}")
        for name in ("b8672/idle-props.txt", "b11434/idle/props.txt", "b11434/sleeping/props.txt")
    ],
    "/slots": [
        samples.body(f"llamacpp/{name}")
        for name in (
            "b8672/after-slots.txt",
            "b11063/after-slots.txt",
            "b11434/idle/slots.txt",
            "handmade/slots-2024.json",
            "handmade/slots-early-2025.json",
        )
    ]
    + [body for _, body in samples.series("llamacpp/b11434/load4/slots.jsonl")[10:20]]
    + [body for _, body in samples.series("llamacpp/b11434/kvu-exhaust/slots.jsonl")[10:20]],
    "/metrics": [
        samples.body(f"llamacpp/{name}")
        for name in ("b5353/after-metrics.txt", "b8672/after-metrics.txt", "b11434/after/metrics.txt")
    ],
    "/health": [b'{"status":"ok"}', b'{"status":"ok","slots_idle":1,"slots_processing":2}'],
}
JUNK: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, 10**30, -(2**63), 1.5, -0.0, 1e308, "", "x", "\x1b[2J\x00", "9" * 300,
    [], {}, [[]], [None], [{}], {"a": {}},
]  # fmt: skip
VALUES = [
    "nan",
    "NaN",
    "+Inf",
    "-Inf",
    "-1",
    "1e400",
    "1e308",
    "0",
    "",
    "x",
    "1 2 3",
    "0x10",
    "9" * 400,
    "1e-400",
]


def mutated(body: bytes, dice: random.Random) -> bytes:
    """The body with some of it replaced: values by others of another kind, or bytes by any."""
    way = dice.random()
    if not body.strip() or way < 0.1:
        return body
    if way < 0.3:
        damaged = bytearray(body)
        for _ in range(dice.randint(1, 8)):
            place = dice.randrange(len(damaged) + 1)  # a damage before may have left nothing
            damaged[place : place + dice.randint(0, 40)] = dice.randbytes(dice.randint(0, 6))
        return bytes(damaged)
    try:
        value = json.loads(body)
    except ValueError:
        lines = body.decode().splitlines()
        for _ in range(dice.randint(1, 6)):
            place = dice.randrange(len(lines))
            name = lines[place].partition(" ")[0]
            lines[place] = f"{name} {dice.choice(VALUES)}"
            if dice.random() < 0.3:
                lines.append(lines[place])
        return "\n".join(lines).encode()
    for _ in range(dice.randint(1, 5)):
        value = _mutated(value, dice)
    return json.dumps(value).encode()


def _mutated(value: Any, dice: random.Random) -> Any:
    if isinstance(value, dict) and value and dice.random() < 0.9:
        key = dice.choice(sorted(value))
        if dice.random() < 0.15:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: _mutated(value[key], dice)}
    if isinstance(value, list) and value and dice.random() < 0.9:
        place = dice.randrange(len(value))
        return [*value[:place], _mutated(value[place], dice), *value[place + 1 :]]
    return dice.choice(JUNK)


def check(reading: EngineReading) -> None:
    """No figure of any frame is negative, infinite or no number; no share is above 1; texts are clean."""
    frames = [reading.sample, *reading.slots, *reading.missing, *reading.events, *reading.parts]
    for frame in frames:
        for name, value in _leaves(msgspec.structs.asdict(frame)):
            if isinstance(value, int | float) and not isinstance(value, bool):
                assert math.isfinite(value), (name, value)
                assert value >= 0, (name, value)
                if name.endswith(("_fraction", "acceptance")):
                    assert value <= 1, (name, value)
            if isinstance(value, str):
                assert value.isprintable(), (name, value)
                assert len(value) < 600, (name, value)
    assert msgspec.json.decode(msgspec.json.encode(reading.sample))


def _leaves(fields: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from _leaves(value)
        else:
            yield name, value


class Puppet:
    """Stands in for `EngineClient`: the replies that the test gives it, on the test's clock."""

    base_url = "http://127.0.0.1:1"
    reply_s: float | None = 0.0

    def __init__(self, dice: random.Random, bodies: dict[str, list[bytes]] | None = None) -> None:
        self.t = 0.0
        self._dice = dice
        self._bodies = bodies or BODIES

    def now(self) -> float:
        return self.t

    async def get(self, path: str, **_: Any) -> Reply:
        assert path in LlamaCppAdapter.allowed_paths
        dice = self._dice
        status = 200 if dice.random() < 0.95 else dice.choice([204, 400, 404, 500, 501, 503])
        headers = {"process-start-time-unix": dice.choice(["1", "1", "1", "2", "", "x"])}
        self.t += dice.choice([0.0, 0.001, 0.3])
        return Reply(status, headers, mutated(dice.choice(self._bodies[path]), dice), self.t, 0.001)


async def looks(adapter: LlamaCppAdapter, puppet: Puppet, dice: random.Random, count: int) -> int:
    """Look again and again; how often there were figures."""
    good = 0
    for _ in range(count):
        puppet.t += dice.choice([0.0, 1.0, 1.0, 2.5, 40.0])
        try:
            reading = await adapter.poll()
        except (EngineError, ChangedError, UnrecognisedError):
            continue
        check(reading)
        good += 1
    return good


@pytest.mark.parametrize("seed", range(40))
def test_mutated_captures_through_the_whole_adapter(seed: int) -> None:
    dice = random.Random(seed)
    puppet = Puppet(dice)
    arguments = [
        None,
        ServerArguments(is_llama_server=True),
        ServerArguments(context=dice.choice([0, 1, 8192, -5, 10**11]), parallel=dice.choice([-1, 0, 4])),
        ServerArguments(unified=True, per_slot=dice.choice([0, 1000]), sleep_idle_s=5),
    ]
    adapter = LlamaCppAdapter(puppet, arguments=dice.choice(arguments))  # type: ignore[arg-type]
    asyncio.run(looks(adapter, puppet, dice, 60))


def test_most_of_the_mutated_captures_are_read() -> None:
    """So that the tests above do not pass because all of it is refused."""
    dice = random.Random(1)
    puppet = Puppet(dice)
    adapter = LlamaCppAdapter(puppet)  # type: ignore[arg-type]
    assert asyncio.run(looks(adapter, puppet, dice, 300)) > 60


numbers = st.one_of(st.integers(), st.floats(), st.just(None), st.text(max_size=3), st.booleans())
rows = st.lists(
    st.fixed_dictionaries(
        {"id": st.one_of(st.integers(-1, 4), numbers)},
        optional={
            "n_ctx": numbers,
            "is_processing": st.one_of(st.booleans(), numbers),
            "state": numbers,
            "id_task": numbers,
            "n_prompt_tokens": numbers,
            "n_prompt_tokens_processed": numbers,
            "n_prompt_tokens_cache": numbers,
            "prompt": numbers,
            "next_token": st.one_of(
                numbers,
                st.fixed_dictionaries({}, optional={"n_decoded": numbers, "n_remain": numbers}),
                st.lists(st.fixed_dictionaries({}, optional={"n_decoded": numbers}), max_size=2),
            ),
        },
    ),
    max_size=5,
)
values = st.dictionaries(
    st.sampled_from(
        [
            "prompt_tokens_total", "prompt_tokens_cached_total", "tokens_predicted_total", "n_decode_total",
            "requests_processing", "requests_deferred", "kv_cache_usage_ratio", "kv_cache_tokens",
            "spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total",
            "spec_decode_num_drafts_total",
        ]
    ),
    st.one_of(st.integers(), st.floats()),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(tables=st.lists(rows, min_size=1, max_size=4), counters=st.lists(values, min_size=1, max_size=3))
def test_any_table_of_slots_and_any_counters(
    tables: list[list[dict[str, Any]]], counters: list[dict[str, float]]
) -> None:
    dice = random.Random(0)
    texts = ["".join(f"llamacpp:{name} {value!r}\n" for name, value in each.items()) for each in counters]
    bodies = {**BODIES, "/slots": [json.dumps(table).encode() for table in tables]}
    puppet = Puppet(dice, {**bodies, "/metrics": [text.encode() for text in texts]})
    adapter = LlamaCppAdapter(puppet, arguments=ServerArguments(is_llama_server=True))  # type: ignore[arg-type]
    asyncio.run(looks(adapter, puppet, dice, 12))


async def test_mutated_captures_through_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the socket to the frames; the watch itself raises nothing at all."""
    dice = random.Random(3)

    def route(path: str) -> Any:
        return lambda: mutated(dice.choice(BODIES[path]), dice)

    routes = {path: route(path) for path in BODIES}
    now = 0.0
    states: set[str] = set()
    with imitate.serves(routes, server="llama.cpp") as server:
        watch = EngineWatch(server.url, now=lambda: now, patience_s=5.0, polls_host=False)
        try:
            for _ in range(150):
                now += dice.choice([1.0, 1.0, 11.0])
                reading = await watch.poll()
                check(reading)
                states.add(reading.sample.state)
        finally:
            await watch.close()
    assert {"ok", "unsupported"} <= states
