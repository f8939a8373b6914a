"""The files of the model that a server on this host runs, found by what its process says of itself.

Only the process leads here, never the reply of a server: somebody else's server must not make us open files.
Places, in this order: the model named on the command line (a file, a folder, a name in the cache of Hugging
Face); for llama.cpp also the GGUF files that the process has mapped.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from agenttop.collect.process import Command

NAMES = ("--model", "--model-path", "-m", "--model-dir")
_HUB_NAME = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}")
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_MAPPED = re.compile(r"(/.*\.gguf)$", re.MULTILINE)
MOST_FILES = 300
_VARIABLES = ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME")
_LONGEST_ENVIRONMENT = 256 * 1024
_LONGEST_MAPS = 4 * 1024**2


def of_process(pid: int, command: Command, root: Path = Path("/")) -> list[Path]:
    """GGUF or safetensors files, all parts of a split model; none where they cannot be found."""
    here = root / "proc" / str(pid)
    for name in _named(command):
        found = _at(name, here, root)
        if found:
            return found
    return _mapped(here, root)


def quantised_at_load(command: Command) -> bool:
    """Whether the weights in memory are smaller than those of the files: quantised as they were loaded."""
    wanted = command.value("--quantization", "-q") or ""
    loader = command.value("--load-format") or ""
    return "bitsandbytes" in loader or (wanted != "" and wanted.lower() not in ("none", "null"))


def open_regular(path: Path) -> int:
    """A descriptor of a regular file; OSError for anything else: a pipe or a device must not be opened to be
    found out, and what is opened must not block."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is no regular file")
    return descriptor


def _named(command: Command) -> Iterator[str]:
    """What the command line calls the model: an option, or the word after `serve`."""
    for name in NAMES:
        value = command.value(name)
        if value is not None:
            yield value
    words = command.words
    for index, word in enumerate(words[:-1]):
        if word == "serve" and not words[index + 1].startswith("-"):
            yield words[index + 1]


def _at(name: str, here: Path, root: Path) -> list[Path]:
    absolute = name.startswith("/")
    # A server in a container has folders of its own, which its process leads to.
    places = [_below(here / "root", name), _below(root, name)] if absolute else [here / "cwd" / name]
    for path in places:
        with contextlib.suppress(OSError, ValueError):
            if stat.S_ISREG(path.stat().st_mode) and path.suffix == ".gguf":
                return _parts(path)
            if path.is_dir():
                return _in_folder(path)
    return _in_folder(_snapshot(name, here, root)) if _HUB_NAME.fullmatch(name) else []


def _parts(path: Path) -> list[Path]:
    """All parts of a split model; the one file of another."""
    split = _SPLIT.search(path.name)
    if split is None or not 1 <= int(split[2]) <= MOST_FILES:
        return [path]
    stem, count = path.name[: split.start()], int(split[2])
    return [path.with_name(f"{stem}-{number:05d}-of-{split[2]}.gguf") for number in range(1, count + 1)]


def _in_folder(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    with contextlib.suppress(OSError):
        found = sorted(path for path in folder.iterdir() if path.suffix == ".safetensors")
        # Some repositories hold the same weights twice, whole and in parts.
        parts = [path for path in found if re.search(r"-\d{5}-of-\d{5}", path.name)]
        return (parts or [path for path in found if path.name.startswith("model")] or found)[:MOST_FILES]
    return []


def _snapshot(name: str, here: Path, root: Path) -> Path | None:
    """The newest snapshot of a model in the cache of the server's user."""
    for hub in _hubs(here, root):
        folder = hub / f"models--{name.replace('/', '--')}" / "snapshots"
        with contextlib.suppress(OSError):
            snapshots = [path for path in folder.iterdir() if path.is_dir()]
            if snapshots:
                return max(snapshots, key=lambda path: path.stat().st_mtime)
    return None


def _hubs(here: Path, root: Path) -> Iterator[Path]:
    known: dict[str, str] = {}
    with contextlib.suppress(OSError):
        with (here / "environ").open("rb") as file:
            text = file.read(_LONGEST_ENVIRONMENT)
        for line in text.split(b"\0"):
            name, _, held = os.fsdecode(line).partition("=")
            if name in _VARIABLES:
                known[name] = held
    for variable, tail in (
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ):
        value = known.get(variable, "")
        if value.startswith("/"):
            yield _below(root, value) / tail


def _mapped(here: Path, root: Path) -> list[Path]:
    """GGUF files that the process has mapped. Several are a split model, or a draft model beside it."""
    with contextlib.suppress(OSError):
        with (here / "maps").open("rb") as file:
            text = os.fsdecode(file.read(_LONGEST_MAPS))
        paths = [_below(root, name) for name in dict.fromkeys(_MAPPED.findall(text))]
        if paths:
            return _parts(max(paths, key=lambda path: path.stat().st_size))
    return []


def _below(root: Path, absolute: str) -> Path:
    return root / absolute.lstrip("/")
