"""AMD GPUs on folders as the kernel shows them: Strix Halo, RX 7900 XTX, MI300X, and what goes wrong."""

from __future__ import annotations

import errno
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agenttop.collect.gpu.amd.adapter import AmdAdapter
from agenttop.collect.gpu.base import GpuReading
from agenttop.model.clock import ManualClock
from agenttop.model.frames import GpuSample
from agenttop.model.throttle import kind_of
from tests.collect.amd_structs import filled
from tests.collect.amd_trees import (
    GIB,
    HALO,
    INSTINCT,
    NAVI,
    Host,
    halo_metrics,
    instinct_metrics,
    mi300x,
    navi_metrics,
    radeon_7900,
    strix_halo,
    write,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the driver's files are those of Linux")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


class Watch:
    """An adapter with a clock that is moved by hand."""

    def __init__(self, host: Host) -> None:
        self.clock = ManualClock(1000.0)
        self.adapter = AmdAdapter(self.clock, host.root)
        self.opening = self.adapter.open(0.0)
        self.reading = GpuReading()

    def look(self, seconds: float = 1.0) -> GpuSample:
        self.clock.advance(seconds)
        self.reading = self.adapter.sample(self.clock.monotonic() - 1000.0)
        return self.reading.samples[0]

    def why(self, field: str) -> str | None:
        found = [frame.why for frame in self.reading.missing if frame.what.endswith(f":{field}")]
        assert len(found) < 2
        return found[0] if found else None


def test_strix_halo_with_a_small_carve_out(host: Host) -> None:
    folder = strix_halo(host)
    watch = Watch(host)
    watch.look()
    write(folder, {"gpu_metrics": halo_metrics(spl=1_800, thm_gfx=20)})
    sample = watch.look()
    assert sample.gpu == sample.bus == HALO
    assert (sample.name, sample.pci_id) == ("AMD Radeon 8060S", "1002:1586")
    assert sample.driver == "amdgpu of Linux 6.14.0-test"
    assert sample.memory_kind == "vram+gtt"
    assert (sample.mem_vram_total_bytes, sample.mem_gtt_total_bytes) == (GIB // 2, 62 * GIB)
    assert sample.mem_total_bytes == 62 * GIB + GIB // 2
    assert sample.mem_used_bytes == 31 * GIB + GIB * 3 // 8
    assert (sample.util_fraction, sample.sm_clock_mhz, sample.sm_clock_max_mhz) == (0.97, 2873, 2900)
    assert (sample.mem_clock_mhz, sample.mem_clock_max_mhz) == (1000, 1000)
    assert (sample.power_w, sample.power_scope, sample.power_window_s) == (118.04, "socket", None)
    assert (sample.temperature_c, sample.hotspot_c) == (58, None)
    assert (sample.dram_read_bytes_s, sample.dram_write_bytes_s) == (41e9, 2.3e9)
    assert sample.dram_is_floor
    assert sample.throttle == ["power cap (sustained)", "thermal (gpu)"]
    assert sample.throttle_shares == {}
    assert watch.why("throttle_power_fraction") == (
        "the driver does not say in which unit it counts: only whether it occurred"
    )
    assert watch.why("pcie_received_bytes_s") == "part of the processor: no PCIe link"
    assert sample.pcie_width is None
    assert watch.why("power_limit_w") == "this APU's driver does not tell its power limit"


def test_strix_halo_with_a_large_carve_out(host: Host) -> None:
    strix_halo(host, vram=96 * GIB, gtt=16 * GIB)
    sample = Watch(host).look()
    assert sample.memory_kind == "vram+gtt"
    assert (sample.mem_total_bytes, sample.mem_used_bytes) == (112 * GIB, 80 * GIB)


def test_vram_below_zero_is_no_number(host: Host) -> None:
    strix_halo(host, mem_info_vram_used=2**64 - 4096)
    watch = Watch(host)
    sample = watch.look()
    assert (sample.mem_vram_used_bytes, sample.mem_used_bytes) == (None, None)
    assert sample.mem_gtt_used_bytes == 31 * GIB
    assert watch.why("mem_used_bytes") == watch.why("mem_vram_used_bytes")
    assert watch.why("mem_used_bytes") == "the driver's answer cannot be right"


def test_an_rx_7900_xtx(host: Host) -> None:
    radeon_7900(host)
    watch = Watch(host)
    sample = watch.look()
    assert sample.name == "AMD Radeon RX 7900 XTX"
    assert sample.memory_kind == "dedicated"
    assert (sample.mem_used_bytes, sample.mem_total_bytes) == (19 * GIB, 24 * GIB)
    assert sample.mem_gtt_total_bytes is None
    assert (sample.util_fraction, sample.mem_util_fraction) == (0.99, 0.61)
    assert (sample.temperature_c, sample.hotspot_c, sample.mem_temperature_c) == (55, 71, 74)
    assert (sample.temperature_limit_c, sample.mem_temperature_limit_c) == (100, 108)
    assert sample.temperature_margin_c == 39
    assert (sample.power_w, sample.power_limit_w, sample.power_scope) == (291, 303, "chip")
    assert (sample.fan_rpm, sample.fan_fraction) == (1512, 0.4)
    assert (sample.throttle, sample.throttle_shares) == ([], {})
    assert (
        watch.why("throttle_power_fraction") == "this chip tells what holds it down now, and counts no time"
    )
    assert watch.why("pcie_received_bytes_s") == "this chip has no PCIe counter"
    assert sample.pcie_received_bytes_s is None


def test_the_link_is_that_of_the_cards_own_switch(host: Host) -> None:
    radeon_7900(host)
    sample = Watch(host).look()
    assert (sample.pcie_generation, sample.pcie_width) == (3, 4)
    assert (sample.pcie_generation_max, sample.pcie_width_max) == (4, 8)


def test_without_bridges_the_tables_link_counts(host: Host) -> None:
    folder = radeon_7900(host, gpu_metrics=navi_metrics(link_width=8, link_speed=80))
    for name in ("current_link_speed", "current_link_width"):
        (folder.parent.parent / name).unlink(missing_ok=True)
    sample = Watch(host).look()
    assert (sample.pcie_generation, sample.pcie_width) == (3, 8)


def test_an_mi300x(host: Host) -> None:
    folder = mi300x(host)
    watch = Watch(host)
    watch.look()
    write(folder, {"gpu_metrics": instinct_metrics(cycles=11_000, ppt=850)})
    sample = watch.look()
    assert sample.name == "AMD Instinct MI300X OAM"
    assert sample.memory_kind == "dedicated"
    assert sample.temperature_c == sample.hotspot_c == 63
    assert sample.temperature_limit_c == 100
    assert (sample.power_w, sample.power_scope, sample.power_window_s) == (641, "module", 0)
    assert (sample.energy_j, sample.energy_source) == (1000, "counter")
    assert sample.throttle == ["power cap"]
    assert sample.throttle_shares["power cap"] == 0.75
    assert (sample.throttle_power_fraction, sample.throttle_thermal_fraction) == (0.75, 0)
    assert (sample.pcie_generation, sample.pcie_width, sample.pcie_replays_total) == (5, 16, 3)
    assert watch.why("pcie_sent_bytes_s") == "this chip counts both directions as one, rounded to whole GB/s"
    assert (sample.ecc_corrected_total, sample.ecc_uncorrected_total, sample.health) == (None, None, [])
    assert "to zero" in (watch.why("ecc_uncorrected_total") or "")
    assert watch.why("fan_fraction") == "the fans are the machine's, not the GPU's"


def test_pages_given_up_are_looked_at_once_a_minute(host: Host) -> None:
    folder = mi300x(host)
    watch = Watch(host)
    watch.look()
    pages = b"0x0000abcd : 0x00001000 : R \n0x0000abce : 0x00001000 : P \n"
    write(folder / "ras", {"gpu_vram_bad_pages": pages})
    assert watch.look().health == []
    assert watch.look(60.0).health == ["memory pages given up: 2"]


def test_an_older_mi300_driver_does_not_tell_what_throttles(host: Host) -> None:
    mi300x(host, gpu_metrics=filled((1, 5), hotspot=60, socket_power=500, gfx_activity=90, energy=65_536))
    watch = Watch(host)
    sample = watch.look()
    assert sample.throttle is None
    assert watch.why("throttle") == "this driver does not tell it for this chip yet"


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (1 << 0, ["power cap (PPT0)"]),
        (1 << 16 | 1 << 22, ["current limit (gfx)", "peak current (gfx)"]),
        (1 << 34, ["thermal (memory)"]),
        (1 << 40 | 1 << 41, ["thermal (vr memory)"]),
        (1 << 47, ["prochot (gpu)"]),
        (1 << 60, ["0x1000000000000000"]),
    ],
)
def test_what_holds_the_clocks_down(host: Host, mask: int, expected: list[str]) -> None:
    radeon_7900(host, gpu_metrics=navi_metrics(mask))
    assert Watch(host).look().throttle == expected


