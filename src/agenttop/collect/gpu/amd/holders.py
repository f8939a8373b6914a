"""Which process holds how much memory of which card.

Two sources, asked every ten seconds:
- `/proc/<pid>/fdinfo/<fd>` of every open graphics device, for the processes that this user may look into
  (kernel: `Documentation/gpu/drm-usage-stats.rst`). One client may stand behind several descriptors.
- `/sys/class/kfd/kfd/proc/<pid>/vram_<gpu>`, which ROCm's driver shows of every process to everybody, under
  the process numbers of the host. Inside a container those mean nothing, and are left alone.
The same memory may be in both, so the larger counts, never the sum.

Looking through the descriptors of all processes is what costs. A process that had no graphics device open is
looked at again about once a minute, unless it is younger than that.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from agenttop.collect.gpu.kernel_files import folders, number, read_bytes, target

_PERIOD_S = 10.0
_AGAIN_S = 60.0
_MOST_DESCRIPTORS = 2048
_LONGEST = 8192
_KFD = "sys/class/kfd/kfd"
_HOST_NAMESPACE = "pid:[4026531836]"
"""The namespace with all processes of the host in it: the kernel numbers it so (PROC_PID_INIT_INO)."""
_UNITS = {b"": 1, b"B": 1, b"KiB": 1024, b"MiB": 1024**2, b"GiB": 1024**3}

Holding = dict[int, int | None]
"""Process to bytes; None where it uses the card and the driver does not tell how much."""


class Client(msgspec.Struct, frozen=True):
    """What one descriptor's text says."""

    bus: str
    number: int
    vram: int | None
    gtt: int | None


def parse(raw: bytes) -> Client | None:
    """One text of `fdinfo`; None where it is not of an AMD card. Newer keys before older ones."""
    found: dict[bytes, bytes] = {}
    for line in raw.split(b"\n"):
        name, colon, rest = line.partition(b":")
        if colon:
            found[name.strip()] = rest.strip()
    if found.get(b"drm-driver") != b"amdgpu" or b"drm-pdev" not in found:
        return None
    return Client(
        bus=found[b"drm-pdev"].decode("ascii", "replace"),
        number=number(found.get(b"drm-client-id")) or 0,
        vram=_bytes(found, b"vram"),
        gtt=_bytes(found, b"gtt"),
    )


def _bytes(found: Mapping[bytes, bytes], region: bytes) -> int | None:
    for key in (b"drm-resident-", b"drm-memory-"):
        amount, _, unit = found.get(key + region, b"").partition(b" ")
        value, factor = number(amount), _UNITS.get(unit.strip())
        if value is not None and factor is not None and 0 <= value * factor < 1 << 50:
            return value * factor
    return None


class _Known(msgspec.Struct):
    """A process that has been looked at."""

    since: float
    due: float
    descriptors: list[str] = []


