"""Files in the shapes that recorders write, with made-up figures and words."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agenttop.agents.imports.reading import Reading, Wanted
from agenttop.agents.tracefile import TraceSession


def lines(path: Path, values: Iterable[Any]) -> Path:
    """JSON lines; a string is written as it is. Compressed when the name says so."""
    text = "".join((value if isinstance(value, str) else json.dumps(value)) + "\n" for value in values)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def read(*paths: Path, **wanted: Any) -> tuple[list[TraceSession], Reading]:
    reading = Reading(list(paths), Wanted(**wanted))
    return list(reading.sessions()), reading


def told(session: TraceSession) -> list[tuple[int, int, float | None, str]]:
    """(prompt, output, pause, kind) of each turn."""
    return [(turn.prompt, turn.output, turn.pause_s, turn.kind) for turn in session.turns]


def request(t: float, prompt: int, output: int, stop: str, **more: Any) -> dict[str, Any]:
    """One request of a Weka trace."""
    return {
        "t": t,
        "type": "s",
        "model": "some-model",
        "in": prompt,
        "out": output,
        "input_types": ["text"],
        "output_types": ["text"],
        "stop": stop,
        **more,
    }


def weka(requests: list[Any], **more: Any) -> dict[str, Any]:
    """A Weka trace."""
    return {
        "id": "0a1b2c3d-4e5",
        "models": ["some-model"],
        "block_size": 64,
        "tool_tokens": 700,
        "system_tokens": 300,
        "requests": requests,
        **more,
    }


class Log:
    """A session log of Claude Code, line by line. Times are seconds after nine o'clock."""

    def __init__(self) -> None:
        self.lines: list[Any] = [
            {"type": "file-history-snapshot", "messageId": "m0", "snapshot": {}, "isSnapshotUpdate": False}
        ]
        self.extra: dict[str, Any] = {"sessionId": "11112222-aaaa", "version": "2.1.83", "isSidechain": False}

    def _add(self, at: float, line: dict[str, Any]) -> None:
        stamp = f"2026-03-25T09:{int(at) // 60:02d}:{at % 60:06.3f}Z"
        count = len(self.lines)
        parent = f"u{count - 1}" if count > 1 else None
        self.lines.append(
            {"parentUuid": parent, "uuid": f"u{count}", "timestamp": stamp, **self.extra, **line}
        )

    def person(self, at: float, text: str, **more: Any) -> None:
        self._add(at, {"type": "user", "message": {"role": "user", "content": text}, **more})

    def result(self, at: float, text: str, tool: str = "toolu_1") -> None:
        part = {"type": "tool_result", "tool_use_id": tool, "content": text}
        self._add(at, {"type": "user", "message": {"role": "user", "content": [part]}})

    def answer(
        self, at: float, call: str, fresh: int, created: int, read: int, output: int, **more: Any
    ) -> None:
        usage = {
            "input_tokens": fresh,
            "cache_creation_input_tokens": created,
            "cache_read_input_tokens": read,
            "output_tokens": output,
            "service_tier": "standard",
        }
        message = {
            "id": f"msg_{call}",
            "model": "some-model",
            "role": "assistant",
            "content": [{"type": "text", "text": "secret words"}],
            "usage": usage,
        }
        line = {"type": "assistant", "message": message, "requestId": f"req_{call}"}
        self._add(at, line | more)

    def system(self, at: float, subtype: str, **more: Any) -> None:
        self._add(at, {"type": "system", "subtype": subtype, **more})
