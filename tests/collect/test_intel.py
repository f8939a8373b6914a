"""Intel GPUs on trees of files as i915 and xe show them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from agenttop.collect.gpu.base import GpuReading
from agenttop.collect.gpu.intel import IntelAdapter
from agenttop.collect.gpu.intel.graphics import THROTTLE
from agenttop.collect.gpu.intel.regions import Query
from agenttop.model.clock import ManualClock
from agenttop.model.frames import GpuSample, Missing
from agenttop.model.throttle import POWER, THERMAL, kind_of
from tests.collect import intel_trees as trees
from tests.collect.sane import HOSTILE, assert_sane
from tests.collect.tree import build

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no symbolic links, and colons in names")

RENDER = "/dev/dri/renderD129"
"""Of the B580 in its tree; of the A770 it is 128."""


class Watch:
    """An adapter on a tree, and its clock."""

    def __init__(self, root: Path, query: Query = lambda node, driver: None) -> None:
        self.clock = ManualClock(1000.0)
        self.root = root
        self.adapter = IntelAdapter(self.clock, root, query)
        self.opening = self.adapter.open(0.0)
        self.reading = GpuReading()

    def look(self, after: float = 1.0) -> GpuSample:
        """The first card's sample."""
        self.clock.now += after
        self.reading = self.adapter.sample(self.clock.now - 1000)
        return self.reading.samples[0]

    def why(self, field: str) -> Missing | None:
        """The reason given for a field of any card."""
        return next((frame for frame in self.reading.missing if frame.what.endswith(f":{field}")), None)


def regions_of(total: int, used: int) -> Query:
    return lambda node, driver: trees.regions(driver, total, used) if "renderD" in node else None


def test_a_b580_by_xe(tmp_path: Path) -> None:
    folder = trees.b580(trees.host(tmp_path))
    watch = Watch(tmp_path, regions_of(12_000 << 20, 0))
    assert watch.opening.found
    assert not watch.opening.missing
    first = watch.look()
    assert (first.window_s, first.power_w) == (None, None)
    energy = f"{folder}/hwmon/hwmon4/energy1_input"
    build(tmp_path, {energy: 5_150_000_000, f"{folder}/tile0/gt0/gtidle/idle_residency_ms": 500_400})
    sample = watch.look()
    assert (sample.gpu, sample.name, sample.pci_id) == (trees.B580, "Intel Arc B580", "8086:e20b")
    assert sample.driver == "xe (Linux 6.17.4-arch1)"
    assert (sample.sm_clock_mhz, sample.sm_clock_max_mhz) == (2850, 2850)  # of the graphics unit, as it runs
    assert sample.power_w == pytest.approx(150.0)
    assert (sample.power_scope, sample.power_limit_w, sample.power_window_s) == ("board", 190.0, 1.0)
    assert (sample.energy_j, sample.energy_source) == (pytest.approx(5150.0), "counter")
    assert (sample.temperature_c, sample.mem_temperature_c) == (61.0, 70.0)
    assert sample.throttle == []
    assert (sample.memory_kind, sample.mem_total_bytes) == ("dedicated", 12_000 << 20)
    assert (sample.pcie_generation, sample.pcie_width) == (4, 8)  # of the card's switch, not of its chip
    assert (sample.fan_rpm, sample.fan_fraction) == (None, None)
    assert watch.look(5.0).fan_rpm == 1100  # the first reading was a mean since anybody's last


def test_a_card_without_a_meter_of_the_whole_tells_the_package(tmp_path: Path) -> None:
    folder = trees.b580(trees.host(tmp_path))
    for name in ("energy1_input", "energy1_label", "power1_max"):
        (tmp_path / folder / "hwmon/hwmon4" / name).unlink()
    watch = Watch(tmp_path)
    watch.look()
    build(tmp_path, {f"{folder}/hwmon/hwmon4/energy2_input": 3_100_000_000})
    sample = watch.look()
    assert (sample.power_w, sample.power_scope, sample.power_limit_w) == (pytest.approx(100.0), "chip", 120.0)


