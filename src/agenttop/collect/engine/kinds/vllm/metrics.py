"""What is read of vLLM's `/metrics`, over its versions (0.6 to 0.33). Pure.

- Counters and queues of data-parallel engines behind one address are added up; KV is kept for each.
- `num_gpu_blocks` is then the sum over the engines, though every engine repeats it, while
  `kv_cache_size_tokens` is of one engine (measured, 0.32 with two engines).
- One block of each pool is reserved, and usage is a share of the rest: with 32 blocks it moves in steps of
  1/31. Cached blocks that no request holds count as free, so 0 % does not mean an empty cache.
- `prompt_tokens` and its sources move when a prefill ends (a prompt is counted with its first token), so
  their rate is taken by `counters.LandingRate`. Of a preempted request the prompt is computed again, and not
  counted again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agenttop.collect.engine.exposition import Catalogue, Exposition
from agenttop.model.text import clean

PREFIXES = ("vllm:", "ray_vllm:", "ray_vllm_", "vllm_")
CATALOGUE = Catalogue(
    PREFIXES,
    {
        "running": ("num_requests_running",),
        "waiting": ("num_requests_waiting",),
        "kv_fraction": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
        "config": ("cache_config_info",),
        "preemptions": ("num_preemptions_total",),
        "prompt": ("prompt_tokens_total",),
        "prompt_by_source": ("prompt_tokens_by_source_total",),
        "prompt_cached": ("prompt_tokens_cached_total",),
        "output": ("generation_tokens_total",),
        "prefix_hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
        "prefix_queries": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
        "finished": ("request_success_total",),
        "first_tokens": ("time_to_first_token_seconds_count",),
        "sleep": ("engine_sleep_state",),
    },
    plain=("process_start_time_seconds",),
)

COMPUTED = "local_compute"
"""Of the sources of prompt tokens: the ones that were not found in any cache."""


class Pool(msgspec.Struct, frozen=True):
    """KV of all engines behind the address, in tokens that requests may hold."""

    engines: int = 1
    fraction: float | None = None
    """Mean over the engines."""
    fullest_fraction: float | None = None
    tokens: int | None = None
    used: int | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape; None: not in this version. Counters are since the start of the server."""

    at: float
    process: float | None
    """Start of the server process, seconds since 1970; None behind several API processes or the Rust one."""
    model: str | None
    """The name under which the model is served."""
    asleep: bool
    running: int | None
    waiting: int | None
    pool: Pool
    preemptions: int | None
    prompt: int | None
    computed: int | None
    """Prompt tokens that had to be computed; all of them where this version tells no cached ones."""
    cached: int | None
    output: int | None
    prefix_hits: int | None
    prefix_queries: int | None
    prefix_caching: bool | None
    """Whether the server was started with it; None where that is not told."""
    finished: int | None
    first_tokens: int | None

    @property
    def counters(self) -> dict[str, float | None]:
        """What moves when the server works, and never goes back while it lives."""
        return {
            "output": self.output,
            "prompt": self.prompt,
            "finished": self.finished,
            "preemptions": self.preemptions,
        }


def read(text: str, at: float) -> Figures | None:
    """None when there is no sample of vLLM's own in the text."""
    found = CATALOGUE.read(text)
    if not found.is_the_engines:
        return None
    config = found.labels("config")
    computed, cached = _sources(found)
    model = found.labels("running").get("model_name") or found.labels("output").get("model_name") or ""
    awake = found.each("sleep", "sleep_state").get("awake")
    return Figures(
        at=at,
        process=found.plain("process_start_time_seconds"),
        model=clean(model, 80) or None,
        asleep=awake == 0,
        running=found.count("running"),
        waiting=found.count("waiting"),
        pool=_pool(found, config),
        preemptions=found.count("preemptions"),
        prompt=found.count("prompt"),
        computed=computed,
        cached=cached,
        output=found.count("output"),
        prefix_hits=found.count("prefix_hits"),
        prefix_queries=found.count("prefix_queries"),
        prefix_caching={"True": True, "False": False}.get(config.get("enable_prefix_caching", "")),
        finished=found.count("finished"),
        first_tokens=found.count("first_tokens"),
    )


def _sources(found: Exposition) -> tuple[int | None, int | None]:
    """(prompt tokens computed, prompt tokens from a cache), by the best account this version keeps.

    From 0.16 on the sources are counted one by one. Before that the hits of the prefix cache stand for the
    cached ones: they are counted when a request is let in, a little before its prompt is.
    """
    prompt, cached = found.count("prompt"), found.count("prompt_cached")
    by_source = found.each("prompt_by_source", "source")
    if COMPUTED in by_source and by_source[COMPUTED] >= 0:
        others = int(sum(value for source, value in by_source.items() if source != COMPUTED))
        return int(by_source[COMPUTED]), cached if cached is not None else others
    if cached is None:
        cached = found.count("prefix_hits")
    if prompt is None or cached is None:
        return prompt, None
    return max(0, prompt - cached), cached


def _pool(found: Exposition, config: dict[str, str]) -> Pool:
    # Some forks report shares below zero.
    fractions = [min(1.0, max(0.0, value)) for value in found.each("kv_fraction").values()]
    engines = max(1, len(fractions), len(found.each("running")))
    mean = sum(fractions) / len(fractions) if fractions else None
    fullest = max(fractions, default=None)
    each = _tokens_of_one(config, engines)
    if each is None:
        return Pool(engines, mean, fullest)
    used = round(sum(fractions) * each) if len(fractions) == engines else None
    return Pool(engines, mean, fullest, round(each * engines), used)


def _tokens_of_one(config: dict[str, str], engines: int) -> float | None:
    """Tokens that requests may hold in the pool of one engine."""
    blocks, block = _whole(config.get("num_gpu_blocks")), _whole(config.get("block_size"))
    size = _whole(config.get("kv_cache_size_tokens"))
    own_blocks = blocks / engines if blocks else None
    if size is None and own_blocks and block:
        size = int(own_blocks * block)
    if size is None:
        return None
    if own_blocks and own_blocks > 1:
        return size * (1 - 1 / own_blocks)
    return float(size)


def _whole(text: Any) -> int | None:
    """The label `None` stands for what is not known."""
    value = str(text or "")
    return int(value) if value.isascii() and value.isdigit() and 0 < int(value[:16]) < 10**12 else None


class Prefills:
    """How many requests are being prefilled, from counters that no version tells it by.

    A running request that has not had its first token is in prefill. Requests that were given up by their
    client are counted nowhere, so the account is settled whenever the server is idle; until then, and while
    preempted requests wait, it errs towards fewer.
    """

    def __init__(self) -> None:
        self._given_up = 0

    def update(self, now: Figures) -> bool:
        """Whether at least one request is being prefilled."""
        if not now.running:
            if now.waiting == 0 and now.first_tokens is not None and now.finished is not None:
                self._given_up = max(0, now.first_tokens - now.finished)
            return False
        if now.first_tokens is None or now.finished is None:
            return False
        return now.running > now.first_tokens - now.finished - self._given_up
