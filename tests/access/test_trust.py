"""Certificates from a file."""

from __future__ import annotations

import ssl
import warnings
from pathlib import Path

import pytest

from agenttop.access import trust
from agenttop.errors import UsageError
from tests import tls


def test_a_file_adds_to_the_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def trusted(context: ssl.SSLContext) -> set[str]:
        return {
            str(dict(part[0] for part in each["subject"]).get("organizationName"))
            for each in context.get_ca_certs()
        }

    system = tmp_path / "system"
    system.mkdir()
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.ca_file(system, tls.stranger())))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "none"))
    assert trusted(trust.context()) == {"nobody knows"}
    both = trust.context(str(tls.ca_file(tmp_path)))
    assert trusted(both) == {"nobody knows", "agenttop tests"}
    assert both.verify_mode is ssl.CERT_REQUIRED
    assert both.check_hostname
    assert both.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "holds no certificate"),
        ("hello", "holds no certificate"),
        ("-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n", "a private key"),
        ("-----BEGIN CERTIFICATE-----\nrubbish\n-----END CERTIFICATE-----\n", "that can be read"),
        ("-----BEGIN CERTIFICATE-----\n", "that can be read"),
        (b"0\x82\x01\xff\xfe", "not UTF-8"),
    ],
)
def test_files_of_no_use(tmp_path: Path, content: str | bytes, said: str) -> None:
    file = tmp_path / "ca.pem"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UsageError, match=said) as caught:
        trust.check_ca_file(file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bundle_with_comments_is_fine(tmp_path: Path) -> None:
    file = tls.ca_file(tmp_path)
    file.write_text("# Ämter für alles\n" + file.read_text(), encoding="utf-8")
    assert trust.check_ca_file(file) == str(file)


@pytest.mark.parametrize("reason", ["WRONG_VERSION_NUMBER", "record layer failure", None, "ODD_THING"])
def test_every_error_is_a_sentence(reason: str | None) -> None:
    error = ssl.SSLError(1, "[SSL] something odd (_ssl.c:1000)")
    error.reason = reason
    told = trust.sentence(error, "box2")
    assert told
    assert "\n" not in told


def test_no_warnings() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trust.context()
