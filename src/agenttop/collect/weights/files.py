"""The files of the model that a server on this host runs, found by what its process says of itself.

Only the process leads here, never the reply of a server: somebody else's server must not make us open files.
Places, in this order: the model named on the command line (a file, a folder, a name in the cache of Hugging
Face) or in llama.cpp's variable for it; then the GGUF files that the process has mapped. A server in a
container has folders of its own: names are looked up there, or, where they may not be looked at, not at all.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from agenttop.collect import procfs
from agenttop.collect.process import Command
from agenttop.collect.weights import folder, hub

NAMES = ("--model", "--model-path", "-m", "--model-dir", "--model-id")
COMMANDS = ("serve", "api_server")
"""Words that the model follows."""
VARIABLE = "LLAMA_ARG_MODEL"
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_MAPPED = re.compile(r"(/.*(?:\.gguf|/blobs/sha256-[0-9a-f]{64}))$", re.MULTILINE)
"""Ollama names its files by what is in them."""
_CONTAINER = re.compile(rb"docker|containerd|libpod|kubepods|crio|lxc")
_MAGIC = b"GGUF"
_LONGEST_MAPS = 4 * 1024**2


def of_process(pid: int, command: Command, root: Path = Path("/")) -> list[Path]:
    """GGUF or safetensors files, all parts of a split model; none where they cannot be found.

    Raises PartsError where some of them are not there.
    """
    here = root / "proc" / str(pid)
    top = _top(here, root)
    for name in _named(pid, command, root):
        found = _at(name, here, top)
        if not found and top is not None and hub.NAME.fullmatch(name):
            snapshot = hub.snapshot(name, command.value("--revision"), pid, top, root)
            found = folder.weights_in(snapshot) if snapshot is not None else []
        if found:
            return found
    return _mapped(here, top)


def quantised_at_load(command: Command) -> bool:
    """Whether the weights in memory are smaller than those of the files: quantised as they were loaded."""
    wanted = command.value("--quantization", "--quantize", "-q") or ""
    loader = command.value("--load-format") or ""
    switched = command.value("--torchao-config")
    return "bitsandbytes" in loader or bool(switched) or wanted.lower() not in ("", "none", "null")


def open_regular(path: Path) -> int:
    """A descriptor of a regular file; OSError for anything else: a pipe or a device must not be opened to be
    found out, and what is opened must not block."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file")
    return descriptor


def _top(here: Path, root: Path) -> Path | None:
    """Where the absolute names of a process begin; None where that cannot be seen."""
    try:
        os.stat(here / "root")  # noqa: PTH116 - follows the kernel's link, which `Path` would do as well
    except PermissionError:  # somebody else's: the same as ours unless it is in a container
        with contextlib.suppress(OSError):
            return None if _CONTAINER.search((here / "cgroup").read_bytes()) else root
        return None
    except OSError:
        return root
    return here / "root"


def _named(pid: int, command: Command, root: Path) -> Iterator[str]:
    """What the command line calls the model: an option, or the word after `serve`; or a variable."""
    for name in NAMES:
        value = command.value(name)
        if value:
            yield value
    words = command.words
    for index, word in enumerate(words[:-1]):
        if word in COMMANDS and words[index + 1] and not words[index + 1].startswith("-"):
            yield words[index + 1]
    value = procfs.environment(pid, (VARIABLE,), root).get(VARIABLE)
    if value:
        yield value


def _at(name: str, here: Path, top: Path | None) -> list[Path]:
    """Raises PartsError."""
    if name.startswith("/"):
        if top is None:
            return []
        path = below(top, name)
    else:
        path = here / "cwd" / name  # an absolute name of Windows stays what it is
    with contextlib.suppress(OSError, ValueError):
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            return folder.weights_in(path)
        if stat.S_ISREG(mode) and (path.suffix == ".gguf" or _begins_as_gguf(path)):
            return _parts(path)
    return []


def _begins_as_gguf(path: Path) -> bool:
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _parts(path: Path) -> list[Path]:
    """All parts of a split model; the one file of another."""
    split = _SPLIT.search(path.name)
    if split is None or not 1 <= int(split[2]) <= folder.MOST_FILES:
        return [path]
    stem, count = path.name[: split.start()], int(split[2])
    return [path.with_name(f"{stem}-{number:05d}-of-{split[2]}.gguf") for number in range(1, count + 1)]


def _mapped(here: Path, top: Path | None) -> list[Path]:
    """GGUF files that the process has mapped. Several are a split model, or a draft model beside it."""
    if top is None:
        return []
    with contextlib.suppress(OSError):
        with (here / "maps").open("rb") as file:
            text = os.fsdecode(file.read(_LONGEST_MAPS))
        paths = [below(top, name) for name in dict.fromkeys(_MAPPED.findall(text))]
        if paths:
            return _parts(max(paths, key=lambda path: path.stat().st_size))
    return []


def below(top: Path, absolute: str) -> Path:
    """An absolute name of a process, as it is found from here."""
    return top / absolute.lstrip("/")
