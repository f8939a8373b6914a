"""The sizes of the model that a process on this host runs, from the headers of its files. For a thread."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from agenttop.collect.discovery import process_at
from agenttop.collect.process import Command
from agenttop.collect.weights import files, folder, gguf, safetensors
from agenttop.collect.weights.sizes import Weights

_USED = re.compile(r"expert_used_count=int:(\d{1,5})(?:,|$)")
"""In llama.cpp's `--override-kv`."""
_MOST_KNOWN = 32

_State = tuple[str, int, int]
"""Of a file: path, time of its last change, size."""
_known: dict[tuple[_State | int | None, ...], Weights] = {}
"""What files held when they were read: an engine that starts again and again has the same ones."""


class UnknownWeightsError(Exception):
    """Why the sizes are not known: one sentence."""


def measure_at(url: str, pid: int) -> Weights:
    """The same for the process that listens at an address of this host. Raises UnknownWeightsError."""
    process = process_at(url)
    if process is None or process.pid != pid:
        return measure(pid, Command())
    return measure(pid, process.command)


def measure(pid: int, command: Command, root: Path = Path("/")) -> Weights:
    """Read the headers of a process's model files: milliseconds, with a large vocabulary some hundred.

    Raises UnknownWeightsError.
    """
    try:
        found = files.of_process(pid, command, root)
        if not found:
            raise UnknownWeightsError("the files of its model cannot be seen from here")
        return _of_files(found, command)
    except folder.PartsError as error:
        raise UnknownWeightsError(str(error)) from None
    except (gguf.NotGgufError, safetensors.NotSafetensorsError) as error:
        raise UnknownWeightsError(f"a file of its model cannot be read: {error}") from None
    except OSError as error:
        what = error.strerror or type(error).__name__
        raise UnknownWeightsError(f"a file of its model cannot be read: {what}") from None
    except ValueError:  # a name that is none
        raise UnknownWeightsError("the files of its model cannot be seen from here") from None


def _of_files(found: list[Path], command: Command) -> Weights:
    config = _config(found[0]) if found[0].suffix == ".safetensors" else None
    if config is not None and files.quantised_at_load(command) and not safetensors.is_quantised(config):
        raise UnknownWeightsError("its weights are quantised as they are loaded: the files are larger")
    used = _used(command)
    key = (*(_state(path) for path in found), hash(config), used)
    weights = _known.get(key)
    if weights is None:
        weights = _of_gguf(found, used) if config is None else _of_safetensors(found, config)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[key] = weights
    return weights


def _state(path: Path) -> _State:
    state = path.stat()
    return str(path), state.st_mtime_ns, state.st_size


def _used(command: Command) -> int | None:
    """Experts that the server was told to use, where it was told."""
    numbers = [int(found) for word in command.words for found in _USED.findall(word)]
    return numbers[-1] if numbers and numbers[-1] > 0 else None


def _of_gguf(paths: list[Path], used: int | None) -> Weights:
    tensors: dict[str, int] = {}
    facts: dict[str, int | str] = {}
    for path in paths:
        with os.fdopen(files.open_regular(path), "rb") as file:
            some, told = gguf.read(file, os.fstat(file.fileno()).st_size)
        tensors |= some
        facts = facts or told
    return gguf.weigh(tensors, facts, used)


def _config(beside: Path) -> bytes:
    with (
        contextlib.suppress(OSError),
        os.fdopen(files.open_regular(beside.with_name("config.json")), "rb") as file,
    ):
        return file.read(safetensors.LONGEST_CONFIG)
    return b""


def _of_safetensors(paths: list[Path], config: bytes) -> Weights:
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
