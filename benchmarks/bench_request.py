"""What it costs to write the next request of a long conversation, and the first one of a huge document.

    python benchmarks/bench_request.py [--tokens 100000] [--rounds 200]

CPU time on one core, median and 99th percentile: adding the next input (651 tokens) and encoding the request.
"""

from __future__ import annotations

import argparse
import gc
import time

from agenttop.agents.conversation import Conversation
from agenttop.agents.load import Load
from agenttop.agents.plan import AgentPlan
from agenttop.agents.profile import load
from agenttop.agents.text import TextSource
from agenttop.model.commands import Configure


def prepared(name: str, overrides: dict[str, str]) -> tuple[Load, Conversation]:
    """A load that nobody sends anything for, and one conversation of it."""
    profile = load(name, overrides)
    order = Configure(
        origin=0.0,
        engine="http://127.0.0.1:1",
        model=None,
        api_key_env=None,
        profile=profile.name,
        settings=profile.settings(),
        seed=1,
        slots_like="vLLM",
    )
    made = Load(order, api_key=None, salt="bench", now=time.monotonic)
    talk = Conversation(profile, TextSource("bench", 1), made.ratio, made.prefixes, made.dialect)
    return made, talk


def grown(tokens: int) -> tuple[Load, Conversation]:
    """A conversation of `tokens` tokens, in turns of the usual size."""
    made, talk = prepared("human", {"context.limit": str(4 * tokens)})
    plan = AgentPlan(made.profile, 1, 1)
    while (talk.context_tokens or 0) < tokens:
        step = plan.next()
        talk.ask(step.input, result=step.pause_kind == "tool")
        answer(talk, step.output)
    return made, talk


def answer(talk: Conversation, output: int) -> None:
    """A reply as an engine would count it that agrees with what is expected."""
    prompt = talk.expected_tokens()
    text = "a line of code that comes back\n" * (output // 8 + 1)
    talk.answered(text, prompt_tokens=prompt, output_tokens=output, fed_back=output)


def measure(what: str, rounds: int, build: object, after: object) -> None:
    """Print one row of the table."""
    times: list[float] = []
    size = 0
    for _ in range(rounds):
        began = time.process_time()
        body = build()  # type: ignore[operator]
        times.append((time.process_time() - began) * 1000)
        size = len(body)
        after()  # type: ignore[operator]
    times.sort()
    median, worst = times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]
    print(f"| {what} | {size / 1000:.0f} kB | {median:.2f} ms | {worst:.2f} ms |")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    print("| request | body | median | p99 |\n|---|---|---|---|")
    made, talk = grown(arguments.tokens)
    gc.collect()
    gc.freeze()

    def following() -> bytes:
        talk.ask(651, result=True)
        talk.adapt()
        return made.body(talk.messages, 216, talk.tools)

    count = len(talk.messages)
    measure(
        f"next turn of a context of {arguments.tokens} tokens ({count} messages)",
        arguments.rounds,
        following,
        lambda: answer(talk, 20),
    )
    fresh_load, fresh = prepared("huge-prompt", {})

    def document() -> bytes:
        fresh.begin_anew()
        fresh.ask(57_000)
        return fresh_load.body(fresh.messages, 216, fresh.tools)

    document()  # makes the pool of lines, once a process
    measure("first turn with a fresh document of 57,000 tokens", arguments.rounds, document, lambda: None)


if __name__ == "__main__":
    main()
