"""What Intel's drivers tell of clients and of memory regions, byte by byte."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.gpu.intel import regions
from agenttop.collect.gpu.intel.engines import Client, Usage, parse
from agenttop.collect.gpu.intel.regions import Memory, memory_of
from tests.collect import intel_trees as trees


def test_the_kernels_own_example() -> None:
    text = """pos:    0
drm-driver:     xe
drm-client-id:  3
drm-pdev:       0000:03:00.0
drm-total-system:       0
drm-resident-system:    0
drm-total-gtt:  192 KiB
drm-resident-gtt:       192 KiB
drm-total-vram0:        23992 KiB
drm-shared-vram0:       16 MiB
drm-active-vram0:       0
drm-resident-vram0:     23992 KiB
drm-resident-stolen:    0
drm-cycles-rcs: 28257900
drm-total-cycles-rcs:   7655183225
drm-cycles-bcs: 0
drm-total-cycles-bcs:   7655183225
drm-cycles-ccs: 5
drm-total-cycles-ccs:   7655183225
drm-engine-capacity-ccs:        4
"""
    assert parse(text) == Client(
        driver="xe",
        bus="0000:03:00.0",
        number="3",
        busy={"rcs": 28257900, "ccs": 5},
        passed={"rcs": 7655183225, "ccs": 7655183225},
        capacity={"ccs": 4},
        local_bytes=23992 * 1024,
        local_shared_bytes=16 * 1024**2,
        system_bytes=192 * 1024,
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "pos:\t0\nflags:\t02\nmnt_id:\t9\n",
        "drm-driver:\txe\ndrm-client-id:\t3\n",
        "drm-pdev:\t0000:03:00.0\n",
    ],
)
def test_other_descriptors_and_torn_texts_are_no_client(text: str) -> None:
    assert parse(text) is None


@given(st.text(alphabet="drm-:totalcycesvi0123456789 \tKMB\n\x00é", max_size=400))
def test_no_text_is_too_broken(rest: str) -> None:
    client = parse(f"drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\n{rest}")
    assert client is None or all(value >= 0 for value in client.busy.values())


def client_of(busy: dict[str, int], passed: dict[str, int] | None = None, capacity: int = 1) -> Client:
    engines = dict.fromkeys(busy, capacity) if capacity > 1 else {}
    return Client(driver="x", bus="b", number="1", busy=busy, passed=passed or {}, capacity=engines)


def busy_after(*looks: dict[str, Client]) -> float | None:
    usage, share = Usage(), None
    for second, clients in enumerate(looks):
        share = usage.busy_fraction(float(second), clients)
    return share


def test_the_first_look_is_no_share() -> None:
    assert busy_after({"1": client_of({"ccs": 5})}) is None


def test_clients_add_up_and_the_busiest_kind_of_engine_counts() -> None:
    first = {"1": client_of({"render": 0, "compute": 0}), "2": client_of({"compute": 10})}
    then = {
        "1": client_of({"render": 400_000_000, "compute": 300_000_000}),
        "2": client_of({"compute": 300_000_010}),
    }
    assert busy_after(first, then) == pytest.approx(0.6)


def test_several_engines_of_a_kind_share_their_time() -> None:
    first, then = client_of({"ccs": 0}, {"ccs": 100}, 4), client_of({"ccs": 1000}, {"ccs": 1100}, 4)
    assert busy_after({"1": first}, {"1": then}) == pytest.approx(0.25)


def test_a_counter_that_falls_stands_until_it_is_passed() -> None:
    looks = [{"1": client_of({"compute": ns})} for ns in (800_000_000, 500_000_000, 900_000_000)]
    assert busy_after(*looks[:2]) == 0.0
    assert busy_after(*looks) == pytest.approx(0.1)


def test_a_client_that_is_new_or_gone_brings_no_leap() -> None:
    long_at_work = client_of({"compute": 10**15})
    assert (
        busy_after({"2": client_of({"compute": 5})}, {"1": long_at_work, "2": client_of({"compute": 5})})
        == 0.0
    )
    assert busy_after({"1": long_at_work}, {"2": client_of({"compute": 5})}) == 0.0


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(["1", "2"]),
            st.tuples(st.integers(0, 1 << 64), st.integers(0, 1 << 64)),
            max_size=2,
        ),
        max_size=5,
    )
)
def test_a_share_is_a_share(looks: list[dict[str, tuple[int, int]]]) -> None:
    share = busy_after(
        *({key: client_of({"ccs": a}, {"ccs": b}) for key, (a, b) in look.items()} for look in looks)
    )
    assert share is None or 0.0 <= share <= 1.0


@pytest.mark.parametrize("driver", ["i915", "xe"])
def test_the_regions_of_a_card(driver: str) -> None:
    assert memory_of(trees.regions(driver, 16 << 30, 3 << 30), driver) == Memory(16 << 30, 3 << 30)


@pytest.mark.parametrize("driver", ["i915", "xe"])
def test_a_torn_list_is_nothing(driver: str) -> None:
    whole = trees.regions(driver, 16 << 30, 3 << 30)
    assert all(memory_of(whole[:length], driver) is None for length in range(len(whole)))


@pytest.mark.parametrize(("total", "left"), [(0, 0), (1 << 63, 0), (8 << 30, 9 << 30), ((1 << 64) - 1,) * 2])
def test_sizes_that_cannot_be_are_nothing(total: int, left: int) -> None:
    region = struct.pack("<HHIQQ", 1, 0, 0, total, left) + bytes(64)
    assert memory_of(struct.pack("<II", 1, 0) + region, "xe") is None


@given(st.binary(max_size=300), st.sampled_from(["i915", "xe", "other"]))
def test_no_list_is_too_broken(answer: bytes, driver: str) -> None:
    memory = memory_of(answer, driver)
    assert memory is None or 0 <= memory.used <= memory.total


@pytest.mark.parametrize("driver", ["i915", "xe"])
def test_what_is_no_card_gives_no_list(driver: str) -> None:
    assert regions.ask("/dev/null", driver) is None
    assert regions.ask("/nowhere/renderD128", driver) is None


def i915_kernel(regions_list: bytes) -> Callable[[int, int, bytearray], None]:
    """What the kernel does with the question of `drm_i915_query`."""

    def request(handle: int, number: int, query: bytearray) -> None:
        assert (number, len(query)) == (0xC0106479, 16)
        count, flags, items = struct.unpack("<IIQ", query)
        assert (count, flags) == (1, 0)
        question, length, flags, answer = struct.unpack("<QiIQ", ctypes.string_at(items, 24))
        assert (question, flags) == (4, 0)
        if length:
            assert length == len(regions_list)
            ctypes.memmove(answer, regions_list, length)
        ctypes.memmove(items + 8, struct.pack("<i", len(regions_list)), 4)

    return request


def xe_kernel(regions_list: bytes) -> Callable[[int, int, bytearray], None]:
    """The same of `drm_xe_device_query`."""

    def request(handle: int, number: int, query: bytearray) -> None:
        assert (number, len(query)) == (0xC0286440, 40)
        extensions, question, size, answer, first, second = struct.unpack("<QIIQQQ", query)
        assert (extensions, question, first, second) == (0, 1, 0, 0)
        if size:
            assert size == len(regions_list)
            ctypes.memmove(answer, regions_list, size)
        else:
            struct.pack_into("<I", query, 12, len(regions_list))

    return request


@pytest.mark.parametrize(("driver", "kernel"), [("i915", i915_kernel), ("xe", xe_kernel)])
def test_the_question_as_the_kernel_takes_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    driver: str,
    kernel: Callable[[bytes], Callable[[int, int, bytearray], None]],
) -> None:
    node = tmp_path / "renderD128"
    node.touch()
    for told in (trees.regions(driver, 16 << 30, 3 << 30), b"", bytes(70_000)):
        monkeypatch.setattr(regions, "device_request", kernel(told))
        answer = regions.ask(str(node), driver)
        assert answer == (told if 8 < len(told) < 65_536 else None)
