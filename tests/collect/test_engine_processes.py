"""Process trees of engines, and who holds GPU memory: over a made-up /proc, and real processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.collect.engine_processes import MOST_STRANGERS, EngineProcesses, Sight
from agenttop.collect.engine_processes.linux import LinuxProcesses, parse_stat
from agenttop.collect.engine_processes.names import LONGEST, name_of
from agenttop.collect.engine_processes.tree import members
from agenttop.model.clock import ManualClock, SystemClock
from agenttop.model.frames import ProcessSample
from agenttop.model.text import clean
from tests.waiting import until

A, B = "http://127.0.0.1:8000", "http://127.0.0.1:8001"
OWN = 900
MIB = 1024 * 1024
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Proc:
    """A made-up /proc."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = ManualClock(100.0)
        self.process(1, 0, "init")
        self.process(OWN, 1, "python", "-m", "agenttop")

    def process(self, pid: int, parent: int, *argv: str, started: int = 1000, state: str = "S") -> None:
        folder = self.root / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        (folder / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
        self.stat(pid, parent, started=started, state=state)
        self.status(pid)
        (folder / "io").write_text("rchar: 5\nread_bytes: 4096\n")
        (folder / "smaps_rollup").write_text(
            "00-ff ---p 00000000 00:00 0 [rollup]\nRss: 300 kB\nPss: 200 kB\n"
        )

    def stat(
        self, pid: int, parent: int, *, ticks: int = 0, started: int = 1000, state: str = "S", faults: int = 0
    ) -> None:
        counts = f"5 0 {faults} 0 {ticks} {ticks} 9 9 20 0 7 0 {started} 1 2"
        text = f"{pid} (a) (b) {state} {parent} 1 1 0 -1 0 {counts}\n"
        (self.root / "proc" / str(pid) / "stat").write_text(text)

    def status(self, pid: int, rss: int = 300, anonymous: int = 100, file: int = 200, swap: int = 8) -> None:
        text = f"VmRSS:\t{rss:8d} kB\nRssAnon:\t{anonymous} kB\nRssFile:\t{file} kB\nVmSwap:\t {swap} kB\n"
        (self.root / "proc" / str(pid) / "status").write_text(text)

    def ends(self, pid: int) -> None:
        shutil.rmtree(self.root / "proc" / str(pid))

    def opens(self, pid: int, path: str) -> None:
        (self.root / "proc" / str(pid) / "fd" / "5").symlink_to(path)

    def watch(self, sight: Sight | None = None) -> EngineProcesses:
        table = LinuxProcesses(self.clock.monotonic, str(self.root), OWN)
        watch = EngineProcesses(self.clock, self.root, table=table, sight=sight)
        watch._holds_device = table.holds_device
        return watch


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def by_pid(samples: list[ProcessSample]) -> dict[int, ProcessSample]:
    assert len({sample.pid for sample in samples}) == len(samples)
    return {sample.pid: sample for sample in samples}


# Trees


def test_an_engine_is_its_process_and_what_descends_from_it(proc: Proc) -> None:
    proc.process(10, 1, "vllm", "serve", "m", "--api-key", "sk-secret")
    proc.process(11, 10, "VLLM::EngineCore")
    proc.process(12, 11, "VLLM::Worker_TP0")
    proc.process(20, 1, "other")
    found = by_pid(proc.watch().sample(1.0, {A: 10}, {}))
    assert found.keys() == {10, 11, 12}
    assert {sample.engine for sample in found.values()} == {A}
    assert [found[pid].name for pid in (10, 11, 12)] == ["vllm", "VLLM::EngineCore", "VLLM::Worker_TP0"]
    assert (found[12].parent, found[12].threads) == (11, 7)


def test_an_engine_below_another_is_its_own(proc: Proc) -> None:
    """llama-swap and the servers that it has started; and two engines of one parent."""
    proc.process(10, 1, "llama-swap")
    proc.process(11, 10, "llama-server")
    proc.process(12, 10, "llama-server")
    proc.process(13, 12, "helper")
    found = by_pid(proc.watch().sample(1.0, {A: 10, B: 12}, {}))
    assert {pid: sample.engine for pid, sample in found.items()} == {10: A, 11: A, 12: B, 13: B}


def test_agenttop_is_never_part_of_an_engine(proc: Proc) -> None:
    proc.process(10, 1, "vllm")
    proc.process(OWN, 10, "python", "-m", "agenttop")
    proc.process(902, OWN, "python", "-m", "agenttop.agents.driver")
    proc.process(910, 10, "/usr/bin/python3", "-m", "agenttop.agents.driver")
    proc.process(911, 10, "agenttop")
    proc.process(912, 10, "python", "/venv/bin/agenttop", "attach")
    assert by_pid(proc.watch().sample(1.0, {A: 10}, {})).keys() == {10}


def test_the_engine_of_a_demo_is_one_although_agenttop_has_started_it(proc: Proc) -> None:
    proc.process(902, OWN, "python", "-m", "agenttop.demo.server", "--model", "x")
    assert by_pid(proc.watch().sample(1.0, {A: 902}, {})).keys() == {902}


def test_a_new_child_is_seen_at_the_next_look_and_an_orphan_is_let_go(proc: Proc) -> None:
    proc.process(10, 1, "vllm")
    proc.process(11, 10, "middle")
    proc.process(12, 11, "worker")
    watch = proc.watch()
    watch.sample(1.0, {A: 10}, {})
    proc.process(13, 10, "late")
    proc.clock.advance(2.0)
    assert by_pid(watch.sample(3.0, {A: 10}, {})).keys() == {10, 11, 12, 13}
    proc.ends(11)
    proc.stat(12, 1)
    proc.clock.advance(2.0)
    found = by_pid(watch.sample(5.0, {A: 10}, {}))
    assert {pid for pid, sample in found.items() if sample.ended} == {11, 12}
    assert {pid for pid, sample in found.items() if not sample.ended} == {10, 13}


def test_what_has_ended_is_told_once(proc: Proc) -> None:
    proc.process(10, 1, "vllm")
    proc.process(11, 10, "worker")
    watch = proc.watch()
    watch.sample(1.0, {A: 10}, {})
    proc.process(11, 10, "worker", state="Z")
    (gone,) = [sample for sample in watch.sample(3.0, {A: 10}, {}) if sample.ended]
    assert (gone.pid, gone.name, gone.engine) == (11, "worker", A)
    assert by_pid(watch.sample(5.0, {A: 10}, {})).keys() == {10}
    proc.ends(10)
    assert by_pid(watch.sample(7.0, {A: 10}, {}))[10].ended
    assert watch.sample(9.0, {A: 10}, {}) == []


def test_an_engine_that_is_no_more_known_ends(proc: Proc) -> None:
    proc.process(10, 1, "vllm")
    watch = proc.watch()
    watch.sample(1.0, {A: 10}, {})
    assert [(sample.pid, sample.ended) for sample in watch.sample(3.0, {}, {})] == [(10, True)]


def test_a_number_that_is_given_to_another_program_is_no_engine(proc: Proc) -> None:
    proc.process(10, 1, "vllm")
    watch = proc.watch()
    watch.sample(1.0, {A: 10}, {})
    proc.process(10, 1, "backup", started=2000)
    assert [(sample.pid, sample.ended) for sample in watch.sample(3.0, {A: 10}, {})] == [(10, True)]
    assert watch.sample(5.0, {A: 10}, {}) == []


def test_an_engine_that_is_restarted_under_its_number_begins_anew(proc: Proc) -> None:
    """In a container it always gets the same one."""
    proc.process(10, 1, "vllm")
    proc.stat(10, 1, ticks=500)
    watch = proc.watch()
    watch.sample(1.0, {A: 10}, {})
    proc.process(10, 1, "vllm", started=2000)
    proc.clock.advance(2.0)
    ended, fresh = watch.sample(3.0, {A: 10}, {})
    assert (ended.pid, ended.ended) == (10, True)
    assert (fresh.pid, fresh.ended, fresh.cpu_fraction, fresh.engine) == (10, False, None, A)


def test_a_worker_whose_number_is_given_anew_begins_anew(proc: Proc) -> None:
    proc.process(10, 1, "vllm")
    proc.process(11, 10, "worker")
    watch = proc.watch()
    watch.sample(1.0, {A: 10}, {})
    proc.process(11, 10, "other", started=3000)
    proc.clock.advance(2.0)
    told = [sample for sample in watch.sample(3.0, {A: 10}, {}) if sample.pid == 11]
    assert [(sample.name, sample.ended, sample.cpu_fraction) for sample in told] == [
        ("worker", True, None),
        ("other", False, None),
    ]


@given(
    st.dictionaries(st.integers(1, 30), st.integers(0, 30), max_size=30),
    st.dictionaries(st.integers(1, 30), st.sampled_from([A, B]), max_size=4),
    st.sets(st.integers(1, 30)),
)
def test_any_tree_ends_and_is_divided_soundly(
    parents: dict[int, int], roots: dict[int, str], own: set[int]
) -> None:
    """Circles included: parents are read one after the other, while numbers are given anew."""
    found = members(roots, parents, own.__contains__)
    assert found.keys() <= parents.keys() | roots.keys()
    for pid, engine in found.items():
        assert roots[pid] == engine if pid in roots else found[parents[pid]] == engine
        assert pid in roots or pid not in own


# Figures


def test_rates_are_over_the_time_between_two_looks(proc: Proc) -> None:
    proc.process(10, 1, "llama-server")
    watch = proc.watch()
    first = watch.sample(1.0, {A: 10}, {})[0]
    assert (first.window_s, first.cpu_fraction, first.major_faults_s, first.read_bytes_s) == (None,) * 4
    ticks = os.sysconf("SC_CLK_TCK")
    proc.stat(10, 1, ticks=3 * ticks, faults=40)
    (proc.root / "proc/10/io").write_text(f"read_bytes: {4096 + 8 * MIB}\n")
    proc.clock.advance(2.0)
    second = watch.sample(3.0, {A: 10}, {})[0]
    assert (second.window_s, second.cpu_fraction, second.major_faults_s) == (2.0, 3.0, 20.0)
    assert second.read_bytes_s == 4 * MIB
    sizes = (second.rss_bytes, second.anonymous_bytes, second.file_bytes, second.swapped_bytes)
    assert sizes == (300 * 1024, 100 * 1024, 200 * 1024, 8 * 1024)
    assert second.pss_bytes == 200 * 1024


def test_a_counter_that_goes_back_gives_no_rate(proc: Proc) -> None:
    proc.process(10, 1, "x")
    proc.stat(10, 1, ticks=500, faults=9)
    watch = proc.watch()
    watch.sample(1.0, {A: 10}, {})
    proc.stat(10, 1, ticks=400, faults=8)
    proc.clock.advance(2.0)
    sample = watch.sample(3.0, {A: 10}, {})[0]
    assert (sample.cpu_fraction, sample.major_faults_s, sample.read_bytes_s) == (None, None, 0.0)


def test_what_is_missing_is_none(proc: Proc) -> None:
    proc.process(10, 1, "x")
    for name in ("status", "io", "smaps_rollup", "cmdline"):
        (proc.root / "proc/10" / name).unlink()
    sample = proc.watch().sample(1.0, {A: 10}, {})[0]
    assert sample.name == "a) (b"
    fields = ("rss_bytes", "file_bytes", "anonymous_bytes", "swapped_bytes", "pss_bytes", "read_bytes_s")
    assert [getattr(sample, field) for field in fields] == [None] * 6


def test_figures_for_the_owner_alone_have_a_reason_and_are_not_asked_again_soon(
    proc: Proc, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc.process(10, 1, "vllm")
    refused: list[str] = []
    really = os.open

    def guarded(path: str, flags: int) -> int:
        if path.endswith(("/io", "/smaps_rollup")):
            refused.append(path)
            raise PermissionError
        return really(path, flags)

    monkeypatch.setattr("agenttop.collect.engine_processes.linux.os.open", guarded)
    watch = proc.watch()
    for _ in range(5):
        sample = watch.sample(1.0, {A: 10}, {})[0]
        proc.clock.advance(2.0)
    assert len(refused) == 2
    assert (sample.read_bytes_s, sample.pss_bytes) == (None, None)
    told = {missing.what: missing for missing in watch.missing}
    assert told.keys() == {f"{A}:process_read_bytes_s", f"{A}:process_pss_bytes"}
    assert all("root" in (missing.fix or "") for missing in told.values())
    monkeypatch.undo()
    proc.clock.advance(60.0)
    assert watch.sample(70.0, {A: 10}, {})[0].pss_bytes == 200 * 1024
    assert watch.missing == []


def test_the_share_of_a_large_process_is_not_asked(proc: Proc) -> None:
    proc.process(10, 1, "llama-server")
    proc.status(10, rss=16 * MIB)
    watch = proc.watch()
    assert watch.sample(1.0, {A: 10}, {})[0].pss_bytes is None
    assert [missing.what for missing in watch.missing] == [f"{A}:process_pss_bytes"]


def test_the_share_is_asked_once_a_minute(proc: Proc) -> None:
    proc.process(10, 1, "x")
    watch = proc.watch()
    watch.sample(1.0, {A: 10}, {})
    (proc.root / "proc/10/smaps_rollup").write_text("Pss: 1 kB\n")
    proc.clock.advance(30.0)
    assert watch.sample(31.0, {A: 10}, {})[0].pss_bytes == 200 * 1024
    proc.clock.advance(31.0)
    assert watch.sample(62.0, {A: 10}, {})[0].pss_bytes == 1024


@given(st.binary(max_size=200))
def test_any_stat_is_a_line_or_none(raw: bytes) -> None:
    stat = parse_stat(raw)
    assert stat is None or stat.ticks >= 0


# Names


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/usr/bin/llama-server", "--api-key", "sk-1"], "llama-server"),
        (["VLLM::EngineCore_DP0"], "VLLM::EngineCore_DP0"),
        (["sglang::scheduler_TP0"], "sglang::scheduler_TP0"),
        (["nginx: worker process"], "nginx"),
        (["server sk-secret --port 1"], "server"),
        (["/opt/LM Studio/lm-studio --key sk-secret"], "short"),
        (["python3", "-m", "vllm.entrypoints.openai.api_server", "--api-key", "sk-1"], None),
        (["/usr/bin/python3.12", "-X", "utf8", "-u", "/srv/tabbyAPI/main.py", "sk-1"], "main.py"),
        (["python", "-c", "key = 'sk-secret'"], "python"),
        (["python", "-m", "sk secret"], "python"),
        (["bash", "-c", "run sk-secret"], "bash"),
        (["\x1b[31mred"], "[31mred"),
        ([], "short"),
        (["/"], "short"),
    ],
)
def test_a_name_is_of_the_program_and_never_an_argument(words: list[str], name: str | None) -> None:
    raw = b"".join(word.encode() + b"\0" for word in words)
    assert name_of(raw, "short") == (name or "vllm.entrypoints.openai.api_server")


