"""Simulated engines (`agenttop sim`): what they say about themselves."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import msgspec

from agenttop.collect.engine.url import is_local, normalise
from agenttop.errors import UsageError
from agenttop.model.text import clean

PATH = "/sim"
HEADER = "x-agenttop-sim"
FASTEST = 1000.0

_ASK_S = 0.5
_MOST_BYTES = 65536


class _Told(msgspec.Struct):
    """The part of the reply that is asked for here."""

    simulated: str
    speedup: float = 1.0


def speedup_of(url: str) -> tuple[float, str | None]:
    """How many times faster than life the engine at `url` runs, and the host it simulates.

    (1.0, None) for everything that is not a simulated engine. Asked on this host only: a simulated engine
    listens nowhere else. Takes at most half a second.
    """
    try:
        address = normalise(url)
    except UsageError:
        return 1.0, None
    parts = urlsplit(address)
    if not is_local(address) or parts.scheme != "http" or parts.hostname is None:
        return 1.0, None
    connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=_ASK_S)
    try:
        connection.request("GET", PATH)
        reply = connection.getresponse()
        if reply.status != 200 or reply.getheader(HEADER) is None:
            return 1.0, None
        told = msgspec.json.decode(reply.read(_MOST_BYTES), type=_Told)
    except (OSError, http.client.HTTPException, ValueError):
        return 1.0, None
    finally:
        connection.close()
    if not 0 < told.speedup <= FASTEST:
        return 1.0, None
    return told.speedup, clean(told.simulated, 60) or None
