"""Engine addresses as people write them, made into the one form that names an engine in a session."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import SplitResult, urlsplit

from agenttop.errors import UsageError
from agenttop.model.text import clean

_HINT = "write it like http://127.0.0.1:8080"
_HOST = re.compile(r"[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?\.?")
_API_PATHS = re.compile(
    r"/(?:v1(?:/(?:models|chat/completions|completions))?|health|metrics|slots|props)/?$", re.IGNORECASE
)
"""Ends of addresses that are copied from another client's settings: the base is what stands before."""


def normalise(text: str) -> str:
    """`localhost:8080`, `:8080`, `8080`, `http://box2:8000/v1/` to `http://HOST:PORT[/prefix]`.

    `localhost` and the any-address become 127.0.0.1, so that an engine named by hand and the same
    one found on this host have one name; with https `localhost` stays, because it is what the certificate
    is for. Raises UsageError.
    """
    written = text.strip()
    shown = clean(written, 80)
    if not written or any(char.isspace() or ord(char) < 32 for char in written):
        raise UsageError(f"'{shown}' is not an engine address", _HINT)
    if re.fullmatch(r":?\d{1,5}", written):
        written = "127.0.0.1:" + written.lstrip(":")
    if "://" not in written:
        written = "http://" + written
    try:
        parts = urlsplit(written)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"'{shown}' is not an engine address: {error}", _HINT) from error
    _refuse_the_odd(parts, shown)
    secure = parts.scheme.lower() == "https"
    host = _host(parts.hostname or "", shown, secure)
    if port == 0:
        raise UsageError(f"'{shown}' has port 0, where nothing can listen", _HINT)
    port = port or (443 if secure else 80)
    prefix = _API_PATHS.sub("", parts.path).rstrip("/")
    return f"{parts.scheme.lower()}://{host}:{port}{prefix}"


def is_local(url: str) -> bool:
    """Whether a normalised address is on the loopback interface of this host."""
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.rstrip(".").rpartition(".")[2] == "localhost"  # every name below it is, too (RFC 6761)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def port_of(url: str) -> int:
    """The port of a normalised address."""
    return urlsplit(url).port or 80


def origin_of(url: str) -> str:
    """Scheme, host and port of a normalised address: what a key is given for."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _refuse_the_odd(parts: SplitResult, shown: str) -> None:
    if parts.scheme.lower() not in ("http", "https"):
        raise UsageError(f"'{shown}' is not an http or https address", _HINT)
    if parts.username is not None or parts.password is not None:
        # Not shown: what stands before the @ may be a secret.
        raise UsageError(
            "an engine address must not hold a user name or a password",
            "a key goes with --api-key-env NAME or --api-key-file FILE",
        )
    if parts.query or parts.fragment:
        raise UsageError(f"'{shown}' has a query or a fragment; only a base address is wanted", _HINT)
    if ".." in parts.path.split("/"):
        raise UsageError(f"'{shown}' is not an engine address", _HINT)


def _host(host: str, shown: str, secure: bool) -> str:
    if host in ("0.0.0.0", "::") or (host == "localhost" and not secure):
        return "127.0.0.1"
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if len(host) > 253 or not _HOST.fullmatch(host) or re.fullmatch(r"[\d.]+", host):
            raise UsageError(f"'{shown}' is not an engine address", _HINT) from None
        return host
    return f"[{address}]" if address.version == 6 else str(address)
