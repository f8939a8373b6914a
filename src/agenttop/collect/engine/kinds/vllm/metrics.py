"""What is read of vLLM's `/metrics`, over its versions (0.6 to 0.33). Pure.

- Counters and queues of data-parallel engines behind one address are added up; KV is kept for each.
- `num_gpu_blocks` is then the sum over the engines, though every engine repeats it, while
  `kv_cache_size_tokens` is of one engine (measured, 0.32 with two engines).
- One block of each pool is reserved, and usage is a share of the rest: with 32 blocks it moves in steps of
  1/31. Cached blocks that no request holds count as free, so 0 % does not mean an empty cache.
- `prompt_tokens` and its sources move when a prefill ends (a prompt is counted with its first token), so
  their rate is taken by `counters.LandingRate`. Of a preempted request the prompt is computed again, and not
  counted again.
- Requests that V0 has swapped out to the CPU wait until they are swapped in: they count as waiting.

Behind Ray the same samples go by other names, several replicas share a page, and each of them has engines of
its own: see `RAY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from agenttop.collect.engine.exposition import Catalogue, Exposition, Series
from agenttop.collect.engine.histogram import MAX_TOTAL, Histogram
from agenttop.model.text import clean

PREFIXES = ("vllm:", "vllm_")
RAY_PREFIXES = ("ray_vllm_", "ray_vllm:")
"""Ray's own prefix, and `_` for the `:` that its names may not hold."""

FAMILIES: Mapping[str, tuple[str, ...]] = {
    "running": ("num_requests_running",),
    "waiting": ("num_requests_waiting",),
    "waiting_by_reason": ("num_requests_waiting_by_reason",),
    "swapped": ("num_requests_swapped",),
    "kv_fraction": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    "config": ("cache_config_info",),
    "preemptions": ("num_preemptions_total",),
    "prompt": ("prompt_tokens_total",),
    "prompt_by_source": ("prompt_tokens_by_source_total",),
    "prompt_cached": ("prompt_tokens_cached_total",),
    "output": ("generation_tokens_total",),
    "prefix_hits": ("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"),
    "prefix_queries": ("prefix_cache_queries_total", "gpu_prefix_cache_queries_total"),
    "prefix_rate": ("gpu_prefix_cache_hit_rate",),
    "finished": ("request_success_total",),
    "first_tokens": ("time_to_first_token_seconds_count",),
    "drafts": ("spec_decode_num_drafts_total",),
    "drafted": ("spec_decode_num_draft_tokens_total",),
    "accepted": ("spec_decode_num_accepted_tokens_total",),
    "acceptance": ("spec_decode_draft_acceptance_rate",),
    "sleep": ("engine_sleep_state",),
}
HISTOGRAMS: Mapping[str, tuple[str, ...]] = {
    "ttft": ("time_to_first_token_seconds",),
    "itl": ("inter_token_latency_seconds", "time_per_output_token_seconds"),
    "e2e": ("e2e_request_latency_seconds",),
    "queue": ("request_queue_time_seconds",),
    "prefill": ("request_prefill_time_seconds",),
    "decode": ("request_decode_time_seconds",),
}
PROCESS_START = "process_start_time_seconds"
CATALOGUE = Catalogue(PREFIXES, FAMILIES, (PROCESS_START,), HISTOGRAMS)
RAY = Catalogue(
    RAY_PREFIXES,
    # Some versions of Ray write counters without their suffix.
    {key: (*names, *(name.removesuffix("_total") for name in names)) for key, names in FAMILIES.items()},
    histograms=HISTOGRAMS,
    sums=False,  # Ray puts the middle of its bucket in the place of each observation
)

