"""The frame types: wire format, tables of a recording and columns of the analysis in one place.

Rules
- `t` is seconds since the session began (monotonic). The wall-clock origin stands once, in `Session`.
- Missing is `None`, never 0. Why it is missing is said once, in a `Missing` frame.
- The unit is in the name: `_s` seconds, `_bytes`, `_tokens`, `_tok_s` tokens per second, `_w` watts,
  `_c` degrees Celsius, `_mhz`; a `_fraction` is 0..1.
- Every rate states its window (`window_s`) or has it in its docstring.
- A field is added by adding it here: the codec, the tables and the exports follow from these types.
  Fields are only ever added, and only optional ones, within one schema number.
"""

from __future__ import annotations

import msgspec

SCHEMA = 1
"""Raised only when an old reader would misread a new file; added fields and kinds do not raise it."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What every frame has."""

    t: float
    """Seconds since the session began."""


class Session(Frame, frozen=True, kw_only=True, tag="session"):
    """Who, what, where: the first frame of every stream and the one row that names a recording."""

    schema: int
    session: str
    """Identity, unique across hosts, e.g. `20261130-191459-box1-3f2a`."""
    started_unix: float
    """Wall clock at t = 0, seconds since 1970 UTC."""
    host: str
    os: str
    cpu: str | None = None
    cores_physical: int | None = None
    cores_logical: int | None = None
    ram_total_bytes: int | None = None
    agenttop: str = ""
    python: str = ""
    demo: bool = False
    """The engine is the demo's own: a real llama.cpp server on random weights, or a simulated one."""
    node_pid: int | None = None
    recording: str | None = None
    """Path of the recording on the host of the node; None when recording is off."""
    urls: list[str] = []
    """Engine URLs the user named: load may go to these."""
    speedup: float = 1.0
    """Session seconds per second of the wall clock: above 1 when the engine is simulated and runs faster
    than life. Every `t`, duration and rate of the session is in simulated time; host and own figures are
    of the real machine."""
    simulated: str | None = None
    """The host that a simulated engine stands for, e.g. `RTX 5090`; None for a real engine."""


class HostSample(Frame, frozen=True, kw_only=True, tag="host"):
    """CPU, memory, disks and network of the host. Rates are over `window_s`."""

    window_s: float | None = None
    cpu_fraction: float | None = None
    """Busy share of all cores; waiting for I/O counts as not busy."""
    cpu_per_core: list[float] | None = None
    """Busy share per logical core, 0..1."""
    cpu_max_core_fraction: float | None = None
    iowait_fraction: float | None = None
    load_1m: float | None = None
    load_5m: float | None = None
    load_15m: float | None = None
    ram_total_bytes: int | None = None
    ram_used_bytes: int | None = None
    """Total minus available."""
    ram_available_bytes: int | None = None
    ram_cached_bytes: int | None = None
    """Page cache. A memory-mapped model lives here and counts as available."""
    swap_total_bytes: int | None = None
    swap_used_bytes: int | None = None
    swap_in_bytes_s: float | None = None
    swap_out_bytes_s: float | None = None
    disk_read_bytes_s: float | None = None
    disk_write_bytes_s: float | None = None
    net_received_bytes_s: float | None = None
    net_sent_bytes_s: float | None = None
    pressure_cpu_fraction: float | None = None
    """Share of the last 10 s in which some task waited for a CPU (Linux PSI)."""
    pressure_memory_fraction: float | None = None
    pressure_io_fraction: float | None = None
    cpu_limit_cores: float | None = None
    """A container's CPU limit, where one is set."""
    ram_limit_bytes: int | None = None
    ram_limited_used_bytes: int | None = None


class GpuSample(Frame, frozen=True, kw_only=True, tag="gpu"):
    """One GPU. Rates are over `window_s`."""

    gpu: str
    """Stable identity: the UUID where there is one."""
    index: int
    vendor: str
    name: str
    state: str = "ok"
    """ok, asleep, lost."""
    window_s: float | None = None
    driver: str | None = None
    util_fraction: float | None = None
    """Share of the driver's sample period in which at least one kernel ran."""
    mem_util_fraction: float | None = None
    mem_used_bytes: int | None = None
    mem_total_bytes: int | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    mem_clock_mhz: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    temperature_c: float | None = None
    mem_temperature_c: float | None = None
    fan_fraction: float | None = None
    energy_j: float | None = None
    performance_state: int | None = None
    """0 is the fastest P-state."""
    throttle: list[str] | None = None
    """Reasons that hold the clocks down now, e.g. `power cap`; an empty list means none."""
    throttle_power_fraction: float | None = None
    """Share of the window spent held down by a power limit, from the driver's time counters."""
    throttle_thermal_fraction: float | None = None
    pcie_received_bytes_s: float | None = None
    pcie_sent_bytes_s: float | None = None
    pcie_generation: int | None = None
    pcie_generation_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None