def test_the_hotspot_bit_of_navi_is_believed_near_the_limit_only(host: Host) -> None:
    folder = radeon_7900(host, gpu_metrics=navi_metrics(1 << 36))
    watch = Watch(host)
    assert watch.look().throttle == []
    write(folder / "hwmon/hwmon4", {"temp2_input": 104_000})
    assert watch.look().throttle == ["thermal (hotspot)"]


def test_a_power_cap_far_below_the_limit_is_not_believed(host: Host) -> None:
    folder = radeon_7900(host, gpu_metrics=navi_metrics(1 << 0 | 1 << 16))
    write(folder / "hwmon/hwmon4", {"power1_average": 42_000_000})
    assert Watch(host).look().throttle == ["current limit (gfx)"]


def test_every_word_has_one_kind() -> None:
    from agenttop.collect.gpu.amd import smi, throttling

    words = [*throttling._BITS.values(), *throttling.INSTINCT.values(), *throttling.APU.values()]
    words += smi.WORDS.values()
    kinds = {word: kind_of(word) for word in words}
    for word, kind in kinds.items():
        heads = {
            "power": "power",
            "current": "power",
            "peak": "power",
            "thermal": "thermal",
            "prochot": "thermal",
        }
        assert kind == heads.get(word.split()[0], "other"), word


