"""The last line: which keys do what."""

from __future__ import annotations

from agenttop.view.look import Look
from agenttop.view.spans import Line, foreign, spread


def footer(width: int, look: Look) -> Line:
    """The keys that fit, the most important first, or one sentence where something is to be said."""
    if look.hint:
        return spread([[(f" {foreign(look.hint, 200)}", "strong")]], width)
    parts: list[Line] = [[(key, "key"), (f" {text}", "label")] for key, text in look.footer]
    return spread([[(" ", "text"), *part] if index == 0 else part for index, part in enumerate(parts)], width)
