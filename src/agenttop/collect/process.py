"""A server's process on this host, and what may be read of its command line. Pure.

A command line and an environment may hold keys: they are kept in memory only, never shown, and only the
values that an engine's module names are read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec


class Command:
    """A command line. Its words are never in its `repr`."""

    __slots__ = ("_argv",)

    def __init__(self, argv: list[str] | tuple[str, ...] = ()) -> None:
        self._argv = tuple(argv)

    def __repr__(self) -> str:
        return f"Command({self.program!r}, ...)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Command) and other._argv == self._argv

    def __hash__(self) -> int:
        return hash(self._argv)

    @property
    def words(self) -> tuple[str, ...]:
        """All of it; for parsers only, never for a frame, a log or a screen."""
        return self._argv

    @property
    def program(self) -> str:
        """Name of the program without its folder; empty where there is none."""
        return re.split(r"[/\\]", self._argv[0])[-1] if self._argv else ""

    def value(self, *names: str) -> str | None:
        """The last value given to one of the options, `--name VALUE` or `--name=VALUE`; None without one."""
        found: str | None = None
        for index, word in enumerate(self._argv):
            name, equals, joined = word.partition("=")
            if name in names:
                if equals:
                    found = joined
                elif index + 1 < len(self._argv):
                    found = self._argv[index + 1]
        return found

    def number(self, *names: str) -> int | None:
        """The same as a whole number; None for anything else."""
        text = self.value(*names) or ""
        return int(text) if re.fullmatch(r"-?\d{1,15}", text) else None

    def has(self, *names: str) -> bool:
        """Whether one of the switches is given."""
        return any(word.partition("=")[0] in names for word in self._argv)


class ServerProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One process."""

    pid: int
    command: Command = Command()
    environment: Mapping[str, str] = {}
    """Only the variables that some engine's module names (`ProcessLook.environment`)."""
    children: tuple[ServerProcess, ...] = ()
    """Its children and theirs, flat, where they look like servers of their own."""
