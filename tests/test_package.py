"""What a release must carry."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import tomli

import agenttop
from agenttop import paths

ROOT = Path(__file__).parents[1]


def test_one_version_everywhere() -> None:
    assert importlib.metadata.version("agenttop") == agenttop.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d[^]]*)]", changelog, re.MULTILINE)
    assert newest
    assert newest[1] == agenttop.__version__
    shown = subprocess.run(
        [sys.executable, "-m", "agenttop", "--version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert agenttop.__version__ in shown.stdout


def test_the_licence_is_there_and_named() -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence
    assert importlib.metadata.metadata("agenttop")["License-Expression"] == "Apache-2.0"


def test_profiles_are_found_and_shipped() -> None:
    names = {path.stem for path in paths.bundled_profiles().glob("*.toml")}
    assert {"human", "busy"} <= names
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"] == {
        "profiles": "agenttop/profiles"
    }


def test_the_command_is_installed() -> None:
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="agenttop")
    assert callable(entry.load())


def test_every_dependency_has_a_tested_version() -> None:
    project = tomli.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + extras["demo"] + extras["parquet"] + extras["dev"]
    names = {re.split(r"[\[<>=;~! ]", text)[0].lower() for text in wanted} - {"agenttop"}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower() for line in lines if not line.startswith("#")}
    assert not names - pinned
    assert all(re.fullmatch(r"#.*|[A-Za-z0-9_.-]+==[\w.]+", line) for line in lines)
