"""AMD's own library: one that works, one without its library, and none; never a word in the terminal."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from agenttop.collect.gpu.amd import smi
from agenttop.collect.gpu.amd.adapter import AmdAdapter
from agenttop.model.clock import ManualClock
from tests.collect.amd_structs import filled
from tests.collect.amd_trees import INSTINCT, Host, instinct_metrics, mi300x, radeon_7900, write
from tests.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="AMD's library is for Linux")

TALKATIVE = """
import os
print("amdsmi says hello")
os.write(1, b"from C, too\\n")
os.write(2, b"and on the other one\\n")
"""

WORKING = (
    TALKATIVE
    + """
from pathlib import Path
CALLS = Path(__file__).with_name("calls")
def note(word):
    with CALLS.open("a") as file:
        file.write(word + "\\n")
def amdsmi_init():
    print("starting")
    note("init")
def amdsmi_shut_down():
    note("end")
def amdsmi_get_processor_handles():
    return ["first"]
def amdsmi_get_gpu_device_bdf(handle):
    return "0000:05:00.0"
def amdsmi_get_violation_status(handle):
    return {"per_ppt_pwr": 40, "per_hbm_thrm": 0, "per_vr_thrm": "N/A", "per_socket_thrm": 200,
            "per_prochot_thrm": True}
"""
)

WITHOUT_LIBRARY = (
    TALKATIVE
    + """
raise KeyError("libamd_smi.so")
"""
)
"""What the package of the package index does without ROCm."""


def run(tmp_path: Path, module: str | None, *, official: bool = False) -> subprocess.CompletedProcess[str]:
    folder = tmp_path / (smi.OFFICIAL if official else "site")
    if module is not None:
        write(folder / "amdsmi", {"__init__.py": module})
    program = f"""
        import sys
        from agenttop.collect.gpu.amd import smi
        before = list(sys.path)
        library = smi.load({str(tmp_path)!r})
        assert sys.path == before
        print("loaded", library is not None, "amdsmi" in sys.modules)
        print("still heard", file=sys.stderr)
        if library is not None:
            print(smi.violations(library, "first"))
    """
    path = os.pathsep.join([str(tmp_path / "site"), *sys.path])
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
        timeout=60,
        check=True,
    )


@pytest.mark.parametrize("official", [False, True])
def test_a_library_that_works(tmp_path: Path, official: bool) -> None:
    done = run(tmp_path, WORKING, official=official)
    assert done.stdout == "loaded True True\n{'power cap': 0.4, 'thermal (memory)': 0.0}\n"
    assert done.stderr == "still heard\n"


@pytest.mark.parametrize(
    "module",
    [
        WITHOUT_LIBRARY,
        TALKATIVE + "raise SystemExit(3)",
        TALKATIVE + "import ctypes; ctypes.CDLL('no.so')",
        "x =",
    ],
    ids=["without its library", "that ends the program", "that cannot be linked", "that is broken"],
)
def test_a_package_that_does_not_work_is_silent(tmp_path: Path, module: str) -> None:
    done = run(tmp_path, module)
    assert (done.stdout, done.stderr) == ("loaded False False\n", "still heard\n")


def test_the_package_of_the_index_without_rocm(tmp_path: Path) -> None:
    """The real one, where the extra `amd` is installed."""
    pytest.importorskip("importlib.metadata")
    import importlib.metadata

    try:
        importlib.metadata.version("amdsmi")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the extra amd is not installed")
    done = run(tmp_path, None)
    assert done.stdout.startswith("loaded ")
    assert done.stderr == "still heard\n"


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / smi.OFFICIAL / "amdsmi"
    write(folder, {"__init__.py": WORKING})
    for name in [name for name in sys.modules if name.partition(".")[0] == "amdsmi"]:
        monkeypatch.delitem(sys.modules, name)
    yield folder / "calls"
    sys.modules.pop("amdsmi", None)


def calls(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


UNKNOWN = b"\x40\x00\x01\x0c" + bytes(60)
"""Revision 1.12."""


def test_it_is_asked_of_an_instinct_with_unknown_tables(tmp_path: Path, library: Path) -> None:
    host = Host(tmp_path)
    mi300x(host, gpu_metrics=UNKNOWN)
    adapter = AmdAdapter(ManualClock(100.0), host.root)
    adapter.open(0.0)

    def told() -> bool:
        (sample,) = adapter.sample(0.0).samples
        return sample.throttle == ["power cap"] and sample.throttle_shares["power cap"] == 0.4

    until(told)
    adapter.close()
    assert calls(library) == ["init", "end"]


@pytest.mark.parametrize("asleep", [False, True], ids=["decodable tables", "a card asleep"])
def test_it_is_not_loaded_without_need(tmp_path: Path, library: Path, asleep: bool) -> None:
    host = Host(tmp_path)
    mi300x(host, gpu_metrics=UNKNOWN if asleep else instinct_metrics())
    if asleep:
        write(radeon_7900(host), {"power/runtime_status": "suspended"})
    adapter = AmdAdapter(ManualClock(100.0), host.root)
    adapter.open(0.0)
    for _ in range(3):
        adapter.sample(0.0)
    assert adapter._violations is None
    assert calls(library) == []
    assert "amdsmi" not in sys.modules


def test_a_radeon_needs_no_library(tmp_path: Path, library: Path) -> None:
    host = Host(tmp_path)
    radeon_7900(host, gpu_metrics=UNKNOWN)
    adapter = AmdAdapter(ManualClock(100.0), host.root)
    adapter.open(0.0)
    adapter.sample(0.0)
    assert adapter._violations is None


def test_a_table_that_is_only_cut_needs_no_library(tmp_path: Path, library: Path) -> None:
    host = Host(tmp_path)
    mi300x(host, gpu_metrics=filled((1, 7))[:50])
    adapter = AmdAdapter(ManualClock(100.0), host.root)
    adapter.open(0.0)
    samples = adapter.sample(0.0).samples
    assert [sample.gpu for sample in samples] == [INSTINCT]
    assert adapter._violations is None
