"""The driver and AIPerf side by side: the same stub engine, the same load, one run.

    python -m venv peer && peer/bin/pip install aiperf
    python benchmarks/bench_peer.py --aiperf peer/bin/aiperf [--streams 16,256] [--rate 50] [--seconds 8]

For each number of streams, in turn: agenttop, then AIPerf. The stub says when it received a request and when
it sent each event; AIPerf's raw records say when its client saw it. Compared are the errors of time
stamps, the time to first token and the time between tokens that the tool reports beside the true ones, the
spread of the start, and the CPU time of all its processes. AIPerf needs a tokenizer folder before the first
request: a tiny one is written. CPU includes the start of the tool, which is measured by a run of two tokens
and subtracted. On Linux the stub is pinned to one core and both tools to the others, as on a machine whose
engine has one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from agenttop.agents.calibrate import CalibrationError, Stub, play, share


class Seen:
    """What one tool reported, and what was true. Seconds."""

    def __init__(self) -> None:
        self.errors: list[float] = []
        self.ttft: float | None = None
        self.between: float | None = None
        self.true_ttft = 0.0
        self.true_between = 0.0
        self.spread = 0.0
        self.cpu = 0.0
        self.wall = 0.0

    def truth(self, log: list[dict]) -> None:
        """From the stub's own record."""
        rows = [row for row in log if len(row["stamps"]) > 2]
        arrived = sorted(row["arrived"] for row in rows)
        self.true_ttft = statistics.median(row["stamps"][0] - row["arrived"] for row in rows) / 1e9
        gaps = [later - earlier for row in rows for earlier, later in pairwise(row["stamps"])]
        self.true_between = statistics.median(gaps) / 1e9
        self.spread = (arrived[-1] - arrived[0]) / 1e9


def children_cpu() -> float:
    """CPU seconds of all processes that have ended, theirs included."""
    times = os.times()
    return times.children_user + times.children_system


def agenttop(stub: Stub, streams: int, tokens: int, core: int | None) -> Seen:
    """One round of the real driver process."""
    seen = Seen()
    cpu, start = children_cpu(), time.monotonic()
    played = play(stub, streams, tokens, core=core)
    seen.cpu, seen.wall = children_cpu() - cpu, time.monotonic() - start
    seen.errors = played.errors()
    turns = played.turns
    seen.ttft = statistics.median(turn.t_first_token - turn.t_sent for turn in turns)
    gaps = [
        later - earlier
        for turn in turns
        for earlier, later in pairwise(struct.unpack(f"<{turn.events}I", turn.arrivals))
    ]
    seen.between = statistics.median(gaps) / 1e6 if gaps else None
    seen.truth(stub.ask("GET", "/log"))
    return seen


def write_tokenizer(folder: Path) -> None:
    """One word, one token."""
    folder.mkdir(exist_ok=True)
    words = ["[UNK]", "<s>", "</s>", "word", *(f"w{number}" for number in range(2000))]
    special = [
        {"id": number, "content": words[number], "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for number in range(3)
    ]  # fmt: skip
    model = {"type": "WordLevel", "vocab": {word: n for n, word in enumerate(words)}, "unk_token": "[UNK]"}
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special, "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None, "model": model,
    }  # fmt: skip
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "bos_token": "<s>",
        "eos_token": "</s>",
    }  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps(whole))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def aiperf(command: str, stub: Stub, streams: int, tokens: int, core: int | None, scratch: Path) -> Seen:
    """One round of AIPerf."""
    out = scratch / f"aiperf-{streams}-{tokens}"
    line = [
        command, "profile", "--model", "stub", "--url", stub.url, "--endpoint-type", "chat", "--streaming",
        "--concurrency", str(streams), "--request-count", str(streams),
        "--synthetic-input-tokens-mean", "200",
        "--output-tokens-mean", str(tokens), "--output-tokens-stddev", "0", "--tokenizer",
        str(scratch / "tokenizer"), "--ui", "none", "--artifact-dir", str(out), "--export-level", "raw",
        "--random-seed", "1",
    ]  # fmt: skip
    if core is not None:
        line = ["taskset", "-c", str(core), *line]
    seen = Seen()
    cpu, start = children_cpu(), time.monotonic()
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    seen.cpu, seen.wall = children_cpu() - cpu, time.monotonic() - start
    if done.returncode != 0:
        raise CalibrationError(
            f"AIPerf ended with {done.returncode}: {done.stdout[-400:]}{done.stderr[-400:]}"
        )
    report = json.loads((out / "profile_export_aiperf.json").read_text())
    seen.ttft = _milliseconds(report.get("time_to_first_token"))
    seen.between = _milliseconds(report.get("inter_token_latency"))
    with (out / "profile_export_raw.jsonl").open() as records:
        for record in records:
            seen.errors += raw_errors(json.loads(record))
    seen.errors.sort()
    seen.truth(stub.ask("GET", "/log"))
    return seen


