"""Jetson boards on trees of files as their kernels show them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agenttop.collect.gpu.base import GpuReading
from agenttop.collect.gpu.jetson import JetsonAdapter
from agenttop.model.clock import ManualClock
from agenttop.model.frames import GpuSample
from agenttop.model.throttle import kind_of
from tests.collect.sane import HOSTILE, assert_sane
from tests.collect.tree import build

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="colons in names of files")


class Watch:
    """An adapter on a tree, and its clock."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock(1000.0)
        self.adapter = JetsonAdapter(self.clock, root)
        self.opening = self.adapter.open(0.0)
        self.reading = GpuReading()

    def look(self, after: float = 1.0) -> GpuSample:
        self.clock.now += after
        self.reading = self.adapter.sample(self.clock.now - 1000)
        return self.reading.samples[0]

    def reasons(self) -> dict[str, str]:
        return {frame.what.rpartition(":")[2]: frame.why or "" for frame in self.reading.missing}


def board(root: Path, chip: str, model: str, device: str, load: int = 731) -> Path:
    """What all boards have."""
    return build(
        root,
        {
            "proc/device-tree/compatible": f"nvidia,p3509-0000\0nvidia,{chip}\0".encode(),
            "proc/device-tree/model": f"{model}\0".encode(),
            "proc/meminfo": "MemTotal:       15990000 kB\nMemAvailable:   6000000 kB",
            f"{device}/load": load,
            f"{device}/power/runtime_status": "active",
        },
    )


def orin_nx(root: Path) -> Path:
    """JetPack 6."""
    board(root, "tegra234", "NVIDIA Jetson Orin NX Engineering Reference Developer Kit", ORIN)
    return build(
        root,
        {
            "etc/nv_tegra_release": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic",
            "sys/class/devfreq/17000000.gpu/cur_freq": 918_000_000,
            "sys/class/devfreq/17000000.gpu/max_freq": 765_000_000,
            "sys/class/devfreq/17000000.gpu/available_frequencies": "306000000 612000000 918000000",
            "sys/class/devfreq/15340000.vic/cur_freq": 115_200_000,
            "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
            "sys/class/thermal/thermal_zone0/temp": 51_000,
            "sys/class/thermal/thermal_zone1/type": "gpu-thermal",
            "sys/class/thermal/thermal_zone1/temp": 58_500,
            "sys/class/thermal/thermal_zone1/trip_point_0_type": "critical",
            "sys/class/thermal/thermal_zone1/trip_point_0_temp": 104_500,
            "sys/class/thermal/thermal_zone1/trip_point_1_type": "passive",
            "sys/class/thermal/thermal_zone1/trip_point_1_temp": 99_000,
            "sys/class/thermal/thermal_zone8/type": "tj-thermal",
            "sys/class/thermal/thermal_zone8/temp": 60_000,
            "sys/class/thermal/cooling_device0/type": "pwm-fan",
            "sys/class/thermal/cooling_device0/cur_state": 3,
            "sys/class/thermal/cooling_device9/type": "gpu-throttle-alert",
            "sys/class/thermal/cooling_device9/cur_state": 0,
            "sys/class/hwmon/hwmon1/name": "ina3221",
            "sys/class/hwmon/hwmon1/in1_label": "VDD_IN",
            "sys/class/hwmon/hwmon1/in1_input": 5000,
            "sys/class/hwmon/hwmon1/curr1_input": 3200,
            "sys/class/hwmon/hwmon1/in2_label": "VDD_CPU_GPU_CV",
            "sys/class/hwmon/hwmon1/in2_input": 5000,
            "sys/class/hwmon/hwmon1/curr2_input": 1600,
            "sys/class/hwmon/hwmon3/name": "soctherm_oc",
            "sys/class/hwmon/hwmon3/oc1_throt_en": 1,
            "sys/class/hwmon/hwmon3/oc1_event_cnt": 0,
            "sys/class/hwmon/hwmon3/oc3_throt_en": 1,
            "sys/class/hwmon/hwmon3/oc3_event_cnt": 37,
        },
    )


ORIN = "sys/devices/platform/bus@0/17000000.gpu"


def test_an_orin(tmp_path: Path) -> None:
    watch = Watch(orin_nx(tmp_path))
    assert (watch.opening.found, watch.opening.missing) == (True, [])
    sample = watch.look()
    assert (sample.vendor, sample.gpu) == ("nvidia", "tegra234-ga10b")
    assert sample.name == "NVIDIA Jetson Orin NX Engineering Reference Developer Kit"
    assert sample.driver == "L4T R36.4.3"
    assert sample.util_fraction == pytest.approx(0.731)
    assert (sample.sm_clock_mhz, sample.sm_clock_max_mhz) == (918, 918)
    assert (sample.temperature_c, sample.hotspot_c, sample.temperature_limit_c) == (58.5, 60.0, 99.0)
    assert (sample.power_w, sample.power_scope, sample.power_window_s) == (pytest.approx(16.0), "module", 0.0)
    assert (sample.memory_kind, sample.mem_total_bytes) == ("unified", 15_990_000 * 1024)
    assert sample.mem_used_bytes == 9_990_000 * 1024
    assert sample.throttle == []  # events of before are none of now
    assert watch.look().window_s == 1.0


