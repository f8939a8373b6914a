"""How an engine stands, from look to look: its state, events on change, restarts, what is missing. Pure.

`EngineWatch` asks; this module decides what the answer, its failure or its absence means. The times are the
caller's.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.base import EngineReading
from agenttop.model.frames import EngineSample, Event, Missing
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
        """When it was last well."""
        self._ended = False
        """Its process has ended, or was seen loading, since it was last well."""
        self._restarts = 0
        self._missing: dict[str, Missing] = {}

    @property
    def state(self) -> str:
        """As in EngineSample."""
        return self._state

    def answered(self, now: float, reading: EngineReading, reply_s: float | None) -> EngineReading:
        """A look succeeded. All frames get the time `now`; how old the figures are stands in `age_s`."""
        sample, events = reading.sample, list(reading.events)
        restarted = any(event.event == "engine.restart" for event in events)
        if sample.state in _WELL:
            if self._last is not None and self._last.name != sample.name:
                text = f"{sample.name} answers at {self._url}, where {self._last.name} was"
                events.append(self._event(now, "engine.changed", text, "warn"))
            elif self._ended and self._last is not None and not restarted:
                restarted = True
                away = seconds(now - self._left_at)
                text = f"{sample.name} at {self._url} was restarted; it was away for {away}"
                events.append(self._event(now, "engine.restart", text, "warn"))
        self._restarts += restarted
        events += self._change(now, sample.state, sample.note, sample.name, sample.model)
        fresh = msgspec.structs.replace(
            sample, t=now, age_s=max(0.0, now - sample.t), reply_s=reply_s, restarts=self._restarts
        )
        if sample.state in _WELL:
            self._last, self._left_at, self._ended = sample, now, False
        elif sample.state == "loading" and self._last is not None:
            self._ended = True
        return EngineReading(
            sample=fresh,
            slots=[msgspec.structs.replace(slot, t=now) for slot in reading.slots],
            gpus=[msgspec.structs.replace(gpu, t=now) for gpu in reading.gpus],
            latencies=[msgspec.structs.replace(latency, t=now) for latency in reading.latencies],
            parts=[msgspec.structs.replace(part, t=now) for part in reading.parts],
            missing=self._differences(now, reading.missing) if sample.state == "ok" else [],
            events=[msgspec.structs.replace(event, t=now) for event in events],
        )

    def failed(self, now: float, failure: Failure) -> EngineReading:
        """A look failed."""
        name = failure.name if failure.name not in (None, "unknown") else self._name
        self._ended = self._ended or failure.ended or (failure.state == "loading" and self._last is not None)
        events = self._change(now, failure.state, failure.note, name or "unknown", None)
        return EngineReading(sample=self._sample(now), events=events)

    def waiting(self, now: float) -> EngineReading:
        """No answer yet, or none asked for: what is known, with its age."""
        events: list[Event] = []
        if self._state == "ok" and self._last is not None and now - self._last.t > self._busy_after_s:
            note = "its figures are late: it has not answered yet"
            events = self._change(now, "busy", note, self._name, None)
        return EngineReading(sample=self._sample(now), events=events)

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
