"""`agenttop sim`: a simulated engine that serves real HTTP on this machine."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agenttop.sim.options import EngineOptions, Plant
    from agenttop.sim.server import ServerOptions

SCHEMA = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `sim`."""
    from agenttop.sim.faults import help_text

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = (
        "Serve a simulated engine on this machine: real HTTP, figures from a model of host and engine.\n"
        "Every reply carries the header x-agenttop-sim, and GET /sim says what it is. Times are simulated."
    )
    parser.epilog = help_text()
    add = parser.add_argument
    add("--list", action="store_true", help="the hosts and models it knows")
    add("--host", default="rtx-5090", metavar="PRESET", help="host to simulate: a name or a .toml (rtx-5090)")
    add("--model", default="qwen3.5-9b-4bit", metavar="PRESET", help="model it serves (qwen3.5-9b-4bit)")
    add("--wire", default="vllm", choices=("vllm", "llama.cpp"), help="whose wire format to speak (vllm)")
    add("--port", type=int, default=0, metavar="N", help="0: any free one (0)")
    add("--bind", default="127.0.0.1", metavar="ADDRESS", help="127.0.0.1 or ::1, nothing else")
    add("--speedup", type=float, default=1.0, metavar="K", help="run K times faster than life (1)")
    add("--seed", type=int, default=0, metavar="N", help="of noise and of the text it makes up (0)")
    add("--load-time", type=_duration, default=0.0, metavar="T", help="time until the model is loaded (0s)")
    add("--api-key-env", metavar="NAME", help="environment variable with the key to ask for")
    add("--fault", action="append", default=[], metavar="FAULT", help="what is to go wrong; see below")
    add("--access-log", metavar="FILE", help="a line for every request: METHOD TARGET")
    add("--json", action="store_true", help="the line that says where it listens as JSON, schema 1")
    add("--with-parent", action="store_true", help=argparse.SUPPRESS)
    _engine_arguments(parser.add_argument_group("engine", "as on the command line of the real server"))


