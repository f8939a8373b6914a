"""The row of a level: what scripts, the tables of `compare` and the search for the knee rely on."""

from __future__ import annotations

import msgspec


class LevelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One level of one session.

    Every figure is over the steady window of its level (`analyse.levels`), in session time: simulated
    seconds where the engine is simulated. What was not measured is None, never 0; what was counted and did
    not happen is 0. Turns of kind prime count nowhere; those of sub-agents count for the engine's rates.
    """

    file: str
    host: str
    """Of a simulated session: the host that is simulated."""
    simulated: bool = False
    """The engine is simulated (`agenttop sim`): figures of a model, not of this host."""
    speedup: float = 1.0
    engine: str | None = None
    engine_name: str | None = None
    """What kind of engine it is: llama.cpp, vLLM, ..."""
    model: str | None = None
    profile: str | None = None
    demo: bool = False
    """The engine is the demo engine: a real server on random weights."""
    level: int
    """Counted from 1 within the file."""
    agents: int
    purpose: str | None = None
    """Why a search entered the level: climb, refine, confirm, verify."""
    cold: bool = False
    """All its agents were new, with contexts no cache held."""
    decode_tok_s_per_agent_p50: float | None = None
    """Median over turns whose decoding lies within the window, each by `analyse.tokens.decode_rate`."""
    decode_tok_s: float | None = None
    """Output tokens of all requests that arrived in the window, per second."""
    prefill_tok_s: float | None = None
    """Prompt tokens not taken from the cache, spread over the time of their prefill, per second."""
    ttft_s_p50: float | None = None
    """From sent to the first token, over requests sent in the window."""
    ttft_s_p95: float | None = None
    wait_s_p50: float | None = None
    """From when the plan wanted a turn sent to its last token, over turns completed in the window."""
    turn_s_p50: float | None = None
    """Seconds per tool call: from when a turn was sent to its last token, over turns completed in it."""
    itl_s_p50: float | None = None
    """Between neighbouring stream events with text of one request, both within the window."""
    itl_s_p99: float | None = None
    turns: int | None = None
    """Turns completed in the window, without compactions."""
    completions_per_min: float | None = None
    """The same per minute."""
    prefix_hit_fraction: float | None = None
    """Prompt tokens from the cache over all prompt tokens, of requests sent in the window. An agent's very
    first request is left out: no cache can know it."""
    kv_max_fraction: float | None = None
    kv_active_max_fraction: float | None = None
    """The part held by requests in progress, at most: what fills the pool for good."""
    kv_pool_tokens: int | None = None
    context_mean_tokens: float | None = None
    """Mean context of an agent over the window, idle agents included."""
    slots_total: int | None = None
    waiting_max: int | None = None
    """Requests the engine held back, at most."""
    waiting_fraction: float | None = None
    """Share of engine samples in which it held any back."""
    compactions: int | None = None
    compaction_s_p50: float | None = None
    """What a compaction costs: the time of the request that compacts, sent to last token."""
    compaction_prefill_tokens_p50: float | None = None
    """Prompt tokens the first turn after a compaction had to prefill again."""
    preemptions: int | None = None
    """None where the engine does not count them (llama.cpp) or was restarted."""
    preemptions_per_min: float | None = None
    engine_hit_fraction: float | None = None
    """Prompt tokens found in the engine's prefix cache over those looked up there in the window, by its own
    counters: of all its requests, also of those that are not this session's."""
    draft_acceptance: float | None = None
    """Of speculative decoding: tokens taken over tokens drafted in the window, by the engine's counters."""
    finish_reasons: dict[str, int] = {}
    """Why requests ended in the window, by the engine's counters; empty where it does not tell."""
    failures: int | None = None
    failure_kinds: dict[str, int] = {}
    """`failures` by `Turn.error_kind`."""
    stalls: int | None = None
    """Times an agent was silent for far longer than usual (state stalled), whether it went on or its request
    failed (stall, queue-timeout)."""
    retries: int | None = None
    """Requests that were a second or later attempt."""
    gpus_from: str | None = None
    """Which GPUs the figures below are of, and how it is known that the engine uses these."""
    gpu_throttled_fraction: float | None = None
    """Share of the GPU samples with a reason that held the clocks down, or of the time by the driver's own
    counters, whichever is more; over all GPUs."""
    throttle_shares: dict[str, float] = {}
    """The same by reason, the mean over the GPUs: of time where the driver counts it, else of samples.
    Reasons overlap. 0: it is counted and did not occur."""
    throttle_worst_shares: dict[str, float] = {}
    """By reason, the GPU with the largest share."""
    throttle_chosen_shares: dict[str, float] = {}
    """Reasons that somebody chose (`HARMLESS_THROTTLE`), the mean over the GPUs: no trouble."""
    throttled_why: str | None = None
    """`throttled 12 % of this level: power cap (GPU0)`: the worst GPU by reason; None where nothing held any
    down for a share worth a word, or no GPU tells."""
    gpu_clock_fraction_p50: float | None = None
    """Clock as a share of the device's maximum, median; of the GPU where that is least."""
    gpu_margin_c_min: float | None = None
    """Degrees from the hottest GPU's limit, at least."""
    gpu_power_w: float | None = None
    """Mean over the window, all GPUs of the engine."""
    energy_j: float | None = None
    """Of the GPUs that the engine uses, over the window."""
    energy_from: str | None = None
    """Counter or power, and of which GPUs; without a figure, why."""
    energy_covers: str | None = None
    """What the power of these GPUs is of: GPU boards, the socket, ..."""
    energy_total_j: float | None = None
    """With CPU packages and RAM, where they are measured."""
    energy_total_covers: str | None = None
    idle_power_w: float | None = None
    """Of these GPUs while the engine ran nothing, anywhere in the session (`analyse.energy`)."""
    idle_power_from: str | None = None
    joules_per_token: float | None = None
    """`energy_j` over the output tokens of `decode_tok_s`: prefill and idling are in it."""
    joules_per_token_why: str | None = None
    """What it rests on; without a figure, why."""
    joules_per_token_all: float | None = None
    """`energy_j` over output tokens and computed prompt tokens together."""
    joules_per_token_above_idle: float | None = None
    """The part above `idle_power_w`, over the output tokens."""
    tokens_per_joule: float | None = None
    """Output tokens."""
    bandwidth_fraction: float | None = None
    """Of the peak of the GPUs' memory: measured over the window, else what decoding reads of the weights
    while it decodes (`analyse.bandwidth`)."""
    bandwidth_bytes_s: float | None = None
    bandwidth_at_least: bool = False
    """It is a floor."""
    bandwidth_measured: bool = False
    bandwidth_evidence: str | None = None
    """The numbers it rests on; without a figure, what is lacking."""
    ram_bandwidth_fraction: float | None = None
    """Of the peak of the RAM, by weights that the GPUs do not hold."""
    ram_bandwidth_evidence: str | None = None
    pcie_fraction: float | None = None
    """The busier direction of the busiest GPU's link, of what it carries; median."""
    cpu_max_fraction: float | None = None
    """Busy share of all cores, at most; None of an engine that runs on another machine."""
    cpu_fraction_p50: float | None = None
    ram_used_max_fraction: float | None = None
    swap_in_bytes_s_p50: float | None = None
    major_faults_s_p50: float | None = None
    """Pages per second that had to come from a disk."""
    pressure_memory_fraction_p50: float | None = None
    """Share of time in which some task waited for memory."""
    steal_fraction_p50: float | None = None
    """Share of the cores' time that a hypervisor gave to others."""
    cpu_limit_throttled_fraction_p50: float | None = None
    """Share of periods in which the container's CPU limit stopped it."""
    engine_cpu_cores: float | None = None
    """Cores that the engine's processes used, mean."""
    engine_busiest_cores: float | None = None
    """The same of the process that used most, median. One that waits for its GPU may well use a core."""
    engine_memory_bytes: int | None = None
    """Resident memory of the engine's processes, at most; how it was counted is `engine_memory_from`."""
    engine_memory_from: str | None = None
    engine_major_faults_s: float | None = None
    host_verdict: str | None = None
    """That CPU and RAM were not the bottleneck, with the numbers; None where that cannot be said."""
    decode_drift_fraction: float | None = None
    """Decode rate of the last third of the turns against the first, as a share of the median."""
    estimated_fraction: float | None = None
    """Share of `decode_tok_s` from requests that were cut off before the engine told their count."""
    steady: str | None = None
    """steady, warming (too little was seen to tell) or unsteady: `analyse.steady`."""
    why_steady: str | None = None
    bottleneck: str | None = None
    """What the level was limited by, one of `analyse.limits.BOTTLENECKS`; None where it cannot be told."""
    bottleneck_evidence: str | None = None
    """The series and numbers the verdict rests on; without a verdict, the series that are lacking."""
    t_start: float
    t_end: float
    warm_up_s: float
    """Time at the start of the level that is left out."""
    window_s: float
    """The steady window that all figures are over."""
    engine_away: str | None = None
    """That the engine was restarted or did not serve in the window, in words: what failed then says nothing
    of how many it carries."""
    also_busy: str | None = None
    """Other engines of the same host that ran requests in the window, in words: they shared the machine."""
    valid: bool
    why_invalid: str | None = None
