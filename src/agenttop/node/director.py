"""Directs the load: how many agents there shall be, and what the driver is told to get there."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from typing import Any

import msgspec

from agenttop.access.proxy import proxy_for
from agenttop.access.ways import Ways
from agenttop.agents.overrides import set_notes
from agenttop.agents.profile import Profile, load
from agenttop.agents.scale import hasten, scale
from agenttop.agents.starts import start_gap_s
from agenttop.errors import AgenttopError
from agenttop.model import commands as c
from agenttop.model import units
from agenttop.model.frames import AgentSample, EngineSample, Event, Frame, LoadSample, Plan
from agenttop.node.drivers import Drivers
from agenttop.node.hub import Hub
from agenttop.node.unseen import Unseen

MOST_AGENTS = 1024

GONE_S = 5.0
"""How long cancelled requests may take to be reported (real seconds)."""

DOWN_WAIT_S = 5.0
CONTEXT_WAIT_S = 60.0
"""How long a start waits for an engine that is loading to tell its context size."""


class RefusedError(AgenttopError):
    """A wish of the user that is not carried out; the message says why."""


class Director:
    """Holds the target and the agents of a session; one engine and one profile at a time."""

    def __init__(
        self,
        hub: Hub,
        now: Callable[[], float],
        *,
        origin: float,
        rate: float = 1.0,
        ways: Ways,
        engine: Callable[[str], EngineSample | None],
        knows: Callable[[str], bool],
        slot_of: Callable[[AgentSample], int | None],
    ) -> None:
        self._hub = hub
        self._now = now
        self._origin = origin
        self._rate = rate
        """Session seconds per second."""
        self._salt = secrets.token_hex(4)
        """Two sessions with one seed must not find each other's prompts cached."""
        self._ways = ways
        self._engine = engine
        self._knows = knows
        self._slot_of = slot_of
        self._driver: Drivers | None = None
        self._unseen = Unseen(rate)
        self._plan: Plan | None = None
        self._profile: Profile | None = None
        self._stagger_s: float | None = None
        self._names: list[str] = []
        """Agents that shall live, oldest first."""
        self._past_proxies: set[str] = set()
        """Engines for which a proxy is wanted, which has been told."""
        self._number = 0
        self._last_start = 0.0
        self.agents: dict[str, AgentSample] = {}
        """Newest sample of every agent that has not stopped."""
        self.target = 0

    @property
    def active(self) -> bool:
        """Whether there is load: agents wanted, or not stopped yet."""
        return self.target > 0 or bool(self.agents)

    @property
    def rate(self) -> float:
        """Session seconds per second."""
        return self._rate

    @property
    def deserted(self) -> bool:
        """Agents were wanted, and every one of them has ended by itself."""
        return self._number > 0 and not self._names and not self.agents

    @property
    def last_start(self) -> float:
        """Session time of the last start that has been ordered; it may lie ahead."""
        return self._last_start

    @property
    def plan(self) -> Plan | None:
        """The load in force."""
        return self._plan

    async def start(
        self, command: c.StartAgents, within_s: float | None = None, *, source: str = "you"
    ) -> None:
        """Fit the profile to the engine and bring the agents to the target. Raises RefusedError.

        `within_s`, `source`: as in `set_target`.
        """
        check_target(command.target)
        sample = await self._ready_engine(command.engine)
        profile = load(command.profile, command.overrides)
        if not 0.01 <= command.pace <= 1000:
            raise RefusedError(f"a pace of {command.pace:g} is out of range", "0.01 to 1000")
        scaled = hasten(scale(profile, sample.context_limit_tokens), command.pace)
        stagger = scaled.profile.start.stagger_s if command.stagger_s is None else command.stagger_s
        settings: dict[str, Any] = msgspec.to_builtins(scaled.profile)
        plan = Plan(
            t=self._now(),
            engine=sample.engine,
            profile=profile.name,
            settings=settings,
            notes=[*set_notes(command.overrides), *scaled.notes],
            seed=command.seed,
            stagger_s=stagger,
            overrides=command.overrides,
        )
        if self._plan is None or not _same_load(plan, self._plan):
            self._announce(plan, source)
            self._halt(list(self._names))
        self._plan, self._profile, self._stagger_s = plan, scaled.profile, command.stagger_s
        if not await self._ensure_driver():
            self._configure(sample)
        self._hub.publish([plan])
        await self.set_target(command.target, within_s, source=source)

    async def set_target(self, target: int, within_s: float | None = None, *, source: str = "you") -> None:
        """Launch more agents, one stagger apart, or stop the youngest. Raises RefusedError.

        `within_s`: the last one starts no later than this from now; the gaps shrink as they must. `source`:
        who wants it, you or the node, as the event has it.
        """
        check_target(target)
        plan = self._plan
        if plan is None:
            raise RefusedError("no load is set up yet", "open the agents panel with a")
        before, self.target = self.target, target
        if target != before:
            text = f"agents {before} → {target} ({plan.profile})"
            self._event("agents.target" if target > before else "agents.fewer", text, source=source)
        if target > len(self._names):
            await self._ensure_driver()
            self._launch(target - len(self._names), within_s)
        elif target < len(self._names):
            self._halt(self._names[target:])

    def stop_one(self, agent: str) -> None:
        """Stop one agent and lower the target with it. Raises RefusedError."""
        if agent not in self._names:
            raise RefusedError(f"there is no agent {agent} to stop")
        self._halt([agent])
        self.target = len(self._names)
        self._event("agents.stop", f"{agent} stopped", subject=agent)

    def stop_all(self, source: str = "you") -> None:
        """Everything stops now; requests in flight are cancelled."""
        count = len(self._names)
        self.target = 0
        self._names.clear()
        if self._driver is not None:
            self._driver.send(c.HaltAll(now=True))
        self._event("agents.stop-all", f"all agents stopped ({count})", source=source)

    def drain(self) -> None:
        """Every agent finishes its turn, then stops."""
        self.target = 0
        self._names.clear()
        if self._driver is not None:
            self._driver.send(c.HaltAll(now=False))
        self._event("agents.drain", "agents finish their turns and stop")

    def pause(self, on: bool) -> None:
        """Hold back new turns, or let them go on."""
        if self._driver is not None:
            self._driver.send(c.PauseAll(on=on))
        self._event("agents.pause" if on else "agents.resume", "agents paused" if on else "agents go on")

    async def clear(self) -> None:
        """Stop every agent and wait until they are gone: cancelled requests are no failures.

        Numbers of agents never repeat, so no cache knows what those started later send.
        """
        self._halt(list(self._names))
        deadline = self._now() + GONE_S * self._rate
        while self.agents and self._now() < deadline:
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        """Stop the driver."""
        if self._driver is not None:
            driver, self._driver = self._driver, None
            await driver.stop()

    def _announce(self, plan: Plan, source: str) -> None:
        """Say what load it will be, how it was fitted, and that agents of another load make room for it."""
        told = [note for note in plan.notes if not note.startswith("medians")]
        fitted = f": {'; '.join(told)}" if told else ""
        self._event("agents.load", f"load {plan.profile}{fitted}", source="node")
        if self._names and self._plan is not None:
            count = units.plural(len(self._names), "agent")
            text = f"{count} of {self._plan.profile} replaced by {plan.profile}"
            self._event("agents.replaced", text, source=source)

    def _event(self, name: str, text: str, *, source: str = "you", subject: str | None = None) -> None:
        self._hub.event(name, text, source=source, subject=subject)

    async def _ready_engine(self, url: str) -> EngineSample:
        """The engine's newest sample, once it can serve. Raises RefusedError."""
        begun = self._now()
        while True:
            if not self._knows(url):
                raise RefusedError(f"{url} is not an engine of this session", "name it with --url")
            sample = self._engine(url)
            if sample is None:
                await asyncio.sleep(0.1)  # its first poll is under way; every watch gives a sample soon
                continue
            if not sample.load_allowed:
                raise RefusedError(
                    f"{url} was found, not named", "confirm it in the agents panel, or name it with --url"
                )
            if sample.state in ("ok", "busy", "asleep") and sample.age_s is not None:
                if (sample.speedup or 1.0) != self._rate:
                    raise RefusedError(_other_pace(sample, self._rate), f"agenttop --url {url}")
                return sample
            if (
                sample.state in ("unauthorised", "unsupported")
                or self._now() - begun > _patience_s(sample) * self._rate
            ):
                raise RefusedError(f"{url} cannot take load: {sample.note or sample.state}")
            await asyncio.sleep(0.2)

    async def _ensure_driver(self) -> bool:
        """Whether one had to be started; it knows the load then. Raises RefusedError."""
        if self._driver is not None:
            return False
        driver = Drivers(self._from_driver, self._driver_gone)
        try:
            await driver.start()
        except OSError as error:
            raise RefusedError(f"the driver process cannot be started: {error}") from error
        self._driver = driver
        if self._plan is not None and (sample := self._engine(self._plan.engine)) is not None:
            self._configure(sample)
        return True

    def _configure(self, sample: EngineSample) -> None:
        plan = self._plan
        if self._driver is None or plan is None:
            return
        access = self._ways.to(sample.url)
        key = access.key
        if access.proxy:
            self._tell_proxy(sample.url)
        self._driver.send(
            c.Configure(
                origin=self._origin,
                engine=sample.url,
                model=sample.model,
                api_key_env=key.env if key is not None else None,
                api_key_file=key.file if key is not None else None,
                ca_file=access.ca_file,
                profile=plan.profile,
                settings=plan.settings,
                seed=plan.seed,
                slots_like=sample.name,
                clock_rate=self._rate,
                salt=self._salt,
            )
        )

    def _tell_proxy(self, url: str) -> None:
        """Where the environment wants a proxy, say once that agents go without: their client knows none."""
        proxy = proxy_for(url) if url not in self._past_proxies else None
        if proxy is not None:
            self._past_proxies.add(url)
            text = f"agents connect to {url} directly: they use no proxy, although {proxy.setting} is set"
            self._event("agents.no-proxy", text, source="node", subject=url)

    def _launch(self, count: int, within_s: float | None = None) -> None:
        """Launch agents one stagger apart, counted from the last start: + pressed twice staggers too."""
        now = at = self._now()
        starts: list[float] = []
        for number in range(self._number + 1, self._number + 1 + count):
            if self._names or starts:
                at = max(now, self._last_start + self._gap_s(number))
            starts.append(at)
            self._last_start = at
        shrink = min(1.0, within_s / (at - now)) if within_s is not None and at > now else 1.0
        orders: list[c.DriverCommand] = []
        for at in starts:
            self._number += 1
            name = f"a{self._number}"
            self._names.append(name)
            self._last_start = now + (at - now) * shrink
            orders.append(c.LaunchAgent(agent=name, number=self._number, at=self._last_start))
        assert self._driver is not None
        self._driver.send(*orders)

    def _gap_s(self, number: int) -> float:
        """Seconds between the start of an agent and the one before it."""
        if self._stagger_s is not None or self._profile is None:
            return self._stagger_s or 0.0
        seed = self._plan.seed if self._plan else 0
        return start_gap_s(self._profile, seed, number, self.target)

    def _halt(self, names: list[str]) -> None:
        if self._driver is not None:
            self._driver.send(*(c.HaltAgent(agent=name, now=True) for name in names))
        self._names = [name for name in self._names if name not in names]

    def _from_driver(self, frames: list[Frame]) -> None:
        out: list[Frame] = []
        for frame in frames:
            if isinstance(frame, AgentSample):
                if frame.state == "stopped":
                    self.agents.pop(frame.agent, None)
                    # An agent may end by itself (its failures exceed the profile's patience).
                    with contextlib.suppress(ValueError):
                        self._names.remove(frame.agent)
                else:
                    frame = msgspec.structs.replace(frame, slot=self._slot_of(frame))
                    self.agents[frame.agent] = frame
            elif isinstance(frame, LoadSample):
                engine = self._engine(frame.engine) if frame.engine is not None else None
                frame, news = self._unseen.compare(frame, engine)
                out += news
                frame = msgspec.structs.replace(frame, target=self.target)
            out.append(frame)
        self._hub.publish(out)

    def _driver_gone(self, code: int | None) -> None:
        """The driver died by itself: say so, and show its agents as stopped."""
        now = self._now()
        stopped: list[Frame] = [
            msgspec.structs.replace(
                sample, t=now, state="stopped", state_since=now, state_until=None, slot=None
            )
            for sample in self.agents.values()
        ]
        count = len(self.agents)
        self._driver = None
        self.agents.clear()
        self._names.clear()
        self.target = 0
        plan = self._plan
        load = LoadSample(t=now, engine=plan.engine if plan else None, profile=plan.profile if plan else None)
        text = f"the driver process ended unexpectedly (exit {code}); its {count} agents are gone"
        self._hub.publish([*stopped, load, Event(t=now, event="driver.lost", text=text, severity="bad")])


def check_target(target: int) -> None:
    """Raises RefusedError for a number of agents that cannot be."""
    if not 0 <= target <= MOST_AGENTS:
        raise RefusedError(f"{target} agents is out of range", f"0 to {MOST_AGENTS}")


def _other_pace(sample: EngineSample, rate: float) -> str:
    return (
        f"{sample.url} is simulated and runs {sample.speedup or 1:g} times faster than life, this session "
        f"{rate:g} times: start one for it while it runs"
    )


def _patience_s(sample: EngineSample) -> float:
    """How long a start waits for an engine in this state: loading ends by itself, being down seldom does."""
    return DOWN_WAIT_S if sample.state == "down" else CONTEXT_WAIT_S


def _same_load(one: Plan, other: Plan) -> bool:
    return (one.engine, one.profile, one.settings, one.seed) == (
        other.engine,
        other.profile,
        other.settings,
        other.seed,
    )
