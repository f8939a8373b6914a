"""Engine addresses as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.errors import UsageError
from agenttop.model.url import is_local, normalise, origin_of, port_of


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("localhost:8080", "http://127.0.0.1:8080"),
        ("8080", "http://127.0.0.1:8080"),
        (":8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("  http://Box2:8000/v1/ ", "http://box2:8000"),
        ("http://box2:8000/v1/chat/completions", "http://box2:8000"),
        ("box2.example.org:8000/metrics", "http://box2.example.org:8000"),
        ("http://gate:80/engines/a/v1", "http://gate:80/engines/a"),
        ("https://gate", "https://gate:443"),
        ("https://localhost:8443", "https://localhost:8443"),
        ("https://0.0.0.0:8443", "https://127.0.0.1:8443"),
        ("http://gate", "http://gate:80"),
        ("0.0.0.0:8000", "http://127.0.0.1:8000"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("http://[::]:8080", "http://127.0.0.1:8080"),
        ("HTTP://10.0.0.7:1234", "http://10.0.0.7:1234"),
    ],
)
def test_forms(written: str, expected: str) -> None:
    assert normalise(written) == expected
    assert normalise(expected) == expected


@pytest.mark.parametrize(
    "written",
    [
        "",
        "   ",
        "ftp://box2:21",
        "http://",
        "http:///x",
        "http://box 2:80",
        "http://box2:99999",
        "http://box2:0",
        "http://box2:port",
        "http://1.2.3:80",
        "http://box2:80?model=x",
        "http://box2:80/#x",
        "http://box2:80/../x",
        "::1",
        "\x1b[31mhttp://x",
        "http://-box:80",
        "file:///etc/passwd",
    ],
)
def test_rubbish_is_refused_in_one_sentence(written: str) -> None:
    with pytest.raises(UsageError) as caught:
        normalise(written)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert "write it like" in str(caught.value)


def test_a_secret_in_an_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError) as caught:
        normalise("http://user:sk-secret@box2:80")
    assert "sk-secret" not in str(caught.value)
    assert "--api-key-env" in str(caught.value)


def test_local_and_port() -> None:
    assert is_local("http://127.0.0.1:80")
    assert is_local("http://127.9.9.9:80")
    assert is_local("http://[::1]:80")
    assert not is_local("http://10.0.0.1:80")
    assert not is_local("http://box2:80")
    assert is_local("https://localhost:443")
    assert is_local("http://engine.localhost:80")
    assert is_local("http://[::ffff:127.0.0.1]:80")
    assert not is_local("http://localhost.example:80")
    assert port_of("http://box2:8000/x") == 8000
    assert origin_of("https://box2:8443/engines/a") == "https://box2:8443"
    assert origin_of("http://[::1]:8080") == "http://[::1]:8080"


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    try:
        found = normalise(text)
    except UsageError:
        return
    assert normalise(found) == found
