"""Real engines side by side: found, read, recorded, and asked nothing they should not be.

    python benchmarks/real_engines.py [--vllm PYTHON] [--llama VERSION ...] [--keep FOLDER]

Starts, on this machine and its CPU: llama.cpp in several build generations (each wheel of xllamacpp is
installed into a folder of its own), vLLM where `--vllm` names the Python of an environment that has it
(docs/engines.md says how to make one), and the simulator's two wires. Then one agenttop session without any
address: it has to find all of them. Each in turn gets two agents for a while; the decode rate that agenttop
read from the engine is compared with the tokens that the driver received in the same ten seconds. In the end
every request in the servers' own logs is held against the adapters' lists.

Exit code 1 when one of them is not found in 10 s, differs by more than 5 %, or was asked something else.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from agenttop.analyse.tokens import tokens_between, tokens_per_event
from agenttop.collect.engine.harmless import PROBES
from agenttop.collect.engine.registry import registry
from agenttop.demo.engine import demo_model
from agenttop.model.clock import SystemClock
from agenttop.model.commands import Quit, StartAgents, StopAll
from agenttop.model.frames import AgentSample, EngineSample, Event, Frame, Turn
from agenttop.node.settings import NodeSettings
from agenttop.record.read import Recording
from agenttop.sim.launch import SimProcess
from agenttop.stream.lines import ChildSource

LLAMA = ("2026.4.8672.1", "2026.7.10068", "2026.9.11063", "2026.10.11549")
FOUND_IN_S = 10.0
SETTLE_S, WINDOW_S = 8.0, 10.0
TOLERANCE = 0.05
AGENTS = 2
LOAD = (("POST", "/v1/chat/completions"), ("POST", "/tokenize"))
"""What agents send to an engine that the user has confirmed, which is no part of watching it."""
PROFILE = """
description = "Two busy agents with short contexts"
agents = 2
[start]
kind = "at-once"
[context]
limit = {limit}
system = 40
first = 60
[turn]
input = {{ kind = "constant", value = 30 }}
output = {{ kind = "constant", value = {output} }}
[compaction]
to_fraction = 0.3
summary = 20
[pacing]
tool_pause_s = 0.0
[request]
ignore_eos = true
"""


class Server:
    """One engine under test: its address, its name, and how to read its access log."""

    def __init__(
        self, name: str, kind: str, url: str, log: Path, process: subprocess.Popen[bytes] | None = None
    ) -> None:
        self.name, self.kind, self.url, self.log = name, kind, url, log
        self.process = process
        self.output = 150

    def asked(self) -> list[str]:
        """`METHOD TARGET` of every request in the log, those of the agents left out."""
        text = self.log.read_text(errors="replace")
        lines = re.findall(r"\b(GET|POST|HEAD|PUT|DELETE) (/[^\s\"]*)", text)
        # llama.cpp writes `request: GET /slots 127.0.0.1 200`.
        return [f"{method} {target}" for method, target in lines if (method, target) not in LOAD]

    @property
    def logs_requests(self) -> bool:
        """llama.cpp does not since 2026; the tests put a recording proxy in front of it instead."""
        return bool(self.asked())


def llama(version: str, folder: Path) -> Server:
    """llama.cpp's HTTP server of one wheel, two slots."""
    target = folder / f"xllamacpp-{version}"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(target)]
    subprocess.run([*pip, f"xllamacpp=={version}"], check=True, stderr=subprocess.DEVNULL)
    log = folder / f"llama-{version}.log"
    words = ["--model", str(demo_model()), "--slots", "2", "--context", "4096", "--threads", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "agenttop.demo.server", *words, "--batch", "256", "--log", str(log)],
        env={**os.environ, "PYTHONPATH": str(target)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    report = json.loads(process.stdout.readline())
    return Server(f"llama.cpp {version}", "llama.cpp", report["url"], log, process)


def vllm(python: str, folder: Path) -> Server:
    """vLLM on the CPU with a generated model of random weights."""
    model, log = folder / "tiny-hf", folder / "vllm.log"
    write_model(model)
    port = _free_port()
    words = [
        "--model",
        str(model),
        "--served-model-name",
        "tiny",
        "--load-format",
        "dummy",
        "--dtype",
        "bfloat16",
    ]
    words += ["--enforce-eager", "--max-model-len", "2048", "--block-size", "32", "--max-num-seqs", "8"]
    words += ["--host", "127.0.0.1", "--port", str(port), "--tokenizer-mode", "auto"]
    # The model has 256 tokens of one byte: no network, no tokenizer to download.
    quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [python, "-m", "vllm.entrypoints.openai.api_server", *words],
            env={**os.environ, **quiet, "OMP_NUM_THREADS": "1"},
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
    server = Server("vLLM (CPU)", "vLLM", f"http://127.0.0.1:{port}", log, process)
    deadline = time.monotonic() + 300
    while "Application startup complete" not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"vLLM did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.5)
    return server


def write_model(folder: Path) -> None:
    """A small Llama without weights (they are made up on loading) and a tokenizer of single bytes."""
    folder.mkdir(exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "max_position_embeddings": 2048,
        "vocab_size": 260,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "bos_token_id": 256,
        "eos_token_id": 257,
        "torch_dtype": "bfloat16",
        "tie_word_embeddings": False,
    }
    special = [
        {"id": 256 + number, "content": text, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for number, text in enumerate(("<s>", "</s>", "<unk>", "<pad>"))
    ]  # fmt: skip
    vocabulary = {letter: number for number, letter in enumerate(_byte_letters())}
    vocabulary |= {str(each["content"]): int(str(each["id"])) for each in special}
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": special,
        "pre_tokenizer": bytewise,
        "decoder": bytewise,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
    }
    template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant: "
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": "</s>",
                "chat_template": template,
                "model_max_length": 2048,
            }
        )
    )


