"""GPUs and hosts of many kinds: live screen, screen of the machine, lines to paste, what is missing."""

from __future__ import annotations

import msgspec
import pytest

from agenttop.model.frames import Hardware, HostSample, Missing, ProcessSample
from agenttop.view import gpus
from agenttop.view.gpu_lines import gpu_line, machine_lines
from agenttop.view.look import Look
from agenttop.view.panels.host import host, limits, memory_of
from agenttop.view.panels.machine import channels, machine
from agenttop.view.panels.missing import missing
from agenttop.view.spans import plain, width
from tests.view import machine_scenes, scenes
from tests.view.draw import drawn, folded, text_of
from tests.view.machine_scenes import MACHINES, REPLACE, rtx_5090

SIZES = [(60, 16), (80, 24), (100, 30), (120, 40), (200, 60)]


@pytest.mark.parametrize("size", SIZES, ids="{0[0]}x{0[1]}".format)
@pytest.mark.parametrize("name", MACHINES)
def test_no_machine_spoils_a_screen(name: str, size: tuple[int, int]) -> None:
    scene, seconds = MACHINES[name]
    text = drawn(scene(), seconds + 0.4, *size)
    assert "cannot be drawn" not in text
    assert max(len(line) for line in text.splitlines()) <= size[0]


@pytest.mark.parametrize("room", [56, 76, 100, 150])
@pytest.mark.parametrize("name", MACHINES)
def test_the_screen_of_the_machine_fits_into_any_room(name: str, room: int) -> None:
    scene, seconds = MACHINES[name]
    lines = machine(folded(scene(), seconds + 0.4), room, Look())
    assert max(width(line) for line in lines) <= room, [plain(line) for line in lines if width(line) > room]


# One GPU in words


def test_the_line_to_paste() -> None:
    sample = REPLACE(rtx_5090(1.0), temperature_margin_c=None, temperature_limit_c=None, sm_clock_mhz=None)
    line = gpu_line(folded([sample]), sample)
    assert line == (
        "GPU0 RTX 5090  97 % busy  VRAM 24.1/31.8 GiB  62 °C  486/575 W  held: power cap 12 %  "
        "PCIe in 1.2 out 0.3 GB/s of gen5 x16, 2 %"
    )


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("two-3090-one-lost", ["gen4 x8 of x16", "GPU1 RTX 3090  LOST  the GPU has fallen off the bus"]),
        ("strix-halo", ["(VRAM 63.2/64 + GTT 8.3/48)", "read ≥164.2 written ≥21.7 GB/s"]),
        ("gb10", ["mem 88.3/119.7 GiB (of RAM)", "held: by nothing"]),
        ("mi300x", ["GPU7 MI300X", "socket thermal 60 %", "not well: 2 uncorrected memory errors"]),
        ("h100-mig", ["GPU0, instance 2: MIG 2g.20gb", "tensor 33 %"]),
        ("arc", ["held: sustained power (pl1)"]),
        ("container", ["LIMIT 3.7 of 4 cores, stopped 31 %, 15.1/16.0 GiB", "no GPU: no NVIDIA driver"]),
        ("laptop", ["ASLEEP  the GPU is powered down", "LATE for 12 s"]),
    ],
)
def test_lines_of_many_machines(name: str, told: list[str]) -> None:
    scene, seconds = MACHINES[name]
    text = "\n".join(machine_lines(folded(scene(), seconds + 0.4)))
    for words in told:
        assert words in text, words


def test_what_is_not_known_is_left_out_of_a_line_and_never_zero() -> None:
    frames = [machine_scenes.GpuSample(t=1.0, gpu="x", index=0, vendor="intel", name="Intel Arc")]
    assert machine_lines(folded(frames)) == ["GPU0 Arc"]