def test_an_a770_by_i915(tmp_path: Path) -> None:
    folder = trees.a770(trees.host(tmp_path))
    watch = Watch(tmp_path, regions_of(16 * trees.GIB, 0))
    watch.look()
    build(tmp_path, {f"{folder}/hwmon/hwmon3/energy1_input": 8_200_000_000})
    sample = watch.look()
    assert sample.name == "Intel Arc A770"
    assert sample.power_w == pytest.approx(200.0)  # of the device, not of its graphics unit
    assert (sample.power_limit_w, sample.power_limit_default_w) == (190.0, 225.0)
    assert (sample.sm_clock_mhz, sample.temperature_c) == (2400, 55.0)
    assert sample.mem_total_bytes == 16 * trees.GIB
    assert (sample.pcie_generation, sample.pcie_width) == (4, 16)
    assert watch.why("mem_temperature_c")


def test_graphics_inside_a_cpu_share_its_memory_and_have_no_meter(tmp_path: Path) -> None:
    trees.inside(trees.host(tmp_path))
    watch = Watch(tmp_path)
    sample = watch.look()
    assert sample.name == "Intel Alder Lake-P GT2 [Iris Xe Graphics]"
    assert sample.memory_kind == "unified"
    assert (sample.mem_total_bytes, sample.mem_used_bytes) == (32_768_000 * 1024, 8_192_000 * 1024)
    assert (sample.sm_clock_mhz, sample.power_w, sample.temperature_c) == (1300, None, None)
    for field in ("power_w", "temperature_c", "pcie_width", "throttle"):
        assert watch.why(field), field


def test_both_cards_of_a_host_are_seen(tmp_path: Path) -> None:
    trees.host(tmp_path)
    trees.inside(tmp_path)
    trees.b580(tmp_path)
    watch = Watch(tmp_path)
    watch.look()
    assert [(s.gpu, s.index) for s in watch.reading.samples] == [(trees.INSIDE, 0), (trees.B580, 1)]


@pytest.mark.parametrize("reason", [*THROTTLE, "something_new"])
def test_every_reason_has_one_meaning(tmp_path: Path, reason: str) -> None:
    folder = trees.b580(trees.host(tmp_path))
    throttle = f"{folder}/tile0/gt0/freq0/throttle"
    build(tmp_path, {f"{throttle}/status": 1, f"{throttle}/reason_{reason}": 1})
    held = Watch(tmp_path).look().throttle
    assert held == [THROTTLE.get(reason, "something new")]
    assert sum(word in held[0] for word in (*THERMAL, *POWER)) <= 1
    kind = kind_of(held[0])
    expected = {"pl": "power", "ps": "power", "ic": "power", "so": "other", "p0": "other"}.get(reason[:2])
    if "therm" in reason or reason in ("prochot", "ratl"):
        expected = "thermal"
    elif reason in ("vr_tdc", "fastvmode"):
        expected = "power"
    assert kind == expected


def test_a_unit_that_sleeps_is_not_held_down(tmp_path: Path) -> None:
    folder = trees.b580(trees.host(tmp_path))
    clock = f"{folder}/tile0/gt0/freq0"
    build(
        tmp_path, {f"{clock}/act_freq": 0, f"{clock}/throttle/status": 1, f"{clock}/throttle/reason_pl1": 1}
    )
    sample = Watch(tmp_path).look()
    assert (sample.sm_clock_mhz, sample.throttle) == (0, [])


def test_a_reason_that_no_file_names_is_told_as_that(tmp_path: Path) -> None:
    folder = trees.b580(trees.host(tmp_path))
    build(tmp_path, {f"{folder}/tile0/gt0/freq0/throttle/status": 1})
    assert Watch(tmp_path).look().throttle == ["not named by the driver"]


def test_a_limit_that_the_user_has_set_is_a_choice(tmp_path: Path) -> None:
    folder = trees.b580(trees.host(tmp_path))
    clock = f"{folder}/tile0/gt0/freq0"
    build(tmp_path, {f"{clock}/max_freq": 2000, f"{clock}/act_freq": 2000})
    sample = Watch(tmp_path).look()
    assert (sample.throttle, sample.sm_clock_max_mhz) == (["user clocks"], 2850)


