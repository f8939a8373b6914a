"""A simulated engine, and rough HTTP for looking at it. Get one from the fixture `start_sim`: a process, as a
user starts it; or from `start_sim_here`: the same server in a thread of the test, up in a moment.

    engine.url, engine.port, engine.pid      engine.account         the line it printed, as a dict
    engine.get("/metrics")                   -> Answer(status, headers, body); .json()
    engine.post(path, {...}) / engine.chat("hello", max_tokens=5, **fields)
    engine.stream("hello", max_tokens=5, **fields) -> Stream: .status, .events (decoded, without [DONE]),
                                             .done, .ended ("end", "cut", "silence"), .comments, .usage, .text
    engine.stop()

It is called "simulated" and not "fake": its figures are made up, its HTTP is not.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import queue
import subprocess
import sys
import threading
from typing import Any, NamedTuple

from agenttop.commands import sim as command
from agenttop.errors import AgenttopError
from agenttop.oslayer import child_environment, detached
from agenttop.sim import presets
from agenttop.sim.server import SimServer
from agenttop.sim.serving import announcement


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Stream:
    """A streamed reply, read to its end, however it ends."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self.events: list[dict[str, Any]] = []
        self.comments = 0
        self.done = False
        self.ended = ""
        """end: as HTTP wants it; cut: the connection closed too early; silence: nothing more came in time."""
        self.body = b""

    @property
    def usage(self) -> dict[str, Any] | None:
        found = [event["usage"] for event in self.events if event.get("usage")]
        return found[-1] if found else None

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [choice for event in self.events for choice in event.get("choices", [])]

    @property
    def text(self) -> str:
        return "".join(
            choice.get("delta", choice).get("content") or choice.get("text") or "" for choice in self.choices
        )

    @property
    def finish_reason(self) -> str | None:
        reasons = [choice["finish_reason"] for choice in self.choices if choice.get("finish_reason")]
        return reasons[-1] if reasons else None


def _words(options: dict[str, Any]) -> list[str]:
    words: list[str] = []
    for name, value in {"model": "tiny", **options}.items():
        flag = "--" + name.replace("_", "-")
        for each in value if isinstance(value, list) else [value]:
            words += [flag] if each is True else [] if each is False else [flag, str(each)]
    return words


class Simulated:
    """`Simulated(model="tiny", wire="llama.cpp", fault=["cut=3"], no_metrics=True, env={...})`: options are
    those of `agenttop sim`, with _ for -; a list is given once for each of its items."""

    def __init__(self, *, env: dict[str, str] | None = None, **options: Any) -> None:
        words = [sys.executable, "-m", "agenttop", "sim", "--json", "--with-parent", *_words(options)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            words,
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            env={**child_environment(), **(env or {})},
            **detached(),
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            raise AssertionError(f"agenttop sim did not start: {errors.decode()}")
        self._know(json.loads(line))

    def _know(self, account: dict[str, Any]) -> None:
        self.account = account
        self.url: str = self.account["url"]
        self.port: int = self.account["port"]
        self.pid: int = self.account["pid"]
        self.model: str = self.account["served_model"]

    def get(self, path: str, headers: dict[str, str] | None = None, timeout_s: float = 20) -> Answer:
        return self._ask("GET", path, None, headers, timeout_s)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._ask("POST", path, data, headers)

    def chat(self, text: str = "hello", max_tokens: int | None = 5, **fields: Any) -> Answer:
        return self.post("/v1/chat/completions", _body(text, max_tokens, fields))

    def chat_messages(self, messages: list[dict[str, str]], **fields: Any) -> Any:
        answer = self.post("/v1/chat/completions", {"messages": messages, **fields})
        assert answer.status == 200, answer.body
        return answer.json()

    def chat_for(self, seconds: float, **fields: Any) -> Answer:
        """A chat request whose client hangs up after so long: TimeoutError."""
        data = json.dumps(_body("hello", None, fields)).encode()
        return self._ask("POST", "/v1/chat/completions", data, None, seconds)

    def stream(
        self, text: str = "hello", max_tokens: int | None = 5, timeout_s: float = 20.0, **fields: Any
    ) -> Stream:
        """`timeout_s`: of silence."""
        body = {"stream": True, "stream_options": {"include_usage": True}, **_body(text, max_tokens, fields)}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/chat/completions", json.dumps(body).encode())
            reply = connection.getresponse()
            stream = Stream(reply.status, {name.lower(): value for name, value in reply.getheaders()})
            _read(reply, stream)
        return stream

    def stop(self) -> int:
        """Ask it to end; its exit code. What it wrote to stderr must be nothing."""
        if self._process.poll() is None:
            self._process.terminate()
        _, errors = self._process.communicate(timeout=20)
        assert not errors, errors.decode()
        return self._process.returncode

    def _ask(self, method: str, path: str, body: bytes | None, headers: Any, timeout_s: float = 20) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            names = {name.lower(): value for name, value in reply.getheaders()}
            return Answer(reply.status, names, reply.read())


class SimulatedHere(Simulated):
    """The same server in a thread of this process, on asyncio's own loop."""

    def __init__(self, **options: Any) -> None:
        parser = argparse.ArgumentParser()
        command.add_arguments(parser)
        arguments = parser.parse_args(_words(options))
        self.server = None
        self._arguments = arguments
        self._accounts: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        account = self._accounts.get(timeout=20)
        if isinstance(account, BaseException):
            raise account
        self._know(account)

    async def _serve(self) -> None:
        self._loop, self._asked = asyncio.get_running_loop(), asyncio.Event()
        arguments = self._arguments
        try:
            host, model = presets.host(arguments.host), presets.model(arguments.model)
            server = SimServer(
                host, model, command.engine_options(arguments), command.server_options(arguments)
            )
            await server.start()
        except AgenttopError as error:
            self._accounts.put(error)
            return
        self.server = server
        self._accounts.put(announcement(server))
        await self._asked.wait()
        await server.stop()

    def stop(self) -> int:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._asked.set)
        self._thread.join(20)
        assert not self._thread.is_alive()
        return 0


def _body(text: str, max_tokens: int | None, fields: dict[str, Any]) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": text}], **fields}
    if max_tokens is not None:
        body.setdefault("max_tokens", max_tokens)
    return body


def _read(reply: http.client.HTTPResponse, stream: Stream) -> None:
    try:
        if stream.status != 200:
            stream.body = reply.read()
            stream.ended = "end"
            return
        while line := reply.readline():
            if line.startswith(b":"):
                stream.comments += 1
            elif line.startswith(b"data: [DONE]"):
                stream.done = True
            elif line.startswith(b"data: "):
                stream.events.append(json.loads(line[6:]))
        # http.client does not tell a chunked body that was cut from one that has ended; its next chunk does.
        stream.ended = "end" if reply.chunk_left is None and reply.isclosed() else "cut"
    except TimeoutError:
        stream.ended = "silence"
    except (http.client.HTTPException, ConnectionError):
        stream.ended = "cut"
