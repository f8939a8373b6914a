"""Ports that containers publish on this host: by the processes that forward them, and by Docker or Podman.

`docker-proxy` and `pasta` name the ports in their command lines, which everybody may read. Which image is
behind a port only the engine's API tells, over a Unix socket that this user may or may not open. It is asked
for the list of containers and for nothing else, only while containers run (to connect to a socket that
systemd holds would start the daemon), and only when their processes have changed since the last time.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from agenttop.collect.process import Command
from agenttop.model.text import clean
from agenttop.oslayer import connect_to_unix_socket

ANSWER_S = 1.0
"""For the whole answer."""
LIST = "/containers/json"
_LIMIT = 8_000_000
_FORWARDERS = re.compile(
    r"""docker-proxy | (?:containers-)?rootlessport(?:-child)? | pasta(?:\.avx2)? | slirp4netns
      | gvproxy | com\.docker\.backend | wslrelay | vpnkit\S*""",
    re.VERBOSE,
)
_RUNNERS = re.compile(r"containerd-shim\S* | conmon", re.VERBOSE)
"""One for each container that runs."""
_PASTA_PORTS = re.compile(r"(?:([\d.]+|\[?[\da-fA-F:]+\]?)/)?(\d+)(?:-(\d+))?(?::(\d+)(?:-(\d+))?)?")
_MOST_PORTS = 64
"""Of one range; a container that publishes more does so for something else."""


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A port of a container on this host."""

    address: str
    """Of the host; empty for all of them."""
    port: int
    container_port: int
    image: str = ""
    """Empty where only the forwarding process is known."""
    name: str = ""
    """Of the container."""


class ApiSocket(msgspec.Struct, frozen=True):
    """Where a container engine can be asked."""

    path: Path
    engine: str
    """Docker or Podman."""
    permitted: bool
    """Whether this user may open it."""