def test_a_driver_of_the_old_form_tells_no_reasons(host: Host) -> None:
    radeon_7900(host, gpu_metrics=filled((1, 1), hotspot=70, throttle_status=0xFF))
    watch = Watch(host)
    assert watch.look().throttle is None
    assert watch.why("throttle") == "this chip's driver does not tell it in a form that all chips share"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (halo_metrics()[:100], "gpu_metrics 3.0 is cut short: 100 bytes instead of 264"),
        (b"\xf0\x00" + halo_metrics()[2:], "gpu_metrics 3.0 has 240 bytes in this driver instead of 264"),
        (b"\x00" * 40, "gpu_metrics 0.0 is not known to agenttop"),
        (b"", "gpu_metrics is cut short"),
    ],
    ids=["cut", "older", "zeros", "empty"],
)
def test_a_table_that_cannot_be_decoded_costs_its_own_figures_only(host: Host, raw: bytes, why: str) -> None:
    strix_halo(host, gpu_metrics=raw)
    watch = Watch(host)
    watch.look()
    sample = watch.look()
    assert sample.state == "ok"
    assert (sample.util_fraction, sample.power_w, sample.memory_kind) == (0.97, 118.04, "vram+gtt")
    assert (sample.throttle, sample.dram_read_bytes_s) == (None, None)
    assert watch.why("throttle") == why
    assert watch.why("dram_read_bytes_s") == why


def test_without_sensors(host: Host) -> None:
    shutil.rmtree(radeon_7900(host) / "hwmon")
    watch = Watch(host)
    sample = watch.look()
    assert (sample.power_w, sample.temperature_c, sample.hotspot_c) == (None, 71, 71)
    assert sample.util_fraction == 0.99
    assert watch.why("power_w") == "the driver shows no sensors of this card (hwmon)"
    assert (sample.energy_j, sample.energy_source) == (None, None)
    assert watch.why("energy_j")