class TestPower:
    def test_a_counter_that_has_not_moved_is_waited_for(self, tmp_path: Path) -> None:
        folder = trees.b580(trees.host(tmp_path))
        energy = f"{folder}/hwmon/hwmon4/energy1_input"
        watch = Watch(tmp_path)
        watch.look()
        build(tmp_path, {energy: 5_100_000_000})
        assert watch.look().power_w == pytest.approx(100.0)
        assert watch.look().power_w == pytest.approx(100.0)  # not 0: telemetry is late
        build(tmp_path, {energy: 5_260_000_000})
        sample = watch.look()
        assert (sample.power_w, sample.power_window_s) == (pytest.approx(80.0), 2.0)
        watch.look(6.0)
        assert watch.look().power_w is None  # it has stopped for good

    @pytest.mark.parametrize("counter", ["4000000000", "0", "garbage", "-5", "9" * 30, "6000000000000000"])
    def test_a_reset_a_failed_read_or_nonsense_is_no_power(self, tmp_path: Path, counter: str) -> None:
        folder = trees.b580(trees.host(tmp_path))
        watch = Watch(tmp_path)
        watch.look()
        build(tmp_path, {f"{folder}/hwmon/hwmon4/energy1_input": counter})
        assert watch.look().power_w is None

    def test_a_limit_that_is_off_is_not_asked_for_again(self, tmp_path: Path) -> None:
        folder = trees.b580(trees.host(tmp_path))
        limit = f"{folder}/hwmon/hwmon4/power1_max"
        build(tmp_path, {limit: 0})
        watch = Watch(tmp_path)
        assert watch.look().power_limit_w is None
        reason = watch.why("power_limit_w")
        assert reason is not None
        assert "switched off" in (reason.why or "")
        build(tmp_path, {limit: 150_000_000})
        assert watch.look(31.0).power_limit_w is None  # each question writes into the kernel's log


