"""Frames about inference engines: as a whole, their latencies, their parts, their slots."""

from __future__ import annotations

from agenttop.model.frames.base import Frame


class EngineSample(Frame, frozen=True, kw_only=True, tag="engine"):
    """One inference engine. Rates are over `window_s`, from counters that move while requests run."""

    engine: str
    """Identity within the session: the normalised base URL."""
    url: str
    name: str
    """llama.cpp, openai (any compatible server), or what was recognised there instead."""
    state: str
    """ok, loading, busy, asleep, down, unauthorised, unsupported, starting.

    busy: alive (health answers or the connection stands) but its figures are late.
    unsupported: something answers there that is not an engine agenttop can read."""
    note: str | None = None
    """One sentence when `state` is not ok: what is wrong and what to do."""
    version: str | None = None
    model: str | None = None
    pid: int | None = None
    load_allowed: bool = False
    """The user named or confirmed this engine, so agents may be sent to it."""
    age_s: float | None = None
    """Age of the newest reply that these figures come from."""
    reply_s: float | None = None
    """How long the engine took to answer the last poll."""
    window_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    slots_total: int | None = None
    context_limit_tokens: int | None = None
    """Context size one request may use."""
    kv_layout: str | None = None
    """split (each slot its own share), unified (one pool for all slots), or paged (one pool without slots,
    handed out in blocks as requests grow)."""
    kv_pool_tokens: int | None = None
    kv_used_tokens: int | None = None
    """Active plus idle."""
    kv_active_tokens: int | None = None
    """Held by requests in progress."""
    kv_idle_tokens: int | None = None
    """Left in slots by finished requests; reused on a prefix hit, dropped when needed."""
    kv_used_fraction: float | None = None
    kv_fullest_fraction: float | None = None
    """Of several data-parallel engines, the one whose pool is fullest: its requests are preempted first."""
    data_parallel: int | None = None
    """Engines behind this address, where there are several: counts are their sum, `kv_used_fraction` their
    mean."""
    decode_tok_s: float | None = None
    decode_is_floor: bool = False
    """Requests ended unseen within the window, and `decode_tok_s` may lack their last tokens: it is at
    least that."""
    prefill_tok_s: float | None = None
    prompt_tokens_total: int | None = None
    cached_tokens_total: int | None = None
    output_tokens_total: int | None = None
    """The engine's own counter. llama.cpp moves it only when a request ends."""
    preemptions_total: int | None = None
    restarts: int = 0
    """Restarts noticed in this session."""
    simulated: str | None = None
    """The host this engine simulates (`agenttop sim`), e.g. `RTX 5090`; None for a real engine."""
    speedup: float | None = None
    """Of a simulated engine: how many times faster than life it runs."""
    prefix_hits_tokens_total: int | None = None
    """Prompt tokens found in the prefix cache, of those looked up there (vLLM counts both)."""
    prefix_queries_tokens_total: int | None = None
    prefix_hit_fraction: float | None = None
    """Of an engine that tells this share alone, over a span of its own choosing."""
    quantisation: str | None = None
    """Of the weights, in the engine's own word: Q4_K_M, fp8, awq, ..."""
    kv_dtype: str | None = None
    """Of the KV cache, in the engine's own word."""
    sequences_max: int | None = None
    """Requests that may run at once, of an engine without slots."""
    waiting_reasons: dict[str, int] = {}
    """Why requests wait, to how many; empty where the engine does not tell."""
    finish_reasons: dict[str, int] = {}
    """Why requests ended (stop, length, abort, ...), to how many since the start of the server."""
    finished_total: int | None = None
    """Requests that ended since the start of the server, however they ended."""
    per_sequence_tok_s: float | None = None
    """`decode_tok_s` divided by the sequences that ran: an average over `per_sequence_of` of them. None for
    engines with slots, whose rates stand in SlotSample."""
    per_sequence_of: float | None = None
    """Sequences that ran, mean over the window."""
    drafted_tokens_total: int | None = None
    """Of speculative decoding: tokens proposed, and below those taken."""
    accepted_tokens_total: int | None = None
    draft_acceptance: float | None = None
    """Share of the drafted tokens that was taken, over the window."""
    tokens_per_step: float | None = None
    """Tokens a sequence gains per step while drafting, over the window; 1 without a taken draft."""
    last_decode_tok_s: float | None = None
    """Of the request that ended last, for engines that tell no live rate. Not a rate of now."""
    last_prefill_tok_s: float | None = None
    memory_bytes: int | None = None
    """What the engine says that its loaded models take, GPU share included."""
    gpu_memory_bytes: int | None = None
    """The share of `memory_bytes` on GPUs."""
    front: bool = False
    """Passes requests on to other servers: a proxy, a router, a launcher of servers."""
    behind: str | None = None
    """The front that passes requests on to this engine: its `engine`."""
    poll_every_s: float | None = None
    """How often the engine is asked now; longer than usual where its replies are slow."""
    weights_bytes: int | None = None
    """Size of all the model's weights."""
    weights_active_bytes: int | None = None
    """Weights read to decode one token of one sequence: of a mixture of experts those that are used; without
    the input embedding, of which one row is read."""
    weights_from: str | None = None
    """Where the sizes were read: `gguf`, `safetensors`, `engine`, `entries` (engines.toml)."""
    experts: int | None = None
    """Experts a layer has, of which `experts_used` work on each token; None for a dense model."""
    experts_used: int | None = None


