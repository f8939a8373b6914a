"""From parsed arguments to the settings of a node."""

from __future__ import annotations

import argparse
from pathlib import Path

from agenttop.errors import UsageError
from agenttop.model.url import normalise
from agenttop.node.settings import NodeSettings, ways_of
from agenttop.oslayer import at_home


def from_arguments(arguments: argparse.Namespace) -> NodeSettings:
    """Settings from the arguments of `cli.watch_arguments`. Raises UsageError."""
    for option in ("api_key_env", "api_key_file", "ca_file"):
        if getattr(arguments, option) == "":
            words = f"--{option.replace('_', '-')} is empty"
            raise UsageError(words, "a variable of the shell that is not set leaves nothing")
    settings = NodeSettings(
        urls=[normalise(url) for url in arguments.url],
        api_key_env=arguments.api_key_env or None,
        api_key_file=_place(arguments.api_key_file),
        ca_file=_place(arguments.ca_file),
        record=not arguments.no_record,
        out=new_file(arguments.out),
        scrape_metrics=not arguments.no_metrics,
        # Who names an engine wants that one; the others on this host are not looked for.
        discover=not arguments.url,
    )
    if settings.api_key_env and settings.api_key_file:
        raise UsageError("--api-key-env and --api-key-file exclude each other", "one key is enough")
    ways_of(settings)
    for option, given in (
        ("--api-key-env", settings.api_key_env),
        ("--api-key-file", settings.api_key_file),
        ("--ca-file", settings.ca_file),
    ):
        if given and not settings.urls:
            raise UsageError(
                f"{option} holds for engines that are named, and none is",
                "add --url URL, or write an entry for the engine into engines.toml",
            )
    return settings


def _place(name: str | None) -> Path | None:
    """A file of the command line, for processes that may stand in another folder."""
    return at_home(name).absolute() if name else None


def new_file(name: str | None) -> Path | None:
    """The file of `--out`; None without one. Raises UsageError when it exists."""
    if not name:
        return None
    out = Path(name).absolute()
    if out.exists():
        raise UsageError(f"{out} exists already", "give --out another name; recordings are never overwritten")
    return out