def test_sensors_come_back_under_another_number(host: Host) -> None:
    folder = radeon_7900(host)
    watch = Watch(host)
    (folder / "hwmon/hwmon4").rename(folder / "hidden")
    assert watch.look().power_w is None
    (folder / "hidden").rename(folder / "hwmon/hwmon7")
    assert watch.look(31.0).power_w == 291


def test_text_where_numbers_belong(host: Host) -> None:
    folder = radeon_7900(host, gpu_busy_percent="EBUSY", mem_info_vram_used=b"\xff\xfe\x00junk")
    write(folder / "hwmon/hwmon4", {"temp1_input": "hot", "power1_average": "-1", "pwm1": "9" * 40})
    watch = Watch(host)
    sample = watch.look()
    # The table says it too.
    assert sample.util_fraction == 0.99
    assert (sample.mem_used_bytes, sample.power_w, sample.fan_fraction) == (None, None, None)
    assert watch.why("mem_used_bytes") == "the driver's answer cannot be right"
    assert watch.why("power_w") == "the driver's answer cannot be right"


def test_no_sensor_gives_zero_degrees_or_all_ones(host: Host) -> None:
    folder = radeon_7900(host)
    write(folder / "hwmon/hwmon4", {"temp1_input": 0, "temp3_input": 65_535_000, "power1_average": 2**32 - 1})
    sample = Watch(host).look()
    assert sample.mem_temperature_c is None
    assert sample.temperature_c == sample.hotspot_c == 71


def test_raven_is_not_believed_to_be_always_busy(host: Host) -> None:
    folder = strix_halo(host, device="0x15d8", gpu_busy_percent=100, gpu_metrics=filled((2, 1)))
    watch = Watch(host)
    assert watch.look().util_fraction is None
    assert watch.why("util_fraction") == "this chip's driver says 100 % whatever it does (Raven)"
    write(folder, {"gpu_busy_percent": 40})
    assert watch.look().util_fraction == 0.4


def test_an_unknown_apu_is_seen_to_be_one(host: Host) -> None:
    strix_halo(host, device="0x9999")
    sample = Watch(host).look()
    assert (sample.memory_kind, sample.name) == ("vram+gtt", "AMD GPU 9999")


def test_an_apu_without_tables_is_told_by_its_carve_out(host: Host) -> None:
    folder = strix_halo(host, device="0x9999")
    (folder / "gpu_metrics").unlink()
    assert Watch(host).look().memory_kind == "vram+gtt"


