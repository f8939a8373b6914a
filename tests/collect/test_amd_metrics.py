"""gpu_metrics: every revision against the kernel's structs, and against whatever else may stand there."""

from __future__ import annotations

import ctypes
import math
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agenttop.collect.gpu.amd.layouts import ATTRIBUTE_FORMATS, ATTRIBUTES, LAYOUTS
from agenttop.collect.gpu.amd.metrics import Metrics, decode
from agenttop.collect.gpu.amd.throttling import Counters
from tests.collect.amd_structs import STRUCTS, filled
from tests.collect.amd_trees import halo_metrics, instinct_metrics, navi_metrics


def decoded(raw: bytes) -> Metrics:
    metrics, why = decode(raw)
    assert metrics is not None, why
    return metrics


@pytest.mark.parametrize("revision", STRUCTS, ids=lambda revision: "{}.{}{}".format(*revision))
def test_every_offset_is_the_compilers(revision: tuple[int, int, str]) -> None:
    struct_ = STRUCTS[revision]
    layout = LAYOUTS[revision[:2]][ctypes.sizeof(struct_)]
    letters = {1: "B", 2: "H", 4: "I", 8: "Q"}
    for name, place in layout.items():
        field = getattr(struct_, name)
        declared = next(kind for known, kind in struct_._fields_ if known == name)
        single = declared._type_ if issubclass(declared, ctypes.Array) else declared
        assert place == (field.offset, letters[ctypes.sizeof(single)]), name


def test_no_size_is_known_that_no_struct_has() -> None:
    sizes = {(revision[:2], ctypes.sizeof(struct_)) for revision, struct_ in STRUCTS.items()}
    assert sizes == {(revision, size) for revision, known in LAYOUTS.items() for size in known}


def test_strix_halo() -> None:
    metrics = decoded(halo_metrics())
    assert metrics.of_apu
    assert metrics.share("gfx_activity") == 0.965
    assert metrics.celsius("temperature_gfx") == 58.37
    assert metrics.power_w() == 118.432
    assert metrics.dram_bytes_s("dram_reads") == 41e9
    assert metrics.within("uclk", 20_000) == 1000


def test_an_rx_7900() -> None:
    metrics = decoded(navi_metrics(mask=1 << 36))
    assert not metrics.of_apu
    assert not metrics.of_instinct
    assert metrics.celsius("hotspot") == 71
    assert metrics.share("umc_activity") == 0.58
    assert metrics.raw["indep_throttle_status"] == 1 << 36


@pytest.mark.parametrize("minor", [4, 5, 6, 7, 8])
def test_an_mi300(minor: int) -> None:
    given_ = {
        "hotspot": 63,
        "socket_power": 640,
        "gfx_activity": 100,
        "energy": 65_536_000,
        "pcie_replays": 3,
    }
    metrics = decoded(filled((1, minor), **given_, gfxclk=2075, uclk=1300))
    assert metrics.of_instinct
    assert (metrics.celsius("hotspot"), metrics.power_w(), metrics.share("gfx_activity")) == (63, 640, 1)
    assert metrics.energy_j() == 1000
    assert (metrics.within("gfxclk", 9999), metrics.within("uclk", 9999)) == (2075, 1300)


def attribute(number: int, kind: str, *values: int, unit: int = 0) -> bytes:
    what = unit << 24 | ATTRIBUTE_FORMATS.index(kind) << 20 | number << 10 | len(values)
    return struct.pack(f"<Q{len(values)}{kind}", what, *values)


def attributes(*parts: bytes, count: int | None = None, size: int | None = None) -> bytes:
    body = b"".join(parts)
    return struct.pack("<HBBi", size or 8 + len(body), 1, 9, len(parts) if count is None else count) + body


def test_revision_1_9_says_what_stands_in_it() -> None:
    numbers = {name: number for number, name in ATTRIBUTES.items()}
    metrics = decoded(
        attributes(
            attribute(numbers["hotspot"], "H", 61),
            attribute(numbers["socket_power"], "H", 0xFFFF),
            attribute(numbers["gfxclk"], "H", 2100, 2100, 0xFFFF, 2090),
            attribute(numbers["cycles"], "I", 5000),
            attribute(1000, "Q", 1, 2, 3),
            attribute(numbers["ppt"], "I", 7),
        )
    )
    assert metrics.raw == {"hotspot": 61, "gfxclk": 2100, "cycles": 5000, "ppt": 7}
    assert metrics.of_instinct


