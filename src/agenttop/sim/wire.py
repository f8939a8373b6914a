"""What a wire format is asked for: how a simulated engine answers, in the words of one real server."""

from __future__ import annotations

from typing import Protocol

import msgspec

from agenttop.sim.asking import Body, Job
from agenttop.sim.books import Books
from agenttop.sim.http import Request
from agenttop.sim.options import EngineOptions
from agenttop.sim.requests import EngineState

SIMULATED = "-simulated"
"""Ends the name of every model and the number of every version here, wherever they are shown."""


class Answer(msgspec.Struct, frozen=True):
    """A reply that is not a stream."""

    status: int
    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()
    close: bool = False


class RefusedError(Exception):
    """The request is answered at once, and not with a completion."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What does not change while the server runs."""

    model: str
    """As its replies name it."""
    preset: str
    """The model's name alone."""
    params: float
    weights_bytes: float
    hidden: int
    vocab: int
    trained_context: int
    options: EngineOptions
    context_limit: int
    """Tokens of one request, prompt and output."""
    pool_tokens: int
    started_unix: float


class View(msgspec.Struct, frozen=True):
    """The server at one moment."""

    state: EngineState
    books: Books
    jobs: dict[str, Job]
    """Requests in progress by their id."""
    started_unix: float
    """Of this life of the server."""


class Wire(Protocol):
    """One wire format. Every method gives bytes as the real server sends them; events are whole."""

    refuses_while_loading: bool
    """Connections are refused until the model is loaded; else `loading` answers."""

    def guards(self, path: str) -> bool:
        """Whether a key is wanted there, if the server has one."""
        ...

    def chat_paths(self) -> dict[str, bool]:
        """Paths that generate text; the value is whether it is the chat API."""
        ...

    def looks(self, request: Request, view: View) -> Answer:
        """Every other request, unknown paths included."""
        ...

    def read(self, request: Request, chat: bool) -> Body:
        """The body of a request for text. Raises RefusedError."""
        ...

    def check(self, body: Body, prompt_tokens: int) -> int | None:
        """The most output tokens; None: as many as fit. Raises RefusedError when it cannot be served."""
        ...

    def job_id(self, number: int, seed: int, chat: bool) -> str:
        """The identity of a completion."""
        ...

    def stream_headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Headers of an event stream."""
        ...

    def opening(self, job: Job) -> bytes:
        """The chunk that holds the role alone; empty where there is none."""
        ...

    def progress(self, job: Job, processed: int, t: float) -> bytes:
        """How far the prompt is; empty where the wire has no such thing."""
        ...

    def chunk(self, job: Job, text: bytes, done: int, t: float, *, thinking: bool, ended: bool) -> bytes:
        """Output: `text` is escaped for JSON, `done` the tokens up to its end; `ended`: the last of all."""
        ...

    def closing(self, job: Job, t: float) -> list[bytes]:
        """What follows the last chunk, `[DONE]` included."""
        ...

    def whole(self, job: Job, text: str, thinking: str, t: float) -> Answer:
        """The reply to a request that does not stream."""
        ...

    def broken(self, message: str) -> list[bytes]:
        """A failure inside a stream, and what the server sends after it."""
        ...

    def failure(self, status: int, message: str) -> Answer:
        """A failure instead of a reply."""
        ...

    def too_long(self, prompt_tokens: int, limit: int) -> Answer:
        """The prompt does not fit the context."""
        ...

    def unauthorised(self) -> Answer:
        """A key is wanted, and this is not it."""
        ...

    def loading(self) -> Answer:
        """The model is being loaded."""
        ...


def event(data: bytes) -> bytes:
    """One server-sent event."""
    return b"data: " + data + b"\n\n"


DONE = event(b"[DONE]")

COMMENT = b": keep-alive\n\n"
"""What proxies and engines send to keep a silent stream open. llama.cpp's is a bare colon."""
