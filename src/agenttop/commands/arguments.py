"""Arguments that several commands share."""

from __future__ import annotations

import argparse
from typing import Any


def set_argument(parser: argparse.ArgumentParser) -> None:
    """`--set KEY=VALUE`, for every command that takes a profile; read by `agents.overrides.read_settings`."""
    parser.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another value for a key of the profile, e.g. context.limit=32k (repeatable)",
    )


def watch_arguments(parser: argparse.ArgumentParser, *, recording: str = "optional") -> None:
    """What every command that watches an engine takes; may stand before or after the command's name.

    `recording`: optional, always, or never.
    """
    # A subparser's defaults would overwrite what stood before its name, so only the top parser has any.
    absent: Any = argparse.SUPPRESS
    parser.add_argument(
        "--url",
        action="append",
        default=absent,
        metavar="URL",
        help="an engine, e.g. http://127.0.0.1:8080 (repeatable)",
    )
    parser.add_argument(
        "--api-key-env",
        default=absent,
        metavar="NAME",
        help="environment variable that holds the API key of the engines named with --url",
    )
    parser.add_argument(
        "--api-key-file",
        default=absent,
        metavar="FILE",
        help="file with that key in its first line, readable by you alone",
    )
    parser.add_argument(
        "--ca-file",
        default=absent,
        metavar="FILE",
        help="certificates (PEM) to believe for these engines, besides those of the system",
    )
    parser.add_argument(
        "--no-metrics",
        action="store_true",
        default=absent,
        help="do not ask engines for /metrics (each scrape resets llama.cpp's rate gauges for other readers)",
    )
    if recording == "never":
        return
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--out",
        default=absent,
        metavar="FILE",
        help="record to FILE instead of a new file in the recordings folder",
    )
    if recording == "optional":
        choice.add_argument("--no-record", action="store_true", default=absent, help="do not record")