@given(st.binary(max_size=300), st.text(max_size=20))
def test_any_command_line_has_a_name(raw: bytes, short: str) -> None:
    name = name_of(raw, short)
    assert 0 < len(name) <= LONGEST
    assert clean(name) == name


# GPU memory


def test_gpu_memory_is_joined_to_the_process_that_holds_it(proc: Proc) -> None:
    """Of several GPUs and of a MIG instance; the process that the driver names is a grandchild."""
    proc.process(10, 1, "vllm")
    proc.process(11, 10, "VLLM::EngineCore")
    proc.process(12, 11, "VLLM::Worker_TP0")
    proc.process(20, 1, "python", "train.py")
    holders = {"GPU-1": {12: 5 * MIB, 20: 7 * MIB}, "GPU-2": {12: None}, "MIG-1": {12: 3}}
    watch = proc.watch()
    found = by_pid(watch.sample(1.0, {A: 10}, holders))
    assert found[12].gpu_memory == {"GPU-1": 5 * MIB, "MIG-1": 3}
    assert found[12].gpus == ["GPU-1", "GPU-2", "MIG-1"]
    assert (found[20].engine, found[20].gpu_memory, found[20].name) == (None, {"GPU-1": 7 * MIB}, "train.py")
    assert (found[10].gpu_memory, found[10].gpus) == ({}, [])
    assert watch.missing == []