@pytest.mark.parametrize(
    "raw",
    [
        attributes(attribute(0, "H", 61), count=2),
        attributes(attribute(0, "H", 61), attribute(1, "H", 50), count=1),
        attributes(attribute(0, "H", 61), size=9),
        attributes(struct.pack("<Q", 9 << 20 | 1), b"1234"),
        attributes(struct.pack("<Q", 2 << 20), b""),
        attributes(attribute(0, "H", 61), count=-1),
    ],
    ids=["too many", "too few", "cut", "unknown type", "no values", "negative"],
)
def test_a_1_9_that_contradicts_itself_is_refused(raw: bytes) -> None:
    metrics, why = decode(raw)
    assert metrics is None
    assert "contradicts" in why or "cut" in why


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (None, "cut short"),
        (b"", "cut short"),
        (b"\x08\x01", "cut short"),
        (halo_metrics()[:200], "gpu_metrics 3.0 is cut short: 200 bytes instead of 264"),
        (b"\x00\x01" + halo_metrics()[2:256], "gpu_metrics 3.0 has 256 bytes in this driver instead of 264"),
        (b"\xf0\x00" + halo_metrics()[2:240], "gpu_metrics 3.0 has 240 bytes in this driver instead of 264"),
        (struct.pack("<HBB", 64, 1, 12) + bytes(60), "gpu_metrics 1.12 is not known to agenttop"),
        (b"no permission, sorry\n" * 40, "not known"),
    ],
)
def test_what_cannot_be_decoded_has_a_reason(raw: bytes | None, why: str) -> None:
    metrics, told = decode(raw)
    assert metrics is None
    assert why in told


def test_all_bits_set_is_nothing() -> None:
    for revision in STRUCTS:
        metrics = decoded(filled(revision[:2], revision[2]))
        assert metrics.raw == {}


HEADERS = st.sampled_from([(size, *revision) for revision, sizes in LAYOUTS.items() for size in sizes])


@given(header=HEADERS, body=st.binary(min_size=1, max_size=300), keep=st.integers(0, 4096))
@example(header=(264, 3, 0), body=b"\xff", keep=4096)
@example(header=(264, 3, 0), body=b"\x00", keep=4096)
def test_any_table_gives_figures_within_bounds(header: tuple[int, int, int], body: bytes, keep: int) -> None:
    check((struct.pack("<HBB", *header) + body * 4096)[:keep])


@given(st.binary(max_size=400))
def test_any_bytes(raw: bytes) -> None:
    check(raw)


@given(count=st.integers(0, 5), body=st.binary(max_size=200))
def test_any_attributes(count: int, body: bytes) -> None:
    check(struct.pack("<HBBi", 8 + len(body), 1, 9, count) + body)


def check(raw: bytes) -> None:
    metrics, why = decode(raw)
    assert (metrics is None) == bool(why)
    if metrics is None:
        return
    figures = [metrics.power_w(), metrics.energy_j(), metrics.dram_bytes_s("dram_reads")]
    figures += [metrics.share(name) for name in ("gfx_activity", "umc_activity")]
    figures += [metrics.celsius(name) for name in ("hotspot", "mem_temperature", "temperature_gfx")]
    for figure in figures:
        assert figure is None or (math.isfinite(figure) and figure >= 0)
    assert all(value >= 0 for value in metrics.raw.values())
    counters = Counters()
    counters.instinct(metrics)
    _, shares = counters.instinct(metrics)
    assert all(0 <= share <= 1 for share in shares.values())


def look(counters: Counters, **values: int) -> tuple[list[str] | None, dict[str, float]]:
    return counters.instinct(decoded(instinct_metrics(**values)))


def test_instinct_shares_are_cycles_of_cycles() -> None:
    counters = Counters()
    assert look(counters, cycles=10_000, ppt=100) == (None, {})
    reasons, shares = look(counters, cycles=11_000, ppt=350, hbm_thm=1000)
    assert reasons == ["power cap", "thermal (memory)"]
    assert shares == {
        "prochot": 0,
        "power cap": 0.25,
        "thermal (socket)": 0,
        "thermal (vr)": 0,
        "thermal (memory)": 1,
    }
    # The same table once more: nothing new is known.
    assert look(counters, cycles=11_000, ppt=350, hbm_thm=1000) == (reasons, shares)


def test_instinct_counters_go_round_and_are_set_back() -> None:
    counters = Counters()
    look(counters, cycles=2**32 - 501, ppt=2**32 - 101)
    assert look(counters, cycles=499, ppt=149)[1]["power cap"] == 0.25
    assert look(counters, cycles=100, ppt=0) == (None, {})
    assert look(counters, cycles=1100, ppt=500)[1]["power cap"] == 0.5


def test_a_share_of_more_than_all_is_none() -> None:
    counters = Counters()
    look(counters, cycles=1000, ppt=0)
    assert "power cap" not in look(counters, cycles=2000, ppt=5000)[1]


def test_strix_halo_tells_what_has_grown() -> None:
    counters = Counters()
    assert counters.apu(decoded(halo_metrics())) is None
    assert counters.apu(decoded(halo_metrics())) == []
    assert counters.apu(decoded(halo_metrics(sppt=4_000_000_900, thm_gfx=18))) == [
        "power cap (slow)",
        "thermal (gpu)",
    ]
    # Once round, and then set back by a reset: the second tells nothing.
    assert counters.apu(decoded(halo_metrics(sppt=40, thm_gfx=18))) == ["power cap (slow)"]
    assert counters.apu(decoded(halo_metrics(sppt=40, thm_gfx=0))) is None