HARMLESS_THROTTLE = frozenset({"user clocks", "sync boost", "display clocks"})
"""Reasons in `GpuSample.throttle` that somebody chose: they hold the clocks down without being trouble."""


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


class AgentSample(Frame, frozen=True, kw_only=True, tag="agent"):
    """One synthetic agent, about once a second and at every change of state."""

    agent: str
    engine: str
    profile: str
    state: str
    """waiting (for its staggered start), prime (the request that fills its context before the steady
    start), queued (sent, no byte back), prefill, decode, stalled (silent for far longer than it usually
    is), tool, human (pauses between turns), children (waits for its sub-agents), compact (the request that
    compacts), backoff, paused, stopping, stopped."""
    state_since: float
    """Session time at which the state began."""
    state_until: float | None = None
    """Session time at which a pause will end."""
    turn: int = 0
    """Number of the turn in progress or last done; the first is 1."""
    turns_done: int = 0
    compactions: int = 0
    failures: int = 0
    context_tokens: int | None = None
    """Tokens of the conversation so far, by the engine's own count plus the output in progress."""
    context_limit_tokens: int | None = None
    """Size at which this agent compacts."""
    prompt_tokens: int | None = None
    """Of the request in progress, once the engine has said so."""
    cached_tokens: int | None = None
    prefilled_tokens: int | None = None
    output_tokens: int | None = None
    """Of the request in progress, by the engine's own count where it reports one while streaming."""
    output_limit_tokens: int | None = None
    decode_tok_s: float | None = None
    """Of the request in progress, over its last 3 seconds."""
    ttft_s: float | None = None
    """Of the newest request that had a first token."""
    output_tokens_total: int = 0
    slot: int | None = None
    """The slot that serves its request, where the counts show it beyond doubt."""
    error: str | None = None
    """The last failure, one sentence."""
    parent: str | None = None
    """The agent that spawned this one, which is a sub-agent then."""
    children: int | None = None
    """Sub-agents at work for it now."""
    silent_s: float | None = None
    """In state stalled: how long nothing has come."""


class Turn(Frame, frozen=True, kw_only=True, tag="turn"):
    """One request of one agent, written when it has ended. `t` is the moment it ended."""

    agent: str
    engine: str
    profile: str
    turn: int
    turn_kind: str = "turn"
    """turn; compact for the request that shortens the context; prime for the one that fills it before a
    steady start (never part of a level's figures); sub for a turn of a sub-agent."""
    t_queued: float
    """When the plan wanted it sent: the pause before it had ended."""
    t_sent: float | None = None
    t_first_byte: float | None = None
    t_first_token: float | None = None
    """First non-empty text, reasoning or tool call."""
    t_last_token: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    output_limit_tokens: int | None = None
    tokens_from: str | None = None
    """usage or timings: which part of the reply the counts were read from."""
    context_tokens: int | None = None
    """The conversation after this turn."""
    status: int | None = None
    finish_reason: str | None = None
    error_kind: str | None = None
    """refused, http-4xx, http-5xx, stream-error (an error event inside a 200 stream), cut (end without
    [DONE]), stall (silence after the first token), queue-timeout (silence before it), context, cancelled,
    protocol, engine-limit, restarted (the engine was restarted under the request)."""
    error: str | None = None
    events: int | None = None
    """Stream events that carried text. Not tokens: one event may hold several."""
    prefill_s: float | None = None
    """The engine's own prefill time for this request, where it tells."""
    decode_s: float | None = None
    attempt: int = 1
    """1, or for a retry how often the same step has been sent, this request included."""
    parent: str | None = None
    """The agent that spawned the one whose turn this is."""
    planned_prompt_tokens: int | None = None
    """Size the plan wanted the prompt to have."""
    expected_prompt_tokens: int | None = None
    """Size the client expected when it sent the request, by the ratio learnt until then."""
    compacted_from_tokens: int | None = None
    """Of the first turn after a compaction: the context before it."""
    probe: str | None = None
    """Verdict on planted facts asked for in this turn: right, wrong-region, leaked, truncated, no-answer."""
    probe_detail: str | None = None
    """E.g. which depth was asked for, or whose secret came back."""
    stamps: str | None = None
    """kernel where `arrivals` come from the kernel's receive time; None: taken in the driver."""
    arrivals: bytes | None = None
    """Arrival time of each event that carried text: little-endian uint32, microseconds after `t_sent`."""


