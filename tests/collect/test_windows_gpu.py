"""AMD and Intel GPUs under Windows: names of counter instances, the registry, and pdh.dll by a stand-in."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.gpu.base import GpuReading
from agenttop.collect.gpu.windows import WindowsAdapter
from agenttop.collect.gpu.windows import records as registry
from agenttop.collect.gpu.windows.adapter import DEDICATED, ENGINES, HELD_DEDICATED, HELD_SHARED, SHARED
from agenttop.collect.gpu.windows.instances import Item, busy_fractions, bytes_of, held_bytes
from agenttop.collect.gpu.windows.pdh import Query, library
from agenttop.collect.gpu.windows.records import Record, records
from agenttop.model.clock import ManualClock
from agenttop.model.frames import GPU_SUBJECT, GpuSample
from tests.collect.sane import assert_sane

GIB = 1 << 30
HALO, ARC, DRAWN = 0x1532A, 0x16BCB, 0x17034


def named(luid: int) -> str:
    return f"luid_0x{luid >> 32:08X}_0x{luid & 0xFFFFFFFF:08X}_phys_0"


def engine(pid: int, luid: int, number: int, kind: str) -> str:
    return f"pid_{pid}_{named(luid)}_eng_{number}_engtype_{kind}"


class TestInstances:
    def test_the_busiest_engine_counts_and_each_is_the_sum_over_processes(self) -> None:
        items = [
            (engine(856, ARC, 0, "3D"), 3.0),
            (engine(900, ARC, 0, "3D"), 4.0),
            (engine(900, ARC, 2, "Compute 0"), 60.0),
            (engine(901, ARC, 2, "Compute 0"), 25.5),
            (engine(901, ARC, 3, "Compute_1"), 80.0),  # another engine of the type: not added
            (engine(901, ARC, 5, "High Priority Compute"), 1.0),
            (engine(1, HALO, 0, "3D"), 12.0),
        ]
        assert busy_fractions(items) == {ARC: pytest.approx(0.855), HALO: pytest.approx(0.12)}

    @pytest.mark.parametrize(
        "kind",
        ["Copy", "VideoDecode", "Video Codec 0", "VideoProcessing", "LegacyOverlay", "Timer 0", "Security"],
    )
    def test_engines_that_run_no_kernels_are_left_out(self, kind: str) -> None:
        assert busy_fractions([(engine(1, ARC, 4, kind), 99.0)]) == {}

    def test_a_sum_above_all_of_the_time_is_all_of_it(self) -> None:
        assert busy_fractions([(engine(pid, ARC, 0, "3D"), 70.0) for pid in (1, 2)]) == {ARC: 1.0}

    def test_bytes_of_adapters_and_processes(self) -> None:
        assert bytes_of([(named(ARC), 3 * GIB), (named(HALO).lower(), 5.0), ("_Total", 9.0)]) == {
            ARC: 3 * GIB,
            HALO: 5,
        }
        held = [
            (f"pid_900_{named(ARC)}", 2.0),
            (f"pid_900_{named(ARC)}#1", 3.0),
            (f"pid_1_{named(ARC)}", 0.0),
        ]
        assert held_bytes(held) == {ARC: {900: 5}}

    @given(
        st.lists(
            st.tuples(
                st.text(max_size=20)
                | st.sampled_from([engine(1, ARC, 0, "3D"), named(ARC), f"pid_1_{named(ARC)}"]),
                st.floats() | st.floats(0, 1e13),
            ),
            max_size=8,
        )
    )
    def test_no_instance_is_too_strange(self, items: list[Item]) -> None:
        assert all(0 <= share <= 1 for share in busy_fractions(items).values())
        assert all(size >= 0 for size in bytes_of(items).values())
        assert all(size > 0 for held in held_bytes(items).values() for size in held.values())


DIRECTX: list[dict[str, Any]] = [
    {
        "AdapterLuid": HALO,
        "Description": "AMD Radeon(TM) 8060S Graphics",
        "VendorId": 0x1002,
        "DeviceId": 0x1586,
        "DriverVersion": 32 << 48 | 21041 << 16 | 1000,
        "DedicatedVideoMemory": GIB // 2,
        "SharedSystemMemory": 48 * GIB,
    },
    {
        "AdapterLuid": ARC.to_bytes(8, "little"),
        "Description": "Intel(R) Arc(TM) B580 Graphics",
        "VendorId": 0x8086,
    },
    {"AdapterLuid": 0x999, "Description": "NVIDIA GeForce RTX 5090", "VendorId": 0x10DE},
    {"AdapterLuid": DRAWN, "Description": "Microsoft Basic Render Driver", "VendorId": 0x1414},
    {"Description": "no LUID", "VendorId": 0x1002},
    {"AdapterLuid": "text", "VendorId": None},
]
CLASSES: list[dict[str, Any]] = [
    {"DriverDesc": "Intel(R) Arc(TM) B580 Graphics", "HardwareInformation.qwMemorySize": 12 * GIB},
    {"DriverDesc": "NVIDIA GeForce RTX 5090", "HardwareInformation.qwMemorySize": 32 * GIB},
]


class TestRecords:
    def test_adapters_of_known_vendors(self) -> None:
        halo, arc = records(DIRECTX, CLASSES)
        assert halo == Record(
            luid=HALO,
            vendor="amd",
            name="AMD Radeon(TM) 8060S Graphics",
            pci_id="1002:1586",
            driver="32.0.21041.1000",
            dedicated_bytes=GIB // 2,
            shared_bytes=48 * GIB,
        )
        assert (arc.vendor, arc.luid, arc.dedicated_bytes) == (
            "intel",
            ARC,
            12 * GIB,
        )  # from the driver's own key

    def test_two_sizes_for_one_name_are_none(self) -> None:
        twice = [*CLASSES, CLASSES[0] | {"HardwareInformation.qwMemorySize": 16 * GIB}]
        assert records(DIRECTX, twice)[1].dedicated_bytes is None

    @given(
        st.dictionaries(
            st.sampled_from(sorted({*DIRECTX[0]})),
            st.none() | st.integers() | st.binary(max_size=9) | st.text(max_size=9) | st.floats(),
        )
    )
    def test_no_record_is_too_broken(self, values: dict[str, Any]) -> None:
        for record in records([values | {"VendorId": 0x1002}], [values]):
            assert record.luid > 0
            assert record.dedicated_bytes is None or record.dedicated_bytes > 0

    @pytest.mark.skipif(sys.platform == "win32", reason="there it is one")
    def test_elsewhere_there_is_no_registry(self) -> None:
        assert registry.read() == []


class StandInCounters:
    """Counters that are what a test says."""

    def __init__(self, windows: Windows, paths: Sequence[str]) -> None:
        self.windows = windows
        self.paths = paths
        self.closed = False

    def read(self) -> list[list[Item]]:
        if self.windows.broken:
            raise OSError("PdhCollectQueryData: 0x800007D5")
        return [list(self.windows.items.get(path, [])) for path in self.paths]

    def close(self) -> None:
        self.closed = True


class Windows:
    """A Windows with an APU and a card."""

    def __init__(self) -> None:
        self.clock = ManualClock(1000.0)
        self.broken = False
        self.opened: list[StandInCounters] = []
        self.directx = DIRECTX
        self.items: dict[str, list[Item]] = {
            ENGINES: [(engine(7, ARC, 2, "Compute 0"), 91.0), (engine(7, ARC, 1, "Copy"), 100.0)],
            DEDICATED: [(named(ARC), 9.0 * GIB), (named(HALO), 0.25 * GIB), (named(DRAWN), 0.0)],
            SHARED: [(named(ARC), 0.5 * GIB), (named(HALO), 20.0 * GIB), (named(DRAWN), 0.0)],
            HELD_DEDICATED: [(f"pid_7_{named(ARC)}", 8.0 * GIB)],
            HELD_SHARED: [(f"pid_7_{named(ARC)}", 0.5 * GIB), (f"pid_8_{named(HALO)}", 19.0 * GIB)],
        }
        self.adapter = WindowsAdapter(
            self.clock, counters=self._open, known=lambda: records(self.directx, CLASSES)
        )
        self.reading = GpuReading()

    def _open(self, paths: Sequence[str]) -> StandInCounters:
        if self.broken:
            raise OSError("PdhAddEnglishCounterW: 0xC0000BB8")
        self.opened.append(StandInCounters(self, paths))
        return self.opened[-1]

    def look(self, after: float = 1.0) -> dict[str, GpuSample]:
        self.clock.now += after
        self.reading = self.adapter.sample(self.clock.now - 1000)
        for sample in self.reading.samples:
            assert_sane(sample)
        return {sample.vendor: sample for sample in self.reading.samples}

    def reasons(self, gpu: str) -> set[str]:
        begin = f"{GPU_SUBJECT}{gpu}:"
        return {
            frame.what.removeprefix(begin) for frame in self.reading.missing if frame.what.startswith(begin)
        }


class TestAdapter:
    def test_use_and_memory(self) -> None:
        windows = Windows()
        assert windows.adapter.open(0.0).found
        assert windows.look()["intel"].util_fraction is None  # the first window is not known
        samples = windows.look()
        assert set(samples) == {"amd", "intel"}
        arc, halo = samples["intel"], samples["amd"]
        assert (arc.name, arc.util_fraction) == ("Intel(R) Arc(TM) B580 Graphics", pytest.approx(0.91))
        assert (arc.memory_kind, arc.mem_used_bytes, arc.mem_total_bytes) == ("dedicated", 9 * GIB, 12 * GIB)
        assert (halo.gpu, halo.index, halo.driver) == ("1002:1586-0", 0, "32.0.21041.1000")
        assert halo.util_fraction == 0.0
        assert halo.memory_kind == "vram+gtt"
        assert (halo.mem_used_bytes, halo.mem_total_bytes) == (20 * GIB + GIB // 4, 48 * GIB + GIB // 2)
        assert (halo.mem_vram_used_bytes, halo.mem_gtt_used_bytes) == (GIB // 4, 20 * GIB)
        assert {"power_w", "temperature_c", "sm_clock_mhz", "throttle"} <= windows.reasons(arc.gpu)
        assert windows.reading.holders == {arc.gpu: {7: 8 * GIB}, halo.gpu: {8: 19 * GIB}}

    def test_counters_that_are_not_there_are_said(self) -> None:
        windows = Windows()
        windows.broken = True
        opening = windows.adapter.open(0.0)
        assert not opening.found
        assert "0xC0000BB8" in (opening.missing[0].why or "")
        assert opening.missing[0].fix

    def test_a_windows_with_other_adapters_alone_says_nothing(self) -> None:
        windows = Windows()
        windows.directx = DIRECTX[2:4]
        opening = windows.adapter.open(0.0)
        assert (opening.found, opening.missing) == (False, [])

    def test_counters_that_go_away_are_lost_and_come_back(self) -> None:
        windows = Windows()
        windows.adapter.open(0.0)
        windows.look()
        windows.broken = True
        assert {sample.state for sample in windows.look().values()} == {"lost"}
        assert all(counters.closed for counters in windows.opened)
        windows.broken = False
        assert windows.look()["intel"].state == "lost"  # not tried again at once
        assert windows.look(31.0)["intel"].state == "ok"

    def test_an_adapter_keeps_its_name_when_its_luid_changes(self) -> None:
        windows = Windows()
        windows.adapter.open(0.0)
        before = windows.look()["amd"]
        windows.directx = [DIRECTX[0] | {"AdapterLuid": 0x77}, *DIRECTX[1:]]
        windows.items[DEDICATED] = [(named(ARC), 1.0), (named(0x77), 2.0)]
        after = windows.look()["amd"]
        assert (before.gpu, before.index) == (after.gpu, after.index)
        assert after.mem_vram_used_bytes == 2

    def test_two_cards_of_a_model_are_two(self) -> None:
        windows = Windows()
        windows.directx = [DIRECTX[0], DIRECTX[0] | {"AdapterLuid": ARC}]
        windows.adapter.open(0.0)
        windows.look()
        assert [s.gpu for s in windows.reading.samples] == ["1002:1586-0", "1002:1586-1"]

    def test_closing_closes_the_queries(self) -> None:
        windows = Windows()
        windows.adapter.open(0.0)
        windows.adapter.close()
        assert all(counters.closed for counters in windows.opened)


class Entry(ctypes.Structure):
    """PDH_FMT_COUNTERVALUE_ITEM_W as `pdh.h` has it."""

    _fields_ = (
        ("name", ctypes.c_wchar_p),
        ("status", ctypes.c_uint32),
        ("padding", ctypes.c_uint32),
        ("value", ctypes.c_double),
    )


class StandInPdh:
    """pdh.dll: the calls with their out-parameters."""

    def __init__(self, arrays: dict[str, list[tuple[str, int, float]]], grows: int = 0) -> None:
        self.arrays = arrays
        self.grows = grows
        """How often an array has become longer when it is fetched."""
        self.paths: dict[int, str] = {}
        self.collected = self.closed = 0

    def PdhOpenQueryW(self, source: Any, data: Any, query: Any) -> int:  # noqa: N802
        query._obj.value = 0x1000
        return 0

    def PdhAddEnglishCounterW(self, query: Any, path: str, data: Any, counter: Any) -> int:  # noqa: N802
        if path not in self.arrays:
            return -1073738824  # 0xC0000BB8 as ctypes hands it out: no such object
        counter._obj.value = len(self.paths) + 1
        self.paths[len(self.paths) + 1] = path
        return 0

    def PdhCollectQueryData(self, query: Any) -> int:  # noqa: N802
        self.collected += 1
        return 0

    def PdhGetFormattedCounterArrayW(  # noqa: N802
        self, counter: Any, how: Any, size: Any, count: Any, buffer: Any
    ) -> int:
        assert how.value == 0x8200
        array = self.arrays[self.paths[counter.value]]
        if not array:
            return -1073738810  # 0xC0000BC6: no valid data yet
        needed = len(array) * ctypes.sizeof(Entry)
        if buffer is None or size._obj.value < needed or self.grows > 0:
            self.grows -= buffer is not None
            size._obj.value = needed
            return -2147481646  # 0x800007D2: more data
        entries = (Entry * len(array)).from_buffer(buffer)
        self.kept = [(ctypes.create_unicode_buffer(name), status, value) for name, status, value in array]
        for entry, (name, status, value) in zip(entries, self.kept, strict=True):
            entry.name, entry.status, entry.value = ctypes.addressof(name), status, value
        count._obj.value = len(array)
        return 0

    def PdhCloseQuery(self, query: Any) -> int:  # noqa: N802
        self.closed += 1
        return 0


class TestPdh:
    @pytest.mark.parametrize("grows", [0, 1])
    def test_an_array_of_instances(self, grows: int) -> None:
        array = [
            (engine(1, ARC, 0, "3D"), 0, 12.5),
            (engine(2, ARC, 0, "3D"), 1, 250.0),
            ("bad", 0xC0000BBA, 1.0),
        ]
        pdh = StandInPdh({ENGINES: array, SHARED: []}, grows)
        query = Query([ENGINES, SHARED], pdh)
        assert query.read() == [[(engine(1, ARC, 0, "3D"), 12.5), (engine(2, ARC, 0, "3D"), 250.0)], []]
        assert pdh.collected == 1
        query.close()
        query.close()
        assert pdh.closed == 1

    def test_one_that_grows_for_ever_is_given_up(self) -> None:
        query = Query([ENGINES], StandInPdh({ENGINES: [("a", 0, 1.0)]}, grows=99))
        assert query.read() == [[]]

    def test_a_counter_that_is_not_there_is_an_error_and_leaves_nothing_open(self) -> None:
        pdh = StandInPdh({})
        with pytest.raises(OSError, match="0xC0000BB8"):
            Query([ENGINES], pdh)
        assert pdh.closed == 1

    @pytest.mark.skipif(sys.platform == "win32", reason="there it is one")
    def test_elsewhere_there_is_no_such_library(self) -> None:
        with pytest.raises(OSError, match="part of Windows"):
            library()