class LatencySample(Frame, frozen=True, kw_only=True, tag="latency"):
    """What an engine's own histogram says of one latency, of the requests counted within the last `window_s`.

    Percentiles lie within the edges of a bucket: they are interpolated between them, and None where the
    bucket has no lower or no upper edge.
    """

    engine: str
    measure: str
    """ttft, itl, e2e, queue, prefill, decode."""
    window_s: float
    count: int
    """Observations in the window: requests, or, for itl, steps."""
    mean_s: float | None = None
    """From sums, so not bound to buckets."""
    p50_s: float | None = None
    p90_s: float | None = None
    p95_s: float | None = None
    p99_s: float | None = None
    below_s: float | None = None
    """Upper edge of the first bucket where p50 lies in it: the median is less than this."""


class PartSample(Frame, frozen=True, kw_only=True, tag="part"):
    """One part of an engine: a data-parallel rank, a replica, or a model, deployment or worker of a front."""

    engine: str
    part: str
    """Its name: the number of a rank, the name of a model, ..."""
    role: str
    """rank, replica, model, deployment, worker."""
    state: str | None = None
    """In the engine's own word: loaded, unloaded, loading, sleeping, ready, ...; gone when it is not listed
    any more."""
    url: str | None = None
    """Where it is served by itself."""
    running: int | None = None
    waiting: int | None = None
    kv_used_fraction: float | None = None
    kv_used_tokens: int | None = None
    kv_pool_tokens: int | None = None
    decode_tok_s: float | None = None
    prefill_tok_s: float | None = None
    context_limit_tokens: int | None = None
    quantisation: str | None = None
    memory_bytes: int | None = None
    gpu_memory_bytes: int | None = None
    expires_s: float | None = None
    """Seconds until it is unloaded unless it is used."""
    note: str | None = None


class SlotSample(Frame, frozen=True, kw_only=True, tag="slot"):
    """One slot of an engine that has slots. Rates are over the same window as its EngineSample."""

    engine: str
    slot: int
    phase: str
    """idle, prefill, decode."""
    task: int | None = None
    context_tokens: int | None = None
    """Tokens held in the slot's KV cache: prompt and output; kept after the request ends."""
    context_limit_tokens: int | None = None
    cached_tokens: int | None = None
    """Prompt tokens of this request that came from the cache."""
    prefilled_tokens: int | None = None
    """Prompt tokens of this request processed so far."""
    prefill_tok_s: float | None = None
    decoded_tokens: int | None = None
    remaining_tokens: int | None = None
    decode_tok_s: float | None = None
    agent: str | None = None
    """The agent whose request this slot serves, where the counts show it beyond doubt."""
    part: str | None = None
    """Of a front with several models: the model whose server has this slot (`PartSample.part`)."""
