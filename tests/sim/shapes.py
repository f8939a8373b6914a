"""Comparing what the simulated engine sends with what a real one sent: the same fields of the same types."""

from __future__ import annotations

from typing import Any


def differences(ours: Any, real: Any, path: str = "") -> list[str]:
    """Fields that only one has, in another order, or of another type. `None` in either agrees with all; a
    number is a number; of a list the first entries are compared."""
    if ours is None or real is None:
        return []
    if isinstance(real, dict):
        if not isinstance(ours, dict):
            return [f"{path}: {type(ours).__name__} for an object"]
        found = []
        if list(ours) != list(real):
            extra, lacking = [k for k in ours if k not in real], [k for k in real if k not in ours]
            found.append(
                f"{path}: extra {extra}, lacking {lacking}" if extra or lacking else f"{path}: order"
            )
        for name in real:
            if name in ours:
                found += differences(ours[name], real[name], f"{path}.{name}")
        return found
    if isinstance(real, list):
        if not isinstance(ours, list):
            return [f"{path}: {type(ours).__name__} for a list"]
        return differences(ours[0], real[0], f"{path}[0]") if ours and real else []
    if isinstance(real, bool) or isinstance(ours, bool):
        same = isinstance(real, bool) and isinstance(ours, bool)
    elif isinstance(real, (int, float)):
        same = isinstance(ours, (int, float))
    else:
        same = isinstance(ours, type(real))
    return [] if same else [f"{path}: {type(ours).__name__} for {type(real).__name__}"]