def test_a_card_with_fewer_lanes_than_it_could_have_is_warned_of() -> None:
    narrow = REPLACE(rtx_5090(1.0), pcie_width=8)
    assert ("gen5 x8 of x16", "warn") in gpus.link(narrow)
    assert ("gen5 x16", "label") in gpus.link(rtx_5090(1.0))
    slow = REPLACE(rtx_5090(1.0), pcie_generation=1)
    assert ("gen1 x16", "label") in gpus.link(slow)  # as it is while there is little to do
    assert gpus.link_most(slow) == "gen5 at most"


def test_margins_of_heat() -> None:
    assert plain(gpus.hot(rtx_5090(1.0), margin=True)) == "62 °C, 21 below limit"
    by_limit = REPLACE(rtx_5090(1.0), temperature_margin_c=None)
    assert plain(gpus.hot(by_limit, margin=True)) == "62 °C, 21 below limit"
    near = REPLACE(rtx_5090(1.0), temperature_c=81.0, temperature_margin_c=2.0)
    assert gpus.heat_role(near) == "warn"
    at_it = REPLACE(near, temperature_margin_c=-1.0, throttle=["thermal (sw)"])
    assert plain(gpus.hot(at_it, margin=True)) == "81 °C, at its limit"
    assert gpus.heat_role(at_it) == "bad"


def test_figures_of_visible_processes_alone_are_floors() -> None:
    some = REPLACE(rtx_5090(1.0), visible_only=True)
    assert gpus.util(some) == "≥97 %"
    assert plain(gpus.memory_used(some)) == "≥24.1 / 31.8 GiB"
    assert "≥97 % busy  VRAM ≥24.1/31.8 GiB" in gpu_line(folded([some]), some)


# The host


def test_limits_of_a_container_stand_at_every_size() -> None:
    scene, seconds = MACHINES["container"]
    for size in SIZES:
        text = drawn(scene(), seconds + 0.4, *size)
        assert " LIMIT " in text
        assert "3.7 of 4 cores" in text
        assert "15.1 / 16.0 GiB" in text, size


def test_without_limits_nothing_is_said_of_them() -> None:
    assert limits(machine_scenes.full_host(1.0)) == []


def test_trouble_of_the_host_is_seen_in_the_words_for_it() -> None:
    scene, seconds = MACHINES["container"]
    text = "\n".join(text_of(host(folded(scene(), seconds + 0.4), 90, 9)))
    for words in ("iowait 11 %", "steal 4 %", "moving 12.0 MB/s", "mem 22 % (all 9 %)", "nvme0n1 busy 93 %"):
        assert words in text, words


def test_memory_is_told_apart() -> None:
    scene, seconds = MACHINES["thermal-episode"]
    text = "\n".join(text_of(host(folded(scene(), seconds + 0.4), 90, 9)))
    assert "█ anon 8.1  ▒ mapped 20.4  ░ cache 17.0  ▓ other 3.1" in text
    assert "llama.cpp  CPU 0.4 of 12 cores  RAM 2.2 GiB" in text


def test_shared_pages_are_counted_once_or_said_to_be_counted_more_often() -> None:
    def process(pid: int, pss: int | None) -> ProcessSample:
        return ProcessSample(t=1.0, pid=pid, name="worker", rss_bytes=1000, pss_bytes=pss)

    assert memory_of([process(1, 600), process(2, 500)]) == (1100, "")
    assert memory_of([process(1, 600), process(2, None)]) == (2000, " at most")
    assert memory_of([ProcessSample(t=1.0, pid=3, name="gone")]) is None


# The screen of the machine


def shown(name: str, room: int = 100) -> str:
    scene, seconds = MACHINES[name]
    return "\n".join(text_of(machine(folded(scene(), seconds + 0.4), room, Look())))


def test_every_reason_has_its_strip_and_those_that_never_held_are_named() -> None:
    text = shown("thermal-episode")
    for reason in ("power cap P", "thermal (sw) T", "power brake B"):
        assert sum(line.startswith(reason) for line in text.splitlines()) == 1, reason
    assert "never                   thermal (hw)" in text


