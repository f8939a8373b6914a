"""The simulated engine as a server: who may ask what, loading, restarts, the closed door, `/sim`."""

from __future__ import annotations

import asyncio
import hmac
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import msgspec

from agenttop.errors import UsageError
from agenttop.model.text import clean
from agenttop.sim.completions import Completions
from agenttop.sim.doors import Door
from agenttop.sim.engine import SimEngine
from agenttop.sim.faults import Fault, FaultPlan
from agenttop.sim.http import Exchange, Visitor
from agenttop.sim.live import LiveEngine
from agenttop.sim.options import EngineOptions
from agenttop.sim.presets import HostPreset, ModelPreset
from agenttop.sim.wire import SIMULATED, Answer, Facts, View, Wire
from agenttop.sim.wire_llamacpp import LlamaCppWire
from agenttop.sim.wire_vllm import VllmWire

_encode = msgspec.json.Encoder().encode


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the server around the engine behaves."""

    address: str = "127.0.0.1"
    port: int = 0
    speedup: float = 1.0
    """Simulated seconds per second."""
    seed: int = 0
    load_s: float = 0.0
    """Simulated seconds until the model is loaded."""
    api_key: str | None = None
    metrics: bool = True
    """llama.cpp's `--metrics`."""
    slot_table: bool = True
    """llama.cpp's `--slots`."""
    faults: tuple[Fault, ...] = ()
    access_log: Path | None = None
    """A line `METHOD TARGET` for every request, added to the end of the file."""


class SimServer:
    """One simulated engine behind one port. Lives on one event loop."""

    def __init__(
        self, host: HostPreset, model: ModelPreset, engine: EngineOptions, options: ServerOptions
    ) -> None:
        """Raises UsageError when the model does not fit, AgenttopError when the port cannot be had."""
        self._host, self._model = host, model
        self._engine_options, self._options = engine, options
        first = SimEngine(host, model, engine, options.seed)
        self.live = LiveEngine(first, options.speedup, lambda emissions: self._completions.deliver(emissions))
        self.facts = _facts(model, first)
        self.wire: Wire = (
            VllmWire(self.facts)
            if engine.wire == "vllm"
            else LlamaCppWire(self.facts, metrics=options.metrics, slots=options.slot_table)
        )
        self._chat_paths = self.wire.chat_paths()
        self._completions = Completions(
            self.wire,
            self.facts,
            speedup=options.speedup,
            seed=options.seed,
            live=lambda: self.live,
            restart=self.restart,
        )
        self._plan = FaultPlan(options.faults)
        self._access_log = _opened(options.access_log)
        self._restarts = self._plan.restarts()
        self._visitors: set[Visitor] = set()
        self._started_unix = self.facts.started_unix
        self._number = 0
        self._loaded_at = options.load_s
        self._lives = 1
        self._failed: asyncio.Future[None]
        self._timer: asyncio.TimerHandle | None = None
        self._door_turns: asyncio.Task[None] | None = None
        self.door = Door(options.address, options.port, lambda: Visitor(self._serve, self._visitors))

    async def start(self) -> None:
        """Begin to serve, or to load."""
        self._failed = asyncio.get_running_loop().create_future()
        await self._turn_door()
        self._watch_time()

    async def stop(self) -> None:
        """End everything; clients see their connections close."""
        if self._timer is not None:
            self._timer.cancel()
        if self._door_turns is not None:
            await asyncio.wait([self._door_turns])
        self.door.close()
        if self._access_log is not None:
            self._access_log.close()
            self._access_log = None
        self._hang_up()
        self.live.stop()

    def fail(self, error: BaseException) -> None:
        """It cannot go on: whoever waits in `serve` gets the reason."""
        if not self._failed.done():
            self._failed.set_exception(error)

    async def serve(self) -> None:
        """Wait while it serves. Raises AgenttopError when its port has gone to another program."""
        await self._failed

    def restart(self, load_s: float) -> None:
        """The engine dies: connections end, requests and cache are lost; it comes back after `load_s`."""
        self._loaded_at = self.live.now + load_s
        if load_s > 0 and self.wire.refuses_while_loading:
            self.door.slam()  # before the connections go: a client that looks at once finds nobody
        self._hang_up()
        self._lives += 1
        seed = self._options.seed + self._lives - 1
        self.live.replace(SimEngine(self._host, self._model, self._engine_options, seed))
        self._started_unix = time.time()
        self._watch_time()

    # Requests

    def _serve(self, exchange: Exchange) -> None:
        try:
            self._respond(exchange)
        except Exception as error:  # noqa: BLE001 - one request must not end the server; nothing is hidden
            sys.stderr.write(f"agenttop sim: internal error: {type(error).__name__}: {error}\n")
            if exchange.streaming:
                exchange.cut()
            else:
                _reply(exchange, self.wire.failure(500, f"internal error: {type(error).__name__}"))

    def _respond(self, exchange: Exchange) -> None:
        request = exchange.request
        if self._access_log is not None:
            query = f"?{request.query}" if request.query else ""
            self._access_log.write(f"{clean(request.method, 10)} {clean(request.path + query, 200)}\n")
        if request.path == "/sim" and request.method in ("GET", "HEAD"):
            answer = Answer(200, _encode(self.account()), ((b"content-type", b"application/json"),))
        elif self._options.api_key is not None and self.wire.guards(request.path) and not self._may(exchange):
            answer = self.wire.unauthorised()
        elif self._loading:
            answer = self.wire.loading()
        elif request.method == "POST" and request.path in self._chat_paths:
            self._complete(exchange, self._chat_paths[request.path])
            return
        else:
            answer = self.wire.looks(request, self._view())
        _reply(exchange, answer)

    def _may(self, exchange: Exchange) -> bool:
        given = exchange.request.headers.get("authorization", "").encode("latin-1", "replace")
        return hmac.compare_digest(given, b"Bearer " + (self._options.api_key or "").encode())

    @property
    def _loading(self) -> bool:
        return self.live.now < self._loaded_at

    def _complete(self, exchange: Exchange, chat: bool) -> None:
        """A request for text."""
        self._number += 1
        treatment = self._plan.treat(self._number, self.live.now)
        self._restart_by_number()
        self._watch_time()
        if not exchange.over:
            self._completions.begin(exchange, self._number, chat, treatment)

    # Looks

    def _view(self) -> View:
        done = self._completions
        return View(self.live.state(), done.books, done.jobs, self._started_unix)

    def account(self) -> dict[str, Any]:
        """`GET /sim`: what this is, its GPUs, and whether it keeps up."""
        gpus = [msgspec.structs.asdict(gpu) for gpu in self.live.gpus()]
        late = self.live.late_s()
        options = self._engine_options
        notes = [self._host.note, self._model.note]
        notes += [f"fault: {_describe(fault)}" for fault in self._options.faults]
        return {
            "simulated": self._host.name,
            "model": self._model.name,
            "wire": options.wire,
            "speedup": self._options.speedup,
            "gpus": gpus,
            "notes": [note for note in notes if note],
            "host": self._host.key,
            "seed": self._options.seed,
            "t": self.live.now,
            "state": "loading" if self._loading else "ok",
            "late_s": late,
            "requests": self._number,
            "lives": self._lives,
            "kv_pool_tokens": self.facts.pool_tokens,
            **_weights(self._model),
            "kv_layout": None if options.wire == "vllm" else "unified" if options.unified else "split",
            "context_limit_tokens": self.facts.context_limit,
        }

    # Time

    def _restart_by_number(self) -> None:
        """Restarts that wait for so many requests: the first one beyond them sets it off, and is lost."""
        for fault in [fault for fault in self._restarts if fault.after is not None]:
            if self._number > (fault.after or 0) and fault.in_time(self.live.now):
                self._restarts.remove(fault)
                self.restart(fault.value if isinstance(fault.value, float) else 0.0)

    def _watch_time(self) -> None:
        """Do what is due, and come back when there is next something to do."""
        now = self.live.now
        for fault in [fault for fault in self._restarts if fault.after is None]:
            if now >= (fault.at or 0.0):
                self._restarts.remove(fault)
                self.restart(fault.value if isinstance(fault.value, float) else 0.0)
                return
        times = [fault.at or 0.0 for fault in self._restarts if fault.after is None]
        times += [t for t in (self._loaded_at, self._plan.next_change(now)) if t is not None and t > now]
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if times:
            wait = (min(times) - now) / self._options.speedup
            self._timer = asyncio.get_running_loop().call_later(max(0.001, wait), self._watch_time)
        as_wanted = self.door.is_kept and self.door.is_open == self._wants_open()
        if self._door_turns is None and not as_wanted:
            self._door_turns = asyncio.ensure_future(self._turn_door())
            self._door_turns.add_done_callback(self._door_turned)

    def _wants_open(self) -> bool:
        shut = self._loading and self.wire.refuses_while_loading
        return not shut and not self._plan.closed(self._number, self.live.now)

    async def _turn_door(self) -> None:
        if self._wants_open():
            await self.door.open()
            return
        await self.door.shut()
        for visitor in list(self._visitors):
            if visitor.idle:
                visitor.close()

    def _door_turned(self, task: asyncio.Task[None]) -> None:
        self._door_turns = None
        if (error := task.exception()) is not None:
            self.fail(error)
            return
        self._watch_time()

    def _hang_up(self) -> None:
        """Every connection ends where it is."""
        self._completions.drop_all()
        for visitor in list(self._visitors):
            visitor.close()


