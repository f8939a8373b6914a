"""Fronts and their servers for tests: replies of imitations, and processes that are told, not looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from agenttop.collect.engine import composite
from agenttop.collect.engine.base import EngineAdapter, EngineReading
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances, EngineKind
from agenttop.collect.process import Command, ServerProcess
from agenttop.commands import doctor_figures
from agenttop.model.frames import Event, Missing, PartSample
from tests.collect import imitations as imitate
from tests.collect import samples

HERE = "llamacpp/router"

composite.PATIENCE_S = 10.0
"""A busy machine must not make a server late: what a look at a late one gives is tried by itself."""


def llama(slots: Any = None) -> dict[str, Any]:
    """A llama.cpp server with two slots of 512 tokens; idle, one of them having served a request."""
    return {
        "/props": samples.body(f"{HERE}/props_tiny_a.json"),
        "/slots": slots if slots is not None else samples.body(f"{HERE}/slots_tiny_a.json"),
        "/metrics": (501, {"error": {"code": 501, "message": "off", "type": "not_supported_error"}}),
        "/health": {"status": "ok"},
    }


def busy(decoded: int, *, held: int = 100) -> list[dict[str, Any]]:
    """One request in progress in the first of two slots."""
    following = [{"has_next_token": True, "n_remain": 900, "n_decoded": decoded}]
    return [
        {
            "id": 0,
            "n_ctx": 512,
            "is_processing": True,
            "id_task": 7,
            "n_prompt_tokens": held + decoded,
            "n_prompt_tokens_processed": held,
            "n_prompt_tokens_cache": 0,
            "next_token": following,
        },
        {"id": 1, "n_ctx": 512, "speculative": False, "is_processing": False},
    ]


@contextmanager
def servers(*routes: dict[str, Any]) -> Iterator[list[imitate.Imitation]]:
    """llama.cpp servers that fail the test when they are asked what they must not be."""
    started = [imitate.serves(each, server="llama.cpp", kind="llama.cpp") for each in routes]
    try:
        for each in started:
            each.__enter__()
        yield started
    except BaseException as error:
        for each in started:
            each.__exit__(type(error), error, None)
        raise
    else:
        for each in started:
            each.__exit__(None, None, None)


def child(port: int, *words: str, pid: int = 0) -> ServerProcess:
    """A llama-server process."""
    argv = ["llama-server", "--port", str(port), "-c", "1024", "-np", "2", *words]
    return ServerProcess(pid=pid or port, command=Command(argv))


class Host:
    """What is seen of a front's process, and may be changed between looks."""

    def __init__(self, program: Sequence[str], children: Sequence[ServerProcess] = ()) -> None:
        self.program = list(program)
        self.children = list(children)
        self.looks = 0

    def process(self) -> ServerProcess:
        self.looks += 1
        command = Command(self.program)
        return ServerProcess(pid=4000, command=command, children=tuple(self.children))

    def seen(self) -> Circumstances:
        return Circumstances(process=self.process(), look_again=self.process)


NOWHERE = Circumstances()
"""The front runs on another host."""


class Clock:
    """Session time that only the test moves."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def adapter(
    kind: EngineKind, url: str, seen: Circumstances, now: Callable[[], float] | None = None
) -> EngineAdapter:
    """The adapter of a kind, with a client of its own."""
    client = EngineClient(url, kind.allowed_paths, now=now or Clock())
    return kind.adapter(client, seen)


async def look(each: EngineAdapter, times: int = 1, pause_s: float = 1.0) -> EngineReading:
    """The last of several looks, a second of session time apart."""
    reading = await each.poll()
    for _ in range(times - 1):
        if isinstance(each.client.now, Clock):
            each.client.now.time += pause_s
        reading = await each.poll()
    return reading


def parts(reading: EngineReading) -> dict[str, PartSample]:
    return {part.part: part for part in reading.parts}


def reasons(reading: EngineReading) -> dict[str, Missing]:
    """By field."""
    return {frame.subject_and_field[1]: frame for frame in reading.missing}


def unexplained(reading: EngineReading) -> list[str]:
    """Figures that `agenttop doctor` would find neither a value nor a reason for."""
    seen = doctor_figures.Seen(
        sample=reading.sample,
        slots=reading.slots,
        latencies=reading.latencies,
        parts=reading.parts,
        missing=reading.missing,
    )
    rows = doctor_figures.rows(seen)
    return [row.figure for row in rows if row.status == doctor_figures.UNEXPLAINED]


def texts(events: Sequence[Event]) -> list[str]:
    return [event.text.partition(" at ")[2].partition(" ")[2] for event in events]