def test_a_stranger_is_told_as_long_as_it_holds_memory(proc: Proc) -> None:
    proc.process(20, 1, "game")
    watch = proc.watch()
    assert by_pid(watch.sample(1.0, {}, {"GPU-1": {20: 1}}))[20].engine is None
    assert watch.sample(3.0, {}, {})[0].ended


def test_a_holder_that_has_ended_meanwhile_is_left_out(proc: Proc) -> None:
    watch = proc.watch()
    assert watch.sample(1.0, {}, {"GPU-1": {4242: 5}}) == []
    assert watch.missing == []


def test_of_too_many_strangers_the_largest_are_told(proc: Proc) -> None:
    numbers = range(1000, 1000 + MOST_STRANGERS + 10)
    for pid in numbers:
        proc.process(pid, 1, "x")
    found = by_pid(proc.watch().sample(1.0, {}, {"GPU-1": {pid: pid for pid in numbers}}))
    assert found.keys() == set(numbers[10:])


def test_in_a_pid_namespace_numbers_of_the_host_are_never_taken_for_ours(proc: Proc) -> None:
    """4242 does not exist here; 20 does, and is another process than the host's 20."""
    proc.process(10, 1, "vllm")
    proc.process(20, 10, "worker")
    watch = proc.watch(Sight(host_numbers=False))
    found = by_pid(watch.sample(1.0, {A: 10}, {"GPU-1": {4242: 2 * MIB, 20: 3 * MIB}}))
    assert found.keys() == {10, 20}
    assert all(not sample.gpu_memory and not sample.gpus for sample in found.values())
    (missing,) = watch.missing
    assert missing.what == "gpu/GPU-1:processes"
    assert "2 processes with 5.0 MiB" in (missing.why or "")
    assert "--pid=host" in (missing.fix or "")


