"""Rules about the source itself: sizes, who imports what, and nothing that belongs to one machine."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "agenttop"

LONGEST_FILE = 600
LONGEST_FUNCTION = 60

HOMES = {
    "psutil": (
        "collect/host/",
        "collect/own.py",
        "collect/discovery.py",
        "collect/listening.py",
        "collect/cgroup.py",
        "collect/children.py",
        "collect/engine_processes/elsewhere.py",
        "oslayer.py",
    ),
    "httpx": ("collect/engine/http.py",),
    "httptools": ("agents/", "sim/"),
    "pynvml": ("collect/gpu/",),
    "amdsmi": ("collect/gpu/",),
    "xllamacpp": ("demo/server.py",),
    "sqlite3": ("record/",),
    "textual": ("tui/",),
    "rich": ("tui/",),
    "plotext": ("commands/",),
    "pandas": ("analyse/", "record/", "commands/"),
    "pyarrow": ("record/", "commands/"),
    "uvloop": ("oslayer.py",),
    "termios": ("oslayer.py",),
    "fcntl": ("oslayer.py",),
    "resource": ("oslayer.py",),
    "pty": ("oslayer.py",),
}
"""Where a library, or a module that only some systems have, may be imported."""

# Put together from halves, so that this file does not contain what it looks for.
FOREIGN = (
    "/" + "work/", "/" + "root/", "/" + "opt/pypi", "/" + "tmp/venv", r"/home/(?!(you|user|me)\b)[a-z]",
    "pypi" + r"\.org", "pythonhosted" + r"\.org", "registry" + r"\.npmjs", r"\.py" + r"env/versions/\d",
)  # fmt: skip

SKIPPED = {"__pycache__", "build", "dist", "node_modules"}


def python_files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def all_files(folder: Path = ROOT) -> Iterator[Path]:
    """Every file of the repository, without what tools leave there."""
    for path in sorted(folder.iterdir()):
        if path.name in SKIPPED or (path.name.startswith(".") and path.name not in (".ci", ".gitignore")):
            continue
        if path.is_dir() and not path.name.endswith(".egg-info"):
            yield from all_files(path)
        elif path.is_file():
            yield path


def test_files_stay_short() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in python_files("src", "tests", "benchmarks")
        if (lines := path.read_text(encoding="utf-8").count("\n")) > LONGEST_FILE
    }
    assert not long


def test_functions_stay_short() -> None:
    """Of the program; a test may spell out a long scene."""
    long = {}
    for path in python_files("src", "benchmarks"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                if lines > LONGEST_FUNCTION:
                    long[f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"] = lines
    assert not long


def imported(path: Path) -> set[str]:
    """Top-level names of all modules that a file imports, inside functions too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return names


def test_libraries_stay_in_their_homes() -> None:
    astray = []
    for path in python_files("src"):
        place = path.relative_to(SOURCE).as_posix()
        guarded = imported(path) & HOMES.keys()
        astray += [f"{place} imports {name}" for name in guarded if not place.startswith(HOMES[name])]
    assert not astray


def test_nothing_names_a_machine_or_a_registry() -> None:
    pattern = re.compile("|".join(FOREIGN).encode())
    found = []
    for path in all_files():
        for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
            if match := pattern.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match[0].decode()}")
    assert not found


@pytest.mark.parametrize(
    "command",
    [
        ("-m", "ruff", "check", "--no-cache", "src", "tests", "benchmarks"),
        ("-m", "ruff", "format", "--no-cache", "--check", "src", "tests", "benchmarks"),
        (
            "-c",
            "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))",
        ),
    ],
    ids=["lint", "format", "imports"],
)
def test_the_rules_in_pyproject_hold(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
