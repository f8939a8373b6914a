"""Frames about the load: synthetic agents, their turns, the driver, the run and what it found."""

from __future__ import annotations

from agenttop.model.frames.base import Frame


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
