"""Cores, their clock, their power and heat, from files that say what real ones rarely do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.host import cpu
from agenttop.collect.host.power import CpuPower
from agenttop.collect.host.reasons import Reason
from agenttop.collect.host.temperature import CpuTemperature
from tests.collect.host_trees import cpuinfo, stat, write

RAPL = "sys/class/powercap/intel-rapl:"
HWMON = "sys/class/hwmon/hwmon"


def shares(before: str, after: str) -> cpu.Shares | None:
    return cpu.shares(cpu.parse_stat(before.encode()), cpu.parse_stat(after.encode()))


def test_what_a_hypervisor_took_is_no_work() -> None:
    found = shares(stat("0 0 0 0 0 0 0 0 0 0"), stat("10 10 10 40 10 5 5 10 4 4"))
    assert found == cpu.Shares(pytest.approx(0.4), [pytest.approx(0.4)], 0.1, 0.1)


def test_a_core_that_comes_or_goes_leaves_the_window_unknown() -> None:
    core = "1 0 0 1 0 0 0 0 0 0"
    assert shares(stat(core, core), stat(core)) is None
    assert shares(stat(core), stat(core, core)) is None
    assert shares("", stat(core)) is None


def test_an_estimate_that_goes_back_gives_no_negative_share() -> None:
    found = shares(stat("100 0 0 100 100 0 0 0 0 0"), stat("200 0 0 100 90 0 0 0 0 0"))
    assert (found.waiting, found.busy) == (0.0, 1.0)


def test_counters_that_were_reset_are_no_share() -> None:
    assert shares(stat("900 0 0 900 0 0 0 0 0 0"), stat("1 0 0 1 0 0 0 0 0 0")) is None


def test_an_old_kernel_counts_no_steal() -> None:
    found = shares(stat("0 0 0 0"), stat("50 0 0 50"))
    assert (found.busy, found.stolen) == (0.5, 0.0)


def test_numbers_longer_than_a_counter_are_none() -> None:
    assert cpu.parse_stat(stat(f"{10**400} 0 0 0", "1 0 0 0").encode()).keys() == {1}


@given(st.binary(max_size=400))
def test_nonsense_is_no_core(raw: bytes) -> None:
    cpu.parse_stat(raw)
    cpu.parse_stat(b"cpu0 " + raw)
    cpu.cores_of(raw)


def test_the_clock_of_a_virtual_machine_is_one_number_that_never_changes(tmp_path: Path) -> None:
    root = str(write(tmp_path, {"proc/cpuinfo": cpuinfo(2445.43, 2445.43, flags="hypervisor")}))
    assert isinstance(cpu.clock_now(root, virtual=True), Reason)
    assert cpu.clock_now(root, virtual=False) == 2445.43


def test_the_clock_of_arm_cores_stands_in_their_policies(tmp_path: Path) -> None:
    policy = "sys/devices/system/cpu/cpufreq/policy"
    root = str(
        write(
            tmp_path,
            {
                "proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 2000.00\n",
                f"{policy}0/scaling_cur_freq": 2_000_000,
                f"{policy}0/cpuinfo_max_freq": 2_808_000,
                f"{policy}10/scaling_cur_freq": 3_000_000,
                f"{policy}10/cpuinfo_max_freq": 3_900_000,
            },
        )
    )
    assert cpu.clock_now(root, virtual=False) == 2500.0
    assert cpu.clock_highest(root) == 3900.0


@pytest.mark.parametrize("clock", ["Unknown", "0.000", "99999999", "-1", ""])
def test_a_clock_that_cannot_be_is_none(tmp_path: Path, clock: str) -> None:
    root = str(write(tmp_path, {"proc/cpuinfo": f"processor\t: 0\ncpu MHz\t\t: {clock}\n"}))
    assert isinstance(cpu.clock_now(root, virtual=False), Reason)
    assert isinstance(cpu.clock_highest(root), Reason)


@pytest.mark.parametrize(
    ("allowed", "online", "expected"),
    [
        ("0-3", "0-3", None),
        ("0-127", "0-3", None),
        ("2-3,8", "0-15", 3),
        ("4-7", "0-3", None),
        ("x", "0-3", None),
        ("1-", "0-3", None),
        ("0", "", None),
    ],
)
def test_cores_this_process_may_run_on(
    tmp_path: Path, allowed: str, online: str, expected: int | None
) -> None:
    files = {"proc/self/status": f"Cpus_allowed_list:\t{allowed}\n", "sys/devices/system/cpu/online": online}
    assert cpu.allowed(str(write(tmp_path, files))) == expected


def test_the_maker_of_an_x86(tmp_path: Path) -> None:
    assert cpu.vendor(str(tmp_path)) is None
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\n"})
    assert cpu.vendor(str(tmp_path)) == "AuthenticAMD"


def zone(number: str, name: str, energy: int | str, range_uj: int = 262_143_328_850) -> dict[str, str | int]:
    folder = f"{RAPL}{number}"
    return {
        f"{folder}/name": name,
        f"{folder}/energy_uj": energy,
        f"{folder}/max_energy_range_uj": range_uj,
    }


def two_sockets(root: Path) -> Path:
    for files in (
        zone("0", "package-0", 1_000_000),
        zone("1", "package-1", 262_143_000_000),
        zone("0:0", "core", 5),
        zone("0:1", "dram", 0),
        zone("1:0", "dram", 10),
        zone("2", "psys", 7),
    ):
        write(root, files)
    write(root, {"sys/class/powercap/intel-rapl-mmio:0/name": "package-0"})
    write(root, {"sys/class/powercap/intel-rapl-mmio:0/energy_uj": 1})
    return root


def test_power_of_two_sockets_one_of_which_wraps(tmp_path: Path) -> None:
    power = CpuPower(str(two_sockets(tmp_path)), virtual=False)
    write(tmp_path, {f"{RAPL}0/energy_uj": 201_000_000, f"{RAPL}1/energy_uj": 99_671_150})
    write(tmp_path, {f"{RAPL}0:1/energy_uj": 20_000_000, f"{RAPL}1:0/energy_uj": 10_000_010})
    write(tmp_path, {f"{RAPL}2/energy_uj": 900_000_000, f"{RAPL}0:0/energy_uj": 99_000_000})
    packages, memories = power.look(2.0)
    assert packages == pytest.approx(100.0 + 50.0)
    assert memories == pytest.approx(15.0)


def test_a_counter_that_was_reset_gives_no_power(tmp_path: Path) -> None:
    power = CpuPower(str(write(tmp_path, zone("0", "package-0", 900_000_000))), virtual=False)
    write(tmp_path, {f"{RAPL}0/energy_uj": 5})
    assert power.look(1.0)[0] is None, "65 GJ in a second"
    write(tmp_path, {f"{RAPL}0/energy_uj": 60_000_005})
    assert power.look(1.0)[0] == 60.0


def test_a_counter_that_stands_still_is_not_0_watts(tmp_path: Path) -> None:
    power = CpuPower(str(write(tmp_path, zone("0", "package-0", 0))), virtual=False)
    assert power.look(1.0)[0] == Reason("the energy counter stands still")
    assert power.look(0.0)[0] is None


def test_a_counter_for_root_alone_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {f"{RAPL}0/name": "package-0", f"{RAPL}0/max_energy_range_uj": 9})
    (tmp_path / f"{RAPL}0/energy_uj").mkdir()  # what even root cannot read
    power = CpuPower(str(tmp_path), virtual=False)
    assert power.look(1.0)[0] == Reason("the energy counter of the CPU gives no number")
    monkeypatch.setattr(os, "access", lambda *_: False)
    told = power.look(1.0)[0]
    assert told.why.startswith("needs permission")
    assert told.fix.startswith("sudo chmod a+r /sys/class/powercap/intel-rapl:*/energy_uj")


def test_a_counter_that_may_be_read_from_now_on(tmp_path: Path) -> None:
    write(tmp_path, {f"{RAPL}0/name": "package-0", f"{RAPL}0/max_energy_range_uj": 9})
    power = CpuPower(str(tmp_path), virtual=False)
    assert isinstance(power.look(1.0)[0], Reason)
    write(tmp_path, {f"{RAPL}0/energy_uj": 1_000_000})
    assert power.look(1.0)[0] is None
    write(tmp_path, {f"{RAPL}0/energy_uj": 43_000_000})
    assert power.look(1.0)[0] == 42.0


@pytest.mark.parametrize("energy", ["", "-5", "nonsense", "1" * 30, "\0\0"])
def test_an_energy_that_is_none(tmp_path: Path, energy: str) -> None:
    power = CpuPower(str(write(tmp_path, zone("0", "package-0", energy))), virtual=False)
    assert isinstance(power.look(1.0)[0], Reason)


def test_where_there_is_no_energy_counter(tmp_path: Path) -> None:
    bare, virtual = CpuPower(str(tmp_path), virtual=False), CpuPower(str(tmp_path), virtual=True)
    assert bare.look(1.0)[0].fix is None, "an ARM has none"
    x86 = CpuPower(str(tmp_path), virtual=False, vendor="GenuineIntel")
    assert x86.look(1.0)[0].fix == "sudo modprobe intel_rapl_msr"
    assert "virtual machine" in virtual.look(1.0)[0].why
    (tmp_path / "sys/class/powercap").mkdir(parents=True)
    (tmp_path / f"{RAPL}0").symlink_to("../../devices/virtual/powercap/nowhere")
    assert "container" in CpuPower(str(tmp_path), virtual=False).look(1.0)[1].why


def sensor(number: int, name: str, **temperatures: int) -> dict[str, str | int]:
    """`Tctl=71000`; `_` in place of blanks."""
    files: dict[str, str | int] = {f"{HWMON}{number}/name": name}
    for index, (label, value) in enumerate(temperatures.items(), 1):
        files[f"{HWMON}{number}/temp{index}_label"] = label.replace("_", " ")
        files[f"{HWMON}{number}/temp{index}_input"] = value
    return files


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (sensor(3, "coretemp", Package_id_0=55_000, Core_0=54_000, Core_1=99_000), 55.0),
        (sensor(3, "coretemp", Core_0=54_000, Core_1=59_000), 59.0),
        (sensor(2, "k10temp", Tctl=95_000, Tdie=68_000, Tccd1=70_000), 68.0),
        (sensor(2, "zenpower", Tdie=41_500, Tctl=41_500), 41.5),
        ({f"{HWMON}0/name": "cpu_thermal", f"{HWMON}0/temp1_input": 48_000}, 48.0),
        (
            sensor(1, "coretemp", Package_id_0=50_000) | sensor(2, "coretemp", Package_id_1=61_000),
            61.0,
        ),
    ],
)
def test_the_hottest_package(tmp_path: Path, files: dict[str, str | int], expected: float) -> None:
    root = write(tmp_path, sensor(0, "amdgpu", edge=90_000) | files)
    assert CpuTemperature(str(root), virtual=False).look() == expected


def test_of_other_sensors_nothing_but_the_name_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading the temperature of a disk or a GPU that sleeps may wake it."""
    root = write(tmp_path, sensor(0, "nvme", Composite=40_000) | sensor(1, "k10temp", Tctl=50_000))
    write(root, sensor(2, "amdgpu", edge=40_000) | sensor(3, "acpitz", x=27_800) | sensor(4, "", x=1))
    opened: list[str] = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *more, **named: opened.append(path) or real(path, *more, **named)
    )
    temperature = CpuTemperature(str(root), virtual=False)
    assert temperature.look() == 50.0
    assert {path for path in opened if "hwmon1" not in path} == {
        f"{root}/{HWMON}{number}/name" for number in (0, 2, 3, 4)
    }


@pytest.mark.parametrize("value", ["0", "-128000", "255000", "nonsense", ""])
def test_a_temperature_that_cannot_be_is_none(tmp_path: Path, value: str) -> None:
    root = write(tmp_path, {f"{HWMON}0/name": "k10temp", f"{HWMON}0/temp1_input": value})
    assert isinstance(CpuTemperature(str(root), virtual=False).look(), Reason)


def test_a_sensor_whose_driver_is_loaded_later(tmp_path: Path) -> None:
    temperature = CpuTemperature(str(tmp_path), virtual=False, vendor="AuthenticAMD")
    assert temperature.look().fix == "sudo modprobe k10temp"
    write(tmp_path, sensor(7, "k10temp", Tctl=50_000))
    assert temperature.look() == 50.0
