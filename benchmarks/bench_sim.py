"""How fast the simulated engine's core is, without HTTP: tokens a second on one core.

    python benchmarks/bench_sim.py [--tokens 200000]

The target is 50,000 tok/s with 64 sequences decoding. `docs/simulator.md` keeps the last figures.
"""

from __future__ import annotations

import argparse
import time

from agenttop.sim import presets
from agenttop.sim.engine import SimEngine, SimRequest
from agenttop.sim.options import EngineOptions

PROMPT = 1000


def measure(sequences: int, tokens: int, options: EngineOptions) -> tuple[float, float, float]:
    """(tokens a second of real time, microseconds a step, simulated over real time)."""
    engine = SimEngine(presets.host("rtx-5090"), presets.model("qwen3.5-9b-4bit"), options)
    each = tokens // sequences
    for number in range(sequences):
        first = number << 32
        blocks = range(first, first + (PROMPT + each) // options.block_tokens)
        engine.submit(SimRequest(id=str(number), blocks=blocks, prompt_tokens=PROMPT, max_tokens=each))
    began, seen = time.perf_counter(), 0
    while (until := engine.next_time()) is not None:
        seen += sum(1 for one in engine.advance(until) if one.kind in ("first", "token"))
    took = time.perf_counter() - began
    assert seen == each * sequences
    return seen / took, took / engine.state().steps_total * 1e6, engine.now / took


def main() -> None:
    """Several engines and batch sizes, the best of three runs each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=200_000)
    arguments = parser.parse_args()
    print("| engine | sequences | tok/s | us a step | simulated s per s |")
    print("|---|---|---|---|---|")
    for wire, sequences in (("vllm", 1), ("vllm", 16), ("vllm", 64), ("vllm", 256), ("llama.cpp", 8)):
        options = EngineOptions(wire=wire, slots=sequences, max_num_seqs=max(256, sequences))
        best = max(measure(sequences, arguments.tokens, options) for _ in range(3))
        print(f"| {wire} | {sequences} | {best[0]:,.0f} | {best[1]:.0f} | {best[2]:.1f} |")


if __name__ == "__main__":
    main()
