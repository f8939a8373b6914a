"""Sessions with engines of every kind: ranks, fronts with models, one that tells nothing, several at once."""

from __future__ import annotations

import math

import msgspec

from agenttop.model.frames import (
    EngineSample,
    Event,
    Frame,
    LatencySample,
    Missing,
    OwnSample,
    PartSample,
    RecordingState,
    SlotSample,
)
from tests.view import scenes

GIB = scenes.GIB
VLLM = "http://127.0.0.1:8000"
ROUTER = "http://127.0.0.1:8080"
OLLAMA = "http://127.0.0.1:11434"
GENERIC = "http://127.0.0.1:1234"
PROXY = "http://127.0.0.1:4000"


def latency(t: float, engine: str, measure: str, p50: float, **changes: object) -> LatencySample:
    fields: dict[str, object] = {
        "t": t,
        "engine": engine,
        "measure": measure,
        "window_s": 60.0,
        "count": 184,
        "mean_s": p50 * 1.2,
        "p50_s": p50,
        "p90_s": p50 * 2.2,
        "p95_s": p50 * 2.9,
        "p99_s": p50 * 4.4,
    }
    return LatencySample(**{**fields, **changes})  # type: ignore[arg-type]


def vllm(t: float, **changes: object) -> EngineSample:
    """Four data-parallel ranks, drafts, a queue with reasons."""
    wave = math.sin(t / 9)
    fields: dict[str, object] = {
        "t": t,
        "engine": VLLM,
        "url": VLLM,
        "name": "vLLM",
        "state": "ok",
        "version": "0.33.0",
        "model": "Qwen/Qwen3-32B-FP8",
        "pid": 4711,
        "age_s": 0.01,
        "reply_s": 0.014,
        "window_s": 3.0,
        "running": 23,
        "waiting": 4,
        "waiting_reasons": {"capacity": 3, "deferred": 1},
        "sequences_max": 256,
        "context_limit_tokens": 40_960,
        "kv_layout": "paged",
        "kv_pool_tokens": 1_341_040,
        "kv_used_tokens": 912_000,
        "kv_used_fraction": 0.68,
        "kv_fullest_fraction": 0.91,
        "data_parallel": 4,
        "decode_tok_s": round(1180 + 90 * wave, 1),
        "prefill_tok_s": round(8200 + 1500 * wave, 1),
        "per_sequence_tok_s": 51.3,
        "per_sequence_of": 23.0,
        "quantisation": "fp8",
        "kv_dtype": "fp8_e4m3",
        "preemptions_total": 7,
        "prompt_tokens_total": int(40_000 * t),
        "cached_tokens_total": int(31_000 * t),
        "output_tokens_total": int(1180 * t),
        "prefix_hits_tokens_total": int(31_000 * t),
        "prefix_queries_tokens_total": int(40_000 * t),
        "finish_reasons": {"stop": 8123, "length": 411, "abort": 12},
        "finished_total": 8546,
        "drafted_tokens_total": int(1500 * t),
        "accepted_tokens_total": int(930 * t),
        "draft_acceptance": 0.62,
        "tokens_per_step": 2.86,
        "poll_every_s": 1.0,
    }
    return EngineSample(**{**fields, **changes})  # type: ignore[arg-type]


def ranks(t: float) -> list[PartSample]:
    return [
        PartSample(
            t=t,
            engine=VLLM,
            part=str(rank),
            role="rank",
            running=running,
            waiting=waiting,
            kv_used_fraction=used,
            kv_used_tokens=int(used * 335_260),
            kv_pool_tokens=335_260,
            decode_tok_s=51.3 * running,
        )
        for rank, (running, waiting, used) in enumerate(
            ((6, 0, 0.61), (7, 0, 0.55), (4, 4, 0.91), (6, 0, 0.65))
        )
    ]


def vllm_latencies(t: float) -> list[LatencySample]:
    return [
        latency(t, VLLM, "ttft", 0.19),
        latency(t, VLLM, "itl", 0.009, p50_s=None, mean_s=0.0083, below_s=0.01, count=70_800),
        latency(t, VLLM, "e2e", 4.4, p99_s=None),
        latency(t, VLLM, "queue", 0.012, p50_s=None, below_s=0.3, p90_s=0.4, p95_s=0.9, p99_s=1.4),
    ]


