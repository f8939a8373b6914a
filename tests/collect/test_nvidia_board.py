"""Memory, heat, power, energy and what holds the clocks down, on NVIDIA GPUs of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.collect import nvml
from tests.collect.nvml.rig import GIB, Session

pytestmark = pytest.mark.skipif(nvml.why_not() is not None, reason=str(nvml.why_not()))

NS = 10**9


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    started = Session(tmp_path)
    yield started
    started.end()


def looks(session: Session, count: int, after: float = 1.0) -> list[dict[str, Any]]:
    return [session.sample(after)[0] for _ in range(count)]


class TestMemory:
    def test_what_the_driver_reserves_stands_apart(self, session: Session) -> None:
        session.add(0, DeviceGetMemoryInfo_v2__reserved=GIB // 2)
        session.do("open")
        (sample,) = session.sample()
        assert (sample["mem_used_bytes"], sample["mem_reserved_bytes"]) == (40 * GIB, GIB // 2)
        assert sample["memory_kind"] == "dedicated"

    def test_an_old_driver_does_not_tell_the_reserve(self, session: Session) -> None:
        session.add(0)
        session.set({"0.return.DeviceGetMemoryInfo_v2": 13})
        session.do("open")
        (sample,) = session.sample()
        assert (sample["mem_used_bytes"], sample["mem_reserved_bytes"]) == (41 * GIB, None)

    @pytest.mark.parametrize("told", ["refused", "nothing"])
    def test_a_gpu_that_shares_the_hosts_memory(self, session: Session, told: str) -> None:
        session.root.joinpath("proc").mkdir(parents=True)
        meminfo = "MemTotal:       125829120 kB\nMemFree: 10 kB\nMemAvailable:   83886080 kB\n"
        session.root.joinpath("proc/meminfo").write_text(meminfo)
        session.add(0, DeviceGetName="NVIDIA GB10")
        if told == "refused":
            session.set({"0.return.DeviceGetMemoryInfo_v2": 3, "0.return.DeviceGetMemoryInfo": 3})
        else:
            session.gpu(0, DeviceGetMemoryInfo_v2__total=0, DeviceGetMemoryInfo__total=0)
            session.gpu(0, DeviceGetMemoryInfo_v2__used=0, DeviceGetMemoryInfo__used=0)
        session.do("open")
        (sample,) = session.sample()
        assert sample["memory_kind"] == "unified"
        assert (sample["mem_used_bytes"], sample["mem_total_bytes"]) == (40 * GIB, 120 * GIB)
        assert sample["power_scope"] == "chip"

    def test_a_card_that_tells_no_size_is_not_taken_for_one_that_shares(self, session: Session) -> None:
        session.add(0)
        session.set({"0.return.DeviceGetMemoryInfo_v2": 4, "0.return.DeviceGetMemoryInfo": 4})
        session.do("open")
        (sample,) = session.sample()
        assert (sample["mem_used_bytes"], sample["mem_total_bytes"]) == (None, None)
        assert session.missing["mem_used_bytes"] == "the driver does not tell it to this user"

    def test_under_wsl_the_reason_says_so(self, tmp_path: Path) -> None:
        tmp_path.joinpath("root/proc").mkdir(parents=True)
        version = "Linux version 5.15.167.4-microsoft-standard-WSL2\n"
        tmp_path.joinpath("root/proc/version").write_text(version)
        session = Session(tmp_path)
        session.add(0)
        session.set({"0.return.DeviceGetMemoryInfo_v2": 3, "0.return.DeviceGetMemoryInfo": 3})
        session.do("open")
        session.sample()
        assert session.missing["mem_used_bytes"] == "not told under WSL"
        session.end()


class TestHeat:
    def test_newer_gpus_tell_the_distance_themselves(self, session: Session) -> None:
        session.add(0, DeviceGetMarginTemperature=21, field__196="0 5")
        session.set({"0.DeviceGetTemperatureThreshold.3": 93})
        session.do("open")
        (sample,) = session.sample()
        assert (sample["temperature_margin_c"], sample["temperature_limit_c"]) == (21.0, 85.0)

    def test_the_zero_of_the_distance_may_be_another(self, session: Session) -> None:
        session.add(0, DeviceGetMarginTemperature=10, field__196="-2 5")
        session.do("open")
        assert session.sample()[0]["temperature_margin_c"] == 12.0

    def test_older_gpus_have_thresholds_and_the_lower_one_counts(self, session: Session) -> None:
        session.add(0)
        thresholds = {"0": 98, "1": 95, "2": 105, "3": 83}
        session.set({f"0.DeviceGetTemperatureThreshold.{which}": c for which, c in thresholds.items()})
        session.do("open")
        (sample,) = session.sample()
        assert (sample["temperature_limit_c"], sample["temperature_margin_c"]) == (83.0, 19.0)
        assert sample["mem_temperature_limit_c"] == 105.0

    def test_a_board_without_a_sensor_in_its_memory(self, session: Session) -> None:
        session.add(0, field__82=None)
        session.do("open")
        assert session.sample()[0]["mem_temperature_c"] is None
        assert "no" in session.missing["mem_temperature_c"]


class TestPower:
    def test_the_power_of_the_instant_goes_before_an_average(self, session: Session) -> None:
        session.add(0, field__186="431500 1", DeviceGetPowerManagementDefaultLimit=700_000)
        session.do("open")
        (sample,) = session.sample()
        assert (sample["power_w"], sample["power_window_s"], sample["power_scope"]) == (431.5, 0.0, "board")
        assert sample["power_limit_default_w"] == 700.0

    @pytest.mark.parametrize(
        ("name", "architecture", "window"),
        [
            ("NVIDIA GeForce RTX 3090", 7, 1.0),
            ("NVIDIA A100-SXM4-80GB", 7, None),
            ("NVIDIA A100 80GB PCIe", 7, 0.0),
            ("Tesla V100-SXM2-16GB", 5, 0.0),
            ("NVIDIA GeForce RTX 4090", 0xFFFFFFFF, None),
        ],
    )
    def test_what_the_older_reading_is_an_average_over(
        self, session: Session, name: str, architecture: int, window: float | None
    ) -> None:
        session.add(0, DeviceGetName=name, DeviceGetArchitecture=architecture)
        session.do("open")
        (sample,) = session.sample()
        expected = 0.0 if "A100" in name else window
        assert (sample["power_w"], sample["power_window_s"]) == (512.345, expected)

    def test_an_energy_counter_that_agrees_is_used(self, session: Session) -> None:
        session.add(0, field__186="400000 1", field__83="1000000 3")
        session.do("open")
        for second in range(1, 90):
            session.gpu(0, field__83=f"{1_000_000 + second * 400_000} 3")
            (sample,) = session.sample()
        assert (sample["energy_source"], sample["energy_j"]) == ("counter", 1000 + 89 * 400)

    def test_a_counter_at_a_sixth_of_the_power_is_not_believed(self, session: Session) -> None:
        session.add(0, field__186="600000 1", field__83="1000000 3")
        session.do("open")
        sources = []
        for second in range(1, 90):
            session.gpu(0, field__83=f"{1_000_000 + second * 100_000} 3")
            (sample,) = session.sample()
            sources.append(sample["energy_source"])
        assert sources[0] == "counter"
        assert sources[-1] == "power"
        assert sample["energy_j"] == pytest.approx(88 * 600), "the sum of what it drew in the session"
        assert "does not agree" in session.missing["energy_source"]

    def test_an_idle_gpu_is_no_ground_for_distrust(self, session: Session) -> None:
        session.add(0, field__186="8000 1", field__83="1000000 3")
        session.do("open")
        samples = looks(session, 50)
        assert {sample["energy_source"] for sample in samples} == {"counter"}

    def test_a_counter_that_begins_again_is_no_ground_for_distrust(self, session: Session) -> None:
        session.add(0, field__186="400000 1", field__83="9000000 3")
        session.do("open")
        for second in range(1, 100):
            counter = (9_000_000 if second < 50 else 0) + second * 400_000
            session.gpu(0, field__83=f"{counter} 3")
            (sample,) = session.sample()
        assert sample["energy_source"] == "counter"

    def test_without_a_counter_energy_is_the_sum_of_the_power(self, session: Session) -> None:
        session.add(0, field__186="250000 1", DeviceGetTotalEnergyConsumption=None)
        session.do("open")
        (sample,) = looks(session, 11)[-1:]
        assert (sample["energy_source"], sample["energy_j"]) == ("power", pytest.approx(2500))
        session.sample(60.0)  # nothing is known of a pause
        assert session.sample()[0]["energy_j"] == pytest.approx(2750)


class TestHeldDown:
    def test_the_share_of_every_reason(self, session: Session) -> None:
        fields = {74: 1, 77: 1, 269: 5, 270: 5, 271: 7}
        session.add(0, **{f"field__{field}": f"{value * NS} 3" for field, value in fields.items()})
        session.do("open")
        session.sample()
        session.gpu(0, field__74=f"{int(1.5 * NS)} 3", field__271=f"{int(7.25 * NS)} 3")
        session.gpu(0, field__269=f"{int(5.1 * NS)} 3", field__270=f"{int(6.0 * NS)} 3")
        (sample,) = session.sample()
        assert sample["throttle_shares"] == pytest.approx(
            {
                "power cap": 0.5,
                "board limit": 0.0,
                "thermal (sw)": 0.1,
                "thermal (hw)": 1.0,
                "power brake": 0.25,
            }
        )
        assert sample["throttle_power_fraction"] == pytest.approx(0.5)
        assert sample["throttle_thermal_fraction"] == pytest.approx(1.0)

    def test_a_counter_that_went_back_begins_again(self, session: Session) -> None:
        session.add(0, field__74=f"{100 * NS} 3")
        session.do("open")
        session.sample()
        session.gpu(0, field__74="0 3")
        assert "power cap" not in session.sample()[0]["throttle_shares"]
        session.gpu(0, field__74=f"{NS // 2} 3")
        assert session.sample()[0]["throttle_shares"]["power cap"] == pytest.approx(0.5)

    def test_a_counter_in_other_units_is_not_shown(self, session: Session) -> None:
        session.add(0, field__74="0 3")
        session.do("open")
        for second in range(10):
            session.gpu(0, field__74=f"{second * 1000 * NS} 3")
            (sample,) = session.sample()
        assert "power cap" not in sample["throttle_shares"]
        assert "faster than time" in session.missing["throttle_shares"]
        assert "thermal (sw)" in sample["throttle_shares"]

    def test_a_counter_that_is_refreshed_in_steps_is_no_lie(self, session: Session) -> None:
        session.add(0, field__74="0 3")
        session.do("open")
        shares = []
        for second in range(1, 21):
            session.gpu(0, field__74=f"{second // 2 * 2 * NS} 3")  # two seconds at every second look
            shares.append(session.sample()[0]["throttle_shares"].get("power cap"))
        assert shares[-1] is not None
        assert max(share for share in shares if share is not None) == 1.0

    def test_a_gpu_that_tells_no_reasons_is_not_a_gpu_that_is_held_down_by_nothing(
        self, session: Session
    ) -> None:
        session.add(0, DeviceGetSupportedClocksEventReasons=0)
        session.do("open")
        assert session.sample()[0]["throttle"] is None
        assert "does not tell" in session.missing["throttle"]


class TestTiers:
    def test_what_hardly_changes_is_asked_now_and_then(self, session: Session) -> None:
        session.add(0)
        session.do("open")
        session.sample()
        session.gpu(0, DeviceGetEnforcedPowerLimit=450_000)
        assert session.sample()[0]["power_limit_w"] == 700.0
        assert looks(session, 11)[-1]["power_limit_w"] == 450.0

    def test_the_fastest_fan_counts(self, session: Session) -> None:
        fans = {"DeviceGetNumFans": 2, "DeviceGetFanSpeed_v2.0": 30, "DeviceGetFanSpeed_v2.1": 64}
        session.add(0, **{name.replace(".", "__"): value for name, value in fans.items()})
        session.set({"0.DeviceGetFanSpeedRPM.0": 1850})
        session.do("open")
        (sample,) = session.sample()
        assert (sample["fan_fraction"], sample["fan_rpm"]) == (0.64, 1850)


class TestRest:
    def laptop(self, session: Session, used: int = 4 * 2**20, control: str = "auto") -> Path:
        status = session.card("0000:01:00.0")
        status.with_name("control").write_text(f"{control}\n")
        session.add(0, DeviceGetUtilizationRates__gpu=0, DeviceGetMemoryInfo_v2__used=used)
        session.do("open")
        return status

    def test_an_idle_laptop_gpu_is_left_alone_and_told_to_sleep_once_it_does(self, session: Session) -> None:
        status = self.laptop(session)
        states = [sample["state"] for sample in looks(session, 62)]
        assert states[-1] == "asleep"
        assert session.calls()[-1] == "Shutdown"
        status.write_text("suspended\n")
        before = len(session.calls())
        samples = looks(session, 100)
        assert {sample["state"] for sample in samples} == {"asleep"}
        assert samples[-1]["name"] == "NVIDIA H100 80GB HBM3", "what it is, is known"
        assert len(session.calls()) == before, "nothing is asked of a GPU that sleeps"
        status.write_text("active\n")
        assert looks(session, 2)[-1]["state"] == "ok"

    def test_one_that_somebody_else_keeps_awake_is_read_again(self, session: Session) -> None:
        self.laptop(session)
        states = [sample["state"] for sample in looks(session, 120)]
        assert states[62] == "asleep"
        assert states[-1] == "ok"
        assert session.calls().count("Shutdown") == 1, "it is not tried again at once"

    def test_a_gpu_that_holds_a_model_never_rests(self, session: Session) -> None:
        self.laptop(session, used=20 * GIB)
        assert {sample["state"] for sample in looks(session, 130)} == {"ok"}

    def test_a_card_that_the_kernel_does_not_power_down_never_rests(self, session: Session) -> None:
        self.laptop(session, control="on")
        assert {sample["state"] for sample in looks(session, 130)} == {"ok"}


class TestComingAndGoing:
    def test_a_gpu_keeps_its_number_while_another_is_lost(self, session: Session) -> None:
        session.card("0000:01:00.0")
        session.card("0000:02:00.0")
        session.add(0)
        session.add(1, DeviceGetUUID="GPU-2", bus="0000:02:00.0")
        session.do("open")
        session.sample()
        session.set({"0.return": 15})
        for _ in range(12):
            samples = session.sample(5.0)
            assert [(sample["gpu"][-1], sample["index"]) for sample in samples] == [("5", 0), ("2", 1)]
            assert [sample["state"] for sample in samples] == ["lost", "ok"]

    def test_a_gpu_that_is_plugged_in_is_found(self, session: Session) -> None:
        session.card("0000:01:00.0")
        session.add(0)
        session.do("open")
        assert len(session.sample()) == 1
        session.card("0000:02:00.0")
        session.add(1, DeviceGetUUID="GPU-2", bus="0000:02:00.0")
        samples = session.sample(31.0)
        assert [(sample["gpu"][-1], sample["index"], sample["state"]) for sample in samples] == [
            ("5", 0, "ok"),
            ("2", 1, "ok"),
        ]

    def test_a_container_whose_devices_were_taken_away(self, session: Session) -> None:
        """Every call ends with the unknown error: the library is opened again, not at once."""
        session.add(0)
        session.do("open")
        session.sample()
        session.set({"0.return": 999})
        assert [sample["state"] for sample in looks(session, 3)] == ["lost"] * 3
        session.set({"0.return": None})
        assert looks(session, 2, after=20.0)[-1]["state"] == "ok"

    def test_one_call_with_the_unknown_error_is_one_figure(self, session: Session) -> None:
        session.add(0)
        session.set({"0.return.DeviceGetUtilizationRates": 999})
        session.do("open")
        samples = looks(session, 20)
        assert {sample["state"] for sample in samples} == {"ok"}
        assert samples[-1]["util_fraction"] is None

    def test_a_container_without_devices(self, session: Session) -> None:
        session.root.joinpath("proc/driver/nvidia").mkdir(parents=True)
        session.root.joinpath("proc/driver/nvidia/version").write_text("NVRM version: 580.95.05\n")
        session.set({"return.InitWithFlags": 9})
        _, (missing,) = session.do("detect")
        assert "passed into this container" in missing["why"]
        assert "--gpus all" in missing["fix"]

    def test_an_old_package_in_the_place_of_the_real_one(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Before 12, the package `pynvml` brought a module of its own under the same name."""
        tmp_path.joinpath("old").mkdir()
        module = "class NVMLError(Exception):\n    pass\n\n\ndef nvmlInit():\n    pass\n"
        tmp_path.joinpath("old/pynvml.py").write_text(module)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "old"))
        session = Session(tmp_path)
        session.card("0000:01:00.0")
        _, (missing,) = session.do("detect")
        assert "stands in the place of nvidia-ml-py" in missing["why"]
        assert missing["fix"].startswith("pip uninstall pynvml")
        session.end()

    def test_the_reasons_of_a_lost_gpu_stay(self, session: Session) -> None:
        session.add(0, field__82=None)
        session.do("open")
        session.sample()
        before = dict(session.missing)
        session.set({"0.return": 15})
        session.sample()
        assert session.missing == before

    @pytest.mark.parametrize(
        ("chip", "found"), [("tegra234", []), ("tegra194", []), ("tegra264", ["nvidia"])]
    )
    def test_boards_whose_library_tells_nothing(self, session: Session, chip: str, found: list[str]) -> None:
        session.root.joinpath("proc/device-tree").mkdir(parents=True)
        name = f"nvidia,p3737-0000\0nvidia,{chip}\0"
        session.root.joinpath("proc/device-tree/compatible").write_text(name)
        session.add(0, DeviceGetName="NVIDIA Thor")
        vendors, _ = session.do("detect")
        assert [vendor for vendor in vendors if vendor == "nvidia"][: len(found)] == found
        assert session.calls().count("Init 0") == len(found)
