"""Memory, faults, pressure and NUMA, from files that say what real ones rarely do."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.host import memory, numa
from agenttop.collect.host.counters import Counters
from agenttop.collect.host.pressure import Pressure, parse_pressure, read_pressure, why_none
from agenttop.collect.host.reasons import Reason
from agenttop.collect.kernel_tables import whole
from tests.collect.host_trees import meminfo, write

KIB = 1024


def test_where_more_is_available_than_there_is_what_is_free_counts() -> None:
    found = memory.parse_meminfo(meminfo(MemTotal=1000, MemFree=300, MemAvailable=5000).encode())
    assert (found.available, found.used) == (300 * KIB, 700 * KIB)
    nothing = memory.parse_meminfo(meminfo(MemTotal=1000, MemFree=9000, MemAvailable=5000).encode())
    assert (nothing.available, nothing.used) == (None, None)
    assert isinstance(memory.available(nothing), Reason)


def test_the_memory_of_an_old_kernel_is_not_guessed() -> None:
    found = memory.parse_meminfo(meminfo(MemTotal=1000, MemFree=300, Cached=400).encode())
    assert (found.total, found.available, found.used) == (1000 * KIB, None, None)


def test_a_host_without_swap_has_0_of_it() -> None:
    found = memory.parse_meminfo(meminfo(SwapTotal=0, SwapFree=0).encode())
    assert (found.swap_total, found.swap_used) == (0, 0)
    assert memory.parse_meminfo(b"").swap_used is None


@given(st.binary(max_size=400))
def test_nonsense_is_no_memory(raw: bytes) -> None:
    for found in (memory.parse_meminfo(raw), memory.parse_meminfo(b"MemTotal: " + raw)):
        assert found.total is None or 0 < found.total < 1 << 60
    memory.parse_vmstat(raw)
    parse_pressure(raw)


def test_events_are_found_by_their_whole_name() -> None:
    raw = b"pswpin 7\npswpout 8\nxpgmajfault 1\npgmajfault_x 2\npgmajfault 9\nthp_swpout 3\n"
    assert memory.parse_vmstat(raw) == {b"pswpin": 7, b"pswpout": 8, b"pgmajfault": 9}


def test_a_rate_needs_a_look_before_and_a_counter_that_goes_on() -> None:
    counters = Counters({"a": 10, "b": 10})
    assert counters.rates({"a": 30, "b": 5, "c": 9}, 2.0) == {"a": 10.0}
    assert counters.rates({"a": 40, "b": 25, "c": 9}, 2.0) == {"a": 5.0, "b": 10.0, "c": 0.0}
    assert counters.rates({"a": 99}, 0.0) == {}
    assert counters.rates({"a": 100}, 1.0) == {"a": 1.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "some avg10=12.50 avg60=1.00 avg300=0.00 total=1\nfull avg10=90.00 avg60=0 avg300=0 total=0\n",
            Pressure(0.125, 0.9),
        ),
        ("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n", Pressure(0.0, None)),
        ("some avg10=100.01 avg60=0.00 avg300=0.00 total=0\n", Pressure(1.0, None)),
        ("some avg10=nan avg60=0.00\n", Pressure()),
        ("", Pressure()),
        ("Operation not supported", Pressure()),
    ],
)
def test_pressure(tmp_path: Path, text: str, expected: Pressure) -> None:
    write(tmp_path, {"proc/pressure/cpu": text})
    assert read_pressure(str(tmp_path), "cpu") == expected
    assert read_pressure(str(tmp_path), "io") == Pressure()


@pytest.mark.parametrize(
    ("release", "fix"),
    [
        ("4.19.0-27-amd64", None),
        ("3.10.0-1160.el7", None),
        ("5.14.0-503.el9", "boot with psi=1"),
        ("", "boot with psi=1"),
    ],
)
def test_why_a_kernel_tells_no_pressure(release: str, fix: str | None) -> None:
    assert why_none(release).fix == fix


def test_one_numa_node_is_none(tmp_path: Path) -> None:
    root = str(write(tmp_path, {"sys/devices/system/node/node0/meminfo": "Node 0 MemFree: 1 kB\n"}))
    assert numa.free(root, numa.nodes(root)) is None


def test_a_node_that_does_not_tell_leaves_all_unknown(tmp_path: Path) -> None:
    folder = "sys/devices/system/node"
    files = {f"{folder}/node0/meminfo": "Node 0 MemFree: 1 kB\n", f"{folder}/node1/cpulist": "0-3\n"}
    root = str(write(tmp_path, files))
    assert numa.nodes(root) == ["node0", "node1"]
    assert numa.free(root, numa.nodes(root)) is None
    assert numa.cores(root, "node1") == "0-3"
    write(tmp_path, {f"{folder}/node1/cpulist": "\x1b[2J"})
    assert numa.cores(root, "node1") == ""


def test_a_table_longer_than_a_piece_is_read_whole(tmp_path: Path) -> None:
    text = "a line\n" * 50_000
    write(tmp_path, {"long": text, "empty": ""})
    assert whole(f"{tmp_path}/long") == text.encode()
    assert whole(f"{tmp_path}/empty") == b""
    assert (whole(f"{tmp_path}/absent"), whole(f"{tmp_path}"), whole("a\0b")) == (None, None, None)