def around(seconds: int, *, gpus: int = 0) -> list[Frame]:
    """The machine, and what stands around any engine."""
    session = msgspec.structs.replace(scenes.session(demo=False), urls=[])
    frames: list[Frame] = [session] if gpus else [session, scenes.no_gpu()]
    for second in range(1, seconds + 1):
        frames += [scenes.host(second, 0.12), *(scenes.gpu(second, index) for index in range(gpus))]
    t = float(seconds)
    return [
        *frames,
        OwnSample(t=t, role="node", pid=11, cpu_fraction=0.006, window_s=2.0, memory_bytes=44_000_000),
        RecordingState(t=t, state="on", path="/home/me/a.agenttop", size_bytes=4_300_000),
    ]


def in_order(frames: list[Frame]) -> list[Frame]:
    return sorted(frames, key=lambda frame: frame.t)


def with_ranks(seconds: int = 60, *, gpus: int = 0) -> list[Frame]:
    """vLLM under a load that is not ours."""
    frames = around(seconds, gpus=gpus)
    for second in range(1, seconds + 1):
        frames += [vllm(second), *ranks(second)]
        if second % 5 == 0:
            frames += vllm_latencies(second)
    frames.append(Event(t=1.0, event="engine.found", text=f"found vLLM at {VLLM}", subject=VLLM))
    return in_order(frames)


MODELS = (
    ("qwen3-coder-30b", "loaded", 2, "http://127.0.0.1:41201", 18.9),
    ("gemma-3-4b", "loaded", 1, "http://127.0.0.1:41202", 3.1),
    ("llama-3.3-70b", "unloaded", None, None, None),
)


def router(t: float, **changes: object) -> EngineSample:
    fields: dict[str, object] = {
        "name": "llama.cpp",
        "version": "b11549",
        "model": "qwen3-coder-30b",
        "load_allowed": False,
        "front": True,
        "running": 3,
        "waiting": 0,
        "slots_total": 8,
        "context_limit_tokens": 32_768,
        "kv_layout": None,
        "kv_pool_tokens": 262_144,
        "kv_used_tokens": 61_000,
        "kv_active_tokens": 44_000,
        "kv_idle_tokens": 17_000,
        "kv_used_fraction": 0.23,
        "decode_tok_s": round(96.0 + 8 * math.sin(t / 7), 1),
        "prefill_tok_s": 0.0,
        "poll_every_s": 1.0,
    }
    return scenes.engine(t, **{**fields, **changes})


def router_parts(t: float) -> list[PartSample]:
    return [
        PartSample(
            t=t,
            engine=ROUTER,
            part=name,
            role="model",
            state=state,
            url=url,
            running=running,
            waiting=0 if running is not None else None,
            decode_tok_s=32.0 * running if running is not None else None,
            kv_used_fraction=0.3 * running if running is not None else None,
            memory_bytes=int(size * GIB) if size is not None else None,
            context_limit_tokens=32_768 if url else None,
            quantisation="Q4_K_M" if url else None,
        )
        for name, state, running, url, size in MODELS
    ]


