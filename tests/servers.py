"""A real llama.cpp server and the rough handling that tests need. Get one from the fixtures in conftest.py.

    server.url, server.port, server.pid
    server.get("/slots")                 -> (status, body bytes)
    server.json("/slots")                -> the decoded reply; fails unless the status is 200
    server.chat("hello", max_tokens=50)  -> the whole reply of one chat request, which it waits for
    server.background_chat(...)          -> the same in a thread; a Request: .cancel(), .join(), .reply
    server.busy_slots()                  -> numbers of the slots that serve a request now
    server.kill()                        -> kill -9, and the port is free when it returns
    server.freeze(), server.thaw()       -> SIGSTOP, SIGCONT: connections are accepted, nothing is answered
    server.stop()                        -> in order
    free_port()                          -> a port where nobody listens
    Listener(server.port)                -> an address in front of a server that notes what is asked

The model gives one character per token and never ends by itself: `max_tokens` is what you get, if the slot's
context has room for it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agenttop.demo.engine import DemoEngine, demo_model
from agenttop.demo.gguf import TINY, Shape

STEADY = Shape(width=256, layers=8, heads=4, kv_heads=2, feed_forward=704)
"""A model of 12 MB that decodes some hundred tokens a second: a request of 1000 tokens lasts seconds."""


def free_port() -> int:
    """A port of 127.0.0.1 where nobody listens at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class LlamaServer:
    """One running server; `DemoEngine` with handles for tests."""

    def __init__(
        self,
        cache: Path,
        *,
        shape: Shape = TINY,
        api_key: str | None = None,
        wheel: Path | None = None,
        **options: Any,
    ) -> None:
        """`wheel`: the folder of another version of xllamacpp (see tests/wheels.py)."""
        self.api_key = api_key
        variable = f"AGENTTOP_TEST_KEY_{uuid.uuid4().hex}" if api_key else None
        variables = {variable: api_key} if variable and api_key else {}
        if wheel is not None:
            others = [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
            variables["PYTHONPATH"] = os.pathsep.join([str(wheel), *others])
        with _environment(variables):
            model = options.pop("model_path", None) or demo_model(cache, shape)
            self.engine = DemoEngine.start(model, api_key_env=variable, **{"threads": 1, **options})

    @property
    def url(self) -> str:
        return self.engine.url

    @property
    def port(self) -> int:
        return self.engine.port

    @property
    def pid(self) -> int:
        return self.engine.pid

    def get(self, path: str, timeout_s: float = 30.0) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        with contextlib.closing(connection):
            connection.request("GET", path, headers=self._headers())
            reply = connection.getresponse()
            return reply.status, reply.read()

    def json(self, path: str) -> Any:
        status, body = self.get(path)
        assert status == 200, f"{path}: {status} {body[:200]!r}"
        return json.loads(body)

    def busy_slots(self) -> list[int]:
        return [slot["id"] for slot in self.json("/slots") if slot["is_processing"]]

    def chat(self, text: str = "hello", max_tokens: int = 50, **fields: Any) -> dict[str, Any]:
        """One chat request; fields go into its body. Returns the reply, with `usage` and `timings`."""
        request = self.background_chat(text, max_tokens, **fields)
        request.join(60)
        assert request.reply is not None, request.error
        return request.reply

    def background_chat(self, text: str = "hello", max_tokens: int = 1000, **fields: Any) -> Request:
        """Start a chat request in a thread. It streams, so that `cancel` is noticed at once."""
        messages = [{"role": "user", "content": text}]
        body = {"messages": messages, "max_tokens": max_tokens, **fields}
        return Request(self.port, self._headers(), body)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.engine.stop()

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)  # every thread has stopped

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        if self.engine.running:
            self.thaw()
        self.engine.stop()

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set for the processes that are started within."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Listener:
    """Passes bytes on between a port of its own and a server, and keeps the first line of every request.

    For requests without a body, as a monitor makes them.
    """

    def __init__(self, port: int) -> None:
        self.asked: list[str] = []
        """`GET /slots`, in order."""
        self._server_port = port
        self._door = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with contextlib.suppress(OSError):
            self._door.shutdown(socket.SHUT_RDWR)
        self._door.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._door.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                for source, target, note in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass_on, args=(source, target, note), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, note: bool) -> None:
        rest = b""
        with contextlib.suppress(OSError), source, target:
            while data := source.recv(65536):
                if note:
                    *heads, rest = (rest + data).split(b"\r\n\r\n")
                    self.asked += [head.split(b" HTTP/")[0].decode() for head in heads]
                target.sendall(data)
            for end in (source, target):
                end.shutdown(socket.SHUT_RDWR)


class Request:
    """A streamed chat request in progress."""

    def __init__(self, port: int, headers: dict[str, str], body: dict[str, Any]) -> None:
        self.reply: dict[str, Any] | None = None
        """Once complete: `text`, `usage`, `timings`, `finish_reason`."""
        self.error: str | None = None
        self.cancelled = False
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._connection.connect()
        streamed = {**body, "stream": True, "stream_options": {"include_usage": True}}
        self._connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(streamed),
            {"Content-Type": "application/json", **headers},
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Hang up, as a client that goes away does."""
        self.cancelled = True
        with contextlib.suppress(OSError):
            self._connection.sock.shutdown(socket.SHUT_RDWR)
        self.join()

    def join(self, timeout_s: float = 30.0) -> None:
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "the request did not end"

    def _read(self) -> None:
        with contextlib.closing(self._connection):
            try:
                response = self._connection.getresponse()
                if response.status != 200:
                    self.error = f"{response.status} {response.read(500)!r}"
                    return
                self.reply = _gather(response)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.error = repr(error)


def _gather(response: http.client.HTTPResponse) -> dict[str, Any]:
    """Put the events of a stream together."""
    whole: dict[str, Any] = {"text": ""}
    for line in response:
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        whole.update({key: event[key] for key in ("usage", "timings") if event.get(key)})
        for choice in event.get("choices", []):
            whole["text"] += choice["delta"].get("content") or ""
            whole["finish_reason"] = choice.get("finish_reason") or whole.get("finish_reason")
    if "usage" not in whole:
        raise ValueError("the stream was cut")
    return whole