def _opened(path: Path | None) -> TextIO | None:
    if path is None:
        return None
    try:
        return path.open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written: {error.strerror}", "name another --access-log"
        ) from error


def _reply(exchange: Exchange, answer: Answer) -> None:
    exchange.answer(answer.status, answer.body, answer.headers, close=answer.close)


def _facts(model: ModelPreset, engine: SimEngine) -> Facts:
    return Facts(
        model=f"{model.key or model.name}{SIMULATED}",
        preset=model.key or model.name,
        params=model.params,
        weights_bytes=model.weights_bytes,
        hidden=model.hidden,
        vocab=model.vocab,
        trained_context=model.context_tokens,
        options=engine.options,
        context_limit=engine.context_limit_tokens,
        pool_tokens=engine.kv_pool_tokens,
        started_unix=time.time(),
    )


def _weights(model: ModelPreset) -> dict[str, int | None]:
    """Sizes as an EngineSample has them."""
    experts = model.experts
    return {
        "weights_bytes": int(model.weights_bytes),
        "weights_active_bytes": int(model.weights_bytes * model.active_params / model.params),
        "experts": None if experts is None else experts.count,
        "experts_used": None if experts is None else experts.used,
    }


def _describe(fault: Fault) -> str:
    """As it would be written on the command line."""
    value = "" if fault.value is None else f"={fault.value:g}" if isinstance(fault.value, float) else ""
    names = {"at": fault.at, "for": fault.lasts, "after": fault.after, "first": fault.first,
             "request": fault.request, "every": fault.every}  # fmt: skip
    conditions = ",".join(f"{name}={given:g}" for name, given in names.items() if given is not None)
    return f"{fault.kind}{value}" + (f"@{conditions}" if conditions else "")
