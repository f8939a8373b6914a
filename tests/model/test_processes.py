"""What the processes of an engine use together."""

from __future__ import annotations

from typing import Any

from agenttop.model.frames import ProcessSample
from agenttop.model.processes import totals, totals_by_engine

GIB = 2**30
URL = "http://127.0.0.1:8000"


def process(pid: int, **figures: Any) -> ProcessSample:
    return ProcessSample(t=0.0, pid=pid, name="x", engine=figures.pop("engine", URL), **figures)


def test_sums_over_the_processes_of_each_engine() -> None:
    found = totals_by_engine(
        [
            process(1, cpu_fraction=0.5, threads=10, gpus=["A"], gpu_memory={"A": 3}),
            process(2, cpu_fraction=0.9, threads=4, gpus=["A", "B"], gpu_memory={"A": 4, "B": 5}),
            process(3, cpu_fraction=7.0, engine="http://127.0.0.1:8001"),
            process(4, cpu_fraction=1.0, engine=None),
            process(5, cpu_fraction=1.0, ended=True),
        ]
    )
    assert found.keys() == {URL, "http://127.0.0.1:8001"}
    one = found[URL]
    assert (one.processes, one.cpu_cores, one.busiest_cores, one.threads) == (2, 1.4, 0.9, 14)
    assert (one.gpu_memory, one.gpus, one.floors) == ({"A": 7, "B": 5}, ("A", "B"), frozenset())


def test_what_no_process_tells_is_none_and_what_some_tell_is_a_floor() -> None:
    found = totals([process(1, read_bytes_s=5.0, gpus=["A"], gpu_memory={"A": 1}), process(2, gpus=["A"])])
    assert found.cpu_cores is None
    assert found.memory_bytes is None
    assert found.read_bytes_s == 5.0
    assert found.floors == {"read_bytes_s", "gpu_memory"}
    assert totals([]).processes == 0


def test_a_model_that_two_servers_map_is_counted_once() -> None:
    """Two servers of 1 GiB each over the same 16 GiB of weights."""
    each = {"rss_bytes": 17 * GIB, "anonymous_bytes": GIB, "file_bytes": 16 * GIB}
    found = totals([process(1, **each), process(2, **each)])
    assert (found.memory_bytes, found.memory_from) == (18 * GIB, "parts")
    assert found.file_bytes == 16 * GIB


def test_shared_memory_is_counted_once() -> None:
    each = {"rss_bytes": 6 * GIB, "anonymous_bytes": GIB, "file_bytes": 2 * GIB}
    assert totals([process(1, **each), process(2, **each)]).memory_bytes == (2 + 2 + 3) * GIB


def test_proportional_shares_count_when_all_are_known() -> None:
    first = {"rss_bytes": 10, "pss_bytes": 6, "anonymous_bytes": 4, "file_bytes": 6}
    assert totals([process(1, **first), process(2, **first)]).memory_bytes == 12
    found = totals([process(1, **first), process(2, **(first | {"pss_bytes": None}))])
    assert (found.memory_bytes, found.memory_from) == (14, "parts")


def test_without_parts_the_sum_says_that_it_may_count_twice() -> None:
    found = totals([process(1, rss_bytes=10), process(2, rss_bytes=20)])
    assert (found.memory_bytes, found.memory_from) == (30, "rss")
    assert totals([process(1, rss_bytes=10), process(2)]).floors == {"memory_bytes"}