def _byte_letters() -> list[str]:
    """The letters that byte-level tokenizers write bytes as."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    letters = {byte: chr(byte) for byte in plain} | {byte: chr(256 + n) for n, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as held:
        return int(held.getsockname()[1])


@contextlib.contextmanager
def servers(options: argparse.Namespace, folder: Path) -> Iterator[list[Server]]:
    """All of them, up; ended when the block is left."""
    started: list[Server] = []
    simulated: list[SimProcess] = []
    try:
        for version in options.llama:
            started += [llama(version, folder)]
        if options.vllm:
            started.append(vllm(options.vllm, folder))
        for wire, kind in (("vllm", "vLLM"), ("llama.cpp", "llama.cpp")):
            log = folder / f"sim-{wire}.log"
            sim = SimProcess.start("rtx-5090", "tiny", wire=wire, more=["--access-log", str(log)])
            simulated.append(sim)
            started.append(Server(f"simulated, {wire} wire", kind, sim.url, log))
            started[-1].output = 600
        yield started
    finally:
        for sim in simulated:
            sim.stop()
        for server in started:
            if server.process is not None:
                server.process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.process.wait(15)
                server.process.kill()


class Look:
    """One session, as a console drives it."""

    def __init__(self, recording: Path) -> None:
        settings = NodeSettings(out=recording, discover=True)
        self.begun = time.monotonic()
        self._source = ChildSource(settings.argv(), SystemClock())
        self.frames: list[Frame] = []

    def take(self, seconds: float = 0.1) -> None:
        """Whatever comes in that time."""
        end = time.monotonic() + seconds
        while True:
            batch = self._source.take()
            self.frames += batch.frames
            if batch.ended is not None:
                raise SystemExit(f"the session ended: {batch.ended}")
            if time.monotonic() >= end:
                return
            self._source.wait(0.05)

    def found(self, servers: list[Server], at_most_s: float) -> dict[str, float]:
        """URL to the seconds from the start of the session to the first sample in which it is well."""
        first: dict[str, float] = {}
        wanted = {server.url for server in servers}
        while set(first) < wanted and time.monotonic() - self.begun < at_most_s:
            self.take()
            for frame in self.frames:
                if isinstance(frame, EngineSample) and frame.state == "ok" and frame.url in wanted:
                    first.setdefault(frame.url, frame.t)
        return first

    def load(self, server: Server, profile: Path) -> tuple[float, float]:
        """Two agents for a while; the session times between which the figures are compared."""
        start = StartAgents(engine=server.url, profile=str(profile), target=AGENTS, confirmed=True)
        self._source.send(start)
        self.take(SETTLE_S)
        begin = max(frame.t for frame in self.frames)
        self.take(WINDOW_S + 2.0)
        end = begin + WINDOW_S
        self._source.send(StopAll())
        deadline = time.monotonic() + 30
        while self._running() and time.monotonic() < deadline:
            self.take(0.2)
        self.take(1.0)
        return begin, end

    def _running(self) -> bool:
        newest = {frame.agent: frame.state for frame in self.frames if isinstance(frame, AgentSample)}
        return any(state != "stopped" for state in newest.values())

    def end(self) -> None:
        """The recording is closed."""
        self._source.send(Quit())
        self._source.wait_exit(20.0)
        self._source.close()


def compare(recording: Path, url: str, begin: float, end: float) -> tuple[float, float]:
    """(tokens per second that agenttop read from the engine, those that the driver received meanwhile).

    Each rate is held against the tokens that arrived in its very window: those of the samples whose windows
    have their middle between `begin` and `end`.
    """
    with contextlib.closing(Recording(recording)) as recorded:
        frames = list(recorded.frames(begin - 10.0, end + 60.0))
    turns = [frame for frame in frames if isinstance(frame, Turn) and frame.engine == url]
    per_event = tokens_per_event(turns)
    read = received = seconds = 0.0
    for frame in frames:
        if not isinstance(frame, EngineSample) or frame.url != url:
            continue
        rate, window = frame.decode_tok_s, frame.window_s
        if rate is None or not window or not begin <= frame.t - window / 2 < end:
            continue
        at = frame.t - (frame.age_s or 0.0)
        read += rate * window
        received += sum(tokens_between(turn, at - window, at, per_event)[0] for turn in turns)
        seconds += window
    return (read / seconds, received / seconds) if seconds else (0.0, 0.0)


def beyond(server: Server) -> list[str]:
    """What it was asked that is on no list."""
    kind = next(each for each in registry().kinds if each.name == server.kind)
    allowed = {f"GET {path}" for path in PROBES | kind.allowed_paths | {"/sim"}}
    return sorted({line for line in server.asked() if line not in allowed})


def main() -> int:
    """Run it, print a table, and tell by the exit code whether all of it holds."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--vllm", metavar="PYTHON")
    parser.add_argument("--llama", nargs="*", default=list(LLAMA), metavar="VERSION")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where logs and recording stay")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="engines-"))
    folder.mkdir(parents=True, exist_ok=True)
    recording, good = folder / "side-by-side.agenttop", True
    with servers(options, folder) as started:
        print("up:", ", ".join(server.name for server in started), flush=True)
        look = Look(recording)
        found = look.found(started, 30.0)
        spans = {}
        for server in started:
            profile = folder / f"agents-{server.output}.toml"
            profile.write_text(PROFILE.format(limit=1000, output=server.output))
            spans[server.url] = look.load(server, profile)
        look.end()
        rows = []
        for server in started:
            read, received = compare(recording, server.url, *spans[server.url])
            off = read / received - 1 if received else float("nan")
            more = beyond(server)
            fine = found.get(server.url, 99) <= FOUND_IN_S and abs(off) <= TOLERANCE and not more
            good = good and fine
            gets = len(server.asked()) if server.logs_requests else None
            rows.append((server.name, found.get(server.url), read, received, off, gets, more))
    print(f"{'engine':<26} {'found':>7} {'read':>9} {'driver':>9} {'off':>7} {'GETs':>6}  beyond the list")
    for name, seconds, read, received, off, gets, more in rows:
        when = f"{seconds:.1f} s" if seconds is not None else "never"
        rates = f"{read:>9.1f} {received:>9.1f} {off:>+7.1%}"
        asked = f"{gets:>6}  {more or 'nothing'}" if gets is not None else "     –  its log does not tell"
        print(f"{name:<26} {when:>7} {rates} {asked}")
    for event in look.frames:
        if isinstance(event, Event) and event.severity in ("warn", "bad"):
            print(f"  {event.t:6.1f} {event.event}: {event.text}")
    print("recording:", recording)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
