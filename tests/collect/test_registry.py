"""Kinds of engines, those of other packages among them: used, or refused with a reason."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agenttop.collect.engine import registry as module
from agenttop.collect.engine.recognise import recognise
from agenttop.collect.engine.registry import registry
from agenttop.collect.engine.watch import EngineWatch
from agenttop.collect.hints import kind_of, usual_ports
from agenttop.collect.process import Command
from agenttop.model.frames import SlotSample
from tests.collect import imitations as imitate

ENGINE = """
from agenttop.collect.engine.base import EngineReading, Reasons
from agenttop.collect.engine.kind import EngineKind, ProcessLook, Sign
from agenttop.model.frames import EngineSample, SlotSample


class Adapter:
    name = "Toaster"
    allowed_paths = frozenset({"/info"})

    def __init__(self, client, seen):
        self.client = client

    async def alive(self):
        return True

    async def poll(self):
        reply = await self.client.get("/info")
        url = self.client.base_url
        sample = EngineSample(
            t=reply.at, engine=url, url=url, name=self.name, state="ok", running=reply.json(dict)["slices"]
        )
        slot = SlotSample(t=reply.at, engine=url, slot=0, phase="decode")
        return EngineReading(sample=sample, slots=[slot])


KIND = EngineKind(
    name="Toaster",
    allowed_paths=Adapter.allowed_paths,
    adapter=Adapter,
    signs=(Sign("/info", lambda reply: reply.has("slices")),),
    look=ProcessLook(programs=r"toasterd", ports=(8765,)),
)
BROKEN_EXPRESSION = EngineKind(
    name="a", allowed_paths=frozenset(), adapter=Adapter, look=ProcessLook(programs="(")
)
STOPS_SERVERS = EngineKind(name="b", allowed_paths=frozenset({"/terminate"}), adapter=Adapter)
ASKS_ANYTHING = EngineKind(
    name="c", allowed_paths=frozenset(), adapter=Adapter, signs=(Sign("/secret", lambda reply: True),)
)
TAKES_A_NAME = EngineKind(name="vLLM", allowed_paths=frozenset(), adapter=Adapter)
NAMELESS = EngineKind(name="", allowed_paths=frozenset(), adapter=Adapter)
ODD_NAME = EngineKind(name="a\\x1b[31mb", allowed_paths=frozenset(), adapter=Adapter)
NO_KIND = object()
"""

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Puts a package with entry points on the path: `install("KIND", ...)`, by name in the module above."""

    def put(*names: str, source: str = ENGINE) -> None:
        (tmp_path / "toaster_engine.py").write_text(source)
        info = tmp_path / "toaster-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toaster\nVersion: 1.0\n")
        lines = [f"{name.lower()} = toaster_engine:{name}\n" for name in names]
        (info / "entry_points.txt").write_text("[agenttop.engines]\n" + "".join(lines))
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        registry.cache_clear()

    yield put
    monkeypatch.undo()
    sys.modules.pop("toaster_engine", None)
    importlib.invalidate_caches()
    registry.cache_clear()


async def test_an_engine_of_another_package_is_found_and_read(install: Install) -> None:
    install("KIND")
    assert registry().refused == ()
    kind = kind_of(Command(["/usr/bin/toasterd"]))
    assert kind is registry().named("Toaster")
    assert 8765 in usual_ports()
    with imitate.serves({"/info": {"slices": 2}}, kind="Toaster") as server:
        adapter = await recognise(server.url)
        reading = await adapter.poll()
        await adapter.client.close()
    assert (reading.sample.name, reading.sample.running) == ("Toaster", 2)
    assert isinstance(reading.slots[0], SlotSample)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("BROKEN_EXPRESSION", "expression for programs"),
        ("STOPS_SERVERS", "GET /terminate, which changes engines"),
        ("ASKS_ANYTHING", "GET /secret, which is not on the list"),
        ("TAKES_A_NAME", "an engine named vLLM already"),
        ("NAMELESS", "no name"),
        ("ODD_NAME", "no name that can be shown"),
        ("NO_KIND", "no EngineKind"),
        ("NOT_THERE", "cannot be loaded (AttributeError"),
    ],
)
def test_one_that_must_not_be_used_is_refused(install: Install, name: str, words: str) -> None:
    install(name, "KIND")
    [refused] = registry().refused
    assert (refused.entry, refused.package) == (name.lower(), "toaster")
    assert words in refused.why
    assert "\x1b" not in refused.why
    assert registry().named("Toaster") is not None  # the other one is used
    assert registry().named("vLLM").adapter.__module__.startswith("agenttop.")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "source", ["raise SystemExit(3)", "import nothing_like_this", "this is no Python", "1 / 0"]
)
def test_a_package_that_breaks_ends_nothing(install: Install, source: str) -> None:
    install("KIND", source=source)
    [refused] = registry().refused
    assert "cannot be loaded" in refused.why
    assert len(registry().kinds) >= 19


def test_ours_are_all_there_and_none_is_refused() -> None:
    own = [kind for kind in registry().kinds if kind.adapter.__module__.startswith("agenttop.")]
    assert len(own) >= 19
    assert [each for each in registry().refused if each.package == "agenttop"] == []
    assert all(module.problem_of(kind) == "" for kind in own)


@pytest.mark.parametrize(
    "deed",
    [
        "raise SystemExit(3)",
        "raise BaseException('x')",
        "import asyncio; raise asyncio.CancelledError",
        "return None",
        "return EngineReading(sample=sample, slots=[3])",
        "sample.running = -4; return EngineReading(sample=sample)",
        "sample.decode_tok_s = float('nan'); return EngineReading(sample=sample)",
        "sample.kv_used_fraction = 7.0; return EngineReading(sample=sample)",
        "sample.model = 'a\\x1b[2Jb'; return EngineReading(sample=sample)",
        "sample.finish_reasons = {'a\\x1b[2Jb': 1}; return EngineReading(sample=sample)",
        "sample.running = 'three'; return EngineReading(sample=sample)",
        "sample.state = 'gorgeous'; return EngineReading(sample=sample)",
        "sample.engine = 'http://127.0.0.1:1'; return EngineReading(sample=sample)",
    ],
)
async def test_whatever_an_adapter_of_another_package_does_ends_nothing(install: Install, deed: str) -> None:
    deed = re.sub(r"sample\.(\w+) = (.*?);", r"sample = msgspec.structs.replace(sample, \1=\2);", deed)
    source = "import msgspec\n" + ENGINE.replace("return EngineReading(sample=sample, slots=[slot])", deed)
    install("KIND", source=source)
    with imitate.serves({"/info": {"slices": 2}}) as server:
        watched = EngineWatch(server.url)
        reading = await watched.poll()
        await watched.close()
    assert reading.sample.state == "unsupported"
    assert (reading.sample.note or "").isprintable()


def test_a_module_that_raises_anything_is_left_out(install: Install) -> None:
    install("KIND", source="raise BaseException('x')")
    (refused,) = registry().refused
    assert "it cannot be loaded (BaseException: x)" in refused.why
