"""What fronts have in common: where their servers are found, and what is told of their models.

The servers of a front run on its host. They are looked for only where the front's own process can be seen
listening at the front's address: a tunnel or a container's published port is not the front itself, and a
loopback address in its replies would lead to somebody else's server.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from agenttop.collect.engine.base import EngineReading, Reasons
from agenttop.collect.engine.composite import Composite, Merged
from agenttop.collect.engine.http import EngineClient
from agenttop.collect.engine.kind import Circumstances
from agenttop.collect.hints import kind_of
from agenttop.collect.process import ServerProcess
from agenttop.model.frames import EngineSample, Event, Missing, PartSample
from agenttop.model.text import clean
from agenttop.model.url import is_local

PROCESSES_EVERY_S, SOON_S = 10.0, 2.0
"""Between looks at the processes: as a rule, and while a server is awaited."""
MOST_PARTS = 64
"""Models told of one front; loaded ones come first."""


class Kin:
    """The front's own process and its servers, looked at now and then."""

    def __init__(self, name: str, url: str, seen: Circumstances, now: Callable[[], float]) -> None:
        """`name` is of the kind of engine; `seen` what was known when the front was recognised."""
        self._name = name
        self._url = url
        self._now = now
        self._look_again = seen.look_again
        self._at = -math.inf
        self.awaited = False
        """A model is loaded whose server has not been seen yet."""
        self.process = self._own(seen.process)

    @property
    def pid(self) -> int | None:
        """Of the front, where it runs on this host and can be seen."""
        return self.process.pid if self.process is not None else None

    @property
    def servers(self) -> tuple[ServerProcess, ...]:
        """As they were at the last look."""
        return self.process.children if self.process is not None else ()

    async def look(self, *, again: bool = False) -> None:
        """Look at the processes if it is time; `again`: something has changed, look now."""
        if self._look_again is None:
            return
        every_s = SOON_S if self.awaited else PROCESSES_EVERY_S
        if not again and self._now() - self._at < every_s:
            return
        self._at = self._now()
        self.process = await asyncio.to_thread(self._find)

    def hidden(self) -> tuple[str, str]:
        """Why the servers cannot be seen, and what helps."""
        if self._look_again is None or not is_local(self._url):
            why = f"{self._name} tells only its state; its servers can be read on its own host alone"
            return why, "run agenttop on the host of the engine: agenttop USER@HOST"
        why = f"the process of {self._name} cannot be seen from here, and so neither can its servers"
        return why, "run agenttop as root, and outside of containers, or inside of the same one"

    def _find(self) -> ServerProcess | None:
        return self._own(self._look_again() if self._look_again is not None else None)

    def _own(self, process: ServerProcess | None) -> ServerProcess | None:
        kind = kind_of(process.command) if process is not None else None
        return process if kind is not None and kind.name == self._name else None


class Models:
    """The models of a front from look to look: which are loaded, which are not any more. Pure."""

    def __init__(self, front: str, url: str) -> None:
        self._front = front
        self._url = url
        self._loaded: list[str] | None = None
        self._shown: str | None = None

    def shown(self, loaded: Sequence[str], known: Collection[str] = ()) -> str | None:
        """The one to name for the front: the same as long as it is loaded; the only one there is."""
        if self._shown not in loaded:
            self._shown = loaded[0] if loaded else next(iter(known)) if len(known) == 1 else None
        return self._shown

    def has_moved(self, loaded: Sequence[str]) -> bool:
        """Whether others are loaded than at the look before."""
        return self._loaded is None or set(loaded) != set(self._loaded)

    def update(self, t: float, loaded: Sequence[str]) -> list[Event]:
        """What has happened to which models since the look before."""
        before, self._loaded = self._loaded, list(loaded)
        return self._events(t, before, loaded) if before is not None else []

    def _events(self, t: float, before: Sequence[str], loaded: Sequence[str]) -> list[Event]:
        came = [name for name in loaded if name not in before]
        went = [name for name in before if name not in loaded]
        if not came and not went:
            return []
        if came and went:
            what = f"swapped {_list(went)} for {_list(came)}"
        else:
            what = f"loaded {_list(came)}" if came else f"unloaded {_list(went)}"
        text = f"{self._front} at {self._url} {what}"
        return [Event(t=t, event="engine.model", text=text, source="engine", subject=self._url)]


