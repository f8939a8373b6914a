"""Folders that look like /sys and /proc, built in one expression."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

LINK = "-> "
"""What the text of a symbolic link begins with; its target follows."""


def build(root: Path, files: Mapping[str, str | bytes | int]) -> Path:
    """Write files below `root`: text, bytes, a number, or `-> target` for a symbolic link."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or path.exists():
            path.unlink()
        if isinstance(content, str) and content.startswith(LINK):
            path.symlink_to(content.removeprefix(LINK))
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(f"{content}\n")
    return root
