"""A plausible session as frames, and a recording made of it: input for tests of everything that reads one."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable
from pathlib import Path

from agenttop.model.frames import (
    SCHEMA,
    AgentSample,
    EngineSample,
    Event,
    Frame,
    GpuSample,
    HostSample,
    Level,
    LoadSample,
    Missing,
    OwnSample,
    Plan,
    RecordingState,
    Session,
    SlotSample,
    Turn,
)
from agenttop.record.write import Recorder

URL = "http://127.0.0.1:8080"
PROFILE = "human"


def session(**changes: object) -> Session:
    """The first frame of a recording."""
    known: dict[str, object] = {
        "t": 0.0,
        "schema": SCHEMA,
        "session": "20261130-191459-box1-3f2a",
        "started_unix": 1_796_066_099.0,
        "host": "box1",
        "os": "Linux 6.8",
        "cpu": "Example CPU",
        "cores_logical": 16,
        "urls": [URL],
    }
    return Session(**{**known, **changes})  # type: ignore[arg-type]


def arrivals(offsets: Iterable[float]) -> bytes:
    """Arrival times in seconds after `t_sent`, packed as a turn carries them."""
    return array("I", [round(offset * 1e6) for offset in offsets]).tobytes()


def turn(
    *,
    sent: float,
    first: float | None = None,
    tokens: int = 0,
    rate: float = 50.0,
    agent: str = "a1",
    number: int = 1,
    **changes: object,
) -> Turn:
    """A request whose first token came at `first` and whose others followed at `rate` tokens per second."""
    known: dict[str, object] = {
        "agent": agent,
        "engine": URL,
        "profile": PROFILE,
        "turn": number,
        "t_queued": sent,
    }
    known |= {"t_sent": sent, "t": sent}
    if first is not None:
        times = [first + index / rate for index in range(tokens)]
        known |= {
            "t_first_byte": first,
            "t_first_token": first,
            "t_last_token": times[-1],
            "t": times[-1] + 0.001,
            "output_tokens": tokens,
            "events": tokens,
            "finish_reason": "stop",
            "tokens_from": "usage",
            "status": 200,
            "arrivals": arrivals(time - sent for time in times),
        }
    return Turn(**{**known, **changes})  # type: ignore[arg-type]


class _Agent:
    """One agent that prefills for 0.4 s, decodes, pauses, and compacts every fifth turn."""

    def __init__(self, number: int, start: float, dice: random.Random) -> None:
        self.name = f"a{number}"
        self.start = start
        self.turns: list[Turn] = []
        self.stopped_at: float | None = None
        self._dice = dice
        self._context = 500

    def run(self, until: float, rate: float, pause: float) -> None:
        t = self.turns[-1].t + pause if self.turns else self.start
        while t < until:
            number = len(self.turns) + 1
            compact = number % 5 == 0
            cached = 0 if number == 1 else self._context
            tokens = self._dice.randint(60, 160)
            made = turn(
                sent=t,
                first=t + 0.4,
                tokens=tokens,
                rate=rate * self._dice.uniform(0.95, 1.05),
                agent=self.name,
                number=number,
                turn_kind="compact" if compact else "turn",
                prompt_tokens=self._context + 120,
                cached_tokens=cached,
                prefill_s=0.35,
                context_tokens=400 if compact else self._context + 120 + tokens,
            )
            self._context = made.context_tokens or 0
            self.turns.append(made)
            t = made.t + pause

    def sample(self, t: float) -> AgentSample:
        now = next((turn for turn in self.turns if (turn.t_sent or 0.0) <= t < turn.t), None)
        done = [turn for turn in self.turns if turn.t <= t]
        state, rate, since = "tool", None, done[-1].t if done else self.start
        if self.stopped_at is not None and t >= self.stopped_at:
            state, since = "stopped", self.stopped_at
        elif now is not None:
            decoding = t >= (now.t_first_token or 0.0)
            state, rate = ("decode", 50.0) if decoding else ("prefill", None)
            since = (now.t_first_token if decoding else now.t_sent) or 0.0
        return AgentSample(
            t=t,
            agent=self.name,
            engine=URL,
            profile=PROFILE,
            state=state,
            state_since=since,
            turn=len(done) + (now is not None),
            turns_done=len(done),
            compactions=sum(turn.turn_kind == "compact" for turn in done),
            context_tokens=self._context,
            context_limit_tokens=100_000,
            prompt_tokens=now.prompt_tokens if now else None,
            decode_tok_s=rate,
            ttft_s=0.4 if done else None,
            output_tokens_total=sum(turn.output_tokens or 0 for turn in done),
        )


def tick(t: float, *, slots: int = 4, gpus: int = 1, engine: dict[str, object] | None = None) -> list[Frame]:
    """What the samplers of a node send once a second."""
    values: dict[str, object] = {
        "state": "ok",
        "name": "llama.cpp",
        "model": "demo",
        "running": slots,
        "waiting": 0,
    }
    values |= {
        "kv_pool_tokens": 32768,
        "kv_used_tokens": 8000 + int(t),
        "kv_used_fraction": (8000 + int(t)) / 32768,
    }
    values |= {"slots_total": slots, "window_s": 1.0, "decode_tok_s": 48.8125 * slots, "load_allowed": True}
    frames: list[Frame] = [
        HostSample(
            t=t,
            window_s=1.0,
            cpu_fraction=0.061,
            cpu_per_core=[round(0.01 * core, 3) for core in range(16)],
            ram_total_bytes=64 << 30,
            ram_used_bytes=(20 << 30) + int(t) * 4096,
            disk_read_bytes_s=1234.5,
        )
    ]
    frames += [
        GpuSample(
            t=t,
            gpu=f"GPU-{index}",
            index=index,
            vendor="nvidia",
            name="Example 5090",
            util_fraction=0.97,
            mem_used_bytes=20 << 30,
            mem_total_bytes=32 << 30,
            power_w=431.25 + index,
            temperature_c=71.0,
            throttle=[],
        )
        for index in range(gpus)
    ]
    frames.append(EngineSample(t=t, engine=URL, url=URL, **(values | (engine or {}))))  # type: ignore[arg-type]
    frames += [
        SlotSample(
            t=t,
            engine=URL,
            slot=slot,
            phase="decode",
            task=100 + slot,
            context_tokens=2000 + int(t) + slot,
            context_limit_tokens=8192,
            decoded_tokens=int(t) % 100,
            decode_tok_s=48.8125,
            agent=f"a{slot + 1}",
        )
        for slot in range(slots)
    ]
    frames.append(
        OwnSample(t=t, role="node", pid=4242, cpu_fraction=0.008, window_s=1.0, memory_bytes=40 << 20)
    )
    return frames


def session_frames(
    levels: list[tuple[int, float]],
    *,
    planned: bool = True,
    stagger: float = 1.0,
    slots: int = 4,
    gpus: int = 1,
    seed: int = 7,
    rate: float = 50.0,
    tail: float = 3.0,
    pause: float = 2.0,
) -> list[Frame]:
    """A session with the given (agents, seconds), in the order in which a node would write it.

    `planned`: a run announces its levels; else somebody presses + in the console. Turns are written with
    the tick after they ended, so their `t` lies a little in the past.
    """
    dice = random.Random(seed)
    agents: list[_Agent] = []
    marks: list[Frame] = [
        RecordingState(t=0.0, state="on", path="x.agenttop"),
        Missing(t=0.1, what="host:pressure_cpu_fraction", why="not told by this kernel"),
        Plan(t=2.0, engine=URL, profile=PROFILE, settings={"context": {"limit": 100_000}}, stagger_s=stagger),
    ]
    t = 2.0
    for number, (count, seconds) in enumerate(levels):
        if planned:
            marks.append(Level(t=t, level=number, agents=count, t_end=t + seconds))
        marks.append(Event(t=t, event="agents.target", text=f"agents → {count}", source="you"))
        for agent in agents[count:]:
            agent.stopped_at = agent.stopped_at or t
        for new in range(len(agents), count):
            agents.append(_Agent(new + 1, t + 0.5 + stagger * (new - len(agents)), dice))
        for agent in agents[:count]:
            agent.run(t + seconds, rate, pause)
        t += seconds
    end = t
    marks.append(Event(t=end, event="agents.stop-all", text="all agents stopped"))
    for agent in agents:
        agent.stopped_at = agent.stopped_at or end
        agent.turns = [
            _cut(turn, agent.stopped_at) for turn in agent.turns if (turn.t_sent or 0) < agent.stopped_at
        ]
    return _interleave(marks, agents, end + tail, slots, gpus)


def _cut(made: Turn, at: float) -> Turn:
    """A request that was in flight when its agent was stopped."""
    if made.t <= at:
        return made
    offsets = array("I", made.arrivals or b"")
    kept = [offset / 1e6 for offset in offsets if (made.t_sent or 0.0) + offset / 1e6 <= at]
    return turn(
        sent=made.t_sent or 0.0,
        agent=made.agent,
        number=made.turn,
        t=at,
        t_first_token=made.t_first_token if kept else None,
        t_last_token=(made.t_sent or 0.0) + kept[-1] if kept else None,
        events=len(kept),
        arrivals=arrivals(kept),
        error_kind="cancelled",
        error="cancelled",
    )


def _interleave(marks: list[Frame], agents: list[_Agent], end: float, slots: int, gpus: int) -> list[Frame]:
    frames: list[Frame] = []
    facts = sorted([*marks, *(turn for agent in agents for turn in agent.turns)], key=lambda frame: frame.t)
    done = 0
    for second in range(int(end) + 1):
        t = second + 0.25
        while facts and facts[0].t <= t:
            done += isinstance(facts[0], Turn)
            frames.append(facts.pop(0))
        frames += tick(t, slots=slots, gpus=gpus)
        running = [agent for agent in agents if agent.start <= t]
        frames += [agent.sample(t) for agent in running]
        active = sum(agent.stopped_at is None or t < agent.stopped_at for agent in running)
        frames.append(
            LoadSample(
                t=t, engine=URL, profile=PROFILE, target=active, active=active, window_s=1.0, turns_done=done
            )
        )
    return frames + facts


def record(
    path: Path, frames: Iterable[Frame], *, first: Session | None = None, every_s: float = 1.0
) -> Path:
    """Write frames through the real recorder, with one commit per `every_s` of session time."""
    recorder = Recorder(path, first or session())
    committed = 0.0
    for frame in frames:
        recorder.add(frame)
        if frame.t >= committed + every_s:
            committed = frame.t
            recorder.commit()
    recorder.close()
    assert recorder.failure is None, recorder.failure
    return path


def small(path: Path, *, seconds: float = 40.0, agents: int = 3) -> Path:
    """A short session with a few agents, recorded."""
    return record(path, session_frames([(agents, seconds)]))
