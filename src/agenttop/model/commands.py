"""What flows the other way: console to node (`Command`) and node to driver (`DriverCommand`)."""

from __future__ import annotations

import msgspec


class Command(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="do"):
    """A wish of the user. The node answers with frames: an Event at least."""


class StartAgents(Command, frozen=True, kw_only=True, tag="start-agents"):
    """Set up the load and bring the agents to `target`, one every `stagger_s`."""

    engine: str
    """Base URL; must be named or confirmed, else the node refuses with an Event."""
    profile: str
    """Name of a profile, or path of a TOML file on the node's host."""
    target: int
    stagger_s: float | None = None
    """None: as the profile says."""
    seed: int = 0
    pace: float = 1.0
    """Pauses are this many times shorter than the profile says."""
    confirmed: bool = False
    """The user has just confirmed that load may go to this engine."""
    overrides: dict[str, str] = {}
    """Profile keys set by the user, as written: `{"context.limit": "32k"}`."""


class SetTarget(Command, frozen=True, kw_only=True, tag="set-target"):
    """Bring the number of agents to `target`."""

    target: int


class AddAgents(Command, frozen=True, kw_only=True, tag="add-agents"):
    """Change the target by `count`; negative removes the youngest agents."""

    count: int


class StopAgent(Command, frozen=True, kw_only=True, tag="stop-agent"):
    """Stop one: its request in flight is cancelled."""

    agent: str


class StopAll(Command, frozen=True, kw_only=True, tag="stop-all"):
    """Stop all at once: requests in flight are cancelled."""


class Drain(Command, frozen=True, kw_only=True, tag="drain"):
    """Let every agent finish its turn, then stop it."""


class Pause(Command, frozen=True, kw_only=True, tag="pause"):
    """No new turns while `on`; those in flight finish."""

    on: bool


class Mark(Command, frozen=True, kw_only=True, tag="mark"):
    """Put a note on the time axis."""

    text: str


class RunPlan(Command, frozen=True, kw_only=True, tag="run-plan"):
    """A run: one level after another, then the agents stop and the session ends."""

    engine: str
    profile: str
    levels: list[int]
    seconds: float
    """Duration of each level; with `settle`, the longest its steady window may take."""
    stagger_s: float | None = None
    seed: int = 0
    pace: float = 1.0
    overrides: dict[str, str] = {}
    settle: bool = False
    """A level ends as soon as it can be judged: warm, steady, enough full turns per agent."""
    cold: bool = False
    """Every level starts with new agents, whose contexts no cache holds."""


class FindKnee(Command, frozen=True, kw_only=True, tag="find-knee"):
    """A search: levels are chosen as it goes; ends with a Finding, then the session ends."""

    engine: str
    profile: str
    most: int
    """The search goes no higher than this."""
    budget_s: float
    slo: str | None = None
    """E.g. `decode>=20,ttft<=10s`."""
    stagger_s: float | None = None
    seed: int = 0
    pace: float = 1.0
    overrides: dict[str, str] = {}


class Ramp(Command, frozen=True, kw_only=True, tag="ramp"):
    """Climb, with the load in force or as given: from, to, step, each level held; agents stay after."""

    first: int
    last: int
    step: int
    hold_s: float
    engine: str | None = None
    """None: as the load in force."""
    profile: str | None = None
    seed: int = 0
    pace: float = 1.0
    overrides: dict[str, str] = {}
    stagger_s: float | None = None
    """None: as the load in force, or as the profile says."""
    confirmed: bool = False
    """The user has just confirmed that load may go to this engine."""

    def levels(self) -> list[int]:
        """The numbers of agents it goes through, up or down; the last one is always among them."""
        way = max(1, self.step) if self.last >= self.first else -max(1, self.step)
        return [*range(self.first, self.last, way), self.last]


class Leave(Command, frozen=True, kw_only=True, tag="leave"):
    """This console goes; the session goes on without one."""


class Quit(Command, frozen=True, kw_only=True, tag="quit"):
    """End the session: agents are cancelled, the recording is closed, the node exits."""


class OwnCost(Command, frozen=True, kw_only=True, tag="own-cost"):
    """The console's own cost, for the recording and the screen."""

    pid: int
    cpu_fraction: float | None = None
    window_s: float | None = None
    memory_bytes: int | None = None


AnyCommand = (
    StartAgents
    | SetTarget
    | AddAgents
    | StopAgent
    | StopAll
    | Drain
    | Pause
    | Mark
    | RunPlan
    | FindKnee
    | Ramp
    | Leave
    | Quit
    | OwnCost
)


class DriverCommand(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="do"):
    """An order of the node to a driver."""


class Configure(DriverCommand, frozen=True, kw_only=True, tag="configure"):
    """The first line a driver reads; a second one replaces the load for agents started later."""

    origin: float
    """`time.monotonic()` of the node at t = 0."""
    engine: str
    """Base URL, without `/v1`."""
    model: str | None
    """Sent as `model`; None where the server does not care."""
    api_key_env: str | None
    """Name of the environment variable that holds the key."""
    api_key_file: str | None = None
    """The file that holds it, where it is in one."""
    ca_file: str | None = None
    """Certificates that are believed besides those of the system."""
    profile: str
    settings: dict[str, object]
    """The resolved, scaled profile (`Plan.settings`)."""
    seed: int
    slots_like: str
    """Name of the engine (`llama.cpp`, `vLLM`, `openai`): which extras its requests may ask for."""
    clock_rate: float = 1.0
    """Session seconds per second; t = (time.monotonic() - origin) * clock_rate."""
    salt: str = ""
    """Makes prompts of this session unlike those of any other; the same for all drivers of a session."""
    kernel_stamps: bool | None = None
    """Take time stamps from the kernel where it offers them; None: up to 64 agents."""


class LaunchAgent(DriverCommand, frozen=True, kw_only=True, tag="launch"):
    """Start one agent."""

    agent: str
    number: int
    """Its ordinal in the session; with the seed it fixes the whole plan of the agent."""
    at: float
    """Session time of its first request."""


class HaltAgent(DriverCommand, frozen=True, kw_only=True, tag="halt"):
    """Stop one agent."""

    agent: str
    now: bool
    """Cancel the request in flight; else let the turn finish."""


class HaltAll(DriverCommand, frozen=True, kw_only=True, tag="halt-all"):
    """Stop every agent."""

    now: bool


class PauseAll(DriverCommand, frozen=True, kw_only=True, tag="pause-all"):
    """Hold back new turns, or let them go on."""

    on: bool


class Shutdown(DriverCommand, frozen=True, kw_only=True, tag="shutdown"):
    """Cancel everything and exit."""


AnyDriverCommand = Configure | LaunchAgent | HaltAgent | HaltAll | PauseAll | Shutdown
