"""Keys from variables and files."""

from __future__ import annotations

import os
import socket
import stat
import sys
from pathlib import Path

import pytest

from agenttop.access.key import Key, from_environment, from_file, from_names
from agenttop.errors import UsageError

SECRET = "sk-0123456789abcdef"
POSIX = pytest.mark.skipif(sys.platform == "win32", reason="modes say nothing on Windows")


def written(folder: Path, content: str | bytes, mode: int = 0o600) -> Path:
    file = folder / "a key"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    file.chmod(mode)
    return file


@pytest.mark.parametrize(
    "content", [SECRET, f"{SECRET}\n", f"  {SECRET}\r\n", f"{SECRET}\nsecond line\n", f"\ufeff{SECRET}\n"]
)
def test_the_first_line_of_a_file_is_the_key(tmp_path: Path, content: str) -> None:
    file = written(tmp_path, content)
    key = from_file(file)
    assert key.reveal() == SECRET
    assert (key.file, key.env, key.source) == (str(file), None, str(file))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "its first line is empty"),
        ("\n" + SECRET, "its first line is empty"),
        ("sk-schlüssel-0123", "no header can carry"),
        ("sk-\x00-0123456789", "no header can carry"),
        ("sk-a\rx-evil: 1", "no header can carry"),
        (b"\xff\xfe\x00sk", "not UTF-8"),
        ("x" * 9000, "more than 8192 characters"),
        ("x" * 70_000, "larger than"),
    ],
)
def test_what_is_no_key(tmp_path: Path, content: str | bytes, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        from_file(written(tmp_path, content))
    told = str(caught.value)
    assert str(tmp_path) in told
    assert "\n" not in told
    assert SECRET not in told


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        from_file(tmp_path / "missing")
    with pytest.raises(UsageError, match="cannot be read"):
        from_file(tmp_path)


@POSIX
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="not a regular file"):
        from_file(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        with pytest.raises(UsageError, match="not a regular file"):
            from_file(tmp_path / "s")


@POSIX
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_file_of_ones_own_that_others_may_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    file = written(tmp_path, SECRET, mode)
    me = file.stat().st_uid or 1000
    monkeypatch.setattr(os, "getuid", lambda: me)
    monkeypatch.setattr(Path, "stat", _owned_by(me))
    with pytest.raises(UsageError, match="chmod 600") as caught:
        from_file(file)
    assert SECRET not in str(caught.value)


@POSIX
@pytest.mark.parametrize(("owner", "me"), [(0, 1000), (0, 0), (4242, 1000)])
def test_a_mounted_secret_is_taken_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, me: int
) -> None:
    file = written(tmp_path, SECRET, 0o444)
    monkeypatch.setattr(os, "getuid", lambda: me)
    monkeypatch.setattr(Path, "stat", _owned_by(owner))
    assert from_file(file).reveal() == SECRET


def _owned_by(owner: int):  # type: ignore[no-untyped-def]
    real = Path.stat

    def look(self: Path, **options: bool) -> os.stat_result:
        found = list(real(self, **options))
        found[stat.ST_UID] = owner
        return os.stat_result(found)

    return look


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOX_KEY", f" {SECRET}\n")
    key = from_environment("BOX_KEY")
    assert (key.reveal(), key.env, key.file) == (SECRET, "BOX_KEY", None)
    assert key.source == "the environment variable BOX_KEY"
    monkeypatch.setenv("BOX_KEY", " ")
    with pytest.raises(UsageError, match="BOX_KEY holds no key"):
        from_environment("BOX_KEY")
    monkeypatch.delenv("BOX_KEY")
    with pytest.raises(UsageError, match="BOX_KEY is not set"):
        from_environment("BOX_KEY")


@pytest.mark.parametrize("name", [SECRET, "hf_abcDEF0123456789", "sk-or-v1", "K" * 60])
def test_a_key_in_place_of_a_name_is_not_repeated(name: str) -> None:
    with pytest.raises(UsageError, match="is not set") as caught:
        from_environment(name)
    assert name not in str(caught.value)


def test_a_key_does_not_show_itself() -> None:
    key = Key(SECRET, env="BOX_KEY")
    assert SECRET not in f"{key!r} {key} {[key]} {key.source}"
    assert from_names(None, None) is None
