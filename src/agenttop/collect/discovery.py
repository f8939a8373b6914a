"""Engines on this host, found by their processes, their ports, and what their containers publish.

- A process whose command line names an engine is taken at its word, where it holds the socket.
- A usual port whose process cannot be seen, and a port that a container publishes for a usual one, are asked
  with the harmless requests of `recognise`: on loopback alone. What answers there as no engine is not asked
  again until another socket listens.
- A server that a front (Ollama, llama-swap, a llama.cpp router) has started is its own to tell: see `behind`.

One look costs a few milliseconds while nothing new listens, tens when something does, seconds when a port has
to be asked: call it in a thread. Figures stand in docs/benchmarks.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Collection, Iterator
from urllib.parse import urlsplit

import msgspec

from agenttop.collect import procfs
from agenttop.collect.children import children_of
from agenttop.collect.containers import ContainerApi, Published
from agenttop.collect.engine.kind import EngineKind
from agenttop.collect.hints import USUAL_PORTS, kind_of_image, port_in, usual_ports
from agenttop.collect.listening import EVERYWHERE, EngineProcess, Looker, Port, Scene, is_loopback
from agenttop.collect.process import Command, ServerProcess
from agenttop.model.url import port_of

LOOK_AT_ALL_S = 30.0
"""Processes are looked through at least this often, and whenever another set of sockets listens."""
_SILENT_TIMES = 6
"""How often a port that takes connections and says nothing is asked before it is let be."""
_PAUSES_S = (10.0, 10.0, 20.0, 40.0, 60.0)
"""Between questions to a port that gave no verdict; the last one repeats: a model may load for minutes."""
_TLS = ("--ssl-keyfile", "--ssl-certfile", "--ssl-key-file", "--ssl-cert-file", "--tls-cert-file")
"""Options by which a server speaks https."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """An engine on this host."""

    url: str
    hint: str
    """What it seems to be, e.g. `llama.cpp`."""
    pid: int | None = None
    everywhere: bool = False
    """It listens on every address of this host, and `url` is only one of its names."""
    behind: str | None = None
    """The address of the front that has started it, and reads it."""

    def is_at(self, url: str, names: Collection[str]) -> bool:
        """Whether `url` (normalised) leads to this engine; `names` are `names_of_this_host`."""
        if url == self.url:
            return True
        parts, own = urlsplit(url), urlsplit(self.url)
        host, here = (parts.hostname or "").rstrip("."), own.hostname or ""
        if parts.port != own.port:
            return False
        return (
            host == here or (host == "localhost" and is_loopback(here)) or (self.everywhere and host in names)
        )


class _Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A port that may be an engine's, and has to be asked."""

    port: Port
    url: str
    hint: str | None = None
    """What a container's image says it is: believed before there is a verdict."""
    pid: int | None = None

    @property
    def key(self) -> tuple[int, object]:
        """The same as long as the same socket listens."""
        return (self.port.port, self.port.socket)


class _Verdict(msgspec.Struct):
    """What came of asking a port."""

    name: str | None = None
    final: bool = False
    times: int = 0
    silent: int = 0
    next_at: float = 0.0


class Finder:
    """Remembers which ports have been asked in vain, and what was found at the last look."""

    def __init__(self, now: Callable[[], float] = time.monotonic, own: int | None = None) -> None:
        """`own`: the process whose servers are left out; this one."""
        self._now = now
        self._looker = Looker(own)
        self._api = ContainerApi()
        self._verdicts: dict[tuple[int, object], _Verdict] = {}
        self._sockets: object = None
        self._looked_at = 0.0
        self._engines: dict[str, Found] = {}
        """By process, by address."""
        self._candidates: list[_Candidate] = []

    def find(self, early: Callable[[list[Found]], None] | None = None) -> list[Found]:
        """All engines of this host that can be seen now, in the order of their ports.

        `early` gets what is known before ports are asked, which may take seconds; only if any have to be.
        """
        if self._is_due():
            self._look()
        waiting = [each for each in self._candidates if self._wants_asking(each)]
        if waiting:
            if early is not None:
                early(self._found())
            asyncio.run(self._ask_all(waiting))
        return self._found()

    def _is_due(self) -> bool:
        """Whether other sockets listen than at the last look, or that was long ago."""
        try:
            listeners = tuple(procfs.listeners()) if sys.platform == "linux" else None
        except OSError:
            listeners = None
        now = self._now()
        changed = listeners is None or listeners != self._sockets
        if not changed and now - self._looked_at < LOOK_AT_ALL_S and self._looked_at:
            return False
        self._sockets, self._looked_at = listeners, now
        return True

    def _look(self) -> None:
        try:
            scene = self._looker.look()
        except OSError:
            scene = Scene()
        self._engines = {each.url: each for each in _by_process(scene)}
        published = [*self._api.published(scene.container_processes), *scene.forwards]
        self._candidates = _candidates(scene, self._engines.values(), published)
        here = {each.key for each in self._candidates}
        self._verdicts = {key: verdict for key, verdict in self._verdicts.items() if key in here}

    def _found(self) -> list[Found]:
        found = dict(self._engines)
        for each in self._candidates:
            verdict = self._verdicts.get(each.key, _Verdict())
            name = verdict.name or (each.hint if not verdict.final else None)
            if name is not None:
                everywhere = each.port.address in EVERYWHERE
                one = Found(url=each.url, hint=name, pid=each.pid, everywhere=everywhere)
                found.setdefault(each.url, one)
        return sorted(found.values(), key=lambda each: (port_of(each.url), each.url))

    def _wants_asking(self, each: _Candidate) -> bool:
        verdict = self._verdicts.get(each.key)
        if verdict is None:
            return True
        return not verdict.final and verdict.silent < _SILENT_TIMES and self._now() >= verdict.next_at

    async def _ask_all(self, waiting: list[_Candidate]) -> None:
        answers = await asyncio.gather(*(_ask(each.url) for each in waiting))
        for each, answer in zip(waiting, answers, strict=True):
            verdict = self._verdicts.setdefault(each.key, _Verdict())
            verdict.name, verdict.final = answer.name, answer.final
            verdict.silent += answer.silent
            verdict.next_at = self._now() + _PAUSES_S[min(verdict.times, len(_PAUSES_S) - 1)]
            verdict.times += 1


