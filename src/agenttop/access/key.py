"""API keys: from an environment variable or from a file, held so that they show up nowhere by accident.

A key travels between the processes of a session as the name of its variable or file, never as itself.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from pathlib import Path

from agenttop.errors import UsageError
from agenttop.model.text import clean
from agenttop.oslayer import at_home
from agenttop.smallfile import read_text

MOST_CHARS = 8192
"""Servers refuse longer headers."""
MOST_BYTES = 64 * 1024


class Key:
    """One key and where it came from. Its text is asked for only to be sent, or to be cut out of a reply."""

    __slots__ = ("_text", "env", "file")

    def __init__(self, text: str, *, env: str | None = None, file: str | None = None) -> None:
        """Raises UsageError for a key that no header can carry."""
        self._text = text
        self.env = env
        """Name of the environment variable, where it is from one."""
        self.file = file
        """The file, where it is from one; an absolute path."""
        if not text:
            what = "its first line" if file is not None else "it"
            raise UsageError(f"{self.source} holds no key: {what} is empty")
        if not text.isascii() or not text.isprintable():
            raise UsageError(
                f"{self.source} holds characters that no header can carry", "a key is plain ASCII"
            )
        if len(text) > MOST_CHARS:
            raise UsageError(f"{self.source} holds more than {MOST_CHARS} characters: that is no key")

    def __repr__(self) -> str:
        return f"<key of {self.source}>"

    @property
    def source(self) -> str:
        """Where it came from, in words."""
        if self.env is not None:
            return f"the environment variable {clean(self.env, 60)}"
        return clean(self.file, 120) if self.file is not None else "the caller"

    def reveal(self) -> str:
        """The key itself."""
        return self._text


def is_name(word: str) -> bool:
    """Whether a word can be the name of an environment variable; most keys cannot."""
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", word) is not None


def from_environment(name: str) -> Key:
    """The key in an environment variable. Raises UsageError when it is not set, or holds none."""
    text = os.environ.get(name)
    if text is None and not _may_be_shown(name):
        raise UsageError(
            "the environment variable that was named for a key is not set",
            "it is the name that is wanted, never the key",
        )
    if text is None:
        raise UsageError(
            f"the environment variable {clean(name, 60)} is not set", f"export {clean(name, 60)}=… first"
        )
    return Key(text.strip(), env=name)


def _may_be_shown(name: str) -> bool:
    """Whether a word that names no variable is surely no key by mistake: `BOX2_KEY`, `local_key`."""
    return is_name(name) and len(name) <= 40 and (name.isupper() or not any(map(str.isdigit, name)))


def from_file(file: Path) -> Key:
    """The key in the first line of a file. Raises UsageError when there is none, or others may read it.

    A file of this user's that others may read is refused as ssh does it, because its owner can change that.
    One of root's, or of somebody else's, is taken as it is: secrets mounted into a container look like that.
    """
    file = at_home(file).absolute()
    text = read_text(file, "a file with a key", MOST_BYTES)
    _refuse_public(file)
    return Key(text.partition("\n")[0].strip(), file=str(file))


def _refuse_public(file: Path) -> None:
    if sys.platform == "win32":  # the folders of a profile are private there, and modes say nothing
        return
    try:
        found = file.stat()
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {clean(error.strerror or str(error))}") from None
    own = found.st_uid == os.getuid() != 0
    if own and found.st_mode & (stat.S_IRGRP | stat.S_IROTH):
        raise UsageError(f"{file}: others may read this key", f"chmod 600 {file}")


def from_names(env: str | None, file: str | Path | None) -> Key | None:
    """The key of a variable or of a file, whichever is named; None without a name. Raises UsageError."""
    if env:
        return from_environment(env)
    return from_file(Path(file)) if file else None
