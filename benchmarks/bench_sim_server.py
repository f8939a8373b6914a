"""What the server of the simulated engine costs, and how late it is.

    python benchmarks/bench_sim_server.py [--streams 64] [--seconds 8] [--wire vllm]

The engine's step is planted, so that the rate is known: so many streams, a token each per step. For each rate
one line: tokens asked for and sent per second, CPU of the server as a share of a core and per million tokens,
lateness of its emissions (real seconds, 99th percentile, as `GET /sim` tells it). The last line is a step too
short to be kept: the rate the server reaches when it is the limit. The client counts bytes on raw sockets and
shares the machine.
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import sys
import time
import urllib.request

import psutil

from agenttop.sim.launch import SimProcess

RATES = (1000, 5000, 10000, 0)
"""Tokens per second; 0: more than can be sent."""
_WORD = {"vllm": b'"delta":{"content":"', "llama.cpp": b'"delta":{"content":"'}


def measure(wire: str, streams: int, rate: int, seconds: float) -> dict[str, float]:
    """One rate on a server of its own."""
    step = streams / rate if rate else 1e-5
    more = ["--plant", f"step={step:.6g},prefill=1e-9", "--noise", "0", "--max-num-seqs", str(streams)]
    if wire == "llama.cpp":
        more += ["--slots", str(streams)]
    with SimProcess.start("h200", "tiny", wire=wire, more=more) as server:
        port = int(server.url.rpartition(":")[2])
        selector = selectors.DefaultSelector()
        for number in range(streams):
            connection = _request(port, number)
            selector.register(connection, selectors.EVENT_READ)
        _count(selector, 1.0, wire)
        process = psutil.Process(server.pid)
        before, begun = process.cpu_times(), time.monotonic()
        tokens = _count(selector, seconds, wire)
        took, after = time.monotonic() - begun, process.cpu_times()
        cpu = after.user + after.system - before.user - before.system
        with urllib.request.urlopen(f"{server.url}/sim", timeout=10) as reply:
            late = json.load(reply)["late_s"]
        for key in list(selector.get_map().values()):
            key.fileobj.close()
    return {"sent": tokens / took, "cpu": cpu / took, "per_million": cpu / tokens * 1e6, "late": late}


def _request(port: int, number: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    options = {"include_usage": True, "continuous_usage_stats": True}
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": f"stream {number}"}],
            "max_tokens": 100_000,
            "stream": True,
            "stream_options": options,
            "timings_per_token": True,
        }
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    connection.setblocking(False)
    return connection


def _count(selector: selectors.BaseSelector, seconds: float, wire: str) -> int:
    end = time.monotonic() + seconds
    tokens = 0
    while (left := end - time.monotonic()) > 0:
        for key, _ in selector.select(left):
            tokens += key.fileobj.recv(1 << 18).count(_WORD[wire])
    return tokens


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="The server of the simulated engine.")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--wire", default="vllm", choices=tuple(_WORD))
    arguments = parser.parse_args()
    print(f"{arguments.streams} streams, {arguments.wire}, load {psutil.getloadavg()[0]:.1f}")
    print("tok/s asked   sent   server CPU   CPU s per M tokens   late p99")
    for rate in RATES:
        found = measure(arguments.wire, arguments.streams, rate, arguments.seconds)
        asked = str(rate) if rate else "all"
        print(
            f"{asked:>11} {found['sent']:>6.0f} {found['cpu'] * 100:>10.0f} % {found['per_million']:>18.1f}"
            f" {found['late'] * 1000:>9.1f} ms",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
