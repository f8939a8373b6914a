"""Sessions on vLLM, real or simulated: no slots, a paged pool, agents in every state, sub-agents, trouble."""

from __future__ import annotations

import math

import msgspec

from agenttop.model.frames import (
    AgentSample,
    EngineSample,
    Event,
    Finding,
    Frame,
    GpuSample,
    Level,
    LoadSample,
    OwnSample,
    Plan,
    RecordingState,
)
from agenttop.model.identity import simulated_gpus
from tests.view import scenes

URL = "http://127.0.0.1:8000"
PACE = 20.0
SENTENCE = (
    "knee at 6 agents (5 to 7): the seventh adds 11 tok/s, less than a quarter of the 96 the first one adds; "
    "cliff at 9, foretold from 1.3M KV tokens over 148k an agent, seen as preemptions"
)


def vllm(t: float, **changes: object) -> EngineSample:
    fields: dict[str, object] = {
        "t": t,
        "engine": URL,
        "url": URL,
        "name": "vLLM",
        "state": "ok",
        "version": "0.33.0",
        "model": "qwen3.5-9b-4bit",
        "load_allowed": True,
        "age_s": 0.01,
        "reply_s": 0.012,
        "window_s": 3.0,
        "running": 5,
        "waiting": 2,
        "context_limit_tokens": 262_144,
        "kv_layout": "paged",
        "kv_pool_tokens": 1_341_040,
        "kv_used_tokens": 1_180_000,
        "kv_active_tokens": 1_180_000,
        "kv_used_fraction": 0.88,
        "decode_tok_s": 412.0,
        "prefill_tok_s": 3900.0,
        "preemptions_total": 3,
        "prompt_tokens_total": int(40_000 * t),
        "cached_tokens_total": int(36_000 * t),
        "output_tokens_total": int(412 * t),
        "prefix_hits_tokens_total": int(36_000 * t),
        "prefix_queries_tokens_total": int(40_000 * t),
    }
    return EngineSample(**{**fields, **changes})  # type: ignore[arg-type]


def gpu(t: float) -> GpuSample:
    """As the simulated engine invents it."""
    invented = scenes.gpu(t)
    return msgspec.structs.replace(invented, gpu=f"{simulated_gpus(URL)}0")


STATES = ("decode", "prefill", "stalled", "children", "prime", "compact", "queued", "tool")


def agent(t: float, number: int, state: str, **changes: object) -> AgentSample:
    rate = 51.0 + number if state in ("decode", "compact") else None
    fields: dict[str, object] = {
        "t": t,
        "agent": f"a{number}",
        "engine": URL,
        "profile": "swarm",
        "state": state,
        "state_since": t - 9.0,
        "state_until": t + 5.0 if state == "tool" else None,
        "turn": 20 + number,
        "turns_done": 19 + number,
        "context_tokens": 11_000 * number,
        "context_limit_tokens": 100_000,
        "prompt_tokens": 11_000 * number,
        "cached_tokens": 10_000 * number,
        "prefilled_tokens": 4_000 * number if state in ("prefill", "prime") else None,
        "output_tokens": 187 if rate else None,
        "output_limit_tokens": 216 if rate else None,
        "decode_tok_s": rate,
        "ttft_s": 1.8,
        "output_tokens_total": 8000,
        "silent_s": 41.0 if state == "stalled" else None,
        "children": 2 if state == "children" else None,
    }
    return AgentSample(**{**fields, **changes})  # type: ignore[arg-type]


def load(t: float, **changes: object) -> LoadSample:
    fields: dict[str, object] = {
        "t": t,
        "engine": URL,
        "profile": "swarm",
        "target": 8,
        "active": 8,
        "in_flight": 7,
        "window_s": 3.0,
        "decode_tok_s": 410.0,
        "turns_done": 168,
        "compactions": 4,
        "loop_lag_p99_s": 0.0008,
        "cpu_fraction": 0.31,
        "drivers": 2,
    }
    return LoadSample(**{**fields, **changes})  # type: ignore[arg-type]


def searching(
    seconds: int = 400, *, simulated: bool = True, trouble: bool = True, found: bool = True
) -> list[Frame]:
    """A search for the knee: eight agents, two sub-agents, one of each state."""
    pace = PACE if simulated else 1.0
    host = "RTX 5090" if simulated else None
    frames: list[Frame] = [
        msgspec.structs.replace(scenes.session(demo=False), urls=[URL], speedup=pace, simulated=host),
        Plan(t=1.0, engine=URL, profile="swarm", seed=7),
        Event(t=2.0, event="agents.target", text="agents 0 → 8 (swarm)", source="you"),
        scenes.no_gpu(),
    ]
    step = int(pace) or 1
    for second in range(step, seconds + 1, step):
        wave = 40 * math.sin(second / 40)
        frames += [
            scenes.host(second, 0.2),
            vllm(
                second,
                decode_tok_s=round(412 + wave, 1),
                prefill_tok_s=round(3900 + 20 * wave, 1),
                simulated=host,
                speedup=pace if simulated else None,
            ),
            load(second),
        ]
        if simulated:
            frames.append(gpu(second))
    t = float(seconds)
    frames += [agent(t, number + 1, state) for number, state in enumerate(STATES)]
    frames += [agent(t, 4, "decode", agent=f"a4.{child}", parent="a4") for child in (1, 2)]
    frames.append(
        Level(t=t - 50, level=3, agents=8, t_end=t + 130.0, purpose="refine", origin="search"),
    )
    if trouble:
        kinds = {"stall": 4, "http-5xx": 2, "cut": 1}
        frames.append(load(t, failures=7, failure_kinds=kinds, stalled=1, unseen_in_flight=1))
        text = "vLLM has preempted 3 requests and computes them again later: its KV pool is too small"
        frames.append(Event(t=t - 4, event="engine.preempted", text=text, source="engine", severity="warn"))
    if found:
        frames.append(Finding(t=t - 1.0, what="knee", sentence=SENTENCE))
    frames += [
        OwnSample(t=t, role="node", pid=11, cpu_fraction=0.006, window_s=2.0, memory_bytes=44_000_000),
        RecordingState(t=t, state="on", path="/home/me/a.agenttop", size_bytes=4_300_000),
    ]
    return sorted(frames, key=lambda frame: frame.t)
