"""Disks and network interfaces: which count, and counters that wrap, are reset, come and go."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.host.counters import Flows
from agenttop.collect.host.disks import Disk, WholeDisks, busiest, parse_diskstats
from agenttop.collect.host.network import Wires, parse_net_dev
from tests.collect.host_trees import diskstats, net_dev, write

NAMES = (
    "sda", "sda1", "nvme0n1", "nvme0n1p2", "nvme0c0n1", "nvme0c1n1", "dm-0", "md127", "loop3", "zram0",
    "ram1", "sr0", "fd0", "vda", "mmcblk0", "zd16", "bcache0", "nbd0",
)  # fmt: skip


def with_disks(root: Path, *partitions: str, **disks: tuple[int, int, int]) -> WholeDisks:
    write(root, {"proc/diskstats": diskstats(**disks)})
    for name in disks:
        if name not in partitions:
            (root / "sys/block" / name).mkdir(parents=True, exist_ok=True)
    return WholeDisks(str(root))


def test_what_counts_as_a_whole_disk(tmp_path: Path) -> None:
    disks = with_disks(tmp_path, "sda1", "nvme0n1p2", **dict.fromkeys(NAMES, (1, 1, 1)))
    assert sorted(disks.look()) == ["mmcblk0", "nbd0", "nvme0n1", "sda", "vda"]


def test_a_name_with_a_stroke_has_a_folder_without(tmp_path: Path) -> None:
    write(tmp_path, {"proc/diskstats": diskstats(**{"cciss/c0d0": (2, 0, 0)})})
    (tmp_path / "sys/block/cciss!c0d0").mkdir(parents=True)
    assert WholeDisks(str(tmp_path)).look() == {"cciss/c0d0": Disk(1024, 0, 0)}


def test_a_disk_that_is_not_counted_is_not_0(tmp_path: Path) -> None:
    disks = with_disks(tmp_path, sda=(0, 0, 0))
    assert disks.look()
    write(tmp_path, {"sys/block/sda/queue/iostats": "0\n"})
    disks = WholeDisks(str(tmp_path))
    assert disks.look() == {}
    assert "iostats" in disks.why_none().fix


def test_a_disk_that_is_plugged_in_later_is_found(tmp_path: Path) -> None:
    disks = with_disks(tmp_path, sda=(0, 0, 0))
    assert set(disks.look()) == {"sda"}
    with_disks(tmp_path, sda=(0, 0, 0), sdb=(9, 9, 9))
    assert set(disks.look()) == {"sda", "sdb"}


def test_the_busiest_disk() -> None:
    before = {"a": Disk(0, 0, 100), "b": Disk(0, 0, 0), "c": Disk(0, 0, 0)}
    after = {"a": Disk(0, 0, 600), "b": Disk(0, 0, 1500), "d": Disk(0, 0, 9000)}
    assert busiest(before, after, 2.0) == (0.75, "b")
    assert busiest(before, before, 2.0) == (0.0, None)
    assert busiest(before, after, 0.0) == (None, None)
    assert busiest({}, after, 2.0) == (None, None)


def test_time_at_work_wraps_after_49_days_and_is_no_more_than_all() -> None:
    wrap = 1 << 32
    assert busiest({"a": Disk(0, 0, wrap - 500)}, {"a": Disk(0, 0, 500)}, 2.0) == (0.5, "a")
    assert busiest({"a": Disk(0, 0, 0)}, {"a": Disk(0, 0, 2020)}, 2.0) == (1.0, "a")
    assert busiest({"a": Disk(0, 0, 900_000)}, {"a": Disk(0, 0, 3)}, 2.0) == (None, None), "reset"


def test_rates_are_summed_over_the_devices_that_were_there_before() -> None:
    flows = Flows({"a": (0, 0), "b": (50, 0)})
    assert flows.rates({"a": (4000, 200), "b": (50, 100), "c": (10**12, 10**12)}, 2.0) == (2000.0, 150.0)


def test_a_counter_that_goes_back_leaves_only_its_own_rate_unknown() -> None:
    flows = Flows({"a": (4_000_000_000, 0)})
    assert flows.rates({"a": (5, 100)}, 2.0) == (None, 50.0)
    assert flows.rates({"a": (25, 100)}, 2.0) == (10.0, 0.0)
    assert flows.rates({}, 2.0) == (None, None)


@pytest.mark.parametrize(
    ("wires", "real", "expected"),
    [
        (("lo", "eth0", "docker0", "veth1a2b", "wg0"), ("eth0",), {"eth0"}),
        (("lo", "eth0"), (), {"eth0"}),
        (("lo", "br-0f", "virbr0", "tun0"), (), {"tun0"}),
        (("lo", "enp5s0", "wlp6s0", "bond0"), ("enp5s0", "wlp6s0"), {"enp5s0", "wlp6s0"}),
        (("lo",), (), set()),
    ],
)
def test_real_interfaces_where_there_are_some(
    tmp_path: Path, wires: tuple[str, ...], real: tuple[str, ...], expected: set[str]
) -> None:
    write(tmp_path, {"proc/net/dev": net_dev(**dict.fromkeys(wires, (1, 2)))})
    for name in real:
        (tmp_path / "sys/class/net" / name / "device").mkdir(parents=True)
    assert set(Wires(str(tmp_path)).look()) == expected


def test_numbers_that_touch_the_name() -> None:
    assert parse_net_dev(b"eth0:123 1 0 0 0 0 0 0 456 1 0 0\neth0:1: 5 1 0 0 0 0 0 0 6 1\n") == {
        "eth0": (123, 456),
        "eth0:1": (5, 6),
    }


def test_numbers_longer_than_a_counter_are_none() -> None:
    huge = 10**400
    assert parse_net_dev(net_dev(eth0=(huge, 1), eth1=(1, 1)).encode()) == {"eth1": (1, 1)}
    assert parse_diskstats(diskstats(sda=(huge, 1, 1), sdb=(1, 1, 1)).encode()) == {"sdb": Disk(512, 512, 1)}


@given(st.binary(max_size=300))
def test_nonsense_is_no_device(raw: bytes) -> None:
    parse_diskstats(raw)
    parse_diskstats(b" 8 0 sda 1 2 " + raw)
    parse_net_dev(b"eth0: " + raw)
