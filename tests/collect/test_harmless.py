"""What may be asked, in one place: no list of any engine holds a GET that changes an engine."""

from __future__ import annotations

import importlib.metadata

import msgspec
import pytest

from agenttop.collect.engine import harmless
from agenttop.collect.engine.kind import GENERIC, EngineKind, Sign
from agenttop.collect.engine.kinds import openai
from agenttop.collect.engine.registry import GROUP, problem_of, registry
from tests.collect.imitations import beyond_the_list

HARMFUL = [
    "/health_generate",
    "/generate",
    "/terminate",
    "/shutdown",
    "/sleep",
    "/wake_up",
    "/flush_cache",
    "/upstream/m/health",
    "/unload",
    "/models/load",
    "/api/extra/generate/check",
    "/api/generate",
    "/v1/chat/completions",
    "/start_profile",
    "/slots/0",
    "/../terminate",
    "/v1/models#/../terminate",
]


@pytest.mark.parametrize("path", HARMFUL)
def test_what_is_never_asked(path: str) -> None:
    assert path not in harmless.PROBES
    assert harmless.forbidden([path]) == [path]


@pytest.mark.parametrize("kind", [*registry().kinds, openai.KIND], ids=lambda kind: kind.name)
def test_every_list_is_harmless(kind: EngineKind) -> None:
    assert problem_of(kind) == ""
    assert not harmless.forbidden(kind.allowed_paths)


def test_probes_are_harmless() -> None:
    assert harmless.forbidden(harmless.PROBES) == []
    # Inference on SGLang, a drained queue on TensorRT-LLM, a model woken or loaded by llama.cpp.
    assert not {"/health", "/metrics", "/slots"} & harmless.PROBES


def test_every_engine_has_a_place_in_the_entry_points() -> None:
    entries = importlib.metadata.entry_points(group=GROUP)
    assert {entry.load().name for entry in entries} == {kind.name for kind in registry().kinds}
    assert registry().refused == ()
    assert registry().named(GENERIC) is None
    assert registry().kinds[0].name == "llama.cpp"


def test_a_kind_that_would_harm_is_refused() -> None:
    sound = registry().kinds[1]
    assert "GET /terminate" in problem_of(
        msgspec.structs.replace(sound, allowed_paths=frozenset({"/terminate"}))
    )
    sign = Sign("/metrics", lambda reply: True)
    assert "GET /metrics" in problem_of(msgspec.structs.replace(sound, signs=(sign,)))


def test_the_imitations_notice() -> None:
    assert beyond_the_list(["GET /props", "POST /props", "GET /terminate"], "llama.cpp") == [
        "POST /props",
        "GET /terminate",
    ]
    assert beyond_the_list(["GET /slots"], "SGLang") == ["GET /slots"]