class TestUtilisation:
    def _busy(self, tmp_path: Path, cycles: int, idle_ms: int, complete: bool) -> tuple[GpuSample, Watch]:
        folder = trees.b580(trees.host(tmp_path))
        if not complete:
            build(tmp_path, {"proc/self/ns/pid": "-> pid:[4026532999]"})
        trees.opened(tmp_path, 4711, 7, RENDER, trees.xe_client(trees.B580, 3, 1000, 50_000, 8 << 20))
        watch = Watch(tmp_path)
        watch.look()
        client = trees.xe_client(trees.B580, 3, 1000 + cycles, 50_000 + 19_200_000, 8 << 20)
        idle = 500_000 + idle_ms
        build(tmp_path, {"proc/4711/fdinfo/7": client, f"{folder}/tile0/gt0/gtidle/idle_residency_ms": idle})
        return watch.look(), watch

    def test_it_is_exact_where_all_processes_can_be_seen(self, tmp_path: Path) -> None:
        sample, _ = self._busy(tmp_path, 9_600_000, 100, complete=True)
        assert sample.util_fraction == pytest.approx(0.5)

    def test_it_is_at_least_that_where_some_cannot(self, tmp_path: Path) -> None:
        sample, watch = self._busy(tmp_path, 9_600_000, 100, complete=False)
        assert (sample.util_fraction, sample.visible_only) == (pytest.approx(0.5), True)
        reason = watch.why("visible_only")
        assert reason is not None
        assert reason.fix

    def test_it_is_nothing_where_the_card_slept_all_the_time(self, tmp_path: Path) -> None:
        sample, _ = self._busy(tmp_path, 0, 1000, complete=False)
        assert sample.util_fraction == 0.0

    def test_no_client_in_sight_is_no_figure_unless_all_can_be_seen(self, tmp_path: Path) -> None:
        trees.b580(trees.host(tmp_path))
        watch = Watch(tmp_path)
        watch.look()
        assert watch.look().util_fraction == 0.0
        build(tmp_path, {"proc/99/cmdline": "ollama\0"})  # somebody else's: its descriptors cannot be seen
        watch.look(6.0)
        sample = watch.look()
        assert sample.util_fraction is None
        assert watch.why("util_fraction")

    def test_descriptors_of_one_client_count_once(self, tmp_path: Path) -> None:
        folder = trees.b580(trees.host(tmp_path))
        watch = Watch(tmp_path)
        for step in (0, 9_600_000):
            text = trees.xe_client(trees.B580, 3, 1000 + step, 50_000 + 2 * step, 1 << 20)
            for pid, descriptor in ((4711, 7), (4711, 8), (4712, 7)):
                trees.opened(tmp_path, pid, descriptor, RENDER, text)
            build(tmp_path, {f"{folder}/tile0/gt0/gtidle/idle_residency_ms": 500_000 + step // 96_000})
            sample = watch.look()
        assert sample.util_fraction == pytest.approx(0.5)
        assert watch.reading.holders == {trees.B580: {4711: 1 << 30}}

    def test_i915_counts_time(self, tmp_path: Path) -> None:
        trees.a770(trees.host(tmp_path))
        watch = Watch(tmp_path)
        for busy in (5, 250_000_005):
            text = trees.i915_client(trees.A770, 9, busy, 4 << 20)
            trees.opened(tmp_path, 4711, 5, "/dev/dri/renderD128", text)
            sample = watch.look()
        assert sample.util_fraction == pytest.approx(
            0.25
        )  # of its compute engine; its video engines are left out

    def test_a_kernel_that_counts_no_work_says_so(self, tmp_path: Path) -> None:
        trees.b580(trees.host(tmp_path))
        text = f"drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t{trees.B580}\ndrm-resident-vram0:\t5 MiB"
        trees.opened(tmp_path, 4711, 7, RENDER, text)
        watch = Watch(tmp_path)
        watch.look()
        assert watch.look().util_fraction is None
        assert watch.why("util_fraction")


class TestMemory:
    def test_the_driver_tells_all_to_the_privileged(self, tmp_path: Path) -> None:
        trees.b580(trees.host(tmp_path, trees.PERFMON))
        sample = Watch(tmp_path, regions_of(12 * trees.GIB, 9 * trees.GIB)).look()
        assert (sample.mem_used_bytes, sample.visible_only) == (9 * trees.GIB, False)

    def test_to_others_it_is_what_visible_processes_hold(self, tmp_path: Path) -> None:
        trees.a770(trees.host(tmp_path))
        node = "/dev/dri/renderD128"
        trees.opened(tmp_path, 4711, 5, node, trees.i915_client(trees.A770, 9, 0, 4 << 20))
        trees.opened(tmp_path, 4712, 5, node, trees.i915_client(trees.A770, 10, 0, 1 << 20))
        watch = Watch(tmp_path, regions_of(16 * trees.GIB, 0))
        sample = watch.look()
        assert (sample.mem_used_bytes, sample.visible_only) == (5 * trees.GIB, True)
        assert watch.reading.holders == {trees.A770: {4711: 4 * trees.GIB, 4712: trees.GIB}}

    def test_nothing_in_sight_is_not_zero(self, tmp_path: Path) -> None:
        trees.a770(trees.host(tmp_path))
        watch = Watch(tmp_path)
        sample = watch.look()
        assert (sample.mem_used_bytes, sample.mem_total_bytes) == (None, None)
        for field in ("mem_used_bytes", "mem_total_bytes"):
            reason = watch.why(field)
            assert reason is not None
            assert reason.fix

    def test_xe_tells_the_size_in_a_file_too(self, tmp_path: Path) -> None:
        trees.b580(trees.host(tmp_path))
        assert Watch(tmp_path).look().mem_total_bytes == 12 * trees.GIB


class TestSleep:
    def test_a_sleeping_card_is_not_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = trees.b580(trees.host(tmp_path))
        build(tmp_path, {f"{folder}/power/runtime_status": "suspended"})
        read: list[str] = []
        real = os.open

        def noted(path: str, *rest: int) -> int:
            read.append(str(path))
            return real(path, *rest)

        watch = Watch(tmp_path, regions_of(12 * trees.GIB, 0))
        monkeypatch.setattr(os, "open", noted)
        for _ in range(70):
            sample = watch.look()
        assert (sample.state, sample.power_w, watch.reading.missing) == ("asleep", None, [])
        assert {path.rpartition("/")[2] for path in read if trees.B580 in path} == {"runtime_status"}
        build(tmp_path, {f"{folder}/power/runtime_status": "active"})
        assert watch.look().sm_clock_mhz == 2850

    def _idle(self, watch: Watch, folder: str, looks: int) -> list[GpuSample]:
        samples = []
        for _ in range(looks):
            idle = round((watch.clock.now - 999) * 1000)
            build(watch.root, {f"{folder}/tile0/gt0/gtidle/idle_residency_ms": idle})
            samples.append(watch.look())
        return samples

    def test_an_idle_card_is_left_alone_so_that_it_can_sleep(self, tmp_path: Path) -> None:
        folder = trees.b580(trees.host(tmp_path))
        watch = Watch(tmp_path)
        clocks = [sample.sm_clock_mhz for sample in self._idle(watch, folder, 5)]
        assert clocks == [2850, 2850, None, None, 2850]  # for the kernel's second, and a margin
        assert watch.look().power_w is None  # its meters begin anew

    def test_one_that_does_not_fall_asleep_is_read_again_for_minutes(self, tmp_path: Path) -> None:
        folder = trees.b580(trees.host(tmp_path))
        samples = self._idle(Watch(tmp_path), folder, 400)
        assert [sample.sm_clock_mhz for sample in samples].count(None) <= 4

    @pytest.mark.parametrize("control", ["on", "auto"])
    def test_one_that_is_in_use_or_never_sleeps_is_always_read(self, tmp_path: Path, control: str) -> None:
        folder = trees.b580(trees.host(tmp_path))
        build(tmp_path, {f"{folder}/power/control": control})
        if control == "auto":
            trees.opened(tmp_path, 4711, 7, RENDER, trees.xe_client(trees.B580, 3, 0, 9, 1))
        assert all(s.sm_clock_mhz for s in self._idle(Watch(tmp_path), folder, 20))


def test_a_card_that_is_pulled_out_is_lost_and_comes_back(tmp_path: Path) -> None:
    trees.b580(trees.host(tmp_path))
    watch = Watch(tmp_path)
    watch.look()
    entry = tmp_path / f"sys/bus/pci/devices/{trees.B580}"
    target = entry.readlink()
    entry.unlink()
    sample = watch.look()
    assert (sample.state, sample.name, sample.sm_clock_mhz) == ("lost", "Intel Arc B580", None)
    entry.symlink_to(target)
    assert watch.look().state == "ok"


def test_a_card_that_another_driver_has_is_said(tmp_path: Path) -> None:
    folder = trees.b580(trees.host(tmp_path))
    build(tmp_path, {f"{folder}/driver": "-> ../../../bus/pci/drivers/vfio-pci"})
    opening = Watch(tmp_path).opening
    assert not opening.found
    assert "vfio-pci" in (opening.missing[0].why or "")


def test_a_host_without_such_a_card_says_nothing(tmp_path: Path) -> None:
    opening = Watch(trees.host(tmp_path)).opening
    assert (opening.found, opening.missing) == (False, [])


@pytest.mark.parametrize("content", HOSTILE, ids=repr)
def test_files_with_nonsense_in_them_give_no_figures(tmp_path: Path, content: str | bytes) -> None:
    trees.host(tmp_path)
    trees.b580(tmp_path)
    trees.a770(tmp_path)
    trees.inside(tmp_path)
    text = trees.xe_client(trees.B580, 3, 0, 9, 1)
    trees.opened(tmp_path, 4711, 7, RENDER, text)
    watch = Watch(tmp_path, lambda node, driver: content if isinstance(content, bytes) else content.encode())
    watch.look()
    kept = ("runtime_status", "control", "vendor", "class", "name", "dev")
    for path in tmp_path.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.name not in kept:
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for _ in range(40):
        watch.look()
        for sample in watch.reading.samples:
            assert_sane(sample)


def test_a_tree_of_names_alone_gives_no_figures(tmp_path: Path) -> None:
    trees.host(tmp_path)
    folder = trees.b580(tmp_path)
    for path in (tmp_path / folder).rglob("*"):
        if path.is_file() and path.name not in ("vendor", "class", "runtime_status"):
            path.unlink()
    watch = Watch(tmp_path)
    sample = watch.look()
    assert_sane(sample)
    assert (sample.state, sample.power_w, sample.sm_clock_mhz, sample.throttle) == ("ok", None, None, None)
    for field in ("power_w", "sm_clock_mhz", "throttle", "temperature_c", "pcie_width", "mem_total_bytes"):
        assert watch.why(field), field
