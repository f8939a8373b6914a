"""What `agenttop doctor` says about this machine, and how its lines look."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenttop import oslayer
from agenttop.collect.containers import ApiSocket
from agenttop.collect.engine import registry
from agenttop.collect.engine.registry import Refused, Registry
from agenttop.commands import doctor, doctor_host, doctor_text
from agenttop.commands.cells import width
from agenttop.commands.doctor_figures import FIGURES
from agenttop.model.frames import EngineSample, GpuSample, LatencySample, Missing, PartSample
from tests.collect.memory_tables import Place, udev
from tests.commands.test_cli import agenttop
from tests.hostile import html_page
from tests.simulated import Simulated
from tests.view.draw import folded
from tests.view.machine_scenes import MACHINES, rtx_5090

URL = "http://127.0.0.1:8000"


def one(checks: list[dict[str, Any]], what: str) -> dict[str, Any]:
    [found] = [check for check in checks if check["what"] == what]
    return found


# The machine


def test_processes_that_are_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oslayer, "is_root", lambda: False)
    monkeypatch.setattr(doctor_host.sys, "platform", "linux")
    (tmp_path / "proc").mkdir()
    mounts = tmp_path / "proc/mounts"
    mounts.write_text("proc /proc proc rw,nosuid,hidepid=invisible 0 0\n")
    found = one(doctor_host.rights(tmp_path), "processes")
    assert (found["status"], "hidepid" in found["text"]) == ("absent", True)
    assert "root" in found["fix"]
    mounts.write_text("proc /proc proc rw,nosuid,hidepid=0 0 0\nbroken\n")
    found = one(doctor_host.rights(tmp_path), "processes")
    assert found["status"] == "ok"
    assert "sockets of other users" in found["text"]
    (tmp_path / ".dockerenv").touch()
    assert "of this container" in one(doctor_host.rights(tmp_path), "processes")["text"]
    monkeypatch.setattr(oslayer, "is_root", lambda: True)
    assert one(doctor_host.rights(tmp_path), "processes")["fix"] is None


def test_energy_counters_and_perf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_host.sys, "platform", "linux")
    assert {check["what"] for check in doctor_host.rights(tmp_path)}.isdisjoint({"CPU energy", "perf"})
    counter = tmp_path / "sys/class/powercap/intel-rapl:0/energy_uj"
    counter.parent.mkdir(parents=True)
    counter.write_text("1")
    counter.with_name("name").write_text("package-0")
    (tmp_path / "proc/sys/kernel").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/perf_event_paranoid").write_text("4\n")
    found = doctor_host.rights(tmp_path)
    assert one(found, "CPU energy")["status"] == "ok"
    assert one(found, "perf")["status"] == "absent"
    monkeypatch.setattr(doctor_host.os, "access", lambda *_: False)
    found = one(doctor_host.rights(tmp_path), "CPU energy")
    assert found["fix"].startswith("sudo chmod")


def test_memory_channels_that_are_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_host.sys, "platform", "linux")
    database = tmp_path / "run/udev/data/+dmi:id"
    database.parent.mkdir(parents=True)
    places = [Place(f"DIMM_{channel}1", gib=16 if channel < "C" else 0) for channel in "ABCD"]
    database.write_text(udev(places))
    found = one(doctor_host.rights(tmp_path), "memory modules")
    assert found["status"] == "absent"
    assert (
        found["text"] == "2 of 4 slots filled, DDR4 3200 MT/s, 2 of 4 channels: 51.2 GB/s at most (from udev)"
    )
    assert "each channel" in found["fix"]
    database.write_text(udev(places[:2]))
    assert one(doctor_host.rights(tmp_path), "memory modules")["status"] == "ok"


@pytest.mark.parametrize("permitted", [True, False])
def test_sockets_of_container_engines(monkeypatch: pytest.MonkeyPatch, permitted: bool) -> None:
    listed = [ApiSocket(Path("/run/docker.sock"), "Docker", permitted)]
    monkeypatch.setattr("agenttop.collect.containers.sockets", lambda **_: listed)
    found = one(doctor_host.rights(), "Docker")
    assert found["status"] == ("ok" if permitted else "absent")
    assert (found["fix"] is None) is permitted


@pytest.mark.parametrize(("limit", "status"), [(None, "ok"), (20_000, "ok"), (256, "bad"), (10, "bad")])
def test_the_limit_of_open_files(monkeypatch: pytest.MonkeyPatch, limit: int | None, status: str) -> None:
    monkeypatch.setattr(oslayer, "open_files_limit", lambda: limit)
    [found] = doctor_host.limits()
    assert found["status"] == status
    assert (found["fix"] is not None) is (status == "bad")
    assert "-" not in found["text"]  # no negative number of agents


@pytest.mark.parametrize(("kept", "status"), [(True, "ok"), (False, "absent"), (None, None)])
def test_the_wall_clock(monkeypatch: pytest.MonkeyPatch, kept: bool | None, status: str | None) -> None:
    monkeypatch.setattr(oslayer, "clock_is_synchronised", lambda: kept)
    found = {check["what"]: check["status"] for check in doctor_host.Clock().checks()}
    assert found.get("wall clock") == status
    assert found["clock"] == "ok"


def test_a_wall_clock_that_is_set_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = doctor_host.Clock()
    wall = doctor_host.time.time
    monkeypatch.setattr(doctor_host.time, "time", lambda: wall() - 3600.0)
    found = one(clock.checks(), "wall clock")
    assert "was set by" in found["text"]


def test_a_slow_clock_source(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/clocksource/clocksource0"
    folder.mkdir(parents=True)
    for source, told in (("hpet\n", True), ("tsc\n", False)):
        (folder / "current_clocksource").write_text(source)
        names = [check["what"] for check in doctor_host.Clock().checks(tmp_path)]
        assert ("clock source" in names) is told


def test_the_kernel_may_be_asked_about_its_clock() -> None:
    assert oslayer.clock_is_synchronised() in (True, False, None)


def test_plug_ins_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Refused("mine", "my-package", "it cannot be loaded (ImportError: no module)")
    known = Registry(registry.registry().kinds, (refused,))
    monkeypatch.setattr(registry, "registry", lambda: known)
    [found] = doctor_host.plug_ins()
    assert found["status"] == "bad"
    assert "ImportError" in found["text"]
    assert "my-package" in found["fix"]


def test_room_for_recordings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTTOP_RECORDINGS", str(tmp_path))
    usage = type("Usage", (), {"free": int(13e9)})
    monkeypatch.setattr(doctor_host.shutil, "disk_usage", lambda _: usage)
    assert "room for 20 days" in one(doctor_host.files(), "recordings")["text"]
    usage.free = 1024
    found = one(doctor_host.files(), "recordings")
    assert (found["status"], "AGENTTOP_RECORDINGS" in found["fix"]) == ("bad", True)


def test_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_host.terminal()[0]["status"] == "absent"  # not one
    monkeypatch.setattr(doctor_host.sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(doctor_host.shutil, "get_terminal_size", lambda: os.terminal_size((70, 20)))
    for name in ("TMUX", "COLORTERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "screen-256color")
    found = doctor_host.terminal()
    assert one(found, "terminal")["fix"] == "the console needs 80x24"
    assert "256 colours" in one(found, "terminal")["text"]
    assert one(found, "screen")["status"] == "absent"
    monkeypatch.setenv("TMUX", "/run/tmux/0")
    monkeypatch.setenv("COLORTERM", "truecolor")
    found = doctor_host.terminal()
    assert "true colours" in one(found, "terminal")["text"]
    assert "mouse" in one(found, "tmux")["fix"]


# The lines


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_no_line_is_longer_than_the_terminal(columns: int) -> None:
    long = "a reason that goes on and on " * 12 + "x" * 200
    for indent in (0, 2):
        lines = doctor_text.line("absent", "a name", long, f"do this: {long}", columns, indent)
        assert max(map(len, lines)) <= columns
        assert lines[0].startswith(" " * indent + "– a name")
        assert all(line.startswith(" " * 10) for line in lines[1:])
    assert "→" in "".join(lines)


def test_text_of_servers_does_not_act_on_the_terminal() -> None:
    lines = doctor_text.line("ok", "model", "\x1b[31mred\nnext", None, 80)
    assert lines == [lines[0]]
    assert "\x1b" not in lines[0]


def test_a_reason_for_several_figures_is_written_once() -> None:
    row = {"status": "missing", "text": "it is off", "fix": "switch it on"}
    seen = {"status": "seen", "text": "it is off", "fix": None}
    rows = [row | {"figure": "a"}, row | {"figure": "b"}, seen | {"figure": "c"}, row | {"figure": "d"}]
    lines = doctor_text.figure_lines(rows, 80)
    assert [" ".join(line.split()) for line in lines] == [
        "– a it is off",
        "→ switch it on",
        "– b the same",
        "✓ c it is off",
        "– d it is off",
        "→ switch it on",
    ]


def test_packages_stand_on_one_line() -> None:
    checks = [
        {"what": "httpx", "status": "ok", "text": "1", "fix": None},
        {"what": "pandas", "status": "absent", "text": "not installed", "fix": "pip install"},
        {"what": "psutil", "status": "ok", "text": "2", "fix": None},
        {"what": "terminal", "status": "ok", "text": "80x24", "fix": None},
    ]
    found = doctor_text.together(checks, ["httpx", "pandas", "psutil"])
    assert [(each["what"], each["text"]) for each in found] == [
        ("packages", "httpx 1, psutil 2"),
        ("pandas", "not installed"),
        ("terminal", "80x24"),
    ]
    assert doctor_text.together(checks[3:], ["httpx"]) == checks[3:]


# The engines


def test_the_report_of_an_engine() -> None:
    frames = [
        EngineSample(
            t=1.0, engine=URL, url=URL, name="vLLM", state="ok", running=1, reply_s=0.01, poll_every_s=1.0
        ),
        LatencySample(t=1.0, engine=URL, measure="ttft", window_s=60.0, count=3, p50_s=0.1),
        PartSample(t=1.0, engine=URL, part="0", role="rank"),
        Missing(t=1.0, what=f"{URL}:slots_total", why="it has none"),
        Missing(t=1.0, what=f"{URL}:sleep", why="watching keeps it awake", fix="--metrics"),
    ]
    [seen] = doctor.seen_engines(folded(frames))
    report = doctor.engine_report(seen, "no key")
    assert [row["figure"] for row in report["figures"]] == [figure.name for figure in FIGURES]
    told = {row["figure"]: row["status"] for row in report["figures"]}
    assert (told["TTFT"], told["slots"], told["running"]) == ("seen", "missing", "seen")
    assert "/metrics" in report["read"]["paths"]
    assert report["parts"][0]["part"] == "0"
    assert report["notes"] == [{"what": "sleep", "why": "watching keeps it awake", "fix": "--metrics"}]
    text = doctor._text([], [], [seen], [report])
    assert "may be asked" in text
    assert "every 1.0 s" in text


def test_an_engine_that_cannot_be_read_has_no_table() -> None:
    down = EngineSample(t=1.0, engine=URL, url=URL, name="vLLM", state="down", note="nothing listens there")
    [seen] = doctor.seen_engines(folded([down]))
    report = doctor.engine_report(seen, "no key")
    assert report["figures"] == []
    text = doctor._text([], [], [seen], [report])
    assert "✗ engine" in text
    assert "nothing listens there" in text


def test_without_an_engine_it_says_what_to_do() -> None:
    assert "--url" in doctor._text([], [], [], [])


@pytest.mark.parametrize("wire", ["vllm", "llama.cpp"])
def test_it_asks_no_more_than_the_console(
    start_sim: Callable[..., Simulated], tmp_path: Path, wire: str
) -> None:
    from tests.collect.imitations import beyond_the_list

    log = tmp_path / "access.log"
    server = start_sim(wire=wire, access_log=str(log))
    done = agenttop("doctor", "--url", server.url, COLUMNS="80")
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(width, done.stdout.splitlines())) <= 80
    for figure in FIGURES:
        assert re.search(rf"^  [✓–·✗] {re.escape(figure.name)} ", done.stdout, re.MULTILINE), figure.name
    asked = log.read_text().splitlines()
    assert asked
    assert beyond_the_list(asked, None) == []


def test_json_of_a_page_that_is_no_engine() -> None:
    with html_page() as page:
        done = agenttop("doctor", "--json", "--url", page.url)
    assert (done.returncode, done.stderr) == (1, "")
    report = json.loads(done.stdout)
    assert report["schema"] == 1
    assert all(set(check) == {"what", "status", "text", "fix"} for check in report["checks"])
    [engine] = report["engines"]
    assert (engine["state"], engine["figures"]) == ("unsupported", [])


def test_its_help_says_the_exit_codes() -> None:
    assert "Exit codes" in agenttop("doctor", "--help").stdout


# GPUs


def figures(name: str, index: int = 0) -> dict[str, dict[str, Any]]:
    scene, seconds = MACHINES[name]
    report = doctor.gpu_reports(folded(scene(), seconds + 0.4))[index]
    return {row["figure"]: row for row in report["figures"]}


def test_each_gpu_tells_what_can_be_read_and_what_not_with_the_fix() -> None:
    found = figures("arc")
    assert found["clock"]["text"] == "2650 of 2850 MHz"
    assert found["utilisation"]["status"] == "missing"
    assert "CAP_PERFMON" in found["utilisation"]["fix"]
    assert found["PCIe"]["text"] == "the xe driver has no such counter"
    assert figures("two-3090-one-lost")["work inside"]["status"] == "missing"


def test_a_gpu_that_sleeps_is_no_fault_and_one_that_is_lost_is() -> None:
    scene, seconds = MACHINES["laptop"]
    checks = doctor._gpus(folded(scene(), seconds + 0.4))
    assert one(checks, "GPU0")["status"] == "absent"
    assert all(row["status"] in ("missing", "quiet") for row in figures("laptop").values())
    scene, seconds = MACHINES["two-3090-one-lost"]
    checks = doctor._gpus(folded(scene(), seconds + 0.4))
    assert (one(checks, "GPU0")["status"], one(checks, "GPU1")["status"]) == ("ok", "bad")


def test_a_figure_that_is_left_out_without_a_word_is_told_as_a_mistake() -> None:
    silent = GpuSample(t=1.0, gpu="x", index=0, vendor="intel", name="Arc", power_w=10.0)
    [report] = doctor.gpu_reports(folded([silent]))
    unexplained = {row["figure"] for row in report["figures"] if row["status"] == "unexplained"}
    assert unexplained == {"utilisation", "memory", "clock", "temperature", "held down"}


def test_every_field_of_a_gpu_can_be_asked_about() -> None:
    """A reason for a field that has no place in the list is shown under its own name."""
    store = folded([rtx_5090(1.0), Missing(t=1.0, what="gpu/GPU-0:flux", why="no such thing")])
    [report] = doctor.gpu_reports(store)
    assert report["figures"][-1]["figure"] == "flux"


def test_what_is_missing_of_the_host_for_one_reason_is_one_line() -> None:
    gone = [
        Missing(t=1.0, what=f"host:{field}", why="a VM sees none") for field in ("cpu_mhz", "cpu_power_w")
    ]
    [check] = doctor._together(doctor._absent(folded(gone), "host:"))
    assert (check["what"], check["text"]) == ("CPU clock", "a VM sees none (so, too: CPU power)")


def test_limits_of_a_container() -> None:
    scene, seconds = MACHINES["container"]
    store = folded(scene(), seconds + 0.4)
    assert store.host is not None
    [found] = doctor._limits(store.host)
    assert found["text"] == "of this container: 4 cores; 16.0 GiB of memory, 15.1 GiB used"
