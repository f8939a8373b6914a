"""How large the weights of an engine's model are, and how much of them is read to decode one token.

With the engine's rate and the peak of a chip's memory this tells how much of that peak decoding uses. Files
are read in a thread, only their headers, and once for each process and model.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import msgspec

from agenttop.collect.discovery import process_at
from agenttop.collect.process import Command
from agenttop.collect.weights import files, gguf, safetensors
from agenttop.collect.weights.sizes import Weights as Weights
from agenttop.model.frames import EngineSample, Missing
from agenttop.model.url import is_local

FIX = 'name its sizes in engines.toml: weights = "5.5 GB", active-weights = "5.1 GB"'
WELL = ("ok", "busy")


class UnknownWeightsError(Exception):
    """Why the sizes are not known: one sentence."""


def measure(pid: int, command: Command, root: Path = Path("/")) -> Weights:
    """Read the headers of a process's model files. Slow: milliseconds, a large vocabulary some hundred.

    Raises UnknownWeightsError.
    """
    found = files.of_process(pid, command, root)
    if not found:
        raise UnknownWeightsError("the files of its model cannot be seen from here")
    try:
        if found[0].suffix == ".gguf":
            return _of_gguf(found)
        return _of_safetensors(found, command)
    except (gguf.NotGgufError, safetensors.NotSafetensorsError) as error:
        raise UnknownWeightsError(f"a file of its model cannot be read: {error}") from None
    except OSError as error:
        raise UnknownWeightsError(f"a file of its model cannot be read: {error.strerror or error}") from None


def _of_gguf(paths: list[Path]) -> Weights:
    tensors: dict[str, int] = {}
    facts: dict[str, int | str] = {}
    for path in paths:
        with os.fdopen(files.open_regular(path), "rb") as file:
            some, told = gguf.read(file, os.fstat(file.fileno()).st_size)
        tensors |= some
        facts = facts or told
    return gguf.weigh(tensors, facts)


def _of_safetensors(paths: list[Path], command: Command) -> Weights:
    config = b""
    place = paths[0].with_name("config.json")
    with contextlib.suppress(OSError), os.fdopen(files.open_regular(place), "rb") as file:
        config = file.read(safetensors.LONGEST_CONFIG)
    if files.quantised_at_load(command) and not safetensors.is_quantised(config):
        raise UnknownWeightsError("its weights are quantised as they are loaded: the files are larger")
    tensors: dict[str, int] = {}
    wide = 0
    for path in paths:
        with os.fdopen(files.open_regular(path), "rb") as file:
            found = safetensors.read(file, os.fstat(file.fileno()).st_size)
        tensors |= found.sizes
        wide += found.wide
    if 2 * wide > sum(tensors.values()):
        raise UnknownWeightsError("its files hold 32 bits a weight, of which servers mostly load 16")
    return safetensors.weigh(tensors, config)


class WeightsOf:
    """The weights of one engine, found out once for each process and model."""

    def __init__(self, url: str, total: int | None = None, active: int | None = None) -> None:
        """`total` and `active`: what the user has named in engines.toml, which counts more than files."""
        self._url = url
        self._stated = (total, active)
        self._key: tuple[int | None, str | None, int] | None = None
        self._task: asyncio.Task[Weights] | None = None
        self._found: Weights | None = None
        self._told: str | None = None

    def add(self, sample: EngineSample) -> tuple[EngineSample, list[Missing]]:
        """The sample with the sizes as far as they are known now, and why they are not, when that changes.

        What the engine itself tells stays. Never waits: files are read in a thread meanwhile.
        """
        total, active = self._stated
        if total is not None:
            own = {"weights_bytes": total, "weights_active_bytes": active, "weights_from": "entries"}
            return msgspec.structs.replace(sample, **own), self._missing(sample.t, None)
        if sample.state not in WELL or sample.front:
            return sample, []
        if sample.weights_active_bytes is not None:
            return sample, self._missing(sample.t, None)
        self._look_after(sample)
        if self._found is None:
            why = self._why(sample)
            told = None if sample.weights_bytes is not None else why
            return sample, self._missing(sample.t, told) if why is not None else []
        found = self._found
        sizes = {
            "weights_bytes": found.total,
            "weights_active_bytes": found.active,
            "weights_from": found.source,
            "experts": found.experts,
            "experts_used": found.experts_used,
        }
        return msgspec.structs.replace(sample, **sizes), self._missing(sample.t, None)

    async def close(self) -> None:
        """A reading in progress is not waited for."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _look_after(self, sample: EngineSample) -> None:
        key = (sample.pid, sample.model, sample.restarts)
        if sample.pid is None or not is_local(self._url):
            self._key, self._found = None, None
        elif key != self._key:
            self._key, self._found = key, None
            if self._task is not None:
                self._task.cancel()
            self._task = asyncio.create_task(asyncio.to_thread(_measure_at, self._url, sample.pid))
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

    def _missing(self, t: float, why: str | None) -> list[Missing]:
        if why == self._told:
            return []
        self._told = why
        what = f"{self._url}:weights_bytes"
        return [Missing(t=t, what=what, why=why, fix=FIX if why is not None else None)]


def _measure_at(url: str, pid: int) -> Weights:
    process = process_at(url)
    if process is None or process.pid != pid:
        return measure(pid, Command())
    return measure(pid, process.command)
