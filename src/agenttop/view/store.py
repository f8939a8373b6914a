"""All the console knows: frames folded into the newest of everything, short histories, and events.

Rules
- `feed` is the only way in. Nothing here reads a clock: `now` comes with the frames, so a live, a
  rewound and a replayed session fold to the same store.
- Nothing is made up: a second without a sample is a gap, a figure not reported is None.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, ClassVar

from agenttop.model.frames import (
    AgentSample,
    Bye,
    EngineSample,
    Event,
    Finding,
    Frame,
    GpuSample,
    Hardware,
    HostSample,
    LatencySample,
    Level,
    LoadSample,
    Missing,
    OwnSample,
    PartSample,
    Plan,
    ProcessSample,
    RecordingState,
    Session,
    SlotSample,
    Turn,
)
from agenttop.model.identity import simulated_gpus
from agenttop.view.held import Held
from agenttop.view.series import WINDOW_S, Column, Series

STALE_S = 3.0
"""Figures come about once a second; when nothing has come for this long, the screen says so."""

MAX_PACE = 1e6

MAX_EVENTS = 2_000
MAX_TURNS = 4_000
MAX_PROCESSES = 1_000
"""Of engines and GPUs; no more are kept, whatever comes."""

ENGINE_FIGURES = (
    "decode_tok_s",
    "prefill_tok_s",
    "running",
    "waiting",
    "kv_used_fraction",
    "prefix_hits_tokens_total",
    "prefix_queries_tokens_total",
)
HOST_FIGURES = ("cpu_fraction",)
GPU_FIGURES = ("util_fraction", "power_w", "temperature_c")
LOAD_FIGURES = ("decode_tok_s", "active")


NO_LEVEL = frozenset({"ramp.end", "run.end", "run.abandoned"})
"""Events after which the session is in no level, whatever end was planned for the last one."""


class Store:
    """The only mutable state behind the screens."""

    def __init__(self) -> None:
        self.changes = 0
        """Grows whenever something has been folded."""
        self.now = 0.0
        """Session time the reader is at."""
        self.ended: str | None = None
        """Why no more frames will come."""
        self._forget()

    def _forget(self) -> None:
        self.newest: float | None = None
        """Session time of the newest frame."""
        self.session: Session | None = None
        self.host: HostSample | None = None
        self.hardware: Hardware | None = None
        self.processes: dict[int, ProcessSample] = {}
        """Those that live."""
        self.gpus: dict[str, GpuSample] = {}
        self.held: dict[str, Held] = {}
        """By GPU: what has held it down, and when."""
        self.engines: dict[str, EngineSample] = {}
        self.slots: dict[tuple[str, int], SlotSample] = {}
        self.latencies: dict[str, dict[str, LatencySample]] = {}
        """By engine, then by measure."""
        self.parts: dict[str, dict[tuple[str, str], PartSample]] = {}
        """By engine, then by role and name; one that is gone is not in it."""
        self.agents: dict[str, AgentSample] = {}
        self.load: LoadSample | None = None
        self.plan: Plan | None = None
        self.level: Level | None = None
        self.findings: dict[str, Finding] = {}
        self.recording: RecordingState | None = None
        self.own: dict[str, OwnSample] = {}
        self.missing: dict[str, Missing] = {}
        self.events: deque[Event] = deque(maxlen=MAX_EVENTS)
        self.turns: deque[Turn] = deque(maxlen=MAX_TURNS)
        self.turns_folded = 0
        """How many turns have been folded in all."""
        self.derived: dict[object, tuple[object, object]] = {}
        """For figures that are costly to compute: what they were computed from, and the value."""
        self.bye: Bye | None = None
        self.run_ended: float | None = None
        """When the run or search of this session ended; None while there is none, or agents run again."""
        self._series: dict[tuple[str, str], Series] = {}
        self._held: dict[tuple[str, int], tuple[str, int | None]] = {}

    def feed(
        self, frames: Iterable[Frame], now: float, *, reset: bool = False, ended: str | None = None
    ) -> None:
        """Fold frames and move to `now`. `reset` forgets everything first (after a seek)."""
        if reset:
            self._forget()
            self.changes += 1
        for frame in frames:
            fold = self._FOLDS.get(type(frame))
            if fold is None:
                continue
            if self.newest is None or frame.t > self.newest:
                self.newest = frame.t
            fold(self, frame)
            self.changes += 1
        self.now = now
        if ended != self.ended:
            self.ended = ended
            self.changes += 1
        while self.turns and self.turns[0].t < now - WINDOW_S:
            self.turns.popleft()

    # What can be asked

    def series(self, subject: str, figure: str) -> Series | None:
        """History of a figure of `host`, `load`, a GPU, an engine, an agent, or a slot (`slot_subject`)."""
        return self._series.get((subject, figure))

    def last(self, subject: str, figure: str, seconds: int) -> list[float | None]:
        """The figure over the last `seconds`, one value per second, None where there is none."""
        series = self._series.get((subject, figure))
        return series.last(seconds, self.now) if series else [None] * seconds

    def columns(self, subject: str, figure: str, count: int, step: int = 1) -> list[Column]:
        """The figure over the last `count` spans of `step` seconds, as (mean, maximum)."""
        series = self._series.get((subject, figure))
        return series.columns(count, step, self.now) if series else [None] * count

    def age(self, frame: Frame) -> float:
        """Seconds since the frame was true."""
        return max(0.0, self.now - frame.t)

    @property
    def pace(self) -> float:
        """Session seconds per second: above 1 where the session follows a simulated engine that runs faster
        than life. Frames then come that much further apart."""
        pace = self.session.speedup if self.session is not None else 1.0
        return pace if 1.0 <= pace <= MAX_PACE else 1.0

    @property
    def over(self) -> bool:
        """The session has ended: every figure is of its end."""
        return self.ended is not None or self.bye is not None

    @property
    def stale_s(self) -> float | None:
        """How long nothing has come, once that is worth saying."""
        if self.newest is None or self.ended or self.bye:
            return None
        quiet = self.now - self.newest
        return quiet if quiet > STALE_S * self.pace else None

    def holder(self, engine: str, slot: int) -> str | None:
        """The agent whose conversation a slot holds: being served, or finished and not yet replaced."""
        held = self._held.get((engine, slot))
        return held[0] if held else None

    # How frames fold

    def _track(
        self, subject: str, figure: str, t: float, value: float | None, window_s: float | None
    ) -> None:
        key = (subject, figure)
        series = self._series.get(key)
        if series is None:
            if value is None:
                return
            series = self._series[key] = Series(self.pace)
        series.put(t, value, window_s)

    def _fold_session(self, frame: Session) -> None:
        self.session = frame

    def _fold_host(self, frame: HostSample) -> None:
        self.host = frame
        for figure in HOST_FIGURES:
            self._track("host", figure, frame.t, getattr(frame, figure), frame.window_s)

    def _fold_gpu(self, frame: GpuSample) -> None:
        self.gpus[frame.gpu] = frame
        for figure in GPU_FIGURES:
            # What a driver that does not answer has told before is no figure of now.
            value = None if frame.state == "late" else getattr(frame, figure)
            self._track(frame.gpu, figure, frame.t, value, frame.window_s)
        held = self.held.get(frame.gpu)
        if held is None:
            held = self.held[frame.gpu] = Held(self.pace)
        held.put(frame)

    def _fold_process(self, frame: ProcessSample) -> None:
        if frame.ended:
            self.processes.pop(frame.pid, None)
        elif frame.pid in self.processes or len(self.processes) < MAX_PROCESSES:
            self.processes[frame.pid] = frame

    def _fold_hardware(self, frame: Hardware) -> None:
        self.hardware = frame

    def _fold_engine(self, frame: EngineSample) -> None:
        before = self.engines.get(frame.engine)
        self.engines[frame.engine] = frame
        for figure in ENGINE_FIGURES:
            self._track(frame.engine, figure, frame.t, getattr(frame, figure), frame.window_s)
        if before is None:
            return
        if before.restarts != frame.restarts or _is_another(before, frame):
            self._forget_process(frame.engine)
        elif before.slots_total != frame.slots_total and frame.slots_total is not None:
            self._forget_slots(frame.engine, frame.slots_total)

    def _forget_process(self, url: str) -> None:
        """Another process answers at this address: nothing that was in the one before is in it."""
        self._forget_slots(url)
        self.latencies.pop(url, None)
        self.parts.pop(url, None)

    def _forget_slots(self, url: str, beyond: int = 0) -> None:
        for key in [key for key in self.slots if key[0] == url and key[1] >= beyond]:
            del self.slots[key]
            self._held.pop(key, None)

    def _fold_latency(self, frame: LatencySample) -> None:
        self.latencies.setdefault(frame.engine, {})[frame.measure] = frame

    def _fold_part(self, frame: PartSample) -> None:
        parts = self.parts.setdefault(frame.engine, {})
        if frame.state == "gone":
            parts.pop((frame.role, frame.part), None)
        else:
            parts[frame.role, frame.part] = frame

    def _fold_slot(self, frame: SlotSample) -> None:
        key = (frame.engine, frame.slot)
        self.slots[key] = frame
        held = self._held.get(key)
        if frame.agent is not None:
            self._hold(key, frame.agent, frame.task)
        elif held is not None and (frame.phase != "idle" or frame.task not in (held[1], None)):
            del self._held[key]
        self._track(slot_subject(*key), "decode_tok_s", frame.t, frame.decode_tok_s, None)

    def _fold_agent(self, frame: AgentSample) -> None:
        self.agents[frame.agent] = frame
        if frame.slot is not None:
            key = (frame.engine, frame.slot)
            slot = self.slots.get(key)
            if self.holder(*key) != frame.agent:
                self._hold(key, frame.agent, slot.task if slot else None)
        self._track(frame.agent, "decode_tok_s", frame.t, frame.decode_tok_s, None)

    def _hold(self, key: tuple[str, int], agent: str, task: int | None) -> None:
        for other in [other for other, held in self._held.items() if held[0] == agent and other != key]:
            del self._held[other]
        self._held[key] = (agent, task)

    def _fold_turn(self, frame: Turn) -> None:
        self.turns.append(frame)
        self.turns_folded += 1

    def _fold_load(self, frame: LoadSample) -> None:
        self.load = frame
        for figure in LOAD_FIGURES:
            self._track("load", figure, frame.t, getattr(frame, figure), frame.window_s)

    def _fold_plan(self, frame: Plan) -> None:
        self.plan = frame
        self.run_ended = None

    def _fold_level(self, frame: Level) -> None:
        self.level = frame

    def _fold_finding(self, frame: Finding) -> None:
        self.findings[frame.what] = frame
        # On the time axis too, unless the node has said it there in the same words.
        if not any(event.text == frame.sentence for event in islice(reversed(self.events), 5)):
            self.events.append(Event(t=frame.t, event=f"finding.{frame.what}", text=frame.sentence))

    def _fold_event(self, frame: Event) -> None:
        self.events.append(frame)
        if frame.event in NO_LEVEL:
            self.level = None
        if frame.event == "run.end":
            self.run_ended = frame.t
        elif frame.event == "agents.target":
            self.run_ended = None
        if frame.event == "engine.gone" and frame.subject is not None:
            self._forget_engine(frame.subject)

    def _forget_engine(self, url: str) -> None:
        """It is not watched any more: what is known of it is of the past."""
        self.engines.pop(url, None)
        self._forget_process(url)
        for what in [what for what in self.missing if what.startswith(f"{url}:")]:
            del self.missing[what]
        prefix = simulated_gpus(url)
        for gpu in [gpu for gpu in self.gpus if gpu.startswith(prefix)]:
            del self.gpus[gpu]
            self.held.pop(gpu, None)
        for pid in [pid for pid, process in self.processes.items() if process.engine == url]:
            if not self.processes[pid].gpus:
                del self.processes[pid]

    def _fold_missing(self, frame: Missing) -> None:
        if frame.why is None:
            self.missing.pop(frame.what, None)
        else:
            self.missing[frame.what] = frame

    def _fold_own(self, frame: OwnSample) -> None:
        self.own[frame.role] = frame

    def _fold_recording(self, frame: RecordingState) -> None:
        self.recording = frame

    def _fold_bye(self, frame: Bye) -> None:
        self.bye = frame

    _FOLDS: ClassVar[dict[type[Frame], Callable[[Store, Any], None]]] = {
        Session: _fold_session,
        HostSample: _fold_host,
        GpuSample: _fold_gpu,
        ProcessSample: _fold_process,
        Hardware: _fold_hardware,
        EngineSample: _fold_engine,
        LatencySample: _fold_latency,
        PartSample: _fold_part,
        SlotSample: _fold_slot,
        AgentSample: _fold_agent,
        Turn: _fold_turn,
        LoadSample: _fold_load,
        Plan: _fold_plan,
        Level: _fold_level,
        Finding: _fold_finding,
        Event: _fold_event,
        Missing: _fold_missing,
        OwnSample: _fold_own,
        RecordingState: _fold_recording,
        Bye: _fold_bye,
    }


def _is_another(before: EngineSample, frame: EngineSample) -> bool:
    """Whether another kind of engine has come; one that has not said yet what it is has not."""
    return before.name != frame.name and UNTOLD not in (before.name, frame.name)


UNTOLD = "unknown"
"""Name of an engine that has not said what it is."""


def slot_subject(engine: str, slot: int) -> str:
    """The name under which a slot's history is kept."""
    return f"{engine}#{slot}"
