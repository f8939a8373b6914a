"""Text from a server or a file, made fit for a terminal."""

from __future__ import annotations

import re
from urllib.parse import quote, quote_plus

# C0 and C1 controls, DEL, bidirectional overrides, zero-width and line separators: everything that
# could move the cursor, recolour the screen or reorder what the reader sees.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


LEAST_SECRET = 8
"""A key of fewer characters is a placeholder (`EMPTY`, `none`, `ollama`): such words stand in replies on
their own account, and without them an engine could not be recognised."""


def is_secret(key: str | None) -> bool:
    """Whether a key is one that must not be seen anywhere."""
    return key is not None and len(key) >= LEAST_SECRET


def in_urls(secret: str) -> list[str]:
    """A key as it may stand in a text or in an address: plain, and quoted for its path or its query."""
    quoted = (secret, quote(secret, safe=""), quote(secret), quote_plus(secret))
    lower = (re.sub("%..", lambda found: found[0].lower(), form) for form in quoted)
    return list(dict.fromkeys((*quoted, *lower)))


def without(secret: str | None, text: str) -> str:
    """`text` with `(key)` in place of a secret: some servers quote the key they were sent.

    A text that was cut within the secret loses that rest of it, too.
    """
    if secret is None or not is_secret(secret):
        return text
    for form in in_urls(secret):
        text = text.replace(form, "(key)")
    if text.endswith("…"):
        for length in range(len(secret) - 1, 3, -1):
            if text[:-1].endswith(secret[:length]):
                return text[: -1 - length] + "…"
    return text


def printable(text: str) -> str:
    """`text` with its line ends, without whatever else could act on a terminal: file names hold anything."""
    return "\n".join(_UNSAFE.sub("?", line) for line in text.split("\n"))


def clean(text: str, limit: int = 200) -> str:
    """One line without control sequences, at most `limit` characters long."""
    one_line = _UNSAFE.sub(" ", text[: limit * 4])
    one_line = " ".join(one_line.split())
    return one_line if len(one_line) <= limit else one_line[: limit - 1] + "…"
