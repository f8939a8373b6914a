"""Files of every format with bytes changed, lost and doubled: read as far as they go, never a traceback."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from agenttop.agents.check import parse
from agenttop.agents.imports.detect import NAMES
from agenttop.agents.imports.fit import Observed
from agenttop.agents.imports.profile import make
from agenttop.errors import AgenttopError
from tests.agents.imports.files import Log, read, request, weka


def sample(form: str) -> str:
    """A small file of the format."""
    if form == "weka":
        requests = [request(n * 9.0, 900 + 80 * n, 50, "tool_use", hash_ids=[1, 2]) for n in range(6)]
        return json.dumps(weka(requests))
    if form == "claude-code":
        log = Log()
        log.person(0, "please")
        for n in range(5):
            log.answer(3 + 9 * n, f"c{n}", 3, 100, 900 + 200 * n, 50)
            log.result(6 + 9 * n, "seen")
        return "\n".join(map(json.dumps, log.lines))
    made: dict[str, Any] = {
        "mooncake": {"session_id": "a", "input_length": 900, "output_length": 20, "delay": 900},
        "aiperf": {"session_id": "a", "turns": [{"text": "q" * 30, "delay": 5, "output_length": 9}] * 3},
        "sharegpt": {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}] * 3},
        "openai": {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}] * 3},
    }[form]
    return "\n".join([json.dumps(made)] * 6)


def hurt(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, a piece lost, a piece doubled, or a value replaced by something absurd."""
    at = rng.randrange(len(data))
    match rng.randrange(5):
        case 0:
            return data[:at] + bytes(rng.randrange(256) for _ in range(3)) + data[at + 3 :]
        case 1:
            return data[:at] + data[at + rng.randrange(40) :]
        case 2:
            return data[:at] + data[at : at + rng.randrange(60)] + data[at:]
        case 3:
            odd = rng.choice(
                [b"null", b"[]", b"{}", b"-1", b"1e308", b'"x"', b"true", b"[[1]]", b"99999999999"]
            )
            end = data.find(b",", at)
            start = data.rfind(b":", 0, at) + 1
            return data[:start] + odd + data[end if end > 0 else at :]
    return data[:at]


@pytest.mark.parametrize("form", NAMES)
def test_damage_is_survived(form: str, tmp_path: Path) -> None:
    rng = random.Random(f"damage {form}")
    whole = sample(form).encode()
    path = tmp_path / "file.jsonl"
    outcomes = {"read": 0, "refused": 0}
    for _ in range(150):
        data = whole
        for _ in range(rng.randrange(1, 4)):
            data = hurt(data, rng) or b"{"
        path.write_bytes(data)
        try:
            sessions, _ = read(path, form=form if rng.random() < 0.5 else None, whole=True)
        except AgenttopError:
            outcomes["refused"] += 1
            continue
        outcomes["read"] += 1
        observed = Observed()
        for session in sessions:
            observed.add(session)
        if observed.sessions:
            profile, problems = parse(make(observed, "read").text, "made")
            assert profile is not None, (problems, data)
    assert outcomes["read"] > 70
