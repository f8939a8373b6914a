"""Frames about the session itself: who it is, what happened, what is missing, what it costs."""

from __future__ import annotations

from agenttop.model.frames.base import Frame


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
    """`gpu`, or `gpu/<GpuSample.gpu>:<field>`, or `<engine url>:<field>`, or `host:<field>`."""
    why: str | None = None
    fix: str | None = None
    """The flag, package or permission that would provide it."""

    @property
    def subject_and_field(self) -> tuple[str | None, str]:
        """`http://127.0.0.1:8080:version` in its two parts; no subject for what is neither of an
        engine nor of one GPU."""
        subject, colon, field = self.what.rpartition(":")
        of_one = "://" in subject or subject.startswith(GPU_SUBJECT)
        return (subject, field) if colon and of_one else (None, self.what)


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


GPU_SUBJECT = "gpu/"
"""How `Missing.what` begins for a field of one GPU; its identity follows, which may hold colons."""
