"""Text from a server or a file, made fit for a terminal."""

from __future__ import annotations

import re

# C0 and C1 controls, DEL, bidirectional overrides, zero-width and line separators: everything that
# could move the cursor, recolour the screen or reorder what the reader sees.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def clean(text: str, limit: int = 200) -> str:
    """One line without control sequences, at most `limit` characters long."""
    one_line = _UNSAFE.sub(" ", text[: limit * 4])
    one_line = " ".join(one_line.split())
    return one_line if len(one_line) <= limit else one_line[: limit - 1] + "…"
