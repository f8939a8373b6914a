"""From parsed arguments to the settings of a node."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from agenttop.collect.engine.url import normalise
from agenttop.errors import UsageError
from agenttop.node.settings import NodeSettings


def from_arguments(arguments: argparse.Namespace) -> NodeSettings:
    """Settings from the arguments of `cli.watch_arguments`. Raises UsageError."""
    key_env = arguments.api_key_env
    if key_env and key_env not in os.environ:
        raise UsageError(f"the environment variable {key_env} is not set", f"export {key_env}=… first")
    return NodeSettings(
        urls=[normalise(url) for url in arguments.url],
        api_key_env=key_env,
        record=not arguments.no_record,
        out=new_file(arguments.out),
        scrape_metrics=not arguments.no_metrics,
        # Who names an engine wants that one; the others on this host are not looked for.
        discover=not arguments.url,
    )


def new_file(name: str | None) -> Path | None:
    """The file of `--out`; None without one. Raises UsageError when it exists."""
    if not name:
        return None
    out = Path(name).absolute()
    if out.exists():
        raise UsageError(f"{out} exists already", "give --out another name; recordings are never overwritten")
    return out