class Holders:
    """Who holds memory of the cards."""

    def __init__(self, root: str) -> None:
        self._root = root.rstrip("/")
        self._due = 0.0
        self._known: dict[int, _Known] = {}
        self._unseen = 0
        """Processes that may not be looked into."""
        self._kfd: dict[str, str] | None = None
        self._own_namespace = False
        self._kfd_seen = False
        self.held: dict[str, Holding] = {}
        """By bus address."""

    def look(self, at: float, pools: Mapping[str, bool]) -> None:
        """Ask again where that is due. `pools`: by bus address, whether the card's memory is one pool with
        what it maps of RAM, which counts then."""
        if at < self._due:
            return
        self._due = at + _PERIOD_S
        self._own_namespace = target(f"{self._root}/proc/self/ns/pid") not in (None, _HOST_NAMESPACE)
        self._search(at)
        held = self._of_descriptors(pools)
        if not self._own_namespace:
            for bus, processes in self._of_kfd(pools).items():
                mine = held.setdefault(bus, {})
                for pid, amount in processes.items():
                    mine[pid] = max(mine.get(pid) or 0, amount)
        self.held = held

    def why(self) -> tuple[str, str | None] | None:
        """Why processes may be missing."""
        if self._own_namespace:
            return "processes outside of this container are not seen", "start it with --pid=host"
        if self._unseen and not self._kfd_seen:
            return "what other users' processes hold is not seen", "run agenttop as the user of the engine"
        return None

    def _search(self, at: float) -> None:
        self._unseen = 0
        pids = {int(name) for name in folders(f"{self._root}/proc") if name.isdigit() and len(name) < 10}
        for pid in self._known.keys() - pids:
            del self._known[pid]
        for pid in sorted(pids):
            known = self._known.get(pid)
            if known is None:
                known = self._known[pid] = _Known(since=at, due=at)
            if at < known.due:
                self._unseen += known.since < 0
                continue
            names = folders(f"{self._root}/proc/{pid}/fd")
            if not names and read_bytes(f"{self._root}/proc/{pid}/cmdline", 1):
                # It runs a program, and none of its descriptors may be seen.
                known.since, known.due = -1.0, at + _AGAIN_S
                self._unseen += 1
                continue
            known.descriptors = [
                name
                for name in names[:_MOST_DESCRIPTORS]
                if (target(f"{self._root}/proc/{pid}/fd/{name}") or "").startswith("/dev/dri/")
            ]
            young = at - known.since < _AGAIN_S and known.since >= 0
            # In turns: not all of them at one look.
            known.due = at if known.descriptors or young else at + _AGAIN_S / 2 + pid % 6 * _PERIOD_S

    def _of_descriptors(self, pools: Mapping[str, bool]) -> dict[str, Holding]:
        held: dict[str, Holding] = {}
        seen: set[tuple[str, int]] = set()
        for pid in sorted(self._known):
            for name in self._known[pid].descriptors:
                raw = read_bytes(f"{self._root}/proc/{pid}/fdinfo/{name}", _LONGEST)
                client = parse(raw) if raw is not None else None
                if client is None or client.bus not in pools:
                    continue
                if client.number and (client.bus, client.number) in seen:
                    continue
                seen.add((client.bus, client.number))
                parts = [client.vram, client.gtt if pools[client.bus] else None]
                told = [part for part in parts if part is not None]
                mine = held.setdefault(client.bus, {})
                if told:
                    mine[pid] = (mine.get(pid) or 0) + sum(told)
                else:
                    mine.setdefault(pid, None)
        return held

    def _of_kfd(self, pools: Mapping[str, bool]) -> dict[str, dict[int, int]]:
        held: dict[str, dict[int, int]] = {}
        self._kfd_seen = False
        gpus = self._gpus()
        if not gpus:
            return held
        for name in folders(f"{self._root}/{_KFD}/proc"):
            if not name.isdigit() or len(name) > 9:
                continue
            for gpu, bus in gpus.items():
                amount = number(read_bytes(f"{self._root}/{_KFD}/proc/{name}/vram_{gpu}"))
                if amount is not None:
                    self._kfd_seen = True
                    if bus in pools and 0 < amount < 1 << 50:
                        held.setdefault(bus, {})[int(name)] = amount
        return held

    def _gpus(self) -> dict[str, str]:
        """ROCm's number of each GPU, to its bus address."""
        if self._kfd:
            return self._kfd
        self._kfd = {}
        nodes = f"{self._root}/{_KFD}/topology/nodes"
        for node in folders(nodes):
            gpu = number(read_bytes(f"{nodes}/{node}/gpu_id"))
            if not gpu:
                continue
            found: dict[bytes, int] = {}
            for line in (read_bytes(f"{nodes}/{node}/properties") or b"").split(b"\n"):
                key, _, text = line.partition(b" ")
                value = number(text)
                if value is not None:
                    found[key] = value
            place, domain = found.get(b"location_id"), found.get(b"domain", 0)
            if place is not None and 0 <= place < 1 << 16 and 0 <= domain < 1 << 16:
                self._kfd[str(gpu)] = f"{domain:04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}"
        return self._kfd
