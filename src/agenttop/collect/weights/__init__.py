"""How large the weights of an engine's model are, and how much of them is read to decode one token.

With the engine's rate and the peak of a chip's memory this tells how much of that peak decoding uses. Files
are read in a thread, only their headers, and once as long as they stay the same.
"""

from __future__ import annotations

import asyncio

import msgspec

from agenttop.collect.weights.measured import UnknownWeightsError, measure_at
from agenttop.collect.weights.sizes import Weights as Weights
from agenttop.model.frames import EngineSample, Missing
from agenttop.model.url import is_local

FIX = 'name its sizes in engines.toml: weights = "5.5 GB", active-weights = "5.1 GB"'
WELL = ("ok", "busy")
NO_EXPERTS = "it has experts, and its files do not say how many of them work on a token"
ONLY_ALL = "engines.toml names the size of all its weights alone"


class WeightsOf:
    """The weights of one engine, found out once for each process and model."""

    def __init__(self, url: str, total: int | None = None, active: int | None = None) -> None:
        """`total` and `active`: what the user has named in engines.toml, which counts more than files."""
        self._url = url
        self._stated = (total, active)
        self._key: tuple[int | None, str | None, int] | None = None
        self._task: asyncio.Task[Weights] | None = None
        self._found: Weights | None = None
        self._told: tuple[str, str] | None = None
        """The figure that lacks, and why."""

    def add(self, sample: EngineSample) -> tuple[EngineSample, list[Missing]]:
        """The sample with the sizes as far as they are known now, and why they are not, when that changes.

        What the engine itself tells stays. Never waits: files are read in a thread meanwhile.
        """
        total, active = self._stated
        if total is not None:
            own = {"weights_bytes": total, "weights_active_bytes": active, "weights_from": "entries"}
            return self._with_reason(
                msgspec.structs.replace(sample, **own), ONLY_ALL if active is None else None
            )
        if sample.state not in WELL or sample.front:
            return sample, []
        if sample.weights_active_bytes is not None:
            return self._with_reason(sample, None)
        self._look_after(sample)
        if self._found is None:
            why = self._why(sample)
            return self._with_reason(sample, why) if why is not None else (sample, [])
        found = self._found
        sizes = {
            "weights_bytes": found.total,
            "weights_active_bytes": found.active,
            "weights_from": found.source,
            "experts": found.experts,
            "experts_used": found.experts_used,
        }
        why = NO_EXPERTS if found.active is None else None
        return self._with_reason(msgspec.structs.replace(sample, **sizes), why)

    async def close(self) -> None:
        """A reading in progress is not waited for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _look_after(self, sample: EngineSample) -> None:
        key = (sample.pid, sample.model, sample.restarts)
        if sample.pid is None or not is_local(self._url):
            self._key, self._found = None, None
            return
        if key != self._key:
            self._key, self._found = key, None
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.create_task(asyncio.to_thread(measure_at, self._url, sample.pid))
        task = self._task
        if task is not None and task.done() and not task.cancelled() and task.exception() is None:
            self._found = task.result()

    def _why(self, sample: EngineSample) -> str | None:
        """None while it is still being found out."""
        if not is_local(self._url):
            return "it runs on another host: the files of its model are there"
        if sample.pid is None:
            return "its process cannot be seen from here, so neither can the files of its model"
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        error = self._task.exception()
        return str(error) if isinstance(error, UnknownWeightsError) else "its files could not be read"

    def _with_reason(self, sample: EngineSample, why: str | None) -> tuple[EngineSample, list[Missing]]:
        """The reason is told of the size that lacks, once; None takes it back."""
        field = "weights_bytes" if sample.weights_bytes is None else "weights_active_bytes"
        now = (field, why) if why is not None else None
        before, self._told = self._told, now
        if now == before:
            return sample, []
        frames = []
        if before is not None and (now is None or now[0] != before[0]):
            frames.append(Missing(t=sample.t, what=f"{self._url}:{before[0]}", why=None))
        if now is not None:
            frames.append(Missing(t=sample.t, what=f"{self._url}:{field}", why=why, fix=FIX))
        return sample, frames
