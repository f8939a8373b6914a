"""The GPU of a Mac: lines of macmon, the program itself as a stand-in, and what macOS tells."""

from __future__ import annotations

import json
import os
import plistlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.gpu.apple import AppleAdapter
from agenttop.collect.gpu.apple.lines import Line, parse
from agenttop.collect.gpu.apple.macmon import Macmon, find
from agenttop.collect.gpu.apple.system import Accelerator, MacSystem, accelerator_of
from agenttop.model.clock import ManualClock, SystemClock
from agenttop.model.frames import GpuSample
from tests.collect.sane import assert_sane
from tests.waiting import until

GIB = 1 << 30

V07: dict[str, Any] = {
    "timestamp": "2026-04-02T10:00:00+00:00",
    "temp": {"cpu_temp_avg": 50.1, "gpu_temp_avg": 47.5},
    "memory": {"ram_total": 64 * GIB, "ram_usage": 30 * GIB, "swap_total": 0, "swap_usage": 0},
    "ecpu_usage": [1400, 0.15],
    "pcpu_usage": [1800, 0.10],
    "gpu_usage": [700, 0.25],
    "cpu_power": 2.5,
    "gpu_power": 11.25,
    "all_power": 14.0,
    "sys_power": 22.0,
}
V080 = {key: value for key, value in V07.items() if not key.endswith("_usage")} | {
    "gpu_freq_mhz": 700,
    "gpu_usage_ratio": 0.25,
    "gpu_active_ratio": 0.6,
    "fans": [{"name": "fan0", "rpm": 2311, "max_rpm": 5779}, {"name": "fan1", "rpm": 2514, "max_rpm": 6241}],
}
V081 = V07 | V080
V082 = {("gpu_scaled_ratio" if key == "gpu_usage_ratio" else key): value for key, value in V080.items()}
SOC = {"chip_name": "Apple M3 Max", "gpu_cores": 40, "gpu_freqs": [0, 338, 700, 1400], "memory_gb": 64}


def line_of(fields: dict[str, Any], **more: Any) -> Line:
    line = parse(json.dumps(fields | more).encode() + b"\n")
    assert line is not None
    return line


@pytest.mark.parametrize("fields", [V080, V081, V082], ids=["0.8.0", "0.8.1", "0.8.2"])
def test_the_share_of_time_and_not_the_one_scaled_by_the_clock(fields: dict[str, Any]) -> None:
    line = line_of(fields, soc=SOC)
    assert (line.active, line.scaled) == (0.6, 0.25)
    assert (line.clock_mhz, line.clock_max_mhz) == (700, 1400)
    assert (line.power_w, line.temperature_c) == (11.25, 47.5)
    assert (line.fan_rpm, line.fan_fraction) == (2514, pytest.approx(2514 / 6241))
    assert (line.chip, line.cores) == ("Apple M3 Max", 40)


def test_the_share_of_time_from_0_7_where_the_fastest_clock_is_known() -> None:
    assert line_of(V07, soc=SOC).active == pytest.approx(0.5)  # a quarter of what 1400 MHz can do, at 700
    without = line_of(V07)
    assert (without.active, without.scaled, without.clock_mhz) == (None, 0.25, 700)
    assert line_of(V07, gpu_usage=[0, 0.0]).active == 0.0


def test_a_sensor_that_reads_nothing_is_no_temperature() -> None:
    assert line_of(V07, temp={"gpu_temp_avg": 0.0}).temperature_c is None


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"{", b"[]", b"null", b"\xff\xfe", b"error: no such option\n", b"[" * 9999]
)
def test_what_is_no_line(raw: bytes) -> None:
    assert parse(raw) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
FIELDS = sorted({*V081, *V082, "soc"})


@given(st.dictionaries(st.sampled_from(FIELDS), JSON))
def test_no_line_is_too_broken(fields: dict[str, Any]) -> None:
    line = parse(json.dumps(fields | {"gpu_power": fields.get("gpu_power")}).encode())
    assert line is not None
    for value in (line.active, line.scaled, line.fan_fraction):
        assert value is None or 0 <= value <= 1
    for number in (line.clock_mhz, line.clock_max_mhz, line.power_w, line.fan_rpm):
        assert number is None or 0 <= number <= 100_000


def registry(used: int | None = 21 * GIB, percent: int = 93) -> bytes:
    statistics: dict[str, Any] = {"Device Utilization %": percent, "Alloc system memory": 30 * GIB}
    if used is not None:
        statistics["In use system memory"] = used
    entry = {"model": "Apple M3 Max", "gpu-core-count": 40, "PerformanceStatistics": statistics}
    return plistlib.dumps([{"IOClass": "other"}, entry])


