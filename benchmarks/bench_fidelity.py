"""Three sets of field measurements beside what the simulated engine makes of them.

    python benchmarks/bench_fidelity.py [--seed N]

Virtual time: hours of experiments pass within a minute, and the same seed prints the same table.
`docs/simulator.md` keeps the last one and says which figures the presets were fitted to.
"""

from __future__ import annotations

import argparse
import time

from agenttop.sim import fidelity


def row(*cells: object) -> None:
    """One line of a table."""
    print("| " + " | ".join(str(cell) for cell in cells) + " |")


def head(title: str, *columns: str) -> None:
    """The title and the column names of a table."""
    print(f"\n{title}\n")
    row(*columns)
    row(*("---" for _ in columns))


def home_lab(seed: int) -> None:
    """Field notes 1: three hosts, one model."""
    found = fidelity.home_lab(seed=seed)
    head(
        "1. Growing to 100k and compacting, 22 minutes: levels",
        "host", "agents", "tok/s per agent (p50)", "decode tok/s", "prefill tok/s",
        "prefill tok/s while prefilling", "turns", "compactions", "KV max", "preemptions",
    )  # fmt: skip
    for (host, agents), level in found.items():
        row(
            host, agents, f"{level.decode_tok_s_per_agent or 0:.1f}", f"{level.decode_tok_s:.0f}",
            f"{level.prefill_tok_s:.0f}", f"{level.prefill_busy_tok_s or 0:.0f}", level.turns,
            level.compactions, f"{level.kv_max_fraction:.0%}", level.preemptions,
        )  # fmt: skip
    base, pro, halo = (found[host, 16] for host in ("rtx-5090", "rtx-pro-6000", "strix-halo"))
    eight = found["rtx-5090", 8]

    def more(name: str) -> str:
        return f"{getattr(pro, name) / getattr(base, name) - 1:+.0%}"

    head("1. Claims, at 16 agents", "what", "reported", "simulated")
    row("6000 Pro against 5090: decode per agent", "+20 %", more("decode_tok_s_per_agent"))
    row("6000 Pro against 5090: aggregate decode", "+25 %", more("decode_tok_s"))
    row("6000 Pro against 5090: prefill (simulated: while prefilling)", "+37 %", more("prefill_busy_tok_s"))
    row("6000 Pro against 5090: prefill over the window", "", more("prefill_tok_s"))
    row(
        "Strix Halo against 5090: aggregate decode",
        "8x slower",
        f"{base.decode_tok_s / halo.decode_tok_s:.1f}x",
    )
    row("5090: aggregate decode from 8 to 16 agents", "still rising",
        f"{base.decode_tok_s / eight.decode_tok_s - 1:+.0%}")  # fmt: skip
    row("5090: tok/s per agent", "13-17", f"{base.decode_tok_s_per_agent or 0:.1f}")
    row("5090: KV maximum", "just over 50 %", f"{base.kv_max_fraction:.0%}")
    row("5090: preemptions", 0, base.preemptions)
    row("5090: compactions at 8 and 16 agents", "fewer at 16", f"{eight.compactions} and {base.compactions}")


def prefill_budget(seed: int) -> None:
    """Field notes 2: one prefill budget, whatever the number of slots."""
    reported = {"q8_k_xl": (1.54, 112, 1481), "q6_k_xl": (1.63, 168, 1582), "q4_k_m": (1.52, 330, 1572)}
    head(
        "2. 64k documents on 2x 4090: reported / simulated",
        "quant", "slots", "slots that fit", "completions/min", "median wait, s", "aggregate prefill, tok/s",
    )  # fmt: skip
    for one in fidelity.one_prefill_budget(seed=seed):
        done, wait, prefill = reported[one.quant]
        level = one.level
        row(
            one.quant, level.agents, f"{fidelity.REPORTED_SLOTS[one.quant]} / {one.slots_fitting}",
            f"{done} / {level.completions_per_min:.2f}", f"{wait} / {level.wait_s or 0:.0f}",
            f"{prefill} / {level.prefill_tok_s:.0f}",
        )  # fmt: skip
    rate, big, small = fidelity.offloaded_decode()
    head("2. Claims", "what", "reported", "simulated")
    row("122B MoE, experts in main memory: decode tok/s", 18.75, f"{rate:.1f}")
    row("seconds per tool call, 122B and 27B", "11.91 and 3.40", f"{big:.1f} and {small:.1f}")
    slope, fixed = fidelity.latency_line("qwen3.5-27b-q6_k_xl")
    row("latency against prompt size: tok/s of the slope", "1340-1482", f"{slope:.0f}")
    row("latency against prompt size: seconds at no prompt", "5.5", f"{fixed:.1f}")


def swarm() -> None:
    """Field notes 3: a floor per agent, and no cliff."""
    per_agent = (169, 154, 137, 125, 130, 124, 126, 123)
    together = (169, 220, 247, 404, 316, 372, 369, 388)
    head("3. MoE on 2x 3090: reported / simulated", "agents", "tok/s per agent", "effective aggregate tok/s")
    moe = fidelity.swarm()
    for agents, each, total in moe:
        row(agents, f"{per_agent[agents - 1]} / {each:.0f}", f"{together[agents - 1]} / {total:.0f}")
    dense = fidelity.swarm(model="qwen3-32b-4bit", levels=(4,))
    linked = fidelity.swarm("2x3090-nvlink", levels=(1, 4, 8))
    gains = [one[1] / moe[one[0] - 1][1] - 1 for one in linked]
    head("3. Claims", "what", "reported", "simulated")
    row(
        "swarm of 4: MoE against dense, tok/s",
        "399 against 82-127",
        f"{moe[3][2]:.0f} against {dense[0][2]:.0f}",
    )
    row("NVLink adds", "under 4 %", f"{min(gains):.1%} to {max(gains):.1%}")
    row("loss per agent from 1 to 4, from 4 to 8", "-26 %, -2 %",
        f"{moe[3][1] / moe[0][1] - 1:.0%}, {moe[7][1] / moe[3][1] - 1:.0%}")  # fmt: skip


def main() -> None:
    """The three sets, one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    began = time.perf_counter()
    home_lab(arguments.seed)
    prefill_budget(arguments.seed)
    swarm()
    print(f"\n{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