COMPUTED = "local_compute"
"""Of the sources of prompt tokens: the ones that were not found in any cache."""
MOST_PARTS = 256


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One data-parallel engine, or one replica with all its engines."""

    name: str
    model: str | None = None
    running: int | None = None
    waiting: int | None = None
    kv_fraction: float | None = None
    pool: int | None = None
    """Tokens that requests may hold."""
    output: float | None = None


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
    """The name under which the model is served; None where several are."""
    asleep: bool
    running: int | None
    waiting: int | None
    """Those swapped out included."""
    waiting_reasons: dict[str, int] | None
    pool: Pool
    kv_dtype: str | None
    preemptions: int | None
    prompt: int | None
    computed: int | None
    """Prompt tokens that had to be computed; all of them where this version tells no cached ones."""
    cached: int | None
    output: int | None
    prefix_hits: int | None
    prefix_queries: int | None
    prefix_fraction: float | None
    """V0 tells this alone, over its last requests."""
    prefix_caching: bool | None
    """Whether the server was started with it; None where that is not told."""
    finished: int | None
    finish_reasons: dict[str, int]
    first_tokens: int | None
    drafts: int | None
    """Steps in which tokens were drafted."""
    drafted: int | None
    accepted: int | None
    acceptance: float | None
    """V0: by its own account, since its start."""
    histograms: Mapping[str, Histogram]
    parts: tuple[Part, ...]
    """The engines or replicas, where there are several."""

    @property
    def counters(self) -> dict[str, float | None]:
        """What moves when the server works, and never goes back while it lives."""
        return {
            "output": self.output,
            "prompt": self.prompt,
            "finished": self.finished,
            "preemptions": self.preemptions,
            "drafts": self.drafts,
            "drafted": self.drafted,
            "accepted": self.accepted,
            **{f"output/{part.name}": part.output for part in self.parts},
        }


def read(text: str, at: float) -> Figures | None:
    """None when there is no sample of vLLM's own in the text."""
    found = CATALOGUE.read(text)
    if not found.is_the_engines:
        return None
    config = found.labels("config")
    parts = _parts(found, ("engine",))
    pool = _pool(found, config)
    each = pool.tokens / pool.engines if pool.tokens is not None else None
    ranks = tuple(msgspec.structs.replace(part, pool=round(each) if each else None) for part in parts)
    return _figures(found, at, pool, config, ranks if len(ranks) > 1 else ())


def read_ray(text: str, at: float) -> Figures | None:
    """The same of a page of Ray's, with all replicas whose figures are on it."""
    found = RAY.read(text)
    if not found.is_the_engines:
        return None
    parts = _parts(found, ("ReplicaId", "WorkerId"))
    # Every replica has told the size of its own pool, where Ray still knows what it told.
    configs: dict[str, dict[str, str]] = {}
    engines: dict[str, set[str]] = {}
    for labels, _ in found.series("config"):
        configs.setdefault(_name(labels, ("ReplicaId", "WorkerId")), labels)
    for labels, _ in found.series("kv_fraction"):
        engines.setdefault(_name(labels, ("ReplicaId", "WorkerId")), set()).add(labels.get("engine", ""))
    sized = []
    for part in parts:
        count = max(1, len(engines.get(part.name, ())))
        tokens = _tokens_of_one(configs.get(part.name, {}), count)
        sized.append(msgspec.structs.replace(part, pool=round(tokens * count) if tokens else None))
    fractions = [part.kv_fraction for part in sized if part.kv_fraction is not None]
    pools = [part.pool for part in sized if part.pool is not None]
    told = bool(sized) and len(pools) == len(sized)
    used = [part.kv_fraction * part.pool for part in sized if part.kv_fraction is not None and part.pool]
    pool = Pool(
        max(1, len(sized)),
        sum(fractions) / len(fractions) if fractions else None,
        max(fractions, default=None),
        sum(pools) if told else None,
        round(sum(used)) if told and len(used) == len(sized) else None,
    )
    return _figures(found, at, pool, found.labels("config"), tuple(sized))


def _figures(
    found: Exposition, at: float, pool: Pool, config: Mapping[str, str], parts: tuple[Part, ...]
) -> Figures:
    computed, cached = _sources(found)
    model = found.labels("running").get("model_name") or found.labels("output").get("model_name") or ""
    several = len({part.model for part in parts}) > 1
    awake = found.each("sleep", "sleep_state").get("awake")
    waiting, swapped = found.count("waiting"), found.count("swapped")
    reasons = found.counts("waiting_by_reason", "reason")
    if swapped:
        reasons["swapped"] = swapped
    finish_reasons = found.counts("finished", "finished_reason")
    return Figures(
        at=at,
        process=found.plain(PROCESS_START),
        model=clean(model, 80) or None if not several else None,
        asleep=awake == 0,
        running=found.count("running"),
        waiting=waiting + (swapped or 0) if waiting is not None else None,
        waiting_reasons=(
            {reason: count for reason, count in reasons.items() if count}
            if reasons or swapped is not None
            else None
        ),
        pool=pool,
        kv_dtype=clean(config.get("cache_dtype", ""), 40) or None,
        preemptions=found.count("preemptions"),
        prompt=found.count("prompt"),
        computed=computed,
        cached=cached,
        output=found.count("output"),
        prefix_hits=found.count("prefix_hits"),
        prefix_queries=found.count("prefix_queries"),
        prefix_fraction=_fraction(found, "prefix_rate"),
        prefix_caching={"True": True, "False": False}.get(config.get("enable_prefix_caching", "")),
        finished=found.count("finished"),
        finish_reasons=finish_reasons,
        first_tokens=found.count("first_tokens"),
        drafts=found.count("drafts"),
        drafted=found.count("drafted"),
        accepted=found.count("accepted"),
        acceptance=_fraction(found, "acceptance"),
        histograms=found.histograms,
        parts=parts,
    )