def test_the_registry_of_macos() -> None:
    expected = Accelerator(model="Apple M3 Max", cores=40, busy=0.93, used_bytes=21 * GIB)
    assert accelerator_of(registry()) == expected


@given(st.binary(max_size=200) | st.integers(0, 400).map(lambda cut: registry()[:cut]))
def test_no_registry_is_too_broken(raw: bytes) -> None:
    assert accelerator_of(raw) is None


class StandInMac:
    """macOS as a Mac of Apple silicon would answer."""

    def __init__(self, raw: bytes | None = None, arm: int = 1, wired_mb: int = 0) -> None:
        self.raw = raw
        self.numbers = {"hw.optional.arm64": arm, "iogpu.wired_limit_mb": wired_mb}
        self.texts = {"kern.osproductversion": "15.6", "machdep.cpu.brand_string": "Apple M3 Max"}

    def number(self, name: str) -> int | None:
        return self.numbers.get(name)

    def text(self, name: str) -> str | None:
        return self.texts.get(name)

    def registry(self) -> bytes | None:
        return self.raw

    def working_set(self) -> int | None:
        return 48 * GIB


def stand_in(folder: Path, body: str) -> str:
    """A program called macmon."""
    path = folder / "macmon"
    path.write_text(f"#!{sys.executable}\nimport sys, time, json\n{body}\n")
    path.chmod(0o755)
    return str(path)


def speaking(fields: dict[str, Any], then: str = "time.sleep(60)") -> str:
    return f"print(json.dumps({fields!r}), flush=True)\n{then}"


pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")


class Opened:
    """An adapter with a stand-in program, closed at the end."""

    def __init__(self, system: StandInMac, path: str | None) -> None:
        self.adapter = AppleAdapter(SystemClock(), system=system, macmon=path)
        self.opening = self.adapter.open(0.0)

    def look(self) -> GpuSample:
        self.reading = self.adapter.sample(1.0)
        return self.reading.samples[0]

    def reasons(self) -> dict[str, tuple[str | None, str | None]]:
        return {f.what.rpartition(":")[2]: (f.why, f.fix) for f in self.reading.missing}


@pytest.fixture
def opened() -> Iterator[list[Opened]]:
    made: list[Opened] = []
    yield made
    for one in made:
        one.adapter.close()


def test_a_mac_with_macmon(tmp_path: Path, opened: list[Opened]) -> None:
    mac = Opened(StandInMac(registry()), stand_in(tmp_path, speaking(V081 | {"soc": SOC})))
    opened.append(mac)
    assert (mac.opening.found, mac.opening.missing) == (True, [])
    until(lambda: mac.look().power_w is not None)
    sample = mac.look()
    assert (sample.vendor, sample.name, sample.driver) == (
        "apple",
        "Apple M3 Max (40-core GPU)",
        "macOS 15.6",
    )
    assert (sample.util_fraction, sample.power_w, sample.power_scope) == (0.6, 11.25, "chip")
    assert (sample.sm_clock_mhz, sample.sm_clock_max_mhz) == (700, 1400)
    assert (sample.temperature_c, sample.fan_rpm) == (47.5, 2514)
    assert sample.memory_kind == "unified"
    assert (sample.mem_used_bytes, sample.mem_total_bytes) == (21 * GIB, 48 * GIB)
    assert_sane(sample)
    assert "throttle" in mac.reasons()


def test_the_limit_that_the_user_has_set_is_the_ceiling(tmp_path: Path, opened: list[Opened]) -> None:
    mac = Opened(StandInMac(registry(), wired_mb=57_344), stand_in(tmp_path, speaking(V081)))
    opened.append(mac)
    assert mac.look().mem_total_bytes == 56 * GIB


