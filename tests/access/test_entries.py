"""engines.toml: what it may hold, and what is said of the rest."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenttop.access.entries import Entry, read
from agenttop.errors import UsageError

GOOD = """\
# of the team
[[engine]]
url = "https://Box2:8443/v1/"
api-key-file = "box2.key"
ca-file = "/etc/our-ca.pem"

[[engine]]
url = "8080"          # on this host
api-key-env = "LOCAL_KEY"
proxy = false
metrics = false
"""


def written(folder: Path, text: str) -> Path:
    file = folder / "engines.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_two_engines(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    first, second = read(file)
    assert first == Entry(
        origin="https://box2:8443",
        where=f"{file}:2",
        api_key_file=str(tmp_path / "box2.key"),
        ca_file="/etc/our-ca.pem",
    )
    assert second == Entry(
        origin="http://127.0.0.1:8080",
        where=f"{file}:7",
        api_key_env="LOCAL_KEY",
        proxy=False,
        metrics=False,
    )


def test_no_file_and_an_empty_one(tmp_path: Path) -> None:
    assert read(tmp_path / "engines.toml") == []
    assert read(written(tmp_path, "\n# nothing yet\n")) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[[engine]]\nurl = "8080"\napi-key = "sk-0123456789"', ":3: api-key: a key does not stand in this"),
        ('[[engine]]\nurl = "https://x"\ninsecure = true', ":3: insecure: certificates are always checked"),
        ('[[engine]]\nurl = "https://x"\n\nverify = false', ":4: verify: certificates are always checked"),
        ('[[engine]]\nurl = "80"\napi_key_file = "x"', ":3: api_key_file: not a key of an engine; nearest"),
        ('[[engine]]\nurl = "8080"\nzzz = 1', ":3: zzz: not a key of an engine; known: url,"),
        ('[[engine]]\napi-key-env = "X"', ":1: url: missing"),
        ('\n\n[[engine]]\nurl = "ftp://x"', ":4: url: 'ftp://x' is not an http"),
        ('[[engine]]\nurl = "http://u:sk-0123456789@x"', ":2: url: an engine address must not hold"),
        ('[[engine]]\nurl = 8080', ":2: url: expected text in quotes"),
        ('[[engine]]\nurl = "80"\napi-key-env = "sk-0123456789"', ":3: api-key-env: expected the name of"),
        ('[[engine]]\nurl = "80"\nca-file = "~nobody-at-all/x"', ":3: ca-file: it begins with ~ and a"),
        ('[[engine]]\nurl = "8080"\nproxy = "no"', ":3: proxy: expected true or false"),
        ('[[engine]]\nurl = "8080"\napi-key-env = "X"\napi-key-file = "y"', ":4: api-key-file: stands"),
        ('[[engine]]\nurl = "8080"\n[[engine]]\nurl = "http://localhost:8080/v1"', ":4: url: there is"),
        ('[engine]\nurl = "8080"', ":1: engine: expected [[engine]]"),
        ('engine = "8080"', ":1: engine: expected [[engine]]"),
        ('[[engines]]\nurl = "8080"', ":1: engines: not a key of this file"),
        ('[[engine]]\nurl = "8080', ":2: not TOML"),
        ("x = " + "[" * 20_000, ": not TOML"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_its_line_and_key(tmp_path: Path, text: str, said: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read(file)
    assert f"{file}{said}" in str(caught.value)
    assert "sk-0123456789" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_every_mistake_has_a_line_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read(written(tmp_path, '[[engine]]\nurl = "ftp://x"\n[[engine]]\nmetrics = 1\nurl = "8080"'))
    assert [line.split(": ")[0].rpartition(":")[2] for line in str(caught.value).splitlines()] == ["2", "4"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "engines.toml").mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "engines.toml")
    other = tmp_path / "other"
    other.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        read(other)
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no such file"):
        read(dangling)


@pytest.mark.skipif(sys.platform == "win32", reason="modes say nothing on Windows")
def test_a_file_that_anybody_may_write_is_not_followed(tmp_path: Path) -> None:
    file = written(tmp_path, GOOD)
    file.chmod(0o666)
    with pytest.raises(UsageError, match="anybody may write"):
        read(file)


_values = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=12), st.sampled_from(["8080", "https://x"])
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
@given(
    st.text(max_size=200)
    | st.lists(st.sampled_from([*GOOD.splitlines(), "[[engine]]", "x.y = 1"])).map("\n".join)
)
def test_any_text_is_entries_or_a_usage_error(tmp_path: Path, text: str) -> None:
    try:
        found = read(written(tmp_path, text.encode("utf-8", "replace").decode()))
    except UsageError:
        return
    assert all(entry.origin.startswith("http") for entry in found)