_finder = Finder()


def find_engines(early: Callable[[list[Found]], None] | None = None) -> list[Found]:
    """Engines on this host; see `Finder.find`. Never raises."""
    return _finder.find(early)


def process_at(url: str) -> ServerProcess | None:
    """The process that listens at an address of this host; None when it cannot be seen."""
    try:
        scene = Looker().look()
    except OSError:
        return None
    ports = [port for port in scene.ports if _leads_to(url, port) and port.socket not in scene.own]
    for port in ports:
        owner = scene.owner_of(port) or _likely_owner(scene, port)
        if owner is not None:
            told = _with_command(scene, owner)
            return _process(told.pid, told.command, told.kind)
    for port in ports:
        found = _holder(port)
        if found is not None:
            return found
    return None


# By process


def _by_process(scene: Scene) -> Iterator[Found]:
    """The ports at which engines serve. Others an engine holds, for its own workers, are left alone."""
    by_owner: dict[int, list[Port]] = {}
    for port in scene.ports:
        owner = scene.owner_of(port)
        if owner is not None:
            by_owner.setdefault(owner.pid, []).append(port)
    served: dict[int, list[Port]] = {}
    for pid, held in by_owner.items():
        served[pid] = list(_serving(scene, scene.engines[pid], held))
    fronts = {
        pid: _url(scene, ports[0], scene.engines[pid].command)
        for pid, ports in served.items()
        if ports and scene.engines[pid].kind.reads_children
    }
    taken: set[str] = set()
    # One that names its port before one that shares it; then in the order of their start.
    for pid in sorted(served, key=lambda pid: (not scene.engines[pid].names_port, pid)):
        engine = scene.engines[pid]
        for port in served[pid]:
            url = _url(scene, port, _with_command(scene, engine).command)
            if url not in taken:
                taken.add(url)
                yield Found(
                    url=url,
                    hint=engine.kind.name,
                    pid=pid,
                    everywhere=port.address in EVERYWHERE,
                    behind=next((fronts[each] for each in engine.ancestors if each in fronts), None),
                )


def _serving(scene: Scene, engine: EngineProcess, held: list[Port]) -> Iterator[Port]:
    """Of the ports that a process holds, the one of its API; over IPv4 where it has both."""
    command = _with_command(scene, engine).command
    named = port_in(command, engine.kind)
    wanted = (named,) if named is not None else engine.kind.look.ports
    serving = [port for port in held if port.port in wanted]
    if named is None and not serving and engine.judged.direct and len({port.port for port in held}) == 1:
        serving = held
    taken: set[int] = set()
    for port in serving:
        # The scope of a link-local address is not in the socket.
        if port.port not in taken and not port.address.startswith("fe80"):
            taken.add(port.port)
            yield port


def _with_command(scene: Scene, engine: EngineProcess) -> EngineProcess:
    """The process itself; where a title hides its command line, the one that has started it."""
    if engine.names_port or len(engine.command.words) > 1:
        return engine
    for pid in engine.ancestors:
        parent = scene.engines.get(pid)
        if parent is not None and parent.kind is engine.kind and len(parent.command.words) > 1:
            return parent
    return engine


# By port