def test_in_a_pid_namespace_a_process_that_has_the_device_open_is_the_one(proc: Proc) -> None:
    """NVIDIA's open kernel module tells the numbers of the namespace of who asks."""
    proc.process(10, 1, "vllm")
    proc.process(20, 10, "worker")
    proc.opens(20, "/dev/nvidia0")
    watch = proc.watch(Sight(host_numbers=False))
    found = by_pid(watch.sample(1.0, {A: 10}, {"GPU-1": {20: 3}}))
    assert found[20].gpu_memory == {"GPU-1": 3}
    assert watch.missing == []


def test_processes_that_proc_hides_are_counted_in_the_reason(proc: Proc) -> None:
    watch = proc.watch(Sight(others_hidden=True))
    assert watch.sample(1.0, {}, {"GPU-1": {4242: None}}) == []
    assert "1 process cannot be seen" in (watch.missing[0].why or "")


def test_how_far_we_see(proc: Proc) -> None:
    table = LinuxProcesses(proc.clock.monotonic, str(proc.root), OWN)
    assert not table.sight().host_numbers  # nothing tells
    assert not table.sight().others_hidden
    proc.ends(1)
    assert table.sight().others_hidden


# Real processes


@contextlib.contextmanager
def running(code: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read()
"""


@needs_linux
def test_a_real_process_that_works_has_its_cpu_time_told() -> None:
    with running("while True: pass") as process:
        watch = EngineProcesses(SystemClock())
        watch.sample(0.0, {A: process.pid}, {})
        time.sleep(0.5)
        (sample,) = watch.sample(0.5, {A: process.pid}, {})
        assert sample.cpu_fraction is not None
        assert 0 < sample.cpu_fraction < 1.5
        assert sample.rss_bytes is not None
        assert sample.rss_bytes > MIB
        assert sample.pss_bytes is not None
        assert sample.pss_bytes <= sample.rss_bytes
        assert sample.name.startswith("python")


def test_a_real_tree_by_psutil() -> None:
    from agenttop.collect.engine_processes.elsewhere import PsutilProcesses

    with running(PARENT) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        clock = SystemClock()
        watch = EngineProcesses(clock, table=PsutilProcesses(clock.monotonic))
        found = by_pid(watch.sample(0.0, {A: process.pid}, {"GPU-1": {child: 7, os.getpid(): 1}}))
        assert found.keys() == {process.pid, child, os.getpid()}
        assert (found[child].engine, found[child].gpu_memory) == (A, {"GPU-1": 7})
        assert found[os.getpid()].engine is None
        assert (found[child].rss_bytes or 0) > MIB
        time.sleep(0.3)
        assert by_pid(watch.sample(1.0, {A: process.pid}, {}))[process.pid].cpu_fraction is not None
        process.kill()
        process.wait()
        until(lambda: all(sample.ended for sample in watch.sample(2.0, {A: process.pid}, {})))