def test_without_macmon_there_is_less_and_it_says_how_to_get_it(
    opened: list[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agenttop.collect.gpu.apple.adapter.find", lambda: None)
    mac = Opened(StandInMac(registry()), None)
    opened.append(mac)
    sample = mac.look()
    assert (sample.util_fraction, sample.mem_used_bytes, sample.power_w) == (0.93, 21 * GIB, None)
    assert mac.reasons()["power_w"] == ("macmon is not installed", "brew install macmon")


def test_without_both_there_is_nothing_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agenttop.collect.gpu.apple.adapter.find", lambda: None)
    mac = Opened(StandInMac(None), None)
    assert not mac.opening.found
    assert mac.opening.missing[0].fix == "brew install macmon"


def test_a_mac_without_apple_silicon_has_none(tmp_path: Path) -> None:
    mac = Opened(StandInMac(registry(), arm=0), stand_in(tmp_path, speaking(V081)))
    assert (mac.opening.found, mac.opening.missing) == (False, [])


class TestProgram:
    def test_one_that_does_not_know_an_option_is_asked_without_it(self, tmp_path: Path) -> None:
        body = f"'--soc-info' in sys.argv and sys.exit(2)\n{speaking(V07)}"
        program = Macmon(stand_in(tmp_path, body), SystemClock())
        try:
            until(lambda: program.newest() is not None)
        finally:
            program.close()

    def test_one_that_ends_is_started_again_but_not_at_once(self, tmp_path: Path) -> None:
        log = tmp_path / "starts"
        body = f"open({str(log)!r}, 'a').write('x')\n{speaking(V081, 'sys.exit(1)')}"
        clock = ManualClock(100.0)
        program = Macmon(stand_in(tmp_path, body), clock)
        starts = []
        for _ in range(4):
            until(lambda: program.newest() is not None or program.failed == "macmon has ended")
            until(lambda: program.newest() is None or program.failed == "macmon has ended")
            for _ in range(20):
                program.newest()
            starts.append(len(log.read_text()))
            clock.now += 1.0
        program.close()
        assert starts[0] == 1
        assert starts[-1] <= 3
        assert program.newest() is None

    def test_a_line_of_long_ago_says_nothing_of_now(self, tmp_path: Path) -> None:
        clock = ManualClock(100.0)
        program = Macmon(stand_in(tmp_path, speaking(V081)), clock)
        try:
            until(lambda: program.newest() is not None)
            clock.now += 6.0
            assert program.newest() is None
            clock.now += 30.0  # it is ended, and another one waits for its time
            assert program.newest() is None
            assert program.failed == "macmon says nothing"
        finally:
            program.close()

    def test_torn_endless_and_foreign_lines_are_passed_over(self, tmp_path: Path) -> None:
        body = f"sys.stdout.write('x' * 300000 + chr(10) + '{{' + chr(10))\n{speaking(V081)}"
        program = Macmon(stand_in(tmp_path, body), SystemClock())
        try:
            until(lambda: program.newest() is not None)
        finally:
            program.close()

    def test_its_power_adds_up(self, tmp_path: Path) -> None:
        body = "while True:\n    print(json.dumps({'gpu_power': 10.0}), flush=True)\n    time.sleep(0.02)"
        program = Macmon(stand_in(tmp_path, body), SystemClock())
        try:
            until(lambda: program.newest() is not None and program.energy_j > 1.0)
            first, begin = program.energy_j, time.monotonic()
            until(lambda: program.energy_j > first + 2.0)
            assert time.monotonic() - begin >= 0.15
        finally:
            program.close()

    def test_it_ends_with_its_owner_and_with_the_pipe(self, tmp_path: Path) -> None:
        """The owner is killed: nothing of its own can run any more."""
        path = stand_in(
            tmp_path,
            "while True:\n    print(json.dumps({'gpu_power': 1.0}), flush=True)\n    time.sleep(0.05)",
        )
        owner = (
            "import sys, time\nfrom agenttop.collect.gpu.apple.macmon import Macmon\n"
            "from agenttop.model.clock import SystemClock\n"
            f"program = Macmon({path!r}, SystemClock())\nprogram.newest()\n"
            "print(program._run.child.pid, flush=True)\ntime.sleep(60)\n"
        )
        process = subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.kill()
        process.wait()
        process.stdout.close()
        until(lambda: not alive(child))

    def test_one_that_cannot_be_started_says_so(self, tmp_path: Path) -> None:
        program = Macmon(str(tmp_path / "nowhere"), SystemClock())
        assert program.newest() is None
        assert program.failed == "macmon cannot be started (No such file or directory)"

    def test_it_is_found_on_the_path(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = stand_in(tmp_path, "")
        monkeypatch.setenv("PATH", str(tmp_path))
        assert find() == path


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    return not (state.exists() and ") Z " in state.read_text())


@pytest.mark.skipif(sys.platform == "darwin", reason="there it answers")
def test_the_real_macos_is_not_asked_elsewhere() -> None:
    system = MacSystem()
    assert system.number("hw.optional.arm64") is None
    assert system.text("machdep.cpu.brand_string") is None
    assert system.registry() is None
    assert system.working_set() is None
