"""Frames of a node that is started for a short look, and the state they fold to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import msgspec

from agenttop.errors import AgenttopError
from agenttop.model.clock import Clock, SystemClock
from agenttop.model.commands import Command, Quit
from agenttop.model.frames import EngineSample, Frame
from agenttop.node.settings import NodeSettings
from agenttop.stream.lines import ChildSource

START_S = 15.0
"""A node that has said nothing by then did not start."""


@contextlib.contextmanager
def started(settings: NodeSettings, first: Sequence[Command] = ()) -> Iterator[ChildSource]:
    """A node, ended in order when the block is left."""
    source = ChildSource(settings.argv(), SystemClock())
    try:
        for command in first:
            source.send(command)
        yield source
    finally:
        source.send(Quit())
        if source.wait_exit(20.0) is None:
            source.process.kill()
        source.close()


def look(settings: NodeSettings, window_s: float, clock: Clock | None = None) -> list[Frame]:
    """All frames of a look of `window_s` seconds, counted from the first answer of every named engine.

    Nothing is recorded. Raises AgenttopError when the node does not start.
    """
    clock = clock or SystemClock()
    quiet = msgspec.structs.replace(
        settings, record=False, out=None, interval_s=min(1.0, max(0.2, window_s / 4))
    )
    frames: list[Frame] = []
    with started(quiet) as source:
        limit = clock.monotonic() + START_S
        until: float | None = None
        while True:
            source.wait(0.1)
            batch = source.take()
            frames.extend(batch.frames)
            now = clock.monotonic()
            if batch.ended:
                raise AgenttopError(batch.ended)
            if until is None and (_all_seen(frames, settings.urls) or now > limit):
                if not frames:
                    raise AgenttopError("the node did not start")
                until = now + window_s
            if until is not None and now >= until:
                return frames


def _all_seen(frames: list[Frame], urls: Sequence[str]) -> bool:
    seen = {frame.engine for frame in frames if isinstance(frame, EngineSample) and frame.state != "starting"}
    return bool(frames) and all(url in seen for url in urls)
