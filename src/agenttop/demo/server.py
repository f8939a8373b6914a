"""The real llama.cpp HTTP server out of the `xllamacpp` wheel, as a child process of agenttop.

    python -m agenttop.demo.server --model PATH [--port 0] [--slots 4] [--context 8192] ...

When the server listens, exactly one line of JSON appears on stdout: `{"port": N, "pid": N, "url": TEXT}`.
All that llama.cpp prints goes to stderr, or to `--log FILE`. The process ends when its stdin closes: whoever
started it holds the other end, and when that process dies, by `kill -9` too, the kernel closes it.
It also ends on SIGINT and SIGTERM. It listens on 127.0.0.1 and nowhere else.

The wheel has no command line of its own; these options are the fields of its parameters that agenttop uses.
While the model loads the wheel holds Python's lock, so a stop takes effect only after loading.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn

from agenttop.errors import AgenttopError, UsageError
from agenttop.oslayer import clean_descriptors, exit_with_parent, give_way, stop_signals

HOST = "127.0.0.1"


def main(arguments: list[str] | None = None) -> int:
    """Run the server until it is told to stop, and exit with 0. Returns 1 (failed) or 2 (wrong usage)."""
    options = parser().parse_args(arguments)
    report = clean_descriptors()
    if options.log is not None:
        _log_to(options.log)
    try:
        _serve(options, report)
    except AgenttopError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def parser() -> argparse.ArgumentParser:
    """The command line."""
    about = str(__doc__).partition("\n")[0]
    made = argparse.ArgumentParser(prog="python -m agenttop.demo.server", description=about)
    add = made.add_argument
    add("--model", required=True, type=Path, metavar="PATH", help="a GGUF file")
    add("--port", type=int, default=0, metavar="N", help="0: any free port (default)")
    add("--slots", type=int, default=4, metavar="N", help="requests served at once (default 4)")
    add("--context", type=int, default=8192, metavar="TOKENS", help="KV cache, all slots together (8192)")
    add("--threads", type=int, metavar="N", help="CPU threads (default: llama.cpp's choice)")
    add("--batch", type=int, default=2048, metavar="TOKENS", help="largest prefill batch (2048)")
    add("--cache-ram", type=int, default=256, metavar="MIB", help="prompt cache; 0: none (256)")
    add("--api-key-env", metavar="NAME", help="environment variable with the key to ask for")
    add("--unified", action="store_true", help="one KV pool that all slots share")
    add("--no-metrics", action="store_true", help="answer /metrics with 501")
    add("--no-slots", action="store_true", help="answer /slots with 501")
    add("--sleep-idle", type=int, default=-1, metavar="SECONDS", help="unload the model when idle")
    add("--alias", metavar="NAME", help="model name to report")
    add("--log", type=Path, metavar="FILE", help="llama.cpp's log (default: stderr)")
    return made


def _serve(options: argparse.Namespace, report: int) -> NoReturn:
    stop = threading.Event()
    for number in stop_signals():
        signal.signal(number, lambda *_: stop.set())
    exit_with_parent(0)
    give_way()  # the demo must not slow down the console and the driver that measure it
    server = _start(options)
    address = str(server.listening_address)
    port = int(address.rpartition(":")[2])
    line = json.dumps({"port": port, "pid": os.getpid(), "url": f"http://{HOST}:{port}"}) + "\n"
    with contextlib.suppress(OSError):  # the parent is gone already; the watch on stdin will notice
        os.write(report, line.encode())
    os.close(report)
    # Windows runs signal handlers only when Python code runs, hence the short turns.
    while not stop.wait(0.5):
        pass
    # Not through the server's destructor: it holds Python's lock while it waits for the main loop, and
    # waits for ever when the stop comes right after the start. There is nothing to save, and the kernel
    # closes connections and port.
    os._exit(0)


def _start(options: argparse.Namespace) -> Any:
    """Load the model and listen; returns the server, which lives as long as the object does."""
    try:
        import xllamacpp
    except ImportError as error:
        raise AgenttopError(
            "llama.cpp is missing: there is no xllamacpp package", "pip install 'agenttop[demo]'"
        ) from error
    if not options.model.is_file():
        raise AgenttopError(f"there is no model file {options.model}")
    try:
        return xllamacpp.Server(_parameters(options, xllamacpp.CommonParams()))
    except RuntimeError as error:
        where = f"{options.model} on port {options.port or 'any'}"
        raise AgenttopError(f"llama.cpp did not start with {where}", "its log says why") from error


def _parameters(options: argparse.Namespace, parameters: Any) -> Any:
    """Fill in xllamacpp's `CommonParams`."""
    parameters.model.path = str(options.model)
    if hasattr(parameters, "hostnames"):
        parameters.hostnames = [HOST]
    else:  # wheels before October 2026
        parameters.hostname = HOST
    parameters.port = options.port
    parameters.n_parallel = options.slots
    parameters.n_ctx = options.context
    parameters.n_batch = options.batch
    parameters.n_ubatch = min(options.batch, 512)
    if options.threads:
        parameters.cpuparams.n_threads = options.threads
    parameters.n_gpu_layers = 0  # the model is made for the pace of a CPU, and a GPU may be busy
    parameters.cache_ram_mib = options.cache_ram
    parameters.kv_unified = options.unified
    parameters.endpoint_metrics = not options.no_metrics
    parameters.endpoint_slots = not options.no_slots
    parameters.sleep_idle_seconds = options.sleep_idle
    setattr(parameters, "ui" if hasattr(parameters, "ui") else "webui", False)
    if options.alias:
        parameters.model_alias = {options.alias}
    if options.api_key_env:
        parameters.api_keys = [_key(options.api_key_env)]
    return parameters


def _key(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise UsageError(f"--api-key-env {name}: no such environment variable, or it is empty")
    return value


def _log_to(path: Path) -> None:
    """Lead descriptors 1 and 2 into a file, so that C code writes there too."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)


if __name__ == "__main__":
    sys.exit(main())
