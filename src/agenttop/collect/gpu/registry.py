"""Every kind of GPU there is: ours and those of other packages, all by the entry-point group.

[project.entry-points."agenttop.gpus"]
my-gpu = "my_package.my_gpu:KIND"
"""

from __future__ import annotations

import importlib.metadata

from agenttop.collect.gpu.base import GpuKind
from agenttop.model.text import clean

GROUP = "agenttop.gpus"


def kinds() -> tuple[list[GpuKind], list[str]]:
    """All kinds in the order in which they are asked, and a sentence for each that is not used.

    Never raises: a plug-in that is broken is left out.
    """
    found: dict[str, GpuKind] = {}
    refused: list[str] = []
    own = f"{__name__.partition('.')[0]}."
    entries = importlib.metadata.entry_points(group=GROUP)
    # Ours first, so that no other package takes the place of one.
    for entry in sorted(entries, key=lambda entry: (not entry.value.startswith(own), entry.name)):
        try:
            kind = entry.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - somebody else's code
            why = clean(f"{type(error).__name__}: {error}", 100)
            refused.append(f"the GPU plug-in {clean(entry.name, 40)} cannot be loaded ({why})")
            continue
        if not isinstance(kind, GpuKind) or not _sound(kind):
            refused.append(f"the GPU plug-in {clean(entry.name, 40)} is no GpuKind")
        elif kind.name in found:
            refused.append(f"the GPU plug-in {clean(entry.name, 40)}: there is one of that name already")
        else:
            found[kind.name] = kind
    return sorted(found.values(), key=lambda kind: (kind.rank, kind.name)), refused


def _sound(kind: GpuKind) -> bool:
    """Whether the parts of a kind are what they should be: a plug-in may put anything there."""
    parts: tuple[object, object, object] = (kind.name, kind.rank, kind.platforms)
    wanted = (str, int, tuple)
    return callable(kind.adapter) and all(isinstance(p, w) for p, w in zip(parts, wanted, strict=True))
