"""Three sets of field measurements, rehearsed: does the simulated engine tell the same stories?

Each function runs its set in virtual time and returns the figures in the terms of the report.
`benchmarks/bench_fidelity.py` prints both side by side, `docs/simulator.md` keeps the last table, and the
tests hold the shapes. What the reports do not say (sizes per turn, engine settings) is chosen here, once.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median

import msgspec

from agenttop.errors import UsageError
from agenttop.sim import memory, presets
from agenttop.sim.options import EngineOptions
from agenttop.sim.rehearse import Rehearsed, rehearse
from agenttop.sim.workload import Spread, Workload

COARSE_BLOCK = 128
"""Tokens a block: coarser than vLLM's 16, for speed; contexts here are tens of thousands of tokens."""

ROTATION = Workload(
    name="rotation",
    system=16_000,
    first=Spread(4000, 0.5),
    input=Spread(5500, 0.9, 50, 20_000),
    output=Spread(200, 0.8, 16, 4000),
    pause=Spread(1.5, 1.0, 0.2, 60),
    limit=100_000,
    compact_to=3000,
    fill_spread=0.5,
    stagger=25,
)
"""Field notes 1: each agent grows its context to 100k tokens, then compacts; staggered starts, different
fill rates. Sizes per turn are not reported; they are chosen so that 16 agents on the 5090 see 17 tok/s."""

HUGE_PROMPT = Workload(
    name="huge-prompt",
    system=0,
    first=Spread(58_000, 0.05, 40_000, 63_000),
    output=Spread(200, 0.3, 8, 2000),
    pause=Spread(2, 0.5),
    documents=True,
    stagger=3,
)
"""Field notes 2: documents that nearly fill 64k slots, short replies. The prompt's size follows from the
report: 1481 tok/s of prefill and 1.54 completions a minute are 57,700 tokens each."""

SWARM = Workload(
    name="swarm",
    system=1500,
    first=Spread(500, 0.5, 50, 8000),
    output=Spread(600, 0.5, 16, 4000),
    documents=True,
    rounds=True,
)
"""Field notes 3: k tasks at once, the next round when the slowest has ended. Sizes are not reported."""

SWARM_OPTIONS = EngineOptions(max_num_seqs=4, context_tokens=32_768, gpu_memory_utilization=0.93)
"""Four at a time: the reported aggregates (404 tok/s at 4 agents, 316 at 5, 372 at 6) are those of tasks that
go through a door four wide, the fifth alone in a second wave. A limit of four explains the floor."""

REPORTED_SLOTS = {"q8_k_xl": 3, "q6_k_xl": 5, "q4_k_m": 9}
"""Slots of 64k tokens in field notes 2, by quantisation."""
SLOT_TOKENS = 65_536


class Ceiling(msgspec.Struct, frozen=True):
    """One quantisation of field notes 2."""

    quant: str
    slots_fitting: int
    """Slots of 64k that the memory holds."""
    level: Rehearsed


def home_lab(
    hosts: Sequence[str] = ("rtx-5090", "rtx-pro-6000", "strix-halo"),
    levels: Sequence[int] = (4, 8, 16),
    *,
    seconds: float = 1320.0,
    seed: int = 0,
) -> dict[tuple[str, int], Rehearsed]:
    """Field notes 1: by host and number of agents."""
    model = presets.model("qwen3.5-9b-4bit")
    options = EngineOptions(block_tokens=COARSE_BLOCK, context_tokens=131_072)
    return {
        (name, agents): rehearse(
            presets.host(name), model, options, agents=agents, seconds=seconds, workload=ROTATION, seed=seed
        )
        for name in hosts
        for agents in levels
    }


def one_prefill_budget(*, seconds: float = 5400.0, seed: int = 0) -> list[Ceiling]:
    """Field notes 2: three quantisations, each with the slots that were reported for it."""
    host = presets.host("2x4090")
    found = []
    for quant, slots in REPORTED_SLOTS.items():
        model = presets.model(f"qwen3.5-27b-{quant}")
        level = rehearse(
            host,
            model,
            slot_options(slots),
            agents=slots,
            seconds=seconds,
            workload=HUGE_PROMPT,
            seed=seed,
            warm_s=seconds / 9,
        )
        found.append(Ceiling(quant, slots_fitting(f"qwen3.5-27b-{quant}"), level))
    return found


def slot_options(slots: int) -> EngineOptions:
    """llama.cpp with slots of 64k tokens."""
    return EngineOptions(
        wire="llama.cpp", slots=slots, context_tokens=SLOT_TOKENS * slots, block_tokens=COARSE_BLOCK
    )


def slots_fitting(model: str, host: str = "2x4090") -> int:
    """How many slots of 64k tokens the memory of a host holds beside a model."""
    slots = 0
    while slots < 64:
        try:
            memory.plan(presets.host(host), presets.model(model), slot_options(slots + 1))
        except UsageError:
            break
        slots += 1
    return slots


def swarm(
    host: str = "2x3090",
    model: str = "qwen3-coder-30b-a3b-4bit",
    levels: Sequence[int] = range(1, 9),
    *,
    seconds: float = 400.0,
    seeds: int = 2,
) -> list[tuple[int, float, float]]:
    """Field notes 3: (agents, tok/s per agent, effective aggregate tok/s), means over seeds."""
    found = []
    for agents in levels:
        runs = [
            rehearse(
                presets.host(host),
                presets.model(model),
                SWARM_OPTIONS,
                agents=agents,
                seconds=seconds,
                workload=SWARM,
                seed=seed,
            )
            for seed in range(seeds)
        ]
        found.append(
            (
                agents,
                mean(run.decode_tok_s_per_agent or 0.0 for run in runs),
                mean(run.decode_tok_s for run in runs),
            )
        )
    return found


def offloaded_decode(*, output: int = 150, prompt: int = 1000) -> tuple[float, float, float]:
    """Field notes 2: decode tok/s of the offloaded 122B, and seconds per call of it and of the 27B."""
    work = Workload(name="tool-call", system=0, first=Spread(prompt), output=Spread(output), documents=True)
    calls = []
    for name in ("qwen3.5-122b-a10b-offload", "qwen3.5-27b-q4_k_m"):
        level = rehearse(
            presets.host("2x4090"),
            presets.model(name),
            slot_options(1),
            agents=1,
            seconds=300,
            workload=work,
        )
        calls.append((level.decode_tok_s_per_agent or 0.0, level.wait_s or 0.0))
    return calls[0][0], calls[0][1], calls[1][1]


def latency_line(model: str, prompts: Sequence[int] = (8000, 16_000, 32_000, 48_000)) -> tuple[float, float]:
    """Field notes 2: latency against prompt size as a line: (tok/s of its slope, seconds at no prompt)."""
    points = []
    for size in prompts:
        work = Workload(name="line", system=0, first=Spread(size), output=Spread(200), documents=True)
        level = rehearse(
            presets.host("2x4090"),
            presets.model(model),
            slot_options(1),
            agents=1,
            seconds=400,
            workload=work,
        )
        points.append((float(size), median([level.wait_s or 0.0])))
    mean_x, mean_y = mean(x for x, _ in points), mean(y for _, y in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
    return 1 / slope, mean_y - slope * mean_x
