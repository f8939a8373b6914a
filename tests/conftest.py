"""What every test may use.

Fixtures
    llama_server    one real llama.cpp server for the whole session (tiny model, 4 slots of 2048 tokens, split
                    pool, metrics on). Read from it and send it requests; do not kill, freeze or stop it.
    start_llama     `start_llama(**options) -> LlamaServer`: a server of this test's own, gone when the test
                    ends. Options are those of `DemoEngine.start`, and `shape` for a bigger model:
                        start_llama(unified=True, context=512)
                        start_llama(slots=2, api_key="secret")
                        start_llama(sleep_idle_s=1)
                        start_llama(port=old.port)            restart at the same address
                        start_llama(shape=STEADY)             slow enough to look at a request in progress
                        start_llama(wheel=llama_wheel("10068"))   an older build
                    It takes 0.2 s. See tests/servers.py for kill(), freeze(), chat(), background_chat().
    llama_wheel     `llama_wheel(build) -> Path`: an older build (tests/wheels.py), installed once;
                    skips where there is no package index.
    start_sim       `start_sim(**options) -> Simulated`: a simulated engine of this test's own, gone when the
                    test ends. Options are those of `agenttop sim`, the model is `tiny`; tests/simulated.py:
                        start_sim(wire="llama.cpp", slots=2, fault=["cut=3@request=2"])
    start_sim_here  the same server in a thread of the test: no process, up at once.
    engine_needed   for tests that start an engine in their own way: skips where there is none.
    private_places  automatic: recordings, sessions, profiles and cache lie in a directory of this test, also
                    for the child processes it starts.

Other servers, hostile ones, are in tests/hostile.py; waiting without sleeping is tests/waiting.py.

Without the xllamacpp package tests that need an engine are skipped, and say so. AGENTTOP_REQUIRE_ENGINE=1
makes them fail instead.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import wheels
from tests.servers import LlamaServer
from tests.simulated import Simulated, SimulatedHere

_FOREIGN = (
    "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY",
)  # fmt: skip


@pytest.fixture(scope="session")
def short_directory() -> Iterator[Path]:
    """A directory with a short name: socket paths may hold little more than a hundred characters."""
    with tempfile.TemporaryDirectory(prefix="agenttop-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(scope="session")
def model_cache(short_directory: Path) -> Path:
    """Generated models, written once a session."""
    cache = short_directory / "cache"
    cache.mkdir()
    return cache


@pytest.fixture(autouse=True)
def private_places(monkeypatch: pytest.MonkeyPatch, short_directory: Path, model_cache: Path) -> Path:
    """Keep every test, and the processes it starts, out of the user's directories and settings."""
    own = Path(tempfile.mkdtemp(dir=short_directory))
    for name in ("recordings", "runtime", "profiles", "config"):
        monkeypatch.setenv(f"AGENTTOP_{name.upper()}", str(own / name))
    monkeypatch.setenv("AGENTTOP_CACHE", str(model_cache))
    for name in _FOREIGN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    return own


@pytest.fixture(scope="session")
def engine_needed() -> None:
    if importlib.util.find_spec("xllamacpp") is not None:
        return
    why = "needs a real llama.cpp server: pip install 'agenttop[demo]'"
    if os.environ.get("AGENTTOP_REQUIRE_ENGINE") == "1":
        pytest.fail(why, pytrace=False)
    pytest.skip(why)


@pytest.fixture(scope="session")
def llama_server(engine_needed: None, model_cache: Path) -> Iterator[LlamaServer]:
    server = LlamaServer(model_cache)
    yield server
    server.stop()


@pytest.fixture
def start_llama(engine_needed: None, model_cache: Path) -> Iterator[Callable[..., LlamaServer]]:
    started: list[LlamaServer] = []

    def start(**options: object) -> LlamaServer:
        server = LlamaServer(model_cache, **options)
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def llama_wheel(engine_needed: None) -> Callable[[str], Path]:
    def wheel(build: str) -> Path:
        try:
            return wheels.installed(build)
        except wheels.NoWheelError as error:
            why = f"needs llama.cpp of build {build}: {error}"
            if os.environ.get("AGENTTOP_REQUIRE_ENGINE") == "1":
                pytest.fail(why, pytrace=False)
            pytest.skip(why)

    return wheel


@pytest.fixture
def start_sim() -> Iterator[Callable[..., Simulated]]:
    yield from _simulated(Simulated)


@pytest.fixture
def start_sim_here() -> Iterator[Callable[..., Simulated]]:
    yield from _simulated(SimulatedHere)


def _simulated(kind: type[Simulated]) -> Iterator[Callable[..., Simulated]]:
    started: list[Simulated] = []

    def start(**options: object) -> Simulated:
        engine = kind(**options)
        started.append(engine)
        return engine

    yield start
    for engine in started:
        engine.stop()
