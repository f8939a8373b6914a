"""Faults on purpose: what goes wrong, how, and with which requests. Pure.

    KIND[=VALUE][@CONDITION[,CONDITION]...]       e.g.  cut=20@every=5    stall=30s@request=3,comments

Requests are counted from 1 in the order in which they arrive; times are simulated time since the start of
the engine. Several conditions must all hold; without one a fault hits every request. Of several faults that
would end a request the earliest wins, as on a real wire.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from agenttop.errors import UsageError
from agenttop.model.units import parse_duration

TOKENS = 8
"""Output tokens before a fault in the middle of a reply, unless it says how many."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of fault: how its value is read, what it is without one, what it does."""

    read: Callable[[str], float | str] | None
    default: float | str | None
    value: str
    """What the value is, for the help; empty: it takes none."""
    text: str
    middle: bool = False
    """It happens after some tokens of the reply, so it takes `tokens=N`."""


def _number(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise ValueError
    return value


def _whole(text: str) -> float:
    value = int(text)
    if not 0 < value < 10**9:
        raise ValueError
    return float(value)


def _status(low: int, high: int) -> Callable[[str], float]:
    def read(text: str) -> float:
        if not low <= int(text) <= high:
            raise ValueError
        return float(int(text))

    return read


def _usage(text: str) -> float | str:
    return "none" if text == "none" else _number(text)


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise ValueError
    return value


KINDS: dict[str, Kind] = {
    "refuse": Kind(
        _status(500, 503),
        None,
        "503",
        "connections are refused; with =503 they are accepted and each request is answered so",
    ),
    "4xx": Kind(_status(400, 499), 400.0, "STATUS", "the request is answered with that status (400)"),
    "5xx": Kind(_status(500, 599), 500.0, "STATUS", "the request is answered with that status (500)"),
    "context": Kind(None, None, "", "the prompt is refused as too long, in the words of the engine"),
    "queue-timeout": Kind(None, None, "", "the request is taken and never answered: not a byte"),
    "comments": Kind(parse_duration, 1.0, "DURATION", "status 200, then only SSE comments, one each (1s)"),
    "role-only": Kind(
        None, None, "", "the opening chunk with the role alone comes at once, before the queue"
    ),
    "stall": Kind(
        parse_duration,
        None,
        "DURATION",
        "silence in the middle, for so long (for ever); comments: with keep-alives",
        middle=True,
    ),
    "cut": Kind(
        _whole, None, "TOKENS", f"the connection ends after so many tokens ({TOKENS}), no [DONE]", True
    ),
    "error": Kind(str, "", "MESSAGE", "an error event inside the stream of status 200", middle=True),
    "restart": Kind(
        parse_duration,
        10.0,
        "DURATION",
        "the engine dies, drops everything, and loads for so long (10s)",
        middle=True,
    ),
    "slow": Kind(parse_duration, 1.0, "DURATION", "at least so long between two chunks of the reply (1s)"),
    "tokens-per-chunk": Kind(_whole, 4.0, "N", "so many tokens in each chunk (4)"),
    "reasoning": Kind(
        _share, 0.5, "SHARE", "this share of the reply is thinking, in the engine's own field (0.5)"
    ),
    "wrong-usage": Kind(
        _usage,
        2.0,
        "FACTOR",
        "token counts are so many times the truth (2); none: there are no counts at all",
    ),
}

CONDITIONS = {
    "at": "from this simulated time on, e.g. 30s",
    "for": "only for so long, from `at` on or, with `after`, from that request on",
    "after": "only once N requests have come",
    "first": "only the first N requests",
    "request": "only the N-th request",
    "every": "every N-th request",
    "tokens": f"after N tokens of the reply ({TOKENS}); of stall, error and restart",
    "comments": "stall: keep-alive comments go on",
}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault, as it was asked for."""

    kind: str
    value: float | str | None = None
    at: float | None = None
    lasts: float | None = None
    after: int | None = None
    first: int | None = None
    request: int | None = None
    every: int | None = None
    tokens: int = TOKENS
    comments: bool = False

    def hits(self, number: int, now: float) -> bool:
        """Whether the request that is the `number`-th, and came at `now`, is one of those meant."""
        return (
            self.in_time(now)
            and (self.after is None or number > self.after)
            and (self.first is None or number <= self.first)
            and (self.request is None or number == self.request)
            and (self.every is None or number % self.every == 0)
        )

    def in_time(self, now: float) -> bool:
        """Whether the time is within the fault's own."""
        begin = self.at or 0.0
        return begin <= now and (self.lasts is None or now < begin + self.lasts)

    @property
    def by_itself(self) -> bool:
        """A restart that comes at a time, or between requests, and not in the middle of one it picks."""
        return self.kind == "restart" and not self.by_request and (self.at, self.after) != (None, None)

    @property
    def by_request(self) -> bool:
        """It picks requests, not a time."""
        return (self.request, self.every, self.first) != (None, None, None)


def parse(text: str) -> Fault:
    """A fault from the command line. Raises UsageError with what is wrong and what would be right."""
    what, _, conditions = text.partition("@")
    name, equals, value = what.partition("=")
    kind = KINDS.get(name)
    if kind is None:
        raise UsageError(f"--fault {text}: there is no fault '{name}'", f"one of {', '.join(KINDS)}")
    fields: dict[str, object] = {"kind": name, "value": kind.default}
    if equals:
        fields["value"] = _value(text, kind, value)
    for condition in filter(None, conditions.split(",")):
        key, _, given = condition.partition("=")
        fields["lasts" if key == "for" else key] = _condition(text, name, key.strip(), given)
    if name == "cut" and equals:
        fields["tokens"] = int(float(str(fields["value"])))
    fault = Fault(**fields)  # type: ignore[arg-type]
    _check(text, fault)
    return fault


def _value(text: str, kind: Kind, value: str) -> float | str:
    if kind.read is None:
        raise UsageError(f"--fault {text}: this fault takes no value")
    try:
        return kind.read(value)
    except (ValueError, UsageError):
        raise UsageError(f"--fault {text}: '{value}' is not its {kind.value}", kind.text) from None


def _condition(text: str, name: str, key: str, given: str) -> float | int | bool:
    if key not in CONDITIONS:
        raise UsageError(f"--fault {text}: there is no condition '{key}'", f"one of {', '.join(CONDITIONS)}")
    if (key == "comments" and name != "stall") or (key == "tokens" and not KINDS[name].middle):
        raise UsageError(f"--fault {text}: {name} takes no '{key}'")
    try:
        if key == "comments":
            return True
        return parse_duration(given) if key in ("at", "for") else int(_whole(given))
    except (ValueError, UsageError):
        raise UsageError(f"--fault {text}: '{given}' is no value of {key}", CONDITIONS[key]) from None


def _check(text: str, fault: Fault) -> None:
    if fault.kind == "refuse" and fault.value is None and fault.by_request:
        raise UsageError(
            f"--fault {text}: a request that has come cannot be refused its connection",
            "use at=, for= or after=, or refuse=503",
        )
    if fault.lasts is not None and fault.at is None and fault.after is None:
        raise UsageError(f"--fault {text}: for= needs a beginning", "add at= or after=")


class Treatment(msgspec.Struct):
    """What is done to one request: the faults that hit it, by kind."""

    faults: dict[str, Fault] = {}

    def get(self, kind: str) -> Fault | None:
        """The fault of a kind, if it hits."""
        return self.faults.get(kind)

    def number(self, kind: str) -> float | None:
        """Its value, where that is a number."""
        fault = self.faults.get(kind)
        return fault.value if fault is not None and isinstance(fault.value, float) else None


class FaultPlan:
    """All faults of one server."""

    def __init__(self, faults: Sequence[Fault] = ()) -> None:
        self.faults = tuple(faults)
        self._begun: dict[int, float] = {}
        """When a fault that waits for so many requests, and ends by time, has begun."""

    def treat(self, number: int, now: float) -> Treatment:
        """The faults of one request; of two of the same kind the one named first."""
        hit: dict[str, Fault] = {}
        for fault in self.faults:
            if fault.kind not in hit and self._hits(fault, number, now):
                hit[fault.kind] = fault
        return Treatment(hit)

    def _hits(self, fault: Fault, number: int, now: float) -> bool:
        if fault.kind == "refuse" and fault.value is None:
            return False  # of connections, not of requests
        if fault.by_itself:
            return False
        return self._moved(fault, number, now).hits(number, now)

    def closed(self, number: int, now: float) -> bool:
        """Whether connections are refused now; `number` requests have come."""
        return any(
            fault.kind == "refuse"
            and fault.value is None
            and self._moved(fault, number + 1, now).hits(number + 1, now)
            for fault in self.faults
        )

    def restarts(self) -> list[Fault]:
        """Restarts that come at a time, or once so many requests have come."""
        return [fault for fault in self.faults if fault.by_itself]

    def next_change(self, now: float) -> float | None:
        """The next time at which the answer of `closed` may change by itself."""
        times: list[float] = []
        for index, fault in enumerate(self.faults):
            begin = self._begun.get(index, fault.at)
            if fault.kind == "refuse" and fault.value is None and begin is not None:
                times += [begin] if fault.lasts is None else [begin, begin + fault.lasts]
        return min((t for t in times if t > now), default=None)

    def _moved(self, fault: Fault, number: int, now: float) -> Fault:
        """A fault that lasts for a while after the N-th request: its time begins with that request."""
        if fault.lasts is None or fault.after is None or fault.at is not None:
            return fault
        index = self.faults.index(fault)
        if number > fault.after:
            self._begun.setdefault(index, now)
        begun = self._begun.get(index)
        return fault if begun is None else msgspec.structs.replace(fault, at=begun)


def help_text() -> str:
    """All kinds and conditions, for `agenttop sim --help`."""
    lines = ["faults: --fault KIND[=VALUE][@CONDITION[,CONDITION]...], repeatable", ""]
    for name, kind in KINDS.items():
        head = f"{name}[={kind.value}]" if kind.value else name
        lines.append(f"  {head:26}{kind.text}")
    lines += ["", "conditions (all must hold; requests count from 1, times are simulated):", ""]
    lines += [f"  {name:26}{text}" for name, text in CONDITIONS.items()]
    return "\n".join(lines)
