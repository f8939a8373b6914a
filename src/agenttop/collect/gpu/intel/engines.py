"""What the clients of a graphics card have done, from the text that the kernel keeps for each. Pure.

Source: the kernel's `drm-usage-stats` document, and those of i915 and xe. A client is one opening of the
device; several file descriptors and processes may share one, so clients are told apart by `drm-client-id`.

Rules
- i915 counts nanoseconds (`drm-engine-render: 12 ns`), xe counts cycles next to those that have passed
  (`drm-cycles-ccs`, `drm-total-cycles-ccs`).
- A class with several engines counts all of them: its share is divided by `drm-engine-capacity-...`.
- A counter may fall for a moment; the larger value stands until it is passed.
- Only render and compute engines run kernels: copying and video are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

COMPUTING = ("render", "compute", "rcs", "ccs")
"""Engine classes that run kernels, in i915's words and in xe's."""
_LOCAL = ("vram", "local")
"""What memory regions on the card begin with: `vram0` of xe, `local0` of i915."""
_UNITS = {"": 1, "KiB": 1024, "kB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_LARGEST = 1 << 64


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """One client of one card, at one look."""

    driver: str
    bus: str
    """PCI address of the card."""
    number: str
    """`drm-client-id`."""
    busy: dict[str, int] = {}
    """By engine class: nanoseconds or cycles so far."""
    passed: dict[str, int] = {}
    """xe: by engine class, cycles that have passed in all."""
    capacity: dict[str, int] = {}
    """By engine class: engines of that kind; 1 where it is not in it."""
    local_bytes: int | None = None
    """Resident on the card; None where the kernel does not tell."""
    local_shared_bytes: int = 0
    """Of buffers that other clients have, too."""
    system_bytes: int | None = None
    """Resident in RAM."""


def parse(text: str) -> Client | None:
    """A client from its text; None where the text is of something else, or too broken to say of whom."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        if colon and key.startswith("drm-"):
            values.setdefault(key, value.strip())
    driver, bus, client = (values.get(f"drm-{name}") for name in ("driver", "pdev", "client-id"))
    if not driver or not bus or not client or len(client) > 20:
        return None
    busy: dict[str, int] = {}
    for name in COMPUTING:
        for key, unit in ((f"drm-engine-{name}", "ns"), (f"drm-cycles-{name}", "")):
            counted = _count(values.get(key), unit)
            if counted is not None:
                busy[name] = counted
    return Client(
        driver=driver,
        bus=bus.lower(),
        number=client,
        busy=busy,
        passed=_counts(values, "drm-total-cycles-"),
        capacity={name: most for name, most in _counts(values, "drm-engine-capacity-").items() if most},
        local_bytes=_resident(values, local=True),
        local_shared_bytes=_sum(values, "drm-shared-", local=True) or 0,
        system_bytes=_resident(values, local=False),
    )


def _counts(values: Mapping[str, str], prefix: str) -> dict[str, int]:
    found = {name: _count(values.get(f"{prefix}{name}"), "") for name in COMPUTING}
    return {name: value for name, value in found.items() if value is not None}


def _count(value: str | None, unit: str) -> int | None:
    words = (value or "").split()
    if not words or words[1:] != ([unit] if unit else []) or not _whole(words[0]):
        return None
    return int(words[0])


def _whole(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) <= 20 and int(word) < _LARGEST


def _resident(values: Mapping[str, str], local: bool) -> int | None:
    """What is there now; older kernels tell only what was asked for."""
    for prefix in ("drm-resident-", "drm-memory-", "drm-total-"):
        found = _sum(values, prefix, local)
        if found is not None:
            return found
    return None


def _sum(values: Mapping[str, str], prefix: str, local: bool) -> int | None:
    sizes = [
        size
        for key, value in values.items()
        if key.startswith(prefix)
        and not key.startswith("drm-total-cycles-")
        and key[len(prefix) :].removeprefix("stolen-").startswith(_LOCAL) is local
        and (size := _size(value)) is not None
    ]
    return min(sum(sizes), _LARGEST - 1) if sizes else None


def _size(value: str) -> int | None:
    words = value.split()
    if not words or len(words) > 2 or not _whole(words[0]):
        return None
    unit = _UNITS.get(words[1] if len(words) == 2 else "")
    return int(words[0]) * unit if unit else None


class Usage:
    """The clients of one card from look to look."""

    def __init__(self) -> None:
        self._at: float | None = None
        self._clients: dict[str, Client] = {}

    def busy_fraction(self, at: float, clients: Mapping[str, Client]) -> float | None:
        """Share of the time since the look before in which these clients kept the busiest kind of engine at
        work; None at the first look, and where no client tells. `clients` by number, `at` in seconds.

        A client that is new has done nothing yet that can be placed in time: it counts from the next look on.
        """
        window = None if self._at is None else at - self._at
        before, self._at = self._clients, at
        self._clients = {number: _not_less(client, before.get(number)) for number, client in clients.items()}
        if window is None or window <= 0 or not any(client.busy for client in clients.values()):
            return None
        shares: dict[str, float] = {}
        for number, client in self._clients.items():
            if number not in before:
                continue
            for name, counted in client.busy.items():
                share = _share(name, counted, client, before[number], window)
                shares[name] = shares.get(name, 0.0) + share
        return min(1.0, max(shares.values(), default=0.0))


def _not_less(client: Client, before: Client | None) -> Client:
    if before is None:
        return client
    busy = {name: max(counted, before.busy.get(name, 0)) for name, counted in client.busy.items()}
    return msgspec.structs.replace(client, busy=busy)


def _share(name: str, counted: int, client: Client, before: Client, window: float) -> float:
    step = counted - before.busy.get(name, counted)
    if name in client.passed:
        passed = client.passed[name] - before.passed.get(name, client.passed[name])
    else:
        passed = round(window * 1e9)
    return step / passed / client.capacity.get(name, 1) if passed > 0 else 0.0
