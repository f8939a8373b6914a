"""The bodies of llama.cpp's `/props`, `/slots`, `/metrics` and of `timings`, from a simulated engine."""

from __future__ import annotations

from typing import Any

from agenttop.sim.asking import Job
from agenttop.sim.requests import SlotState
from agenttop.sim.wire import Facts, View

_TEMPLATE = (
    "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '<end>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)

_SAMPLING: dict[str, Any] = {
    "seed": 4294967295, "temperature": 0.800000011920929, "dynatemp_range": 0.0, "dynatemp_exponent": 1.0,
    "top_k": 40, "top_p": 0.949999988079071, "min_p": 0.05000000074505806, "top_n_sigma": -1.0,
    "xtc_probability": 0.0, "xtc_threshold": 0.10000000149011612, "typical_p": 1.0, "repeat_last_n": 64,
    "repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "dry_multiplier": 0.0,
    "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 64, "mirostat": 0, "mirostat_tau": 5.0,
    "mirostat_eta": 0.10000000149011612, "adaptive_target": -1.0, "adaptive_decay": 0.8999999761581421,
}  # fmt: skip
"""The server's defaults: what a request says about sampling has no effect here."""

_SAMPLERS = "penalties dry top_n_sigma top_k typ_p top_p min_p xtc temperature"


def _params(
    limit: int, *, ignore_eos: bool = False, stream: bool = False, timed: bool = False
) -> dict[str, Any]:
    return {
        **_SAMPLING,
        "max_tokens": limit, "n_predict": limit, "n_keep": 0, "n_discard": 0, "ignore_eos": ignore_eos,
        "stream": stream, "n_probs": 0, "min_keep": 0, "chat_format": "Content-only",
        "reasoning_format": "none", "reasoning_in_content": False, "generation_prompt": "",
        "samplers": _SAMPLERS.split(),
        "speculative.types": "none", "timings_per_token": timed, "post_sampling_probs": False,
        "backend_sampling": False, "lora": [],
    }  # fmt: skip


def properties(facts: Facts, build: str, flags: dict[str, bool]) -> dict[str, Any]:
    """`/props`. `flags`: which endpoints are on."""
    return {
        "default_generation_settings": {"params": _params(-1), "n_ctx": facts.context_limit},
        "total_slots": facts.options.slots,
        "model_alias": facts.model,
        "model_ftype": "simulated",
        "model_path": f"{facts.preset}.gguf",
        "modalities": {"vision": False, "video": False, "audio": False},
        "media_marker": "<__media__>",
        "endpoint_slots": flags["endpoint_slots"],
        "endpoint_props": False,
        "endpoint_metrics": flags["endpoint_metrics"],
        "ui": False,
        "ui_settings": {},
        "chat_template": _TEMPLATE,
        "chat_template_caps": {
            "supports_object_arguments": False, "supports_parallel_tool_calls": False,
            "supports_preserve_reasoning": False, "supports_reasoning_effort": False,
            "supports_string_content": True, "supports_system_role": True, "supports_tool_calls": False,
            "supports_tools": False, "supports_typed_content": False,
        },
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "build_info": build,
        "is_sleeping": False,
        "cors_proxy_enabled": False,
    }  # fmt: skip


def slot_rows(view: View) -> list[dict[str, Any]]:
    """`/slots`."""
    return [_slot(slot, view) for slot in view.state.slots]


def _slot(slot: SlotState, view: View) -> dict[str, Any]:
    busy = slot.request is not None
    row: dict[str, Any] = {
        "id": slot.slot, "n_ctx": slot.context_limit_tokens, "speculative": False, "is_processing": busy,
    }  # fmt: skip
    if slot.task is None:
        return row  # it has never served: the real server says no more about it
    job = view.jobs.get(slot.request or "")
    limit = job.limit if job is not None and job.limit is not None else -1
    remaining = slot.remaining_tokens if busy and slot.remaining_tokens is not None else -1
    following = {
        "has_next_token": busy,
        "has_new_line": busy and slot.decoded_tokens > 0,
        "n_remain": remaining,
        "n_decoded": slot.decoded_tokens if busy else 0,
    }
    return {
        **row,
        "id_task": slot.task,
        "n_prompt_tokens": slot.held_tokens,
        "n_prompt_tokens_processed": slot.processed_tokens if busy else 0,
        "n_prompt_tokens_cache": slot.cached_tokens if busy else 0,
        "params": _params(
            limit,
            ignore_eos=job is not None and job.ignore_eos,
            stream=job is not None and job.stream,
            timed=job is not None and job.timings,
        ),
        "next_token": [following],
    }


def timings(job: Job, done: int, t: float) -> dict[str, Any]:
    """The server's own account of a request, `done` output tokens into the reply at time `t`."""
    computed = job.prompt.tokens - job.cached
    prompt_ms = job.prompt_s * 1000
    decode_ms = max(0.001, (t - job.first) * 1000) if job.first is not None else 0.0
    steps = done - 1  # the first token comes with the prompt
    shown = job.shown(done)
    return {
        "cache_n": job.cached,
        "prompt_n": computed,
        "prompt_ms": round(prompt_ms, 3),
        "prompt_per_token_ms": prompt_ms / computed if computed else 0.0,
        "prompt_per_second": computed / prompt_ms * 1000 if prompt_ms > 0 else 0.0,
        "predicted_n": shown,
        "predicted_ms": round(decode_ms, 3),
        "predicted_per_token_ms": decode_ms / steps if steps > 0 else 0.0,
        "predicted_per_second": steps / decode_ms * 1000 if steps > 0 else 0.0,
    }


def metrics(view: View) -> bytes:
    """`/metrics`. The two gauges of mean speed since the last scrape are 0: between requests they are so in
    the real server too, and a scrape that changed them would be felt by whoever else scrapes."""
    state, books = view.state, view.books
    steps = state.steps_total
    families = (
        ("prompt_tokens_total", "counter", "Prompt tokens computed", state.computed_tokens_total),
        ("prompt_tokens_cached_total", "counter", "Prompt tokens from the cache", state.cached_tokens_total),
        ("prompt_seconds_total", "counter", "Time spent on prompts", books.prompt_s),
        ("tokens_predicted_total", "counter", "Output tokens of ended requests", books.predicted_tokens),
        ("tokens_predicted_seconds_total", "counter", "Time spent on output", books.predicted_s),
        ("n_decode_total", "counter", "Steps", steps),
        ("n_tokens_max", "counter", "Longest sequence", books.longest),
        ("spec_decode_num_draft_tokens_total", "counter", "Draft tokens", 0),
        ("spec_decode_num_accepted_tokens_total", "counter", "Draft tokens accepted", 0),
        ("spec_decode_num_drafts_total", "counter", "Drafts", 0),
        ("prompt_tokens_seconds", "gauge", "Mean prompt speed since the last scrape", 0),
        ("predicted_tokens_seconds", "gauge", "Mean output speed since the last scrape", 0),
        ("requests_processing", "gauge", "Requests in slots", state.running),
        ("requests_deferred", "gauge", "Requests in the queue", state.waiting),
        (
            "n_busy_slots_per_decode",
            "gauge",
            "Mean busy slots of a step",
            books.slot_steps / steps if steps else 0,
        ),
    )
    lines: list[str] = []
    for name, kind, text, value in families:
        full = f"llamacpp:{name}"
        lines += [f"# HELP {full} {text}", f"# TYPE {full} {kind}", f"{full} {_number(value)}"]
    return ("\n".join(lines) + "\n").encode()


def _number(value: float) -> str:
    """Six digits, as C++ streams print: counters beyond a million are rounded in the real server too."""
    return f"{value:.6g}"
