"""Where a model of Hugging Face lies in the cache of a server's user.

Source: huggingface_hub's description of its cache: `models--ORG--NAME/refs/REVISION` holds the name of a
folder in `models--ORG--NAME/snapshots`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

from agenttop.collect import procfs

try:
    import pwd
except ImportError:  # Windows, where there is no /proc either
    pwd = None  # type: ignore[assignment]

NAME = re.compile(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}")
"""Of a model; nothing that leads out of a folder."""
_REVISION = re.compile(r"\w[\w.-]{0,100}")
_VARIABLES = (
    ("HF_HUB_CACHE", ""),
    ("HUGGINGFACE_HUB_CACHE", ""),
    ("HF_HOME", "hub"),
    ("XDG_CACHE_HOME", "huggingface/hub"),
    ("HOME", ".cache/huggingface/hub"),
)
"""Variables that tell where the cache is, in the order in which they count, and what follows their value."""


def snapshot(name: str, revision: str | None, pid: int, top: Path, root: Path) -> Path | None:
    """The folder of a model in the revision that a server was told, or the newest.

    Args:
        name: `ORG/NAME`, checked.
        revision: what the server was told; None where it was told none.
        pid: of the server.
        top: where its absolute names begin.
        root: where /proc is.
    """
    for cache in _caches(pid, top, root):
        model = cache / f"models--{name.replace('/', '--')}"
        with contextlib.suppress(OSError, ValueError):
            wanted = revision or "main"
            if not _REVISION.fullmatch(wanted):
                return None
            for commit in (_referred(model / "refs" / wanted), wanted):
                if commit is not None and (model / "snapshots" / commit).is_dir():
                    return model / "snapshots" / commit
            if revision is None:
                some = [path for path in (model / "snapshots").iterdir() if path.is_dir()]
                if some:
                    return max(some, key=lambda path: path.stat().st_mtime)
    return None


def _referred(place: Path) -> str | None:
    with contextlib.suppress(OSError, ValueError):
        if place.is_file():
            with place.open("rb") as file:
                commit = file.read(200).decode("ascii").strip()
            return commit if _REVISION.fullmatch(commit) else None
    return None


def _caches(pid: int, top: Path, root: Path) -> Iterator[Path]:
    told = procfs.environment(pid, [name for name, _ in _VARIABLES], root)
    for variable, tail in _VARIABLES:
        value = told.get(variable, "")
        if value.startswith("/"):
            yield top / value.lstrip("/") / tail
    if not told:  # somebody else's process: its environment may not be read
        home = _home(procfs.user_of(pid, root))
        if home is not None:
            yield top / home.lstrip("/") / _VARIABLES[-1][1]


def _home(user: int | None) -> str | None:
    if pwd is not None and user is not None:
        with contextlib.suppress(KeyError, OverflowError):
            return pwd.getpwuid(user).pw_dir
    return None