class FrontAdapter:
    """What the adapters of fronts share; each of them has its own `poll`."""

    name: str
    allowed_paths: frozenset[str]
    alive_path: str

    def __init__(
        self,
        client: EngineClient,
        seen: Circumstances,
        *,
        kind: str | None = None,
        fixes: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            client: the front's.
            seen: what is known besides.
            kind: the kind of engine its process is, where that has another name.
            fixes: see `Composite`.
        """
        self.client = client
        self._url = client.base_url
        self._kin = Kin(kind or self.name, self._url, seen, client.now)
        self._servers = Composite(client, metrics=seen.metrics, fixes=fixes)
        self._models = Models(self.name, self._url)

    async def alive(self) -> bool:
        """Whether it answers its cheapest request."""
        return await self.client.answers(self.alive_path)

    def _identity(self, t: float, *, version: str | None, model: str | None) -> EngineSample:
        return EngineSample(
            t=t,
            engine=self._url,
            url=self._url,
            name=self.name,
            state="ok",
            version=version,
            model=model,
            pid=self._kin.pid,
            front=True,
        )

    def _reading(
        self,
        identity: EngineSample,
        parts: Sequence[PartSample],
        loaded: Sequence[str],
        merged: Merged,
        reasons: Reasons,
        *,
        blind: bool,
    ) -> EngineReading:
        """Put together; `blind`: a loaded model's server cannot be read, so that there are no sums."""
        figures = {} if blind else merged.figures
        # What the front itself tells goes before what its servers tell.
        known = {name: value for name, value in figures.items() if not getattr(identity, name)}
        sample = msgspec.structs.replace(identity, **known)
        self._explain_the_rest(reasons, loaded, merged, blind=blind)
        told = sorted(parts, key=lambda part: part.part not in loaded)[:MOST_PARTS]
        return EngineReading(
            sample=sample,
            slots=merged.slots,
            latencies=[] if blind else merged.latencies,
            parts=[_with_server(part, merged.parts.get(part.part)) for part in told],
            missing=_once(reasons.frames, sample),
            events=self._models.update(identity.t, loaded),
        )

    def _explain_the_rest(
        self, reasons: Reasons, loaded: Sequence[str], merged: Merged, *, blind: bool
    ) -> None:
        """Reasons for all that has none of its own; the servers' reasons come after them."""
        if not loaded:
            reasons.add(f"{_OF_MODELS} {_OF_SERVERS} {_LATENCIES}", "no model is loaded")
            return
        decode = next((each for each in reasons.frames if each.what.endswith(":decode_tok_s")), None)
        if blind and decode is not None:
            reasons.add(f"{_OF_SERVERS} {_LATENCIES}", decode.why or "", decode.fix)
        reasons.frames += merged.missing
        if blind:
            return
        if len(loaded) > 1:
            reasons.add(_LATENCIES, "percentiles of several servers do not add up")
            reasons.add(_OF_SERVERS, "its servers differ in it, or do not tell it: see each model")
        else:
            reasons.add(_OF_SERVERS, "its server does not tell it")


_OF_MODELS = "waiting decode_tok_s prefill_tok_s slots kv_used_tokens kv_pool_tokens"
_OF_SERVERS = (
    "model quantisation kv_dtype context_limit_tokens kv_layout kv_used_fraction prompt_tokens_total "
    "cached_tokens_total output_tokens_total preemptions_total finish_reasons draft_acceptance"
)
_LATENCIES = "ttft itl e2e queue"


def _with_server(part: PartSample, server: PartSample | None) -> PartSample:
    """The front's word on a model, with the figures of its server."""
    if server is None:
        return part
    figures = {
        name: getattr(server, name)
        for name in PartSample.__struct_fields__
        if name not in ("t", "engine", "part", "role") and getattr(part, name) is None
    }
    return msgspec.structs.replace(part, **figures)


def _once(missing: Iterable[Missing], sample: EngineSample) -> list[Missing]:
    """The first reason for each figure that really is missing."""
    first: dict[str, Missing] = {}
    for frame in missing:
        field = frame.subject_and_field[1]
        if getattr(sample, field, None) in (None, {}):
            first.setdefault(frame.what, frame)
    return list(first.values())


def model_name(text: object) -> str:
    """A model's name as a server wrote it, fit for a frame; empty for what is none."""
    return clean(text, 80) if isinstance(text, str) else ""


def _list(names: Sequence[str]) -> str:
    if len(names) > 3:
        return f"{names[0]} and {len(names) - 1} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
