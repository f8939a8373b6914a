"""The stand-in libnvidia-ml.so.1: C sources, compiled against NVIDIA's public header (`nvidia-nvml-dev`).

How a script looks stands at the top of stub.c. A process finds the library when `environment` is part of its
environment before it starts: a library is looked for once in the life of a process.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
COMPILER = shutil.which("gcc") or shutil.which("cc")


def header_folder() -> Path | None:
    """Where nvml.h lies; None without the package."""
    try:
        files = importlib.metadata.files("nvidia-nvml-dev") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(file.locate())).parent for file in files if file.name == "nvml.h"), None)


def why_not() -> str | None:
    """Why the library cannot be built here; None when it can. Where AGENTTOP_REQUIRE_NVML is set it must."""
    why = _why_not()
    assert why is None or not os.environ.get("AGENTTOP_REQUIRE_NVML"), why
    return why


@functools.lru_cache
def _why_not() -> str | None:
    if sys.platform != "linux":
        return "the stand-in library is built for Linux"
    if COMPILER is None:
        return "needs a C compiler for the stand-in library"
    return None if header_folder() is not None else "needs the package nvidia-nvml-dev for its header"


@functools.lru_cache
def library(old_driver: bool = False) -> Path:
    """The folder with the library, built once in a process; `old_driver` lacks the newer calls."""
    assert COMPILER is not None
    folder = Path(tempfile.mkdtemp(prefix="nvml-"))
    sources = sorted(HERE.glob("*.c"))
    command = [
        COMPILER,
        "-shared",
        "-fPIC",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-deprecated-declarations",
    ]
    command += ["-DOLD_DRIVER"] if old_driver else []
    command += [f"-I{header_folder()}", f"-I{HERE}", "-o", str(folder / "libnvidia-ml.so.1")]
    subprocess.run([*command, *map(str, sources), "-lpthread"], check=True)
    return folder


def environment(script: Path, log: Path | None = None, *, old_driver: bool = False) -> dict[str, str]:
    """Variables under which a process finds the library with this script."""
    paths = [str(library(old_driver)), os.environ.get("LD_LIBRARY_PATH", "")]
    found = {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths)), "NVML_STUB": str(script)}
    return found | ({"NVML_STUB_LOG": str(log)} if log is not None else {})


def write(script: Path, values: dict[str, object]) -> None:
    """Replace the script in one step; None takes a line away."""
    draft = script.with_suffix(".draft")
    draft.write_text("".join(f"{name} {value}\n" for name, value in values.items() if value is not None))
    draft.replace(script)
