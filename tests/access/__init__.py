"""Ways to engines for tests."""

from __future__ import annotations

from agenttop.access.key import Key
from agenttop.access.ways import Access


def with_key(key: str | None, ca_file: str | None = None) -> Access:
    """An access with a key that came from nowhere."""
    return Access(key=Key(key) if key is not None else None, ca_file=ca_file)