def _fraction(found: Exposition, key: str) -> float | None:
    """Mean of a gauge that is a share; V0 writes -1 for what it does not know."""
    values = [value for value in found.each(key).values() if 0 <= value <= 1]
    return sum(values) / len(values) if values else None


def _name(labels: Mapping[str, str], by: tuple[str, ...]) -> str:
    return next((name for label in by if (name := clean(labels.get(label, ""), 40))), "")


def _parts(found: Exposition, by: tuple[str, ...]) -> tuple[Part, ...]:
    """What belongs to each engine or replica: the first of these labels that is there names it."""

    def sums(key: str) -> dict[str, float]:
        values: dict[str, float] = {}
        for labels, value in found.series(key):
            if 0 <= value < MAX_TOTAL:
                name = _name(labels, by)
                values[name] = values.get(name, 0.0) + value
        return values

    running, waiting, output = sums("running"), sums("waiting"), sums("output")
    swapped, fractions = sums("swapped"), _fractions(found.series("kv_fraction"), by)
    models: dict[str, str] = {}
    for key in ("running", "output"):
        for labels, _ in found.series(key):
            models.setdefault(_name(labels, by), clean(labels.get("model_name", ""), 80))
    names = list(dict.fromkeys([*running, *output, *fractions]))[:MOST_PARTS]
    return tuple(
        Part(
            name=name,
            model=models.get(name) or None,
            running=_int(running.get(name)),
            waiting=_int(waiting[name] + swapped.get(name, 0.0)) if name in waiting else None,
            kv_fraction=fractions.get(name),
            output=output.get(name),
        )
        for name in names
    )


def _fractions(series: Series, by: tuple[str, ...]) -> dict[str, float]:
    """Mean fill of each part; some forks report shares below zero."""
    values: dict[str, list[float]] = {}
    for labels, value in series:
        if abs(value) < MAX_TOTAL:
            values.setdefault(_name(labels, by), []).append(min(1.0, max(0.0, value)))
    return {name: sum(each) / len(each) for name, each in values.items()}


def _int(value: float | None) -> int | None:
    return int(value) if value is not None else None


def _sources(found: Exposition) -> tuple[int | None, int | None]:
    """(prompt tokens computed, prompt tokens from a cache), by the best account this version keeps.

    From 0.16 on the sources are counted one by one. Before that the hits of the prefix cache stand for the
    cached ones: they are counted when a request is let in, a little before its prompt is.
    """
    prompt, cached = found.count("prompt"), found.count("prompt_cached")
    by_source = found.each("prompt_by_source", "source")
    if COMPUTED in by_source and by_source[COMPUTED] >= 0:
        others = int(sum(max(0.0, value) for source, value in by_source.items() if source != COMPUTED))
        return int(by_source[COMPUTED]), cached if cached is not None else others
    if cached is None:
        cached = found.count("prefix_hits")
    if prompt is None or cached is None:
        return prompt, None
    return max(0, prompt - cached), cached


def _pool(found: Exposition, config: Mapping[str, str]) -> Pool:
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


def _tokens_of_one(config: Mapping[str, str], engines: int) -> float | None:
    """Tokens that requests may hold in the pool of one engine; V0, which names no engine, reserves none."""
    blocks, block = _whole(config.get("num_gpu_blocks")), _whole(config.get("block_size"))
    size = _whole(config.get("kv_cache_size_tokens"))
    own_blocks = blocks / engines if blocks else None
    if size is None and own_blocks and block:
        size = int(own_blocks * block)
    if size is None:
        return None
    if own_blocks and own_blocks > 1 and "engine" in config:
        return size * (1 - 1 / own_blocks)
    return float(size)


def _whole(text: Any) -> int | None:
    """The label `None` stands for what is not known."""
    value = str(text or "")
    return int(value) if value.isascii() and value.isdigit() and 0 < int(value[:16]) < 10**12 else None