@pytest.mark.parametrize(
    ("chip", "device", "clock"),
    [
        ("tegra234", "sys/devices/platform/17000000.ga10b", "17000000.ga10b"),
        ("tegra194", "sys/devices/17000000.gv11b", "17000000.gv11b"),
        ("tegra194", "sys/devices/platform/gpu.0", "17000000.gv11b"),
        ("tegra186", "sys/devices/gpu.0", "17000000.gp10b"),
        ("tegra210", "sys/devices/gpu.0", "57000000.gpu"),
    ],
)
def test_the_places_of_other_boards_and_releases(tmp_path: Path, chip: str, device: str, clock: str) -> None:
    board(tmp_path, chip, "NVIDIA Jetson", device)
    build(tmp_path, {f"sys/class/devfreq/{clock}/cur_freq": 1_377_000_000})
    sample = Watch(tmp_path).look()
    assert (sample.util_fraction, sample.sm_clock_mhz) == (pytest.approx(0.731), 1377)


@pytest.mark.parametrize(
    "compatible", [b"nvidia,p4071-0000\0nvidia,tegra264\0", b"raspberrypi,5\0", b"", b"\xff"]
)
def test_thor_and_other_boards_are_left_alone(tmp_path: Path, compatible: bytes) -> None:
    board(tmp_path, "tegra234", "NVIDIA Jetson AGX Thor", ORIN)
    build(tmp_path, {"proc/device-tree/compatible": compatible})
    watch = Watch(tmp_path)
    assert (watch.opening.found, watch.opening.missing) == (False, [])
    assert watch.adapter.sample(0.0) == GpuReading()


def test_a_board_that_only_meters_its_parts_tells_the_gpus_rail(tmp_path: Path) -> None:
    orin_nx(tmp_path)
    build(
        tmp_path,
        {"sys/class/hwmon/hwmon1/in1_label": "VDD_GPU_SOC", "sys/class/hwmon/hwmon1/in2_label": "NC"},
    )
    sample = Watch(tmp_path).look()
    assert (sample.power_w, sample.power_scope) == (pytest.approx(16.0), "chip")


def test_the_meter_of_an_older_release(tmp_path: Path) -> None:
    board(tmp_path, "tegra210", "NVIDIA Jetson Nano Developer Kit", "sys/devices/gpu.0")
    place = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    build(tmp_path, {f"{place}/rail_name_0": "POM_5V_IN", f"{place}/in_power0_input": 4321})
    sample = Watch(tmp_path).look()
    assert (sample.power_w, sample.power_scope) == (pytest.approx(4.321), "module")


def test_what_holds_it_down(tmp_path: Path) -> None:
    orin_nx(tmp_path)
    watch = Watch(tmp_path)
    watch.look()
    build(
        tmp_path,
        {
            "sys/class/thermal/cooling_device9/cur_state": 1,
            "sys/class/hwmon/hwmon3/oc3_event_cnt": 40,
            "sys/class/hwmon/hwmon3/oc1_event_cnt": 1,
        },
    )
    held = watch.look().throttle
    assert held == ["thermal", "power supply too low", "over-current (peak)"]
    assert [kind_of(reason) for reason in held] == ["thermal", "power", "power"]
    assert watch.look().throttle == ["thermal"]


def test_a_gpu_between_two_pieces_of_work_is_idle_and_not_woken(tmp_path: Path) -> None:
    orin_nx(tmp_path)
    build(tmp_path, {f"{ORIN}/power/runtime_status": "suspended", f"{ORIN}/load": 999})
    sample = Watch(tmp_path).look()
    assert (sample.state, sample.util_fraction, sample.sm_clock_mhz) == ("ok", 0.0, 0)


def test_a_bare_board_gives_reasons(tmp_path: Path) -> None:
    build(tmp_path, {"proc/device-tree/compatible": b"nvidia,tegra194\0"})
    watch = Watch(tmp_path)
    sample = watch.look()
    assert_sane(sample)
    assert sample.name == "NVIDIA Jetson (tegra194)"
    for field in ("util_fraction", "sm_clock_mhz", "temperature_c", "power_w", "throttle"):
        assert getattr(sample, field) is None
        assert field in watch.reasons()


@pytest.mark.parametrize("content", HOSTILE, ids=repr)
def test_files_with_nonsense_in_them_give_no_figures(tmp_path: Path, content: str | bytes) -> None:
    orin_nx(tmp_path)
    watch = Watch(tmp_path)
    kept = ("compatible", "type", "name", "runtime_status", "oc1_throt_en", "oc3_throt_en")
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.name not in kept:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for _ in range(12):
        assert_sane(watch.look())
    assert watch.look().power_w is None
