"""Engines that say they are simulated (`agenttop sim`): what they stand for, and the GPUs they invent.

A reply with the header `x-agenttop-sim` allows one more GET, `/sim`. Nothing in its answer is believed
beyond what it is for: it is small, every value has its type and a sensible range, texts are cleaned, and its
GPUs get names of ours, so that they can never stand in for those of the host. An answer that breaks this is
told in one sentence, and the engine is not read: a session that takes simulated figures for real ones, or
the other way round, is worth nothing.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import threading
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import msgspec

from agenttop.collect.engine.base import ChangedError, EngineAdapter, EngineReading, UnrecognisedError
from agenttop.collect.engine.http import EngineClient
from agenttop.model.frames import EngineSample, Event, GpuSample
from agenttop.model.identity import simulated_gpus
from agenttop.model.text import clean
from agenttop.model.url import is_local

HEADER = "x-agenttop-sim"
PATH = "/sim"
LIMIT = 64_000
"""Bytes of an answer; 16 GPUs with every field take 12,000."""
SLOWEST, FASTEST = 0.01, 10_000.0
"""Bounds of `speedup`: session seconds per second."""
ASK_S = 0.5
"""Longest wait for each step of `speedup_of`."""

_Count = Annotated[int, msgspec.Meta(ge=0, le=10**15)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Figure = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Short = Annotated[str, msgspec.Meta(max_length=200)]


class _Gpu(msgspec.Struct, frozen=True):
    """Fields of a GpuSample as an engine may tell them."""

    index: Annotated[int, msgspec.Meta(ge=0, lt=64)] = 0
    vendor: _Short = ""
    name: _Short = ""
    driver: _Short | None = None
    window_s: _Figure | None = None
    util_fraction: _Share | None = None
    mem_util_fraction: _Share | None = None
    mem_used_bytes: _Count | None = None
    mem_total_bytes: _Count | None = None
    sm_clock_mhz: _Count | None = None
    sm_clock_max_mhz: _Count | None = None
    mem_clock_mhz: _Count | None = None
    power_w: _Figure | None = None
    power_limit_w: _Figure | None = None
    temperature_c: Annotated[float, msgspec.Meta(ge=-100, le=1000)] | None = None
    mem_temperature_c: Annotated[float, msgspec.Meta(ge=-100, le=1000)] | None = None
    fan_fraction: _Share | None = None
    energy_j: _Figure | None = None
    performance_state: Annotated[int, msgspec.Meta(ge=0, le=15)] | None = None
    throttle: Annotated[list[_Short], msgspec.Meta(max_length=16)] | None = None
    throttle_power_fraction: _Share | None = None
    throttle_thermal_fraction: _Share | None = None
    throttle_shares: Annotated[dict[_Short, _Share], msgspec.Meta(max_length=16)] = {}
    temperature_limit_c: Annotated[float, msgspec.Meta(ge=-100, le=1000)] | None = None
    power_limit_default_w: _Figure | None = None
    power_window_s: _Figure | None = None
    energy_source: Literal["counter", "power"] | None = None
    memory_kind: Literal["dedicated", "unified", "vram+gtt"] | None = None
    pcie_received_bytes_s: _Figure | None = None
    pcie_sent_bytes_s: _Figure | None = None
    pcie_generation: Annotated[int, msgspec.Meta(ge=1, le=15)] | None = None
    pcie_generation_max: Annotated[int, msgspec.Meta(ge=1, le=15)] | None = None
    pcie_width: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None
    pcie_width_max: Annotated[int, msgspec.Meta(ge=1, le=64)] | None = None


class Simulation(msgspec.Struct, frozen=True):
    """The answer to `/sim`. Fields that are not listed are left alone."""

    simulated: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    """The host it stands for, e.g. `RTX 5090`."""
    model: _Short = ""
    wire: _Short = ""
    speedup: Annotated[float, msgspec.Meta(ge=SLOWEST, le=FASTEST)] = 1.0
    """Session seconds per second; `SLOWEST` to `FASTEST`."""
    gpus: Annotated[list[_Gpu], msgspec.Meta(max_length=16)] = []
    kv_pool_tokens: _Count | None = None
    kv_layout: Annotated[str, msgspec.Meta(max_length=20)] | None = None
    """Of the llama.cpp wire, where a real server tells neither: the simulated one has no command line."""
    notes: Annotated[list[_Short], msgspec.Meta(max_length=16)] = []
    weights_bytes: _Count | None = None
    weights_active_bytes: _Count | None = None
    experts: _Count | None = None
    experts_used: _Count | None = None

    @property
    def host(self) -> str:
        """Cleaned; never empty."""
        return clean(self.simulated, 40).strip() or "unnamed host"


def parse(body: bytes) -> Simulation:
    """Raises ValueError with what is wrong, in a few words."""
    if len(body) > LIMIT:
        raise ValueError(f"it is longer than {LIMIT // 1000} kB")
    try:
        found = msgspec.json.decode(body, type=Simulation)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(clean(str(error), 100)) from None
    if not math.isfinite(found.speedup):  # what JSON allows, but no schema excludes
        raise ValueError("speedup is not a number")
    return found


def gpu_samples(t: float, url: str, gpus: list[_Gpu]) -> list[GpuSample]:
    """Under names of ours: `sim:<host and port>/<number>`. Pure."""
    samples = []
    for number, gpu in enumerate(gpus):
        told = msgspec.structs.asdict(gpu)
        told["vendor"] = clean(gpu.vendor, 20) or "simulated"
        told["name"] = clean(gpu.name, 40) or "simulated GPU"
        told["driver"] = clean(gpu.driver, 40) if gpu.driver else None
        told["throttle"] = None if gpu.throttle is None else [clean(each, 30) for each in gpu.throttle]
        told["throttle_shares"] = {clean(reason, 30): held for reason, held in gpu.throttle_shares.items()}
        told["index"] = number
        samples.append(GpuSample(t=t, gpu=f"{simulated_gpus(url)}{number}", **told))
    return samples


class SimulatedAdapter:
    """Around the adapter of either wire format: adds what `/sim` tells to each of its readings."""

    def __init__(self, inner: EngineAdapter, client: EngineClient) -> None:
        """`client` may ask `/sim` and nothing else."""
        self.inner = inner
        self.name = inner.name
        self.allowed_paths = inner.allowed_paths | {PATH}
        self.client = inner.client
        self._sim = client
        self._announced: str | None = None

    async def alive(self) -> bool:
        """As the adapter inside knows it."""
        return await self.inner.alive()

    async def poll(self) -> EngineReading:
        """One look, and one at `/sim`. Raises UnrecognisedError for an answer that makes no sense."""
        reading = await self.inner.poll()
        reply = await self._sim.get(PATH, limit=LIMIT)
        if reply.status != 200 or HEADER not in reply.headers:
            raise ChangedError  # a real engine answers there now, or nothing that is simulated
        try:
            told = parse(reply.body)
        except ValueError as error:
            raise UnrecognisedError(
                "unsupported",
                f"{self.client.base_url} says it is simulated, but its GET {PATH} makes no sense: {error}",
                self.name,
            ) from error
        sample = _with_pool(reading.sample, told)
        known = {f"{sample.engine}:{field}" for field in POOL if getattr(sample, field) is not None}
        return msgspec.structs.replace(
            reading,
            sample=msgspec.structs.replace(
                sample, simulated=told.host, speedup=told.speedup, **_weights(told)
            ),
            missing=[frame for frame in reading.missing if frame.what not in known],
            gpus=gpu_samples(reply.at, self.client.base_url, told.gpus),
            events=[*reading.events, *self._announce(reply.at, told)],
        )

    def _announce(self, t: float, told: Simulation) -> list[Event]:
        """Once, so that a recording tells on its time axis that nothing here is real."""
        pace = f", {told.speedup:g} times as fast as life" if told.speedup != 1 else ""
        text = f"{self.client.base_url} is a simulated {told.host}{pace}: nothing here was measured"
        if text == self._announced:
            return []
        self._announced = text
        subject = self.client.base_url
        return [
            Event(t=t, event="engine.simulated", text=text, source="engine", severity="warn", subject=subject)
        ]


def _weights(told: Simulation) -> dict[str, Any]:
    """The sizes of the model it pretends to have; no file of this host stands behind them."""
    if told.weights_bytes is None:
        return {}
    return {
        "weights_bytes": told.weights_bytes,
        "weights_active_bytes": told.weights_active_bytes,
        "weights_from": "engine",
        "experts": told.experts,
        "experts_used": told.experts_used,
    }


POOL = ("kv_layout", "kv_pool_tokens", "kv_used_fraction")


def _with_pool(sample: EngineSample, told: Simulation) -> EngineSample:
    """The size of the pool where the wire format does not tell it."""
    size = told.kv_pool_tokens
    if sample.kv_pool_tokens is not None or not size or sample.state != "ok":
        return sample
    used = sample.kv_used_tokens
    layout = told.kv_layout if told.kv_layout in ("split", "unified", "paged") else sample.kv_layout
    fraction = min(1.0, used / size) if used is not None else None
    return msgspec.structs.replace(sample, kv_layout=layout, kv_pool_tokens=size, kv_used_fraction=fraction)


def speedup_of(url: str) -> tuple[float, str | None]:
    """How many times faster than life the engine at `url` (normalised) runs, and the host it simulates.

    A quick question before a session begins: loopback only, `ASK_S` for each step and twice that in all.
    (1.0, None) for everything that is not a simulated engine with an answer that makes sense. Never raises.
    """
    if not is_local(url) or urlsplit(url).scheme != "http":
        return 1.0, None
    question = _Question(url)
    thread = threading.Thread(target=question.ask, name="speedup", daemon=True)
    thread.start()
    thread.join(2 * ASK_S)
    question.hang_up()
    return question.answer


class _Question:
    """Asked in a thread: a server that sends single bytes keeps every time limit of a socket for ever."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._base = parts.path
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=ASK_S)
        self.answer: tuple[float, str | None] = (1.0, None)

    def ask(self) -> None:
        """`/v1/models` first, which is harmless everywhere: `/sim` is asked only of who claims to know it."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            if self._get("/v1/models") is None:
                return
            body = self._get(PATH)
            if body is not None:
                told = parse(body)
                self.answer = (told.speedup, told.host)

    def hang_up(self) -> None:
        """Whatever is still going on ends with it."""
        with contextlib.suppress(OSError, AttributeError):
            self._connection.sock.shutdown(2)
        self._connection.close()

    def _get(self, path: str) -> bytes | None:
        """The body; None from a server that does not say it is simulated."""
        self._connection.request("GET", self._base + path, headers={"Accept-Encoding": "identity"})
        reply: Any = self._connection.getresponse()
        body: bytes = reply.read(LIMIT + 1)
        if reply.getheader(HEADER) is None:
            return None
        self._connection.close()  # what is left of a long body must not be taken for the next answer
        return body