def _milliseconds(figure: dict | None) -> float | None:
    return figure["p50"] / 1000 if figure else None


def raw_errors(record: dict) -> list[float]:
    """When its client saw each event, minus when the stub sent it; the first second left out, in seconds."""
    stamps = []
    for response in record["responses"]:
        for packet in response["packets"]:
            value = packet["value"]
            if value and value.startswith("{") and '"t":' in value:
                stamps.append((json.loads(value)["t"], response["perf_ns"]))
    return [(seen - sent) / 1e9 for sent, seen in stamps if sent - stamps[0][0] > 1e9]


def ms(seconds: float | None) -> str:
    """As milliseconds."""
    return "-" if seconds is None else f"{seconds * 1000:.2f} ms"


def show(name: str, seen: Seen, start_cpu: float, tokens: int) -> None:
    """One tool, one line a figure."""
    errors = seen.errors
    print(f"  {name}")
    if errors:
        print(
            f"    time-stamp error p50 {ms(share(errors, 0.5))}, p99 {ms(share(errors, 0.99))}, "
            f"max {ms(errors[-1])}"
        )
    print(f"    TTFT p50 reported {ms(seen.ttft)}, true {ms(seen.true_ttft)}")
    print(f"    between tokens p50 reported {ms(seen.between)}, true {ms(seen.true_between)}")
    print(f"    requests that start together: {ms(seen.spread)} from first to last")
    print(
        f"    CPU {seen.cpu:.1f} s in {seen.wall:.1f} s; without its start of {start_cpu:.1f} s: "
        f"{max(0.0, seen.cpu - start_cpu) / tokens * 1e6:.1f} s per million tokens"
    )


def main() -> int:
    """Play all rounds and print their figures."""
    parser = argparse.ArgumentParser(description="The driver and AIPerf against the same stub engine.")
    parser.add_argument("--aiperf", required=True, help="the aiperf command")
    parser.add_argument("--streams", default="16,256")
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--no-pin", action="store_true")
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    pin = len(cores) > 1 and not arguments.no_pin
    stub, core = Stub(cores[0] if pin else None), cores[-1] if pin else None
    tokens = int(arguments.rate * arguments.seconds)
    try:
        with tempfile.TemporaryDirectory() as scratch:
            write_tokenizer(Path(scratch) / "tokenizer")
            for streams in map(int, arguments.streams.split(",")):
                print(f"{streams} streams x {arguments.rate:g} tok/s, load average {os.getloadavg()[0]:.1f}")
                for name in ("agenttop", "AIPerf"):
                    found = []
                    for size in (3, tokens):
                        stub.set(arguments.rate)
                        if name == "agenttop":
                            found.append(agenttop(stub, streams, size, core))
                        else:
                            found.append(aiperf(arguments.aiperf, stub, streams, size, core, Path(scratch)))
                    show(name, found[1], found[0].cpu, streams * tokens)
    except CalibrationError as error:
        print(f"not measured: {error}")
        return 1
    finally:
        stub.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
