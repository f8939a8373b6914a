"""`agenttop once`: one look, as text or JSON. Rates need two looks, so it takes about two seconds."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agenttop.commands.arguments import watch_arguments
from agenttop.node.settings import NodeSettings

if TYPE_CHECKING:
    from agenttop.view.store import Store

SCHEMA = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `once`."""
    watch_arguments(parser, recording="never")
    parser.add_argument("--json", action="store_true", help="one JSON object, schema 1")
    parser.add_argument("--window", default="2s", metavar="T", help="span over which rates are taken (2s)")


def run(arguments: argparse.Namespace) -> int:
    """One look. Exit code 1 when a named engine cannot be read."""
    from agenttop.commands.settings import from_arguments
    from agenttop.model.units import parse_duration

    return print_once(from_arguments(arguments), parse_duration(arguments.window), as_json=arguments.json)


def print_once(settings: NodeSettings, window_s: float, *, as_json: bool) -> int:
    """Look, print, and tell by the exit code whether every named engine could be read."""
    from agenttop.commands.gather import look
    from agenttop.view.store import Store

    frames = look(settings, window_s)
    store = Store()
    store.feed(frames, max((frame.t for frame in frames), default=0.0))
    if as_json:
        from agenttop.commands.cells import json_text

        sys.stdout.write(json_text(report(store)))
    else:
        import shutil

        from agenttop.view.gpu_lines import machine_lines
        from agenttop.view.text import picture

        width = shutil.get_terminal_size((100, 30)).columns
        sys.stdout.write(picture(store, max(80, min(width, 200)), 40))
        # Whole, whatever the width: these lines are there to be pasted.
        sys.stdout.write("\n" + "\n".join(machine_lines(store)) + "\n")
    return exit_code(store, settings.urls)


def exit_code(store: Store, urls: Sequence[str]) -> int:
    """1 when a named engine cannot be read."""
    states = [sample.state if (sample := store.engines.get(url)) is not None else None for url in urls]
    return 0 if all(state in READABLE for state in states) else 1


READABLE = ("ok", "busy", "asleep", "loading")


def report(store: Store) -> dict[str, Any]:
    """The JSON object of `once --json`, schema 1: the newest samples, and what is missing and why."""
    from agenttop.view.simulated import in_order

    return {
        "schema": SCHEMA,
        "host": _values(store.host),
        "hardware": _values(store.hardware),
        "gpus": [_values(gpu) for gpu in in_order(store.gpus.values())],
        "processes": [_values(process) for process in store.processes.values()],
        "engines": [_engine(store, url) for url in store.engines],
        "missing": [
            {"what": missing.what, "why": missing.why, "fix": missing.fix}
            for missing in store.missing.values()
            if missing.why is not None
        ],
    }


def _with_nulls(sample: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Every field of the type; those without a value as null. `t` and `kind` mean nothing here."""
    fields = sample.__struct_fields__ if sample is not None else ()
    return {name: values.get(name, getattr(sample, name)) for name in fields if name != "t"}


def _values(sample: Any) -> dict[str, Any]:
    """All fields of a frame; an empty object where there is no frame."""
    import msgspec

    return _with_nulls(sample, msgspec.to_builtins(sample)) if sample is not None else {}


def _derived(store: Store, engine: Any) -> dict[str, Any]:
    """What is derived of an engine and its GPUs, each figure with what it rests on."""
    from dataclasses import asdict

    from agenttop.view.derived import derived
    from agenttop.view.look import Look

    return asdict(derived(store, engine, Look(engine=engine.engine)))


def _frame(sample: Any) -> dict[str, Any]:
    """A latency or a part of an engine, whose name stands around it."""
    import msgspec

    values = _with_nulls(sample, msgspec.to_builtins(sample))
    del values["engine"]
    return values


def _engine(store: Store, url: str) -> dict[str, Any]:
    import msgspec

    sample = store.engines[url]
    row = _with_nulls(sample, msgspec.to_builtins(sample))
    row["engine"] = sample.name
    row.pop("name", None)
    row["derived"] = _derived(store, sample)
    row["latencies"] = [_frame(each) for each in store.latencies.get(url, {}).values()]
    row["parts"] = [_frame(each) for each in store.parts.get(url, {}).values()]
    row["slots"] = [
        {
            "id": slot.slot,
            "part": slot.part,
            "phase": slot.phase,
            "context_tokens": slot.context_tokens,
            "context_limit_tokens": slot.context_limit_tokens,
            "decode_tok_s": slot.decode_tok_s,
            "prefill_tok_s": slot.prefill_tok_s,
        }
        for (engine, _), slot in sorted(store.slots.items())
        if engine == url
    ]
    return row
