"""How an engine stands, from look to look: its state, events on change, restarts, what is missing. Pure.

`EngineWatch` asks; this module decides what the answer, its failure or its absence means. The times are the
caller's. A change is one event: an engine that was restarted is not told to be up as well.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.base import EngineReading
from agenttop.collect.engine.steadiness import Steadiness
from agenttop.model.frames import EngineSample, Event, Missing, PartSample
from agenttop.model.units import seconds

BUSY_AFTER_S = 3.0
"""Figures older than this are late. The rates, taken over as long a window, are not shown any more then."""

_SEVERITY = {"down": "bad", "unauthorised": "bad", "busy": "warn", "unsupported": "warn"}
_WELL = ("ok", "asleep")


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """A look that gave no figures."""

    state: str
    note: str
    """One sentence: what, where, what to do."""
    name: str | None = None
    ended: bool = False
    """The server process has ended: nothing listens any more."""
    works: bool = False
    """It is alive, and its figures wait behind its work: asking again soon would only be in its way."""


class Standing:
    """What is known of the engine at one address."""

    def __init__(self, url: str, rate: float = 1.0) -> None:
        """`rate`: seconds of the caller's clock per real second."""
        self._url = url
        self._busy_after_s = BUSY_AFTER_S * rate
        self._name = "unknown"
        self._state = "starting"
        self._note: str | None = "asked for the first time"
        self._last: EngineSample | None = None
        """The newest sample with figures; its `t` is when they were true."""
        self._left_at = 0.0
        """When it last answered in time."""
        self._ended = False
        """Its process has ended, or was seen loading, since it was last well."""
        self._restarts = 0
        self._model: str | None = None
        """The newest it has named."""
        self._missing: dict[str, Missing] = {}
        self._parts: dict[tuple[str, str], PartSample] = {}
        self._steadiness = Steadiness(url, rate)

    @property
    def state(self) -> str:
        """As in EngineSample."""
        return self._state

    def answered(
        self, now: float, reading: EngineReading, reply_s: float | None, poll_every_s: float | None = None
    ) -> EngineReading:
        """A look succeeded. All frames get the time `now`; how old the figures are stands in `age_s`.

        `poll_every_s`: time until the next look. Where the figures will be late by then it is busy.
        """
        sample = reading.sample
        if sample.state == "ok" and poll_every_s is not None and poll_every_s > self._busy_after_s:
            note = f"its replies take long: it is asked every {seconds(poll_every_s)}"
            sample = msgspec.structs.replace(sample, state="busy", note=note)
        well = reading.sample.state in _WELL
        restarted = any(event.event == "engine.restart" for event in reading.events)
        changes = self._changes(now, sample, restarted) if well else []
        restarted = restarted or any(event.event == "engine.restart" for event in changes)
        self._restarts += restarted
        anew = restarted or any(event.event == "engine.changed" for event in changes)
        changes += [
            event
            for event in self._change(now, sample.state, sample.note, sample.name, sample.model)
            if not (anew and event.event == "engine.up")
        ]
        fresh = msgspec.structs.replace(
            sample,
            t=now,
            age_s=max(0.0, now - sample.t),
            reply_s=reply_s,
            restarts=self._restarts,
            poll_every_s=poll_every_s,
        )
        if well:
            self._last = msgspec.structs.replace(reading.sample, reply_s=reply_s, poll_every_s=poll_every_s)
            self._ended = False
            if sample.state in _WELL:
                self._left_at = now
            self._model = sample.model or self._model
        elif sample.state == "loading" and self._last is not None:
            self._ended = True
        told = [msgspec.structs.replace(event, t=now) for event in [*reading.events, *changes]]
        return EngineReading(
            sample=fresh,
            slots=[msgspec.structs.replace(slot, t=now) for slot in reading.slots],
            gpus=[msgspec.structs.replace(gpu, t=now) for gpu in reading.gpus],
            # Of a window that began before the restart: half of it is another process's.
            latencies=[]
            if restarted
            else [msgspec.structs.replace(latency, t=now) for latency in reading.latencies],
            parts=self._with_those_gone(now, reading.parts) if well else [],
            missing=self._differences(now, reading.missing) if reading.sample.state == "ok" else [],
            events=self._told(now, told),
        )

    def failed(self, now: float, failure: Failure) -> EngineReading:
        """A look failed."""
        name = failure.name if failure.name not in (None, "unknown") else self._name
        self._ended = self._ended or failure.ended or (failure.state == "loading" and self._last is not None)
        events = self._change(now, failure.state, failure.note, name or "unknown", None)
        return EngineReading(sample=self._sample(now), events=self._told(now, events))

    def waiting(self, now: float) -> EngineReading:
        """No answer yet, or none asked for: what is known, with its age."""
        events: list[Event] = []
        if self._state == "ok" and self._last is not None and now - self._last.t > self._busy_after_s:
            note = "its figures are late: it has not answered yet"
            events = self._change(now, "busy", note, self._name, None)
        return EngineReading(sample=self._sample(now), events=self._told(now, events))

    def _sample(self, now: float) -> EngineSample:
        last = self._last
        if last is None or self._state not in ("ok", "busy", "asleep"):
            known = last if last is not None and last.name == self._name else None
            return EngineSample(
                t=now,
                engine=self._url,
                url=self._url,
                name=self._name,
                state=self._state,
                note=self._note,
                model=known.model if known else None,
                version=known.version if known else None,
                simulated=known.simulated if known else None,
                speedup=known.speedup if known else None,
                restarts=self._restarts,
            )
        age = max(0.0, now - last.t)
        late = age > self._busy_after_s
        return msgspec.structs.replace(
            last,
            t=now,
            state=self._state,
            note=self._note,
            age_s=age,
            restarts=self._restarts,
            decode_tok_s=None if late else last.decode_tok_s,
            prefill_tok_s=None if late else last.prefill_tok_s,
            window_s=None if late else last.window_s,
        )

    def _changes(self, now: float, sample: EngineSample, restarted: bool) -> list[Event]:
        """What became of the engine that was here at the last good look."""
        if self._last is None:
            return []
        if self._last.name != sample.name:
            text = f"{sample.name} answers at {self._url}, where {self._last.name} was"
            return [self._event(now, "engine.changed", text, "warn")]
        changes = []
        if self._ended and not restarted:
            away = seconds(now - self._left_at)
            text = f"{sample.name} at {self._url} was restarted; it was away for {away}"
            changes.append(self._event(now, "engine.restart", text, "warn"))
        swapped = self._model is not None and sample.model is not None and sample.model != self._model
        if swapped and not sample.front:  # a front tells itself which of its models come and go
            text = f"{sample.name} at {self._url} serves {sample.model} now; it served {self._model}"
            changes.append(self._event(now, "engine.model", text, "warn"))
        return changes

    def _told(self, now: float, events: list[Event]) -> list[Event]:
        return self._steadiness.pass_on(now, events, lambda: f"{self._name} is {self._state}")

    def _with_those_gone(self, now: float, parts: list[PartSample]) -> list[PartSample]:
        """The parts there are, and once more each that was there at the look before and is not any more."""
        current = {(part.role, part.part): msgspec.structs.replace(part, t=now) for part in parts}
        gone = [
            PartSample(t=now, engine=part.engine, part=part.part, role=part.role, state="gone")
            for key, part in self._parts.items()
            if key not in current
        ]
        self._parts = current
        return [*current.values(), *gone]

    def _change(self, now: float, state: str, note: str | None, name: str, model: str | None) -> list[Event]:
        before, self._state = self._state, state
        self._note, self._name = note, name
        if before == state:
            return []
        if state != "ok":
            return [self._event(now, f"engine.{state}", note or state, _SEVERITY.get(state, "info"))]
        if before == "busy":
            away = seconds(now - self._left_at)
            return [self._event(now, "engine.up", f"{name} at {self._url} answers again, after {away}")]
        serving = f" with {model}" if model else ""
        awake = "is awake" if before == "asleep" else f"answers{serving}"
        return [self._event(now, "engine.up", f"{name} at {self._url} {awake}")]

    def _event(self, now: float, event: str, text: str, severity: str = "info") -> Event:
        return Event(t=now, event=event, text=text, source="engine", severity=severity, subject=self._url)

    def _differences(self, now: float, missing: list[Missing]) -> list[Missing]:
        current = {frame.what: frame for frame in missing}
        changed = [
            msgspec.structs.replace(frame, t=now)
            for what, frame in current.items()
            if what not in self._missing
            or (frame.why, frame.fix) != (self._missing[what].why, self._missing[what].fix)
        ]
        changed += [Missing(t=now, what=what) for what in self._missing if what not in current]
        self._missing = current
        return changed