def _candidates(
    scene: Scene, engines: Collection[Found], published: Collection[Published]
) -> list[_Candidate]:
    """Ports to be asked: usual ones, those of containers, those that another user's engine names."""
    usual = usual_ports() | frozenset(USUAL_PORTS)
    taken = {each.url for each in engines}
    behind = {pid for pid in scene.engines if _is_behind(scene, pid)}
    found: dict[tuple[int, int | None], _Candidate] = {}
    for port in scene.ports:
        if port.socket in scene.own or not is_loopback(port.address) or scene.owner_of(port) is not None:
            continue
        owner = _likely_owner(scene, port)
        if owner is not None and owner.pid in behind:
            continue
        outside = [each for each in published if _is_published_at(each, port)]
        images = [kind.name for each in outside if (kind := _kind_behind(each)) is not None]
        inner = any(each.container_port in usual or each.container_port == 80 for each in outside)
        if port.port in usual or images or inner or owner is not None:
            url = _url(scene, port, owner.command if owner is not None else None)
            if url in taken:
                continue
            pid = owner.pid if owner is not None else None
            hint = images[0] if images else None
            # The two sockets of one owner, over IPv4 and IPv6, are one server; IPv4 comes first.
            candidate = _Candidate(port=port, url=url, hint=hint, pid=pid)
            found.setdefault((port.port, port.user), candidate)
    for each in published:  # forwarded by the kernel: nothing listens
        kind = _kind_behind(each)
        if kind is not None and each.port not in {port.port for port in scene.ports}:
            address = each.address or "0.0.0.0"
            if is_loopback(address):
                port = Port(address, each.port, ("published", each.name, each.image))
                url = f"http://127.0.0.1:{each.port}"
                found.setdefault((each.port, None), _Candidate(port=port, url=url, hint=kind.name))
    return list(found.values())


def _likely_owner(scene: Scene, port: Port) -> EngineProcess | None:
    """The only process of the socket's owner that is an engine's, may not be looked at, and has this port."""
    likely = []
    for each in scene.engines.values():
        if each.sockets is None and each.judged.direct and each.user == port.user:
            named = port_in(each.command, each.kind)
            if port.port == named or (named is None and port.port in each.kind.look.ports):
                likely.append(each)
    return likely[0] if len(likely) == 1 else None


def _is_behind(scene: Scene, pid: int) -> bool:
    """Whether a process descends from a front."""
    ancestors = (scene.engines.get(each) for each in scene.engines[pid].ancestors)
    return any(each is not None and each.kind.reads_children for each in ancestors)


def _is_published_at(each: Published, port: Port) -> bool:
    return each.port == port.port and (not each.address or each.address == port.address)


def _kind_behind(published: Published) -> EngineKind | None:
    """By the image, for the port at which its API is."""
    kind = kind_of_image(published.image) if published.image else None
    if kind is not None and published.container_port in kind.look.ports:
        return kind
    return None


class _Answer(msgspec.Struct, frozen=True):
    name: str | None = None
    final: bool = False
    silent: bool = False
    """It took the connection and said nothing."""


async def _ask(url: str) -> _Answer:
    from agenttop.collect.engine.base import UnrecognisedError
    from agenttop.collect.engine.http import EngineError, TimedOutError
    from agenttop.collect.engine.recognise import recognise

    try:
        adapter = await recognise(url)
        await adapter.client.close()
    except UnrecognisedError as verdict:
        if verdict.state in ("loading", "unauthorised"):
            return _Answer(verdict.name if verdict.name != "unknown" else None, final=True)
        return _Answer(final=verdict.state == "unsupported")
    except TimedOutError:
        return _Answer(silent=True)
    except EngineError:
        return _Answer()
    except Exception:  # noqa: BLE001 - one odd port must not end the search; it is no engine
        return _Answer(final=True)
    return _Answer(adapter.name, final=True)


# Processes


def _holder(port: Port) -> ServerProcess | None:
    """The process that holds a socket, whatever it is. Slow: all that may be looked at are."""
    if sys.platform != "linux":
        return _holder_psutil(port)
    for pid, raw in procfs.processes():
        if port.socket in procfs.sockets_of(pid):
            return _process(pid, Command(procfs.words_of(raw)), None)
    return None


def _holder_psutil(port: Port) -> ServerProcess | None:
    import psutil

    pid = port.socket[0] if isinstance(port.socket, tuple) else None
    with contextlib.suppress(psutil.Error, OSError, ValueError):
        if isinstance(pid, int) and pid > 0:
            return _process(pid, Command(psutil.Process(pid).cmdline()), None)
    return None


def _process(pid: int, command: Command, kind: EngineKind | None) -> ServerProcess:
    wanted = kind.look.environment if kind is not None else frozenset()
    variables = procfs.environment(pid, wanted) if wanted and sys.platform == "linux" else {}
    children = children_of(pid) if kind is not None and kind.reads_children else ()
    return ServerProcess(pid=pid, command=command, environment=variables, children=children)


# Addresses


def _leads_to(url: str, port: Port) -> bool:
    parts = urlsplit(url)
    if parts.port != port.port:
        return False
    host = parts.hostname or ""
    if host == "localhost":
        return is_loopback(port.address)
    if port.address in EVERYWHERE:
        return ":" not in host or ":" in port.address
    return host == port.address


def _url(scene: Scene, port: Port, command: Command | None = None) -> str:
    """Where to ask; `command` is of its process: it may speak https, and below a path."""
    place = f"{scene.host_of(port)}:{port.port}"
    if command is None:
        return f"http://{place}"
    scheme = "https" if command.has(*_TLS) else "http"
    prefix = (command.value("--api-prefix") or "").strip("/")
    return f"{scheme}://{place}{'/' + prefix if prefix else ''}"