class LoadSample(Frame, frozen=True, kw_only=True, tag="load"):
    """The driver as a whole, once a second: what it does and whether it keeps up."""

    engine: str | None = None
    profile: str | None = None
    target: int = 0
    """Agents asked for."""
    active: int = 0
    """Agents started and not stopped."""
    in_flight: int = 0
    paused: bool = False
    window_s: float | None = None
    decode_tok_s: float | None = None
    """Output tokens that arrived over the window, all agents."""
    turns_done: int = 0
    compactions: int = 0
    failures: int = 0
    output_tokens_total: int = 0
    loop_lag_p99_s: float | None = None
    """Lateness of a 10 ms ticker in the driver's event loop over the window."""
    cpu_fraction: float | None = None
    """Of one core, over the window."""
    send_late_p99_s: float | None = None
    """Real send time minus intended, over the window."""
    shared_reads_fraction: float | None = None
    """Share of socket reads that held more than one token event: those tokens share a time stamp."""
    client_limited: str | None = None
    """Why the client, not the engine, was the limit in this window; None when it was not."""
    drivers: int = 1
    """Worker processes that the agents are spread over; `cpu_fraction` is that of the busiest."""
    failure_kinds: dict[str, int] = {}
    """`failures` by `Turn.error_kind`."""
    stalled: int = 0
    """Agents in state stalled."""
    unseen_in_flight: int | None = None
    """Requests in flight here beyond those the engine says it runs or holds back: they wait elsewhere."""
    stamps: str | None = None
    """kernel, application, or mixed: where time stamps come from."""


class Plan(Frame, frozen=True, kw_only=True, tag="plan"):
    """The load that was asked for, resolved and scaled, so that a recording explains itself."""

    engine: str
    profile: str
    settings: dict[str, object] = {}
    """The whole profile as it is applied."""
    notes: list[str] = []
    """What was scaled to fit this engine, in words, e.g. `context limit 100000 -> 1843 (engine: 2048)`."""
    seed: int = 0
    stagger_s: float = 0.0
    overrides: dict[str, str] = {}
    """Keys of the profile that the user has set, as written."""


class Level(Frame, frozen=True, kw_only=True, tag="level"):
    """A run enters a level: a span in which the number of agents is meant to be constant."""

    level: int
    agents: int
    t_end: float | None = None
    """Planned end; None when the level lasts until it can be judged, which an event `run.level-end` tells."""
    purpose: str | None = None
    """Why a search enters it: climb, refine, confirm, verify, capacity. None in a plain run or ramp."""
    cold: bool = False
    """Its agents are all new, with contexts no cache holds."""
    of: int | None = None
    """Levels of the run or ramp; None in a search, which does not know."""
    origin: str | None = None
    """run, ramp or search: what enters it."""


class Finding(Frame, frozen=True, kw_only=True, tag="finding"):
    """What an analysis made during the session found: the recording holds the answer with its data."""

    what: str
    """knee: the report of `agenttop.analyse.knee`, as `agenttop knee --json` prints it."""
    sentence: str
    report: dict[str, object] = {}


class Event(Frame, frozen=True, kw_only=True, tag="event"):
    """Something happened that belongs on the time axis."""

    event: str
    """A dotted name, e.g. agents.target, agents.stop-all, engine.restart, gpu.throttle, mark."""
    text: str
    """One sentence, without a full stop."""
    source: str = "node"
    """you, node, driver, engine, gpu, host."""
    severity: str = "info"
    """info, warn, bad."""
    subject: str | None = None
    """The agent, engine or GPU it is about."""


class Missing(Frame, frozen=True, kw_only=True, tag="missing"):
    """Why something is not shown. Sent once, and again with `why=None` when it comes back."""

    what: str
    """`gpu`, or `<engine url>:<field>`, or `host:<field>`."""
    why: str | None = None
    fix: str | None = None
    """The flag, package or permission that would provide it."""

    @property
    def subject_and_field(self) -> tuple[str | None, str]:
        """`http://127.0.0.1:8080:version` in its two parts; no subject for what is not of an engine."""
        subject, colon, field = self.what.rpartition(":")
        return (subject, field) if colon and "://" in subject else (None, self.what)


class OwnSample(Frame, frozen=True, kw_only=True, tag="own"):
    """What agenttop itself costs."""

    role: str
    """console, node, driver."""
    pid: int
    cpu_fraction: float | None = None
    """Of one core, over `window_s`."""
    window_s: float | None = None
    memory_bytes: int | None = None
    """Proportional set size where the system tells it, else resident set size."""


class RecordingState(Frame, frozen=True, kw_only=True, tag="recording"):
    """The recording, whenever its state changes and about every 10 s."""

    state: str
    """on, off, stopped."""
    path: str | None = None
    size_bytes: int | None = None
    why: str | None = None
    """Why it stopped."""


class Bye(Frame, frozen=True, kw_only=True, tag="bye"):
    """The stream ends here on purpose."""

    why: str


FRAME_TYPES: tuple[type[Frame], ...] = (
    Session,
    HostSample,
    GpuSample,
    EngineSample,
    LatencySample,
    PartSample,
    SlotSample,
    AgentSample,
    Turn,
    LoadSample,
    Plan,
    Level,
    Finding,
    Event,
    Missing,
    OwnSample,
    RecordingState,
    Bye,
)
"""Every kind this version knows, in the order of their tables."""


def kind_of(frame_type: type[Frame]) -> str:
    """The `kind` a type carries on the wire; also the name of its table."""
    tag = frame_type.__struct_config__.tag
    assert isinstance(tag, str)
    return tag
