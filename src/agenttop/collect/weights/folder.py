"""Which files of a folder hold a model's weights: safetensors, all parts of a split model."""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from itertools import islice
from pathlib import Path

MOST_FILES = 1000
_MOST_SEEN = 10_000
"""Names looked at in a folder: what has more is no model's."""
_PART = re.compile(r"(.*?)(\d{1,6})-of-(\d{1,6})(.*)\.safetensors")
_ADAPTER = re.compile(r"adapter_|.*lora")


class PartsError(Exception):
    """Some parts of a model are not there: one sentence."""


def weights_in(folder: Path) -> list[Path]:
    """The safetensors files of a model; none where there are none.

    Some repositories hold the same weights twice, whole and in parts: the parts count. Adapters do not.
    Raises PartsError: a sum over some of the parts would be too small.
    """
    found: list[Path] = []
    with contextlib.suppress(OSError):
        found = sorted(path for path in islice(folder.iterdir(), _MOST_SEEN) if path.suffix == ".safetensors")
    found = [path for path in found if not _ADAPTER.match(path.name.lower())]
    split: dict[tuple[str, ...], list[Path]] = defaultdict(list)
    for path in found:
        part = _PART.fullmatch(path.name)
        if part is not None:
            split[part[1], part[3], part[4]].append(path)
    if split:
        # Of several split models the one that is called so, or else the one in most parts.
        name = max(split, key=lambda name: (name[0].startswith("model"), len(split[name])))
        if len(split[name]) != int(name[1]):
            raise PartsError(f"{len(split[name])} of {int(name[1])} parts of its model are there")
        found = split[name]
    else:
        found = [path for path in found if path.name.startswith("model")] or found
    if len(found) > MOST_FILES:
        raise PartsError(f"its model is in more than {MOST_FILES} parts")
    return found