def test_memory_channels_that_are_empty_are_told_with_what_is_left() -> None:
    assert "2 of 4 channels: at most 83.2 GB/s" in shown("thermal-episode")
    full = folded([machine_scenes.hardware(memory_channels=4)])
    assert channels(full)[0][1] == "text"
    assert channels(folded([machine_scenes.hardware()]))[0][1] == "warn"
    assert channels(folded([Hardware(t=1.0)])) == []


def test_processes_of_the_engine_come_first_and_strangers_are_called_so() -> None:
    lines = shown("thermal-episode").splitlines()
    at = lines.index("Processes")
    assert "llama-server" in lines[at + 2]
    assert "22.9 GiB" in lines[at + 2]
    assert "a stranger" in next(line for line in lines if "Xorg" in line)


def test_numa_nodes_with_their_cores() -> None:
    frames = [
        scenes.session(),
        REPLACE(machine_scenes.full_host(1.0), numa_free_bytes=[2 * 1024**3, 30 * 1024**3]),
        machine_scenes.hardware(numa_nodes=["0-5", "6-11"], numa_total_bytes=[32 * 1024**3, 32 * 1024**3]),
    ]
    text = "\n".join(text_of(machine(folded(frames), 100, Look())))
    assert "NUMA node 0" in text
    assert "2.0 GiB free  cores 0-5" in text


def test_a_lost_gpu_has_a_reason_and_no_empty_figures() -> None:
    text = shown("two-3090-one-lost")
    block = text[text.index("GPU 1") : text.index("Derived")]
    assert "the GPU has fallen off the bus (Xid 79)" in block
    assert "util" not in block


# What is missing


def test_what_is_missing_of_gpus_is_grouped_by_gpu_and_each_reason_said_once() -> None:
    scene, seconds = MACHINES["two-3090-one-lost"]
    lines = text_of(missing(folded(scene(), seconds + 0.4), 80))
    assert lines[0] == "GPU0 RTX 3090"
    assert "DRAM activity, tensor activity" in lines
    assert sum("fallen off the bus" in line for line in lines) == 1
    assert lines.index("GPU1 RTX 3090") > lines.index("GPU0 RTX 3090")


def test_what_is_missing_of_the_host_is_in_words() -> None:
    gone = [
        Missing(t=1.0, what=f"host:{field}", why="a VM sees none") for field in ("cpu_mhz", "cpu_power_w")
    ]
    lines = text_of(missing(folded([scenes.session(), *gone]), 80))
    assert lines == ["CPU clock, CPU power", "  a VM sees none"]


def test_a_gpu_that_is_not_known_any_more_is_named_by_its_identity() -> None:
    gone = Missing(t=1.0, what="gpu/GPU-77:power_w", why="gone")
    assert text_of(missing(folded([gone]), 80))[0] == "GPU GPU-77"


# The store


def test_processes_come_and_go() -> None:
    here = ProcessSample(t=1.0, pid=7, name="vllm", engine=scenes.URL)
    store = folded([here])
    assert set(store.processes) == {7}
    store.feed([msgspec.structs.replace(here, t=2.0, ended=True)], 2.0)
    assert store.processes == {}


def test_figures_of_a_driver_that_does_not_answer_are_gaps_in_the_trends() -> None:
    frames = [rtx_5090(float(t)) for t in range(1, 6)]
    frames += [REPLACE(rtx_5090(float(t)), state="late", age_s=t - 5.0) for t in range(6, 10)]
    assert folded(frames, 9.2).last("GPU-0", "util_fraction", 9) == [0.97] * 5 + [None] * 4


def test_a_host_that_tells_nothing_is_drawn() -> None:
    frames = [scenes.session(), HostSample(t=1.0)]
    text = "\n".join(text_of(machine(folded(frames), 80, Look())))
    assert "0 %" not in text