def router_slots(t: float) -> list[SlotSample]:
    busy = {0: 31.2, 2: 33.0, 5: 32.1}
    return [
        SlotSample(
            t=t,
            engine=ROUTER,
            slot=slot,
            phase="decode" if slot in busy else "idle",
            task=slot + 40 if slot in busy else None,
            context_tokens=4_100 * (slot + 1) if slot in busy else 900,
            context_limit_tokens=32_768,
            decoded_tokens=210 if slot in busy else None,
            remaining_tokens=302 if slot in busy else None,
            decode_tok_s=busy.get(slot),
            part=MODELS[slot // 4][0],
        )
        for slot in range(8)
    ]


def front(seconds: int = 40, *, gpus: int = 0) -> list[Frame]:
    """A router with three models, of which two are loaded."""
    frames = around(seconds, gpus=gpus)
    for second in range(1, seconds + 1):
        frames += [router(second), *router_parts(second), *router_slots(second)]
    text = f"llama.cpp at {ROUTER} loaded gemma-3-4b"
    frames.append(Event(t=12.0, event="engine.model", text=text, source="engine", subject=ROUTER))
    return in_order(frames)


def generic(t: float) -> EngineSample:
    return EngineSample(
        t=t,
        engine=GENERIC,
        url=GENERIC,
        name="openai",
        state="ok",
        model="mistral-small-3.2",
        age_s=0.0,
        reply_s=0.004,
        poll_every_s=1.0,
    )


def generic_missing() -> list[Missing]:
    why = "an OpenAI-compatible server tells no figures"
    fields = ("running", "waiting", "decode_tok_s", "prefill_tok_s", "kv_used_fraction")
    return [Missing(t=1.0, what=f"{GENERIC}:{field}", why=why) for field in fields] + [
        Missing(t=1.0, what=f"{GENERIC}:version", why="it does not say", fix=None)
    ]


def silent(seconds: int = 20) -> list[Frame]:
    """A server that only says which model it has."""
    frames = around(seconds)
    frames += [generic(second) for second in range(1, seconds + 1)]
    return in_order([*frames, *generic_missing()])


def ollama(t: float, **changes: object) -> EngineSample:
    fields: dict[str, object] = {
        "t": t,
        "engine": OLLAMA,
        "url": OLLAMA,
        "name": "Ollama",
        "state": "ok",
        "version": "0.30.1",
        "model": "gpt-oss:20b",
        "front": True,
        "running": None,
        "last_decode_tok_s": 43.1,
        "last_prefill_tok_s": 812.0,
        "memory_bytes": int(14.2 * GIB),
        "gpu_memory_bytes": int(8.8 * GIB),
        "age_s": 0.4,
        "reply_s": 0.9,
        "poll_every_s": 5.0,
    }
    return EngineSample(**{**fields, **changes})  # type: ignore[arg-type]


def ollama_parts(t: float) -> list[PartSample]:
    return [
        PartSample(
            t=t,
            engine=OLLAMA,
            part="gpt-oss:20b",
            role="model",
            state="loaded",
            memory_bytes=int(14.2 * GIB),
            gpu_memory_bytes=int(8.8 * GIB),
            context_limit_tokens=8192,
            quantisation="MXFP4",
            expires_s=max(0.0, 280.0 - t),
        )
    ]


def slow_front(seconds: int = 40) -> list[Frame]:
    """Ollama without rates of now, asked every five seconds, partly on the GPU."""
    frames = around(seconds)
    for second in range(1, seconds + 1):
        frames += [ollama(second), *ollama_parts(second)]
    return in_order(frames)


def proxy(t: float) -> EngineSample:
    return EngineSample(
        t=t,
        engine=PROXY,
        url=PROXY,
        name="LiteLLM",
        state="ok",
        version="1.83.0",
        front=True,
        running=23,
        age_s=0.0,
        reply_s=0.02,
        poll_every_s=1.0,
    )


def proxy_parts(t: float) -> list[PartSample]:
    return [
        PartSample(
            t=t, engine=PROXY, part="qwen3-32b", role="deployment", state="healthy", url=VLLM, running=23
        ),
        PartSample(
            t=t, engine=PROXY, part="gpt-4o", role="deployment", state="healthy", note="not on this host"
        ),
    ]


def several(seconds: int = 60) -> list[Frame]:
    """Five engines: a proxy in front of vLLM, a router with its models, Ollama, and one that is down."""
    frames = around(seconds)
    for second in range(1, seconds + 1):
        frames += [
            *(vllm(second, behind=PROXY), *ranks(second)),
            *(proxy(second), *proxy_parts(second)),
            *(router(second), *router_parts(second), *router_slots(second)),
            *(ollama(second), *ollama_parts(second)),
            EngineSample(
                t=second,
                engine="http://127.0.0.1:30000",
                url="http://127.0.0.1:30000",
                name="SGLang",
                state="down",
                note="nothing listens at http://127.0.0.1:30000; start the engine, or check host and port",
            ),
        ]
        if second % 5 == 0:
            frames += vllm_latencies(second)
    why = "Ollama tells no rate of a request while it runs"
    frames += [
        Missing(t=2.0, what=f"{OLLAMA}:decode_tok_s", why=why, fix="update to Ollama 0.30 or later"),
        Missing(t=2.0, what=f"{OLLAMA}:prefill_tok_s", why=why, fix="update to Ollama 0.30 or later"),
        Missing(t=2.0, what=f"{VLLM}:slots", why="vLLM has no slots"),
        Missing(t=2.0, what=f"{PROXY}:decode_tok_s", why="a proxy counts requests, not tokens"),
    ]
    return in_order(frames)