def test_an_old_card_of_one_gigabyte_is_none(host: Host) -> None:
    folder = radeon_7900(host, device="0x6611", mem_info_vram_total=GIB, mem_info_vram_used=GIB // 2)
    (folder / "gpu_metrics").unlink()
    sample = Watch(host).look()
    assert (sample.memory_kind, sample.mem_total_bytes) == ("dedicated", GIB)


def test_names_of_the_hosts_own_list(host: Host) -> None:
    listing = "# ids\n1.0.0\n7590,\tC0,\tAMD Radeon RX 9060 XT\n7590,\tC7,\tAMD Radeon RX 9060\n"
    write(host.root, {"usr/share/libdrm/amdgpu.ids": listing})
    radeon_7900(host, device="0x7590", revision="0xc0")
    assert Watch(host).look().name == "AMD Radeon RX 9060 XT"


def test_a_hostile_name_is_cleaned(host: Host) -> None:
    mi300x(host, product_name=b"\x1b[31mInstinct\x00\xff " + b"x" * 500)
    name = Watch(host).look().name
    assert "\x1b" not in name
    assert len(name) <= 60


OPENED: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if OPENED is not None and event in ("open", "os.listdir", "os.scandir"):
        OPENED.append(str(arguments[0]))


sys.addaudithook(_hook)


@pytest.fixture
def opened() -> Any:
    """Every file and folder that is opened meanwhile."""
    global OPENED
    OPENED = []
    yield OPENED
    OPENED = None


def test_what_blocks_or_resets_a_counter_is_never_opened(host: Host, opened: list[str]) -> None:
    for card in (radeon_7900, mi300x, strix_halo):
        write(card(host), {"pcie_bw": "1 2 128"})
    opened.clear()
    watch = Watch(host)
    for _ in range(130):
        watch.look()
    assert any(name.endswith("gpu_metrics") for name in opened)
    assert any(name.endswith("ras/gpu_vram_bad_pages") for name in opened)
    assert not [name for name in opened if name.endswith(("/pcie_bw", "_err_count"))]


def test_of_a_sleeping_card_nothing_is_read_but_that_it_sleeps(host: Host, opened: list[str]) -> None:
    folder = radeon_7900(host)
    write(folder, {"power/runtime_status": "suspended"})
    opened.clear()
    watch = Watch(host)
    for _ in range(40):
        sample = watch.look()
    assert (sample.state, sample.gpu, sample.util_fraction) == ("asleep", NAVI, None)
    touched = {Path(name).relative_to(host.root).as_posix() for name in opened if NAVI in name}
    bus = f"sys/bus/pci/devices/{NAVI}"
    # What the PCI bus itself knows of a card, and whether it sleeps.
    assert touched == {f"{bus}/vendor", f"{bus}/class", f"{bus}/power/runtime_status"}


def test_a_card_wakes_and_falls_asleep(host: Host) -> None:
    folder = radeon_7900(host)
    write(folder, {"power/runtime_status": "suspended"})
    watch = Watch(host)
    assert watch.look().state == "asleep"
    write(folder, {"power/runtime_status": "active"})
    awake = watch.look()
    assert (awake.state, awake.name, awake.window_s) == ("ok", "AMD Radeon RX 7900 XTX", None)
    write(folder, {"power/runtime_status": "suspended"})
    asleep = watch.look()
    assert (asleep.state, asleep.name, asleep.power_w) == ("asleep", "AMD Radeon RX 7900 XTX", None)
    assert watch.reading.missing == []


def test_a_card_that_is_pulled_out_is_lost_and_comes_back(host: Host) -> None:
    folder = radeon_7900(host)
    mi300x(host)
    watch = Watch(host)
    assert [sample.state for sample in (watch.look(), watch.reading.samples[1])] == ["ok", "ok"]
    hidden = host.root / "hidden"
    folder.rename(hidden)
    lost = watch.look()
    assert (lost.state, lost.gpu, lost.index, lost.power_w) == ("lost", NAVI, 0, None)
    assert watch.reading.samples[1].state == "ok"
    assert not [
        frame for frame in watch.reading.missing if NAVI in frame.what and "holders" not in frame.what
    ]
    hidden.rename(folder)
    back = watch.look(6.0)
    assert (back.state, back.index, back.power_w) == ("ok", 0, 291)


def test_a_driver_that_says_no_such_device(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    radeon_7900(host)
    watch = Watch(host)
    watch.look()
    fail(monkeypatch, errno.ENODEV, lambda name: NAVI in name and "runtime_status" not in name)
    assert watch.look().state == "lost"
    monkeypatch.undo()
    assert watch.look(6.0).state == "ok"


def fail(monkeypatch: pytest.MonkeyPatch, number: int, which: Any) -> None:
    """Reads of these files fail as a driver lets them: after they have been opened."""
    real_open, real_read = os.open, os.read
    failing: set[int] = set()

    def opening(path: Any, *arguments: Any, **more: Any) -> int:
        handle = real_open(path, *arguments, **more)
        failing.discard(handle)
        if which(str(path)):
            failing.add(handle)
        return handle

    def reading(handle: int, most: int) -> bytes:
        if handle in failing:
            raise OSError(number, os.strerror(number))
        return real_read(handle, most)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "read", reading)


@pytest.mark.parametrize(
    ("number", "why"),
    [
        (errno.EBUSY, "the driver is busy with the card (a reset?)"),
        (errno.EPERM, "power1_average may not be read"),
        (errno.EACCES, "power1_average may not be read"),
        (errno.EINVAL, "the driver refuses power1_average (Invalid argument)"),
        (errno.ENODATA, "the driver refuses power1_average (No data available)"),
    ],
)
def test_a_file_that_fails_costs_its_own_figure_only(
    host: Host, monkeypatch: pytest.MonkeyPatch, number: int, why: str
) -> None:
    radeon_7900(host)
    watch = Watch(host)
    fail(monkeypatch, number, lambda name: name.endswith("power1_average"))
    sample = watch.look()
    assert (sample.state, sample.power_w, sample.util_fraction) == ("ok", None, 0.99)
    assert watch.why("power_w") == why


def test_an_average_that_fails_gives_way_to_the_instant(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    write(radeon_7900(host) / "hwmon/hwmon4", {"power1_input": 250_000_000})
    watch = Watch(host)
    fail(monkeypatch, errno.EOPNOTSUPP, lambda name: name.endswith("power1_average"))
    sample = watch.look()
    assert (sample.power_w, sample.power_window_s) == (250, 0)


def test_energy_is_the_power_summed_up_where_there_is_no_counter(host: Host) -> None:
    radeon_7900(host)
    watch = Watch(host)
    assert watch.look().energy_j == 0
    sample = watch.look(2.0)
    assert (sample.energy_j, sample.energy_source) == (582, "power")
    # Over a long gap the power is not known.
    assert watch.look(600.0).energy_j == 582


def test_a_counter_that_contradicts_the_power_is_left(host: Host) -> None:
    folder = mi300x(host)
    watch = Watch(host)
    sources = set()
    for second in range(70):
        write(folder, {"gpu_metrics": instinct_metrics(energy=65_536 * (1000 + 90 * second))})
        sample = watch.look()
        sources.add(sample.energy_source)
    assert sample.energy_source == "power"
    assert sample.energy_j == pytest.approx(641 * 69)
    assert sources == {"counter", "power"}


def test_cards_without_a_usable_driver_have_a_reason(host: Host) -> None:
    folder = radeon_7900(host)
    (folder / "driver").unlink()
    opening = Watch(host).opening
    assert not opening.found
    assert [frame.why for frame in opening.missing] == [f"the AMD card {NAVI} has no driver"]
    (folder / "driver").symlink_to("../../bus/pci/drivers/vfio-pci")
    assert "virtual machine" in (Watch(host).opening.missing[0].why or "")


def test_no_amd_card_is_no_news(host: Host) -> None:
    opening = Watch(host).opening
    assert (opening.found, opening.missing) == (False, [])


def test_a_card_that_is_plugged_in_later(host: Host) -> None:
    radeon_7900(host)
    watch = Watch(host)
    watch.look()
    mi300x(host)
    assert len(watch.reading.samples) == 1
    watch.look(31.0)
    assert [sample.gpu for sample in watch.reading.samples] == [NAVI, INSTINCT]


JUNK = st.one_of(
    st.binary(max_size=40),
    st.integers(-(2**70), 2**70).map(lambda value: str(value).encode()),
    st.sampled_from([b"", b"nan", b"inf", b"-1", b"0x10", b"18446744073709551615", b"4294967295", b"65535"]),
)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_whatever_the_files_say_no_frame_holds_nonsense(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    host = Host(tmp_path_factory.mktemp("host"))
    folders = [card(host) for card in (strix_halo, radeon_7900, mi300x)]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    watch = Watch(host)
    for _ in range(2):
        for path in data.draw(st.lists(st.sampled_from(files), max_size=12)):
            path.write_bytes(data.draw(JUNK))
        watch.look(31.0)
        for sample in watch.reading.samples:
            check(sample)


def check(sample: GpuSample) -> None:
    for name, value in msgspec.structs.asdict(sample).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        assert math.isfinite(value), name
        assert value >= 0 or name in (
            "temperature_c",
            "hotspot_c",
            "mem_temperature_c",
            "temperature_margin_c",
        ), name
        assert value not in (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF), name
        # Of bytes and errors there may be so many.
        assert value != 0xFFFF or name.endswith(("_bytes", "_total", "_j")), name
        if name.endswith("_fraction"):
            assert value <= 1, name
        if name.endswith(("_c", "_w")):
            assert -110 <= value <= 5000, name
    for what in ("mem", "mem_vram", "mem_gtt"):
        used, total = getattr(sample, f"{what}_used_bytes"), getattr(sample, f"{what}_total_bytes")
        assert used is None or total is None or used <= total
    assert all(0 <= share <= 1 for share in sample.throttle_shares.values())
    msgspec.json.decode(msgspec.json.encode(sample), type=GpuSample)
