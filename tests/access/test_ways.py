"""Which engine gets which key."""

from __future__ import annotations

from pathlib import Path

import pytest

from agenttop import paths
from agenttop.access.entries import Entry
from agenttop.access.ways import Access, Ways, entries_of_user
from agenttop.errors import UsageError
from tests import tls
from tests.access import with_key

A, B, C = "https://a:8443", "http://127.0.0.1:8000", "http://127.0.0.1:8080"


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LINE_KEY", "sk-of-the-line")
    monkeypatch.setenv("OWN_KEY", "sk-of-the-entry")
    file = tmp_path / "file.key"
    file.write_text("sk-of-the-file\n")
    file.chmod(0o600)
    return file


def entry(origin: str, **fields: object) -> Entry:
    return Entry(origin=origin, where="engines.toml:7", **fields)


def test_the_key_of_the_command_line_goes_to_every_named_engine_and_to_no_other(keys: Path) -> None:
    ways = Ways([A, f"{B}/engines/x"], api_key_env="LINE_KEY")
    assert ways.to(A).secret == ways.to(B).secret == "sk-of-the-line"
    for other in (C, "http://a:8443", "https://a:443", "https://a.example:8443", "https://127.0.0.1:8000"):
        assert ways.to(other) == Access()


def test_an_entry_goes_before_the_command_line_and_counts_for_found_engines(keys: Path) -> None:
    entries = [entry(A, api_key_env="OWN_KEY"), entry(C, api_key_file=str(keys), proxy=False)]
    ways = Ways([A, B], api_key_env="LINE_KEY", entries=entries)
    assert [ways.to(url).secret for url in (A, B, C)] == [
        "sk-of-the-entry",
        "sk-of-the-line",
        "sk-of-the-file",
    ]
    assert ways.to(C).in_words() == f"key from {keys}, no proxy (engines.toml:7)"
    assert ways.to(B).in_words() == "key from the environment variable LINE_KEY"
    assert ways.to("http://d:80").in_words() == "no key"


def test_an_entry_without_a_key_leaves_that_of_the_command_line(keys: Path) -> None:
    ways = Ways([A], api_key_file=keys, entries=[entry(A, metrics=False)])
    found = ways.to(A)
    assert (found.secret, found.metrics, found.entry) == ("sk-of-the-file", False, "engines.toml:7")


@pytest.mark.parametrize(
    ("line", "own", "asked"), [(True, None, True), (True, False, False), (False, True, False)]
)
def test_metrics_are_asked_for_where_neither_says_no(line: bool, own: bool | None, asked: bool) -> None:
    assert Ways(metrics=line, entries=[entry(C, metrics=own)]).to(C).metrics is asked


def test_a_key_that_cannot_be_had_is_told_with_the_entry(tmp_path: Path) -> None:
    ways = Ways(
        entries=[entry(A, api_key_env="NOT_SET_AT_ALL", metrics=False), entry(C, ca_file=str(tmp_path / "x"))]
    )
    with pytest.raises(
        UsageError, match=r"engines.toml:7: the environment variable NOT_SET_AT_ALL is not set"
    ):
        ways.to(A)
    with pytest.raises(UsageError, match=r"engines.toml:7: .*no such file"):
        ways.to(C)
    assert ways.told(A)[0] is False
    assert "NOT_SET_AT_ALL" in ways.told(A)[1]
    assert ways.told("http://d:80") == (True, "no key")
    assert ways.bare(A) == Access(metrics=False, entry="engines.toml:7")


def test_certificates(tmp_path: Path) -> None:
    line, own = tmp_path / "line", tmp_path / "own"
    line.mkdir()
    own.mkdir()
    ours, theirs = tls.ca_file(line), tls.ca_file(own, tls.stranger())
    ways = Ways([A, B], ca_file=ours, entries=[entry(B, ca_file=str(theirs))])
    assert [ways.to(url).ca_file for url in (A, B, C)] == [str(ours), str(theirs), None]
    with pytest.raises(UsageError, match="no such file"):
        Ways([A], ca_file=tmp_path / "missing")


def test_the_file_of_the_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert entries_of_user() == []
    monkeypatch.setenv("AGENTTOP_CONFIG", str(tmp_path))
    paths.engines_file().write_text('[[engine]]\nurl = "8080"\nmetrics = false\n')
    assert [found.origin for found in entries_of_user()] == [C]


def test_another_origin_gets_no_key() -> None:
    other = with_key("sk-0123456789", "/ca.pem").without_key()
    assert (other.secret, other.ca_file) == (None, "/ca.pem")
