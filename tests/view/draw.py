"""From frames to a store and to text, in one line."""

from __future__ import annotations

from collections.abc import Iterable

from agenttop.model.frames import Frame
from agenttop.view.look import Look
from agenttop.view.spans import Line, plain
from agenttop.view.store import Store
from agenttop.view.text import picture


def folded(frames: Iterable[Frame], now: float | None = None) -> Store:
    frames = list(frames)
    store = Store()
    store.feed(frames, max((frame.t for frame in frames), default=0.0) if now is None else now)
    return store


def drawn(
    frames: Iterable[Frame], now: float | None = None, width: int = 120, height: int = 40, **look: object
) -> str:
    return picture(folded(frames, now), width, height, Look(**look))  # type: ignore[arg-type]


def text_of(lines: Iterable[Line]) -> list[str]:
    return [plain(line) for line in lines]
