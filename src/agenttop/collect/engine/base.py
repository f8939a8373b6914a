"""What every engine adapter looks like.

A new engine is one new module with an `EngineKind` (see `kind`), a line in the entry-point group
`agenttop.engines`, and a folder of replies for its tests.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from agenttop.collect.engine.http import EngineClient
from agenttop.model.frames import (
    EngineSample,
    Event,
    GpuSample,
    LatencySample,
    Missing,
    PartSample,
    SlotSample,
)


class EngineReading(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at an engine gave.

    From an adapter, `missing` is everything that is missing now; from an `EngineWatch`, what changed since
    the look before (a `Missing` frame is sent once, and once more when the value is back).
    """

    sample: EngineSample
    slots: list[SlotSample] = []
    gpus: list[GpuSample] = []
    """Of a simulated engine: the GPUs it stands for. Those of this host are not an engine's to tell."""
    latencies: list[LatencySample] = []
    """From the engine's own histograms; empty in a look that brings nothing new."""
    parts: list[PartSample] = []
    """All parts there are now: ranks, or the models of a front."""
    missing: list[Missing] = []
    events: list[Event] = []


class EngineAdapter(Protocol):
    """Turns the replies of one kind of engine into samples.

    An adapter keeps what it needs from look to look (counters, the last slots) and knows nothing about
    other engines, back-off or time limits: `EngineWatch` does.
    """

    name: str
    """llama.cpp, vLLM, ...: shown as it is."""
    allowed_paths: frozenset[str]
    """The only GETs it may make. The client enforces it, and a test goes through all of them."""
    client: EngineClient

    async def poll(self) -> EngineReading:
        """One look. The `t` of its frames is when the newest reply in them arrived.

        Raises:
            EngineError: a request failed.
            ChangedError: another kind of engine answers there now.
        """
        ...

    async def alive(self) -> bool:
        """Whether the engine answers its cheapest request at once. Asked when a look takes too long."""
        ...


class ChangedError(Exception):
    """Another kind of engine answers at this address now."""


class UnrecognisedError(Exception):
    """What was found at an address instead of an engine that can be read."""

    def __init__(self, state: str, note: str, name: str = "unknown") -> None:
        super().__init__(note)
        self.state = state
        """A state of EngineSample: loading, busy, down, unauthorised, unsupported."""
        self.note = note
        self.name = name


class Reasons:
    """Collects why values are missing, in the form of frames."""

    def __init__(self, url: str, t: float) -> None:
        self._url = url
        self._t = t
        self.frames: list[Missing] = []

    def add(self, fields: str, why: str, fix: str | None = None) -> None:
        """One reason for several fields, separated by blanks."""
        for field in fields.split():
            self.frames.append(Missing(t=self._t, what=f"{self._url}:{field}", why=why, fix=fix))


KEY_HINT = "give its key with --api-key-env NAME or --api-key-file FILE, or in engines.toml"


def restart_event(t: float, name: str, url: str) -> Event:
    """The server was restarted between two looks."""
    text = f"{name} at {url} was restarted"
    return Event(t=t, event="engine.restart", text=text, source="engine", severity="warn", subject=url)


def needs_key(t: float, name: str, url: str, *, given: bool) -> Event:
    """The server shows figures, but its API wants a key. `given`: there is one, and it is not accepted."""
    how = "does not accept the key that was given" if given else "needs a key for requests"
    text = f"{name} at {url} shows its figures, but {how}; {KEY_HINT}"
    return Event(t=t, event="engine.locked", text=text, source="engine", severity="warn", subject=url)
