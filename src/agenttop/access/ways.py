"""How each engine of a session is reached: what the command line says, and what `engines.toml` says.

Rules
    The key and the CA of the command line hold for the engines that are named on it, and for no other.
    An entry of `engines.toml` holds for its origin (scheme, host and port), named or found on this host.
    What an entry says goes before the command line: it is about that one engine.
    `/metrics` is asked for only where neither says no.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from agenttop import paths
from agenttop.access.entries import Entry, read
from agenttop.access.key import Key, from_names
from agenttop.access.trust import check_ca_file
from agenttop.errors import UsageError
from agenttop.model.url import origin_of


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How one engine is reached."""

    key: Key | None = None
    """Sent to this engine's origin only."""
    ca_file: str | None = None
    """Certificates that are believed besides those of the system; an absolute path."""
    proxy: bool = True
    """Whether the proxy of the environment is used; never for this host itself."""
    metrics: bool = True
    """Whether `/metrics` may be asked for."""
    entry: str | None = None
    """`FILE:LINE` of the entry that applies."""
    weights_bytes: int | None = None
    """Size of the weights of its model, as the user has named it, and of those read for one token."""
    active_weights_bytes: int | None = None

    @property
    def secret(self) -> str | None:
        """The key itself."""
        return self.key.reveal() if self.key is not None else None

    def without_key(self) -> Access:
        """For another origin."""
        return msgspec.structs.replace(self, key=None, entry=None)

    def in_words(self) -> str:
        """One line without secrets: where its key comes from, and what else is special about it."""
        told = [f"key from {self.key.source}" if self.key is not None else "no key"]
        if self.ca_file is not None:
            told.append(f"CA {self.ca_file}")
        if not self.proxy:
            told.append("no proxy")
        if not self.metrics:
            told.append("no /metrics")
        return ", ".join(told) + (f" ({self.entry})" if self.entry is not None else "")


PLAIN = Access()
"""No key, the system's CAs."""


class Ways:
    """How the engines of one session are reached."""

    def __init__(
        self,
        named: Iterable[str] = (),
        *,
        api_key_env: str | None = None,
        api_key_file: str | Path | None = None,
        ca_file: str | Path | None = None,
        metrics: bool = True,
        entries: Iterable[Entry] = (),
    ) -> None:
        """`named`: the normalised URLs of the command line. Raises UsageError for a key or CA of no use."""
        self._named = {origin_of(url) for url in named}
        self._key = from_names(api_key_env, api_key_file)
        self._ca_file = check_ca_file(Path(ca_file)) if ca_file else None
        self._metrics = metrics
        self._entries = {entry.origin: entry for entry in entries}

    def entry_for(self, url: str) -> Entry | None:
        """The entry of `engines.toml` for a normalised address."""
        return self._entries.get(origin_of(url))

    def to(self, url: str) -> Access:
        """How an engine is reached, by its normalised address.

        Raises UsageError when the entry for it names a key or a CA that cannot be had.
        """
        named = origin_of(url) in self._named
        key = self._key if named else None
        ca_file = self._ca_file if named else None
        entry = self.entry_for(url)
        if entry is None:
            return msgspec.structs.replace(self.bare(url), key=key, ca_file=ca_file)
        try:
            own = from_names(entry.api_key_env, entry.api_key_file)
            if entry.ca_file is not None:
                ca_file = check_ca_file(Path(entry.ca_file))
        except UsageError as error:
            raise UsageError(f"{entry.where}: {error.message}", error.hint) from None
        return msgspec.structs.replace(self.bare(url), key=own or key, ca_file=ca_file)

    def told(self, url: str) -> tuple[bool, str]:
        """Whether key and CA of an engine can be had, and how it is reached in one line. Never raises."""
        try:
            return True, self.to(url).in_words()
        except UsageError as error:
            return False, str(error)

    def bare(self, url: str) -> Access:
        """As `to`, without key and CA: what is left where they cannot be had."""
        entry = self.entry_for(url)
        if entry is None:
            return Access(metrics=self._metrics)
        return Access(
            proxy=entry.proxy is not False,
            metrics=self._metrics and entry.metrics is not False,
            entry=entry.where,
            weights_bytes=entry.weights_bytes,
            active_weights_bytes=entry.active_weights_bytes,
        )


def entries_of_user() -> list[Entry]:
    """What stands in the user's `engines.toml`. Raises UsageError."""
    return read(paths.engines_file())
