"""Which proxy the environment wants for an address: `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`.

In either case, and the system's own settings on macOS and Windows. Never one for this host itself.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

import msgspec

from agenttop.model.url import is_local
from agenttop.oslayer import names_of_this_host


class Proxy(msgspec.Struct, frozen=True):
    """What stands in between."""

    url: str
    """May hold a password: never shown."""
    setting: str
    """Which setting names it."""

    def __repr__(self) -> str:
        return f"<proxy of {self.setting}>"

    @property
    def trouble(self) -> str | None:
        """Why it cannot be used, as the rest of a sentence that begins with the engine's address."""
        try:
            parts = urlsplit(self.url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            usable = usable and self.url.isprintable() and " " not in self.url
        except ValueError:
            usable = False
        if usable:
            return None
        return (
            f"would be asked through the proxy of {self.setting}, which is no HTTP proxy: put the host into "
            "NO_PROXY, or write proxy = false for it in engines.toml"
        )


def proxy_for(url: str) -> Proxy | None:
    """The proxy for a normalised address; None where there is none, or none is wanted."""
    if is_local(url):
        return None
    from urllib.request import getproxies, proxy_bypass  # 30 ms

    parts, wanted = urlsplit(url), getproxies()
    scheme = next((each for each in (parts.scheme, "all") if wanted.get(each)), None)
    if (
        scheme is None
        or parts.hostname in names_of_this_host()
        or _excepted(parts.hostname or "", wanted.get("no", ""))
        or proxy_bypass(parts.netloc)
    ):
        return None
    place = wanted[scheme]
    return Proxy(place if "://" in place else f"http://{place}", f"{scheme.upper()}_PROXY")


def _excepted(host: str, exceptions: str) -> bool:
    """Whether `NO_PROXY` names this host in a way that Python misses: a network, IPv6, `*` in a list."""
    listed = [each.strip().strip("[]") for each in exceptions.split(",")]
    if "*" in listed:
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    for each in listed:
        try:
            if address in ipaddress.ip_network(each, strict=False):
                return True
        except ValueError:
            continue
    return False
