"""Which kinds of GPUs there are, which of them a host has, and what is said where there is none."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agenttop.collect.gpu.base import GpuKind, GpuOpening, GpuReading
from agenttop.collect.gpu.detect import Detected, detect
from agenttop.collect.gpu.registry import kinds
from agenttop.model.clock import Clock, ManualClock
from agenttop.model.frames import Missing
from tests.collect import intel_trees as trees
from tests.collect.tree import build


class Adapter:
    """An adapter that finds what it is told to."""

    def __init__(self, vendor: str, opening: Any) -> None:
        self.vendor = vendor
        self._opening = opening

    def open(self, t: float) -> GpuOpening:
        if isinstance(self._opening, BaseException):
            raise self._opening
        opening: GpuOpening = self._opening
        return opening

    def sample(self, t: float) -> GpuReading:
        return GpuReading()

    def close(self) -> None:
        pass


HERE = (sys.platform,)


def kind(name: str, opening: Any, platforms: tuple[str, ...] = HERE, rank: int = 0) -> GpuKind:
    def adapter(clock: Clock, root: Path) -> Adapter:
        return Adapter(name, opening)

    return GpuKind(name=name, proper=name.upper(), adapter=adapter, platforms=platforms, rank=rank)


def without(why: str, fix: str | None = None) -> GpuOpening:
    return GpuOpening(found=False, missing=[Missing(t=0.0, what="gpu", why=why, fix=fix)])


FOUND, NOTHING = GpuOpening(found=True), GpuOpening(found=False)


def found_among(*among: GpuKind, root: Path = Path("/nowhere")) -> Detected:
    return detect(0.0, root, ManualClock(), list(among))


def test_two_vendors_at_once_in_the_order_of_kinds() -> None:
    detected = found_among(kind("one", FOUND), kind("two", NOTHING), kind("three", FOUND))
    assert [adapter.vendor for adapter in detected.adapters] == ["one", "three"]
    assert detected.missing == []


def test_reasons_of_several_vendors_are_one_frame() -> None:
    same = without("no permission", "join the group render")
    detected = found_among(
        kind("a", same), kind("b", without("driver too old")), kind("c", same), kind("d", FOUND)
    )
    assert len(detected.adapters) == 1
    assert detected.missing == [
        Missing(t=0.0, what="gpu", why="no permission; driver too old", fix="join the group render")
    ]


@pytest.mark.parametrize("opening", [RuntimeError("broken\x1b[2J"), None, "text"])
def test_an_adapter_that_fails_or_answers_nonsense_ends_nothing(opening: Any) -> None:
    detected = found_among(kind("bad", opening), kind("good", FOUND))
    assert [adapter.vendor for adapter in detected.adapters] == ["good"]
    assert (detected.missing[0].why or "").startswith("BAD GPUs cannot be looked for (")
    assert "\x1b" not in (detected.missing[0].why or "")


def test_kinds_of_other_systems_are_not_asked() -> None:
    other = kind("other", RuntimeError("asked"), platforms=("plan9",))
    assert found_among(other, kind("here", FOUND)).missing == []


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ("linux", "no NVIDIA driver, no AMD or Intel card on the PCI bus"),
        ("darwin", "this Mac has no Apple silicon: its GPU cannot be read"),
        ("win32", "no NVIDIA driver, and no AMD or Intel GPU that Windows counts"),
    ],
)
def test_a_host_without_any_says_what_was_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, system: str, said: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    detected = found_among(kind("one", NOTHING, platforms=(system,)), root=tmp_path)
    assert detected.missing == [Missing(t=0.0, what="gpu", why=said)]


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_a_card_that_nobody_reads_is_named(tmp_path: Path) -> None:
    for bus, vendor in (("0000:01:00.0", "0x1002"), ("0000:02:00.0", "0x10de")):
        build(
            tmp_path,
            {f"sys/bus/pci/devices/{bus}/{k}": v for k, v in (("vendor", vendor), ("class", "0x030000"))},
        )
    detected = found_among(kind("one", NOTHING), root=tmp_path)
    assert [frame.why for frame in detected.missing] == [
        "the PCI bus has a card of AMD and NVIDIA, but it cannot be read"
    ]


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_ours_by_the_entry_points_on_a_tree(tmp_path: Path) -> None:
    trees.host(tmp_path)
    trees.b580(tmp_path)
    trees.inside(tmp_path)
    ours, refused = kinds()
    assert not refused
    intel = [kind for kind in ours if kind.name in ("intel", "jetson")]
    detected = detect(0.0, tmp_path, ManualClock(), intel)
    assert [adapter.vendor for adapter in detected.adapters] == ["intel"]
    assert [sample.name for sample in detected.adapters[0].sample(0.0).samples][1] == "Intel Arc B580"


class Entry:
    """An entry point of some package."""

    def __init__(self, name: str, load: Callable[[], Any], value: str = "their_package:KIND") -> None:
        self.name = name
        self.value = value
        self.load = load


def ours_and(monkeypatch: pytest.MonkeyPatch, *entries: Entry) -> tuple[list[str], list[str]]:
    """Names of kinds with these entry points beside ours, and what is refused."""
    own = list(importlib.metadata.entry_points(group="agenttop.gpus"))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [*entries, *own])
    found, refused = kinds()
    return [kind.name for kind in found], refused


OURS = ["nvidia", "jetson", "amd", "intel", "apple", "windows"]


def test_ours_are_asked_in_the_order_of_their_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ours_and(monkeypatch) == (OURS, [])


def test_a_vendor_of_another_package_takes_its_place_by_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = Entry("moore", lambda: kind("moore", FOUND, rank=-1))
    assert ours_and(monkeypatch, theirs) == (["moore", *OURS], [])


def broken() -> Any:
    raise ImportError("no module named \x1b[31mtheirs")


def ended() -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (broken, "the GPU plug-in bad cannot be loaded (ImportError: no module named [31mtheirs)"),
        (ended, "the GPU plug-in bad cannot be loaded (SystemExit: 3)"),
        (lambda: "text", "the GPU plug-in bad is no GpuKind"),
        (lambda: kind("late", FOUND, rank="first"), "the GPU plug-in bad is no GpuKind"),  # type: ignore[arg-type]
        (lambda: GpuKind(name="x", proper="X", adapter=None), "the GPU plug-in bad is no GpuKind"),  # type: ignore[arg-type]
        (lambda: kind("nvidia", FOUND), "the GPU plug-in bad: there is one of that name already"),
    ],
    ids=["import error", "exits", "a text", "rank is a text", "no adapter", "name of ours"],
)
def test_a_broken_plug_in_is_refused_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, load: Callable[[], Any], said: str
) -> None:
    assert ours_and(monkeypatch, Entry("bad", load)) == (OURS, [said])