def _engine_arguments(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add(
        "--context",
        type=_count,
        metavar="TOKENS",
        help="vLLM --max-model-len; llama.cpp -c, all slots together",
    )
    add(
        "--kv-tokens",
        type=_count,
        metavar="TOKENS",
        help="size of the KV pool, in place of what fits the memory",
    )
    add("--max-num-seqs", type=int, metavar="N", help="vLLM: requests that run at once (256)")
    add("--max-num-batched-tokens", type=_count, metavar="N", help="vLLM: tokens of one step (2048)")
    add("--no-prefix-cache", action="store_true", help="vLLM: nothing is kept for the next request")
    add("--gpu-memory-utilization", type=float, metavar="SHARE", help="vLLM: share of the memory (0.9)")
    add("--slots", type=int, metavar="N", help="llama.cpp -np (4)")
    add("--kv-unified", action="store_true", help="llama.cpp -kvu: one pool for all slots")
    add("--batch", type=_count, metavar="N", help="llama.cpp -b (2048)")
    add("--ubatch", type=_count, metavar="N", help="llama.cpp -ub (512)")
    add("--no-metrics", action="store_true", help="llama.cpp without --metrics")
    add("--no-slots", action="store_true", help="llama.cpp --no-slots")
    add("--kv-type", metavar="TYPE", help="of the KV cache: f16, fp8, q8_0, q4_0 ...")
    add("--split", choices=("tensor", "layer"), help="how several GPUs share the model")
    add("--noise", type=float, metavar="SHARE", help="spread of a step's time (0.015)")
    add("--ambient", type=float, metavar="C", help="temperature of the air")
    add("--power-limit", type=float, metavar="W", help="power limit of each GPU")
    add(
        "--plant",
        metavar="NAME=N,...",
        help="a step time made up to test analyses: step, knee, cliff, cliff-slope, prefill",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until asked to end, and exit with 0."""
    from agenttop.sim import presets

    if arguments.list:
        return _list(arguments.json)
    engine, options = engine_options(arguments), server_options(arguments)
    host, model = presets.host(arguments.host), presets.model(arguments.model)

    from agenttop.oslayer import exit_with_parent
    from agenttop.sim.serving import serve

    if arguments.with_parent:
        exit_with_parent(0)
    serve(host, model, engine, options, lambda account: _announce(account, arguments.json))
    return 0


def _announce(account: dict[str, Any], as_json: bool) -> None:
    """The one line on stdout."""
    if as_json:
        import msgspec

        line = msgspec.json.encode({"schema": SCHEMA, **account}).decode()
    else:
        speed = account["speedup"]
        pace = "" if speed == 1 else f", {speed:g} times faster than life"
        line = (
            f"simulated {account['simulated']} with {account['model']} ({account['wire']}) "
            f"at {account['url']}{pace}"
        )
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def engine_options(arguments: argparse.Namespace) -> EngineOptions:
    """The engine that the command line describes. Raises UsageError."""
    from agenttop.sim.options import EngineOptions

    given = {
        "context_tokens": arguments.context,
        "kv_pool_tokens": arguments.kv_tokens,
        "max_num_seqs": arguments.max_num_seqs,
        "max_num_batched_tokens": arguments.max_num_batched_tokens,
        "gpu_memory_utilization": arguments.gpu_memory_utilization,
        "slots": arguments.slots,
        "batch_tokens": arguments.batch,
        "ubatch_tokens": arguments.ubatch,
        "kv_type": arguments.kv_type,
        "parallel": arguments.split,
        "noise_fraction": arguments.noise,
        "ambient_c": arguments.ambient,
        "power_limit_w": arguments.power_limit,
        "plant": _plant(arguments.plant),
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    options = EngineOptions(
        wire=arguments.wire,
        prefix_cache=not arguments.no_prefix_cache,
        unified=arguments.kv_unified,
        **chosen,
    )
    return options.checked()


def server_options(arguments: argparse.Namespace) -> ServerOptions:
    """The server around it. Raises UsageError."""
    from agenttop.errors import UsageError
    from agenttop.sim.faults import parse
    from agenttop.sim.server import ServerOptions

    if not 0.01 <= arguments.speedup <= 10_000:
        raise UsageError(f"--speedup {arguments.speedup:g} is out of range", "0.01 to 10000")
    if not 0 <= arguments.port <= 65535:
        raise UsageError(f"--port {arguments.port} is no port", "0 to 65535")
    key = None
    if arguments.api_key_env:
        key = os.environ.get(arguments.api_key_env)
        if not key:
            raise UsageError(
                f"--api-key-env {arguments.api_key_env}: no such environment variable, or it is empty"
            )
    return ServerOptions(
        address=arguments.bind,
        port=arguments.port,
        speedup=arguments.speedup,
        seed=arguments.seed,
        load_s=arguments.load_time,
        api_key=key,
        metrics=not arguments.no_metrics,
        slot_table=not arguments.no_slots,
        faults=tuple(parse(text) for text in arguments.fault),
        access_log=Path(arguments.access_log).absolute() if arguments.access_log else None,
    )


def _plant(text: str | None) -> Plant | None:
    """`knee=8,cliff=12` to the step time of a planted engine; an empty text is one that never bends."""
    from agenttop.errors import UsageError
    from agenttop.sim.options import Plant

    if text is None:
        return None
    names = {"step": "step_s", "knee": "knee", "cliff": "cliff", "cliff-slope": "cliff_slope",
             "prefill": "prefill_token_s"}  # fmt: skip
    fields: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        try:
            number = int(value) if name in ("knee", "cliff") else float(value)
            if name not in names or not 0 < number < 1e9:
                raise ValueError
        except ValueError:
            raise UsageError(
                f"--plant {text}: '{part}' is not understood", "e.g. step=0.02,knee=8,cliff=12"
            ) from None
        fields[names[name]] = number
    return Plant(**fields)


def _duration(text: str) -> float:
    from agenttop.errors import UsageError
    from agenttop.model.units import parse_duration

    try:
        return parse_duration(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    """`32768` or `32k`, k being 1024 as engines count contexts."""
    try:
        value = int(text[:-1]) * 1024 if text[-1:] in ("k", "K") else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of tokens; write 32768 or 32k") from None
    return value


def _list(as_json: bool) -> int:
    from agenttop.sim import presets

    hosts = [presets.host(name) for name in presets.hosts()]
    models = [presets.model(name) for name in presets.models()]
    keys = [*presets.hosts(), *presets.models()]
    if as_json:
        import msgspec

        value = {
            "schema": SCHEMA,
            "hosts": [{"key": each.key, "name": each.name, "note": each.note} for each in hosts],
            "models": [{"key": each.key, "name": each.name, "note": each.note} for each in models],
        }
        sys.stdout.write(msgspec.json.encode(value).decode() + "\n")
        return 0
    wide = max(map(len, keys)) + 2
    lines = ["hosts"]
    lines += [f"  {each.key:{wide}}{each.name}" for each in hosts]
    lines += ["models"]
    lines += [f"  {each.key:{wide}}{each.name}" for each in models]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0
