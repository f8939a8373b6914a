"""Which proxy is wanted for an address."""

from __future__ import annotations

import socket

import pytest

from agenttop.access.proxy import Proxy, proxy_for

LOCAL = ("http://127.0.0.1:8080", "http://127.9.9.9:80", "http://[::1]:80", "https://localhost:443")


@pytest.fixture(autouse=True)
def wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://me:secret@gate:3128")
    monkeypatch.setenv("HTTPS_PROXY", "gate:3129")


@pytest.mark.parametrize("url", LOCAL)
def test_never_for_this_host(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://gate:1")
    assert proxy_for(url) is None


def test_never_for_this_host_by_its_own_name() -> None:
    assert proxy_for(f"http://{socket.gethostname().lower()}:8000") is None


def test_by_scheme() -> None:
    plain, secure = proxy_for("http://box2:8000"), proxy_for("https://box2:8443")
    assert plain == Proxy("http://me:secret@gate:3128", "HTTP_PROXY")
    assert secure == Proxy("http://gate:3129", "HTTPS_PROXY")
    assert plain.trouble is None
    assert "secret" not in f"{plain!r} {plain}"


def test_one_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name)
    assert proxy_for("http://box2:80") is None
    monkeypatch.setenv("all_proxy", "http://gate:1")
    assert proxy_for("https://box2:443") == Proxy("http://gate:1", "ALL_PROXY")


@pytest.mark.parametrize(
    ("exceptions", "url"),
    [
        ("*", "http://box2:80"),
        ("x, *", "http://box2:80"),
        ("box2", "http://box2:80"),
        (".example.org", "http://a.example.org:80"),
        ("example.org", "http://a.example.org:80"),
        ("10.0.0.7", "http://10.0.0.7:80"),
        ("192.168.0.0/16", "http://192.168.7.7:8000"),
        ("fd00::/8", "http://[fd00::7]:8000"),
        ("[fd00::7]", "http://[fd00::7]:8000"),
    ],
)
def test_exceptions(monkeypatch: pytest.MonkeyPatch, exceptions: str, url: str) -> None:
    assert proxy_for(url) is not None
    monkeypatch.setenv("NO_PROXY", exceptions)
    assert proxy_for(url) is None
    assert proxy_for(
        "http://elsewhere.example:80" if "*" not in exceptions else "http://127.0.0.1:80"
    ) is None or ("*" not in exceptions)


@pytest.mark.parametrize(
    "place",
    ["socks5://gate:1080", "socks5h://gate:1080", "http://", "http://gate:x", "ftp://g", "http://gate\n:1"],
)
def test_proxies_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", place)
    found = proxy_for("http://box2:80")
    assert found is not None
    assert "no HTTP proxy" in (found.trouble or "")
    assert "gate" not in (found.trouble or "")
