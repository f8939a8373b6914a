"""NVIDIA GPUs, behind the real interface: a stand-in libnvidia-ml.so.1 that nvidia-ml-py finds by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.collect import nvml
from tests.collect.nvml.rig import GIB, H100, Session
from tests.waiting import until

pytestmark = pytest.mark.skipif(nvml.why_not() is not None, reason=str(nvml.why_not()))


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    started = Session(tmp_path)
    yield started
    started.end()


def test_two_healthy_gpus(session: Session) -> None:
    session.add(0)
    session.add(1, DeviceGetUUID="GPU-2", DeviceGetUtilizationRates__gpu=0)
    assert session.do("open") == []
    first, second = session.sample()
    assert first["gpu"] == H100["DeviceGetUUID"]
    assert (second["gpu"], second["index"], second["util_fraction"]) == ("GPU-2", 1, 0.0)
    shown = {
        name: first[name] for name in first if first[name] not in (None, {}) and first[name] is not False
    }
    assert shown == {
        "t": 1001.0,
        "gpu": H100["DeviceGetUUID"],
        "index": 0,
        "vendor": "nvidia",
        "name": "NVIDIA H100 80GB HBM3",
        "state": "ok",
        "driver": "580.95.05",
        "util_fraction": 0.57,
        "mem_util_fraction": 0.31,
        "mem_used_bytes": 40 * GIB,
        "mem_total_bytes": 80 * GIB,
        "sm_clock_mhz": 1755,
        "sm_clock_max_mhz": 1980,
        "mem_clock_mhz": 2619,
        "power_w": 512.345,
        "power_limit_w": 700.0,
        "temperature_c": 64.0,
        "mem_temperature_c": 71.0,
        "energy_j": 123456.789,
        "performance_state": 0,
        "throttle": [],
        "pcie_generation": 5,
        "pcie_generation_max": 5,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "bus": "0000:01:00.0",
        "energy_source": "counter",
        "mem_reserved_bytes": 0,
        "memory_kind": "dedicated",
        "power_scope": "board",
    }
    session.do("close")
    assert session.calls()[-1] == "Shutdown"


def test_rates_need_two_looks(session: Session) -> None:
    session.add(0)
    session.do("open")
    session.sample()
    # 0.5 s of 2 s under a power cap, 0.25 s too hot; 4 GB sent and 8 GB received.
    session.gpu(0, field__74="1500000000 3", field__269="5250000000 3")
    session.gpu(0, field__197="1004000000000 3", field__198="2008000000000 3")
    (sample,) = session.sample(2.0)
    assert sample["window_s"] == 2.0
    assert sample["throttle_power_fraction"] == pytest.approx(0.25)
    assert sample["throttle_thermal_fraction"] == pytest.approx(0.125)
    assert sample["pcie_sent_bytes_s"] == pytest.approx(2e9)
    assert sample["pcie_received_bytes_s"] == pytest.approx(4e9)


def test_throttle_reasons_in_words(session: Session) -> None:
    session.add(0, DeviceGetCurrentClocksEventReasons="0x1")
    session.do("open")
    assert session.sample()[0]["throttle"] == []  # idle is no reason
    session.gpu(0, DeviceGetCurrentClocksEventReasons=hex(0x4 | 0x40 | 0x8))
    assert session.sample()[0]["throttle"] == ["power cap", "hw slowdown", "thermal (hw)"]
    session.gpu(0, DeviceGetCurrentClocksEventReasons=hex(0x80 | 0x8000))
    assert session.sample()[0]["throttle"] == ["power brake", "0x8000"]
    session.gpu(0, DeviceGetCurrentClocksEventReasons=None)
    assert session.sample()[0]["throttle"] is None


def test_each_value_fails_alone_and_is_none(session: Session) -> None:
    """A consumer card in a container: most calls refuse, each in its own way."""
    session.add(0)
    session.set(
        {
            "0.return.DeviceGetEnforcedPowerLimit": 3,
            "0.return.DeviceGetTemperatureV": 25,
            "0.return.DeviceGetTotalEnergyConsumption": 4,
            "0.return.DeviceGetCurrentClocksEventReasons": 999,
            "0.return.DeviceGetMemoryInfo_v2": 13,
            "0.return.DeviceGetUtilizationRates": 10,
            "0.return.DeviceGetFieldValues": 26,
        }
    )
    session.do("open")
    (sample,) = session.sample()
    assert sample["state"] == "ok"
    for name in ("power_limit_w", "temperature_c", "throttle", "util_fraction", "fan_fraction"):
        assert sample[name] is None, name
    assert sample["mem_used_bytes"] == 41 * GIB  # the older call
    assert sample["power_w"] == 512.345
    assert (sample["energy_j"], sample["energy_source"]) == (0.0, "power")
    # Not supported is for good; a timeout is not.
    session.set({"0.return.DeviceGetEnforcedPowerLimit": 0, "0.return.DeviceGetUtilizationRates": 0})
    (sample,) = session.sample()
    assert (sample["power_limit_w"], sample["util_fraction"]) == (None, 0.57)


def test_numbers_that_only_a_driver_without_the_value_would_give(session: Session) -> None:
    unknown = 0xFFFFFFFF
    session.add(0, DeviceGetPowerUsage=unknown, DeviceGetClockInfo__1=unknown, DeviceGetPerformanceState=32)
    session.gpu(0, DeviceGetUtilizationRates__gpu=250, DeviceGetFanSpeed=unknown, DeviceGetTemperatureV=0)
    session.gpu(0, DeviceGetMemoryInfo_v2__total=0, DeviceGetMemoryInfo__total=0, field__82=f"{unknown} 1")
    session.do("open")
    (sample,) = session.sample()
    names = ("power_w", "sm_clock_mhz", "performance_state", "util_fraction", "fan_fraction", "temperature_c")
    assert [sample[name] for name in names] == [None] * 6
    assert [sample[name] for name in ("mem_used_bytes", "mem_total_bytes", "mem_temperature_c")] == [None] * 3


def test_counters_of_32_bits(session: Session) -> None:
    """Narrow counters are used where the link is too slow to go round unseen, and wrap."""
    session.add(0, DeviceGetMaxPcieLinkGeneration=1, DeviceGetCurrPcieLinkWidth=4)
    session.gpu(0, field__197=f"{2**32 - 1000} 1", field__198="500 1")
    session.do("open")
    session.sample()
    session.gpu(0, field__197="1000 1", field__198="2500 1")
    (sample,) = session.sample()
    assert (sample["pcie_sent_bytes_s"], sample["pcie_received_bytes_s"]) == (2000.0, 2000.0)


@pytest.mark.parametrize("narrow", [True, False])
def test_a_fast_link_without_wide_counters_is_measured_in_its_own_thread(
    session: Session, narrow: bool
) -> None:
    counters = "1000 1" if narrow else None
    session.add(0, field__197=counters, field__198=counters)
    session.set({"0.DeviceGetPcieThroughput.0": 1500, "0.DeviceGetPcieThroughput.1": 250_000})
    session.do("open")
    sample = until(lambda: next((s for s in session.sample(0.0) if s["pcie_sent_bytes_s"] is not None), None))
    assert (sample["pcie_sent_bytes_s"], sample["pcie_received_bytes_s"]) == (1.5e6, 250e6)


def test_a_lost_gpu_keeps_its_name_and_comes_back(session: Session) -> None:
    session.add(0)
    session.add(1, DeviceGetUUID="GPU-2")
    session.do("open")
    session.sample()
    session.set({"1.return": 15})
    healthy, lost = session.sample()
    assert (healthy["state"], healthy["util_fraction"]) == ("ok", 0.57)
    assert (lost["gpu"], lost["name"], lost["state"]) == ("GPU-2", "NVIDIA H100 80GB HBM3", "lost")
    assert lost["util_fraction"] is None
    assert session.calls().count("Init 0") == 1
    # The library is opened again after a while, again and again, while the other GPU is still read.
    for _ in range(20):
        healthy, lost = session.sample(5.0)
        assert (healthy["state"], lost["state"]) == ("ok", "lost")
    assert 2 <= session.calls().count("Init 0") <= 5
    session.set({"1.return": None})
    assert until(lambda: [s["state"] for s in session.sample(60.0)] == ["ok", "ok"])


def test_a_driver_that_goes_away(session: Session) -> None:
    session.add(0)
    session.do("open")
    session.sample()
    session.set({"0.return": 1, "return.InitWithFlags": 18})
    for _ in range(10):
        (sample,) = session.sample(10.0)
        assert (sample["gpu"], sample["state"]) == (H100["DeviceGetUUID"], "lost")
    session.set({"0.return": None, "return.InitWithFlags": None})
    assert until(lambda: session.sample(60.0)[0]["state"] == "ok")


@pytest.mark.parametrize(
    ("code", "why", "fix"),
    [
        (18, "updated while the old one still runs", "reboot"),
        (9, "not loaded", "modprobe"),
        (4, "no permission", "group"),
        (77, "NVML error 77", None),
    ],
)
def test_why_the_library_does_not_open(session: Session, code: int, why: str, fix: str | None) -> None:
    session.card("0000:01:00.0")
    session.set({"return.InitWithFlags": code})
    vendors, (missing,) = session.do("detect")
    assert vendors == []
    assert missing["what"] == "gpu"
    assert why in missing["why"]
    assert fix is None or fix in missing["fix"]


def test_a_sleeping_laptop_gpu_is_not_woken(session: Session) -> None:
    status = session.card("0000:01:00.0", "suspended")
    session.add(0)
    assert session.do("open") == []
    for _ in range(3):
        (sample,) = session.sample()
        assert (sample["gpu"], sample["state"]) == ("0000:01:00.0", "asleep")
    assert session.calls() == []
    status.write_text("active\n")
    (sample,) = session.sample()
    assert (sample["gpu"], sample["state"]) == (H100["DeviceGetUUID"], "ok")


def test_beside_a_sleeping_gpu_only_the_other_one_is_opened(session: Session) -> None:
    session.card("0000:01:00.0", "suspended")
    session.card("0000:02:00.0", "active")
    session.add(0)
    session.add(1, DeviceGetUUID="GPU-2", bus="0000:02:00.0")
    session.do("open")
    asleep, awake = session.sample()
    assert (asleep["gpu"], asleep["state"]) == ("0000:01:00.0", "asleep")
    assert (awake["gpu"], awake["state"], awake["index"]) == ("GPU-2", "ok", 1)
    assert session.calls() == ["Init 2", "Handle 1"]  # 2: attach to no GPU


def test_detect_finds_the_driver(session: Session) -> None:
    session.add(0)
    session.card("0000:01:00.0")
    assert session.do("detect") == [["nvidia"], []]
    session.card("0000:03:00.0", vendor="0x1002")
    vendors, _ = session.do("detect")
    assert vendors == ["nvidia"]


def test_an_old_driver_without_the_newer_calls(tmp_path: Path) -> None:
    session = Session(tmp_path, old_driver=True)
    session.add(0, DeviceGetCurrentClocksThrottleReasons=4, DeviceGetTemperature=55)
    session.set({"0.return.DeviceGetFieldValues": 13})
    session.set({"0.DeviceGetViolationStatus.0": 1_000_000_000, "0.DeviceGetViolationStatus.1": 0})
    session.do("open")
    (sample,) = session.sample()
    assert (sample["throttle"], sample["temperature_c"]) == (["power cap"], 55.0)
    session.set({"0.DeviceGetViolationStatus.0": 1_500_000_000})
    (sample,) = session.sample()
    assert sample["throttle_power_fraction"] == pytest.approx(0.5)
    assert sample["throttle_thermal_fraction"] == 0.0
    session.end()


def test_without_a_driver(tmp_path: Path) -> None:
    """No library: the reason names what was looked for, and cards that are there."""
    session = Session(tmp_path, library=False)
    vendors, (missing,) = session.do("detect")
    if "no NVIDIA driver" not in missing["why"]:
        pytest.skip("this host has an NVIDIA driver")
    assert vendors == []
    assert missing["why"] == "no NVIDIA driver, no AMD or Intel card on the PCI bus"
    session.card("0000:01:00.0")
    _, (missing,) = session.do("detect")
    assert "1 NVIDIA card(s) present" in missing["why"]
    assert "install the NVIDIA driver" in missing["fix"]
    session.end()