class ContainerApi:
    """Asks the container engines of this host, when something has changed."""

    def __init__(self, environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> None:
        self._environment = os.environ if environment is None else environment
        self._root = root
        self._processes: frozenset[int] = frozenset()
        self._known: list[Published] = []

    def published(self, processes: frozenset[int]) -> list[Published]:
        """All published TCP ports, with their images. `processes`: those that run or forward for containers.

        Without any there are no containers, and nobody is asked. Never raises.
        """
        if processes != self._processes:
            self._processes = processes
            self._known = []
            if processes:
                for found in sockets(self._environment, self._root):
                    if found.permitted:
                        self._known += ask(found.path) or []
        return self._known


def belongs(command: Command) -> bool:
    """Whether a process runs a container or forwards its ports."""
    name = re.sub(r"\.exe$", "", command.program, flags=re.IGNORECASE)
    return bool(_FORWARDERS.fullmatch(name) or _RUNNERS.fullmatch(name))


def forwarded(command: Command) -> list[Published]:
    """The ports that a forwarding process names in its command line."""
    name = command.program
    if name == "docker-proxy" and command.value("-proto") == "tcp":
        port, inner = command.number("-host-port"), command.number("-container-port")
        if port and inner:
            return [Published(address=_host(command.value("-host-ip")), port=port, container_port=inner)]
    if name.startswith("pasta"):
        return _of_pasta(command.words)
    return []


def ask(path: Path) -> list[Published] | None:
    """The published ports by the API behind a socket; None when it does not answer as it should."""
    try:
        connection = _Connection(path)
        # The time-out of a socket begins anew with every byte.
        patience = threading.Timer(ANSWER_S, connection.hang_up)
        patience.daemon = True
        with contextlib.closing(connection), contextlib.ExitStack() as at_the_end:
            at_the_end.callback(patience.cancel)
            patience.start()
            connection.request("GET", LIST, headers={"Accept": "application/json"})
            reply = connection.getresponse()
            body = reply.read(_LIMIT)
        if reply.status != 200:
            return None
        return _published(msgspec.json.decode(body, type=list[dict[str, Any]]))
    except (OSError, http.client.HTTPException, msgspec.DecodeError, ValueError, RecursionError):
        return None


def sockets(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> list[ApiSocket]:
    """The sockets of Docker and Podman there are on this host. Nothing is opened."""
    if sys.platform == "win32":
        return []
    known = os.environ if environment is None else environment
    found: dict[Path, ApiSocket] = {}
    for engine, path in _places(known, root):
        with contextlib.suppress(OSError):
            place = path.resolve()
            if place not in found and place.is_socket():
                found[place] = ApiSocket(path, engine, os.access(place, os.R_OK | os.W_OK))
    return list(found.values())


def _places(environment: Mapping[str, str], root: Path) -> list[tuple[str, Path]]:
    places: list[tuple[str, Path]] = []
    for variable, engine in (("DOCKER_HOST", "Docker"), ("CONTAINER_HOST", "Podman")):
        scheme, _, path = environment.get(variable, "").partition("://")
        if scheme == "unix":
            places.append((engine, Path(path)))
    runtime = environment.get("XDG_RUNTIME_DIR")
    home = environment.get("HOME")
    places += [("Docker", root / "var/run/docker.sock"), ("Docker", root / "run/docker.sock")]
    if runtime:
        places += [("Docker", Path(runtime, "docker.sock")), ("Podman", Path(runtime, "podman/podman.sock"))]
    places.append(("Podman", root / "run/podman/podman.sock"))
    if home:
        places += [("Docker", Path(home, ".docker/run/docker.sock"))]
        places += [("Docker", Path(home, ".colima/default/docker.sock"))]
    return places


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket. Its host is a word: nothing leaves this machine."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=ANSWER_S)
        self._path = path

        self._plug: socket.socket | None = None

    def connect(self) -> None:
        """Raises OSError."""
        self.sock: socket.socket = connect_to_unix_socket(str(self._path), timeout_s=ANSWER_S)
        self._plug = self.sock

    def hang_up(self) -> None:
        """End what goes on in another thread: it reads the end of the reply."""
        if self._plug is not None:
            with contextlib.suppress(OSError):
                self._plug.shutdown(socket.SHUT_RDWR)


def _published(containers: Sequence[Mapping[str, Any]]) -> list[Published]:
    found: list[Published] = []
    for each in containers:
        names, ports = each.get("Names"), each.get("Ports")
        name = str(names[0]).lstrip("/") if isinstance(names, list) and names else ""
        for port in ports if isinstance(ports, list) else ():
            if not isinstance(port, dict) or port.get("Type", "tcp") != "tcp":
                continue
            outer, inner = port.get("PublicPort"), port.get("PrivatePort")
            if _is_port(outer) and _is_port(inner):
                found.append(
                    Published(
                        address=_host(str(port.get("IP") or "")),
                        port=outer,
                        container_port=inner,
                        image=clean(str(each.get("Image") or ""), 120),
                        name=clean(name, 60),
                    )
                )
    return found


def _of_pasta(words: Sequence[str]) -> list[Published]:
    """`-t 127.0.0.1/8000-8001:80-81`; the ports behind the colon are the container's."""
    found: list[Published] = []
    for option, value in pairwise(words):
        if option not in ("-t", "--tcp-ports"):
            continue
        for part in value.split(","):
            match = _PASTA_PORTS.fullmatch(part)
            if match is None:
                continue
            first, last = int(match[2]), int(match[3] or match[2])
            inner = int(match[4] or first)
            for step in range(min(last - first + 1, _MOST_PORTS)):
                if _is_port(first + step) and _is_port(inner + step):
                    address = _host((match[1] or "").strip("[]"))
                    found.append(Published(address=address, port=first + step, container_port=inner + step))
    return found


def _host(address: str | None) -> str:
    return "" if address in (None, "", "0.0.0.0", "::") else str(address)


def _is_port(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and 0 < value < 65536
