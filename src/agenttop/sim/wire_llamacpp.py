"""The wire of llama.cpp's server (b11434 to b11549): slots, properties, metrics, chat with timings.

Field by field from captured replies. To be honest, the model's name and the build say that it is simulated.
Times in replies and metrics are simulated ones.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agenttop.sim.asking import Body, Job, decode_body
from agenttop.sim.http import Request
from agenttop.sim.llamacpp_pages import metrics, properties, slot_rows, timings
from agenttop.sim.prompt import BYTES_PER_TOKEN
from agenttop.sim.wire import DONE, SIMULATED, Answer, Facts, RefusedError, View, event

BUILD = f"b11549{SIMULATED}"
_encode = msgspec.json.Encoder().encode
_Pairs = tuple[tuple[bytes, bytes], ...]
_COMMON: _Pairs = ((b"Server", b"llama.cpp"), (b"Access-Control-Allow-Origin", b""))
_JSON = (b"Content-Type", b"application/json; charset=utf-8")


class LlamaCppWire:
    """llama-server."""

    refuses_while_loading = False

    def __init__(self, facts: Facts, *, metrics: bool = True, slots: bool = True) -> None:
        """`metrics` and `slots`: `--metrics` and `--no-slots` of the real server."""
        self._facts = facts
        self._model = _encode(facts.model)
        self._metrics, self._slots = metrics, slots

    def guards(self, path: str) -> bool:
        """Everything but health."""
        return path not in ("/health", "/v1/health")

    def chat_paths(self) -> dict[str, bool]:
        """Chat, and the older completions."""
        return {"/v1/chat/completions": True, "/chat/completions": True, "/v1/completions": False}

    def looks(self, request: Request, view: View) -> Answer:
        """Everything but completions."""
        path = request.path
        if request.method in ("GET", "HEAD"):
            if path in ("/health", "/v1/health"):
                return self._json(200, {"status": "ok"})
            if path == "/props":
                flags = {"endpoint_slots": self._slots, "endpoint_metrics": self._metrics}
                return self._json(200, properties(self._facts, BUILD, flags))
            if path == "/slots":
                if not self._slots:
                    return self._off("slots endpoint", "--slots")
                return self._json(200, slot_rows(view))
            if path in ("/v1/models", "/models"):
                return self._json(200, self._models(view))
            if path == "/metrics":
                return self._exposition(view)
        if request.method == "POST":
            if path == "/tokenize":
                return self._tokenize(request)
            if path == "/props":
                return self._off("changing global properties", "--props")
        return self._error(404, "File Not Found", "not_found_error", message_first=True)

    def read(self, request: Request, chat: bool) -> Body:
        """A body that can be served; see `Wire`. The model's name is read over, as llama.cpp does."""
        wanted = "messages" if chat else "prompt"
        try:
            body = decode_body(request.body)
        except msgspec.ValidationError as error:
            text = "Expected 'messages' to be an array" if "messages" in str(error) else str(error)
            raise self._bad(text) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            column = len(request.body) + 1
            raise self._bad(
                f"[json.exception.parse_error.101] parse error at line 1, column {column}: syntax error "
                "while parsing value - unexpected end of input; expected '[', '{', or a literal"
            ) from None
        if getattr(body, wanted) is None:
            raise self._bad(f"'{wanted}' is required")
        return body

    def check(self, body: Body, prompt_tokens: int) -> int | None:
        """Only a prompt too long is refused; see `Wire`."""
        if prompt_tokens >= self._facts.context_limit:
            raise RefusedError(self.too_long(prompt_tokens, self._facts.context_limit))
        return body.limit if body.limit is not None and body.limit > 0 else None

    def job_id(self, number: int, seed: int, chat: bool) -> str:
        """`chatcmpl-` and 32 letters and digits."""
        return f"chatcmpl-{seed & 0xFFFFFFFF:08x}{number:024x}"

    # Streams

    def stream_headers(self) -> _Pairs:
        """Headers of an event stream."""
        return (*_COMMON, (b"X-Accel-Buffering", b"no"), (b"Content-Type", b"text/event-stream"))

    def opening(self, job: Job) -> bytes:
        """The role, with no text."""
        if not job.chat:
            return b""
        return self._event(job, b'"delta":{"role":"assistant","content":null}')

    def progress(self, job: Job, processed: int, t: float) -> bytes:
        """How far the prompt is, where the client asked for it."""
        if not (job.progress and job.chat):
            return b""
        elapsed = int((t - (job.started if job.started is not None else t)) * 1000)
        more = b',"prompt_progress":{"total":%d,"cache":%d,"processed":%d,"time_ms":%d}' % (
            job.prompt.tokens, job.cached, processed, elapsed,
        )  # fmt: skip
        return self._event(job, b'"delta":{"role":"assistant","content":null}', more)

    def chunk(self, job: Job, text: bytes, done: int, t: float, *, thinking: bool, ended: bool) -> bytes:
        """One piece of output, with timings where they were asked for."""
        more = b""
        if job.timings and job.usage_factor is not None:
            more = b',"timings":' + _encode(timings(job, done, t))
        if not job.chat:
            return self._event(job, b'"text":"%s","logprobs":null' % text, more)
        field = b"reasoning_content" if thinking else b"content"
        return self._event(job, b'"delta":{"%s":"%s"}' % (field, text), more)

    def closing(self, job: Job, t: float) -> list[bytes]:
        """The finish reason, the counts where they are wanted, timings on the last of them, `[DONE]`."""
        empty = b'"delta":{}' if job.chat else b'"text":"","logprobs":null'
        reason = b'"%s"' % (job.reason or "stop").encode()
        told = job.usage_factor is not None
        last = b',"timings":' + _encode(timings(job, job.done, t)) if told else b""
        if not (job.usage and told):
            return [self._event(job, empty, last, reason), DONE]
        usage = b',"usage":' + _encode(self._usage(job))
        counts = event(b'{"choices":[]' + self._tail(job) + usage + last + b"}")
        return [self._event(job, empty, b"", reason), counts, DONE]

    def whole(self, job: Job, text: str, thinking: str, t: float) -> Answer:
        """The reply in one piece."""
        if job.chat:
            message: dict[str, Any] = {"role": "assistant", "content": text}
            if thinking:
                message["reasoning_content"] = thinking
            choice: dict[str, Any] = {"finish_reason": job.reason, "index": 0, "message": message}
        else:
            choice = {"text": thinking + text, "index": 0, "logprobs": None, "finish_reason": job.reason}
        reply: dict[str, Any] = {
            "choices": [choice], "created": job.created, "model": job.model, "system_fingerprint": BUILD,
            "object": "chat.completion" if job.chat else "text_completion",
        }  # fmt: skip
        if job.usage_factor is not None:
            reply["usage"] = self._usage(job)
        reply["id"] = job.id
        if job.usage_factor is not None:
            reply["timings"] = timings(job, job.done, t)
        return self._json(200, reply)

    def broken(self, message: str) -> list[bytes]:
        """An error event, and nothing after it: no `[DONE]`, no counts."""
        text = message or "Compute error."
        return [event(_encode({"error": {"code": 500, "message": text, "type": "server_error"}}))]

    # Refusals

    def failure(self, status: int, message: str) -> Answer:
        """Any status, in llama.cpp's form."""
        kinds = {401: "authentication_error", 404: "not_found_error", 501: "not_supported_error",
                 503: "unavailable_error"}  # fmt: skip
        fallback = "server_error" if status >= 500 else "invalid_request_error"
        return self._error(status, message, kinds.get(status, fallback))

    def too_long(self, prompt_tokens: int, limit: int) -> Answer:
        """The prompt fills the slot."""
        message = (
            f"request ({prompt_tokens} tokens) exceeds the available context size ({limit} tokens), "
            "try increasing it"
        )
        more = {"n_prompt_tokens": prompt_tokens, "n_ctx": limit}
        return self._error(400, message, "exceed_context_size_error", more=more)

    def unauthorised(self) -> Answer:
        """401."""
        return self._error(401, "Invalid API Key", "authentication_error", message_first=True)

    def loading(self) -> Answer:
        """Every path is answered so while the model is loaded."""
        return self._error(503, "Loading model", "unavailable_error", message_first=True)

    # Inside

    def _event(self, job: Job, part: bytes, more: bytes = b"", reason: bytes = b"null") -> bytes:
        head = b'data: {"choices":[{"finish_reason":%s,"index":0,' % reason
        return b"".join((head, part, b"}]", job.head or self._tail(job), more, b"}\n\n"))

    def _tail(self, job: Job) -> bytes:
        if not job.head:
            kind = b"chat.completion.chunk" if job.chat else b"text_completion"
            job.head = b',"created":%d,"id":"%s","model":%s,"system_fingerprint":"%s","object":"%s"' % (
                job.created, job.id.encode(), self._model, BUILD.encode(), kind,
            )  # fmt: skip
        return job.head

    @staticmethod
    def _usage(job: Job) -> dict[str, Any]:
        prompt, output = job.shown(job.prompt.tokens), job.shown(job.done)
        return {
            "completion_tokens": output,
            "prompt_tokens": prompt,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": job.cached},
        }

    def _models(self, view: View) -> dict[str, Any]:
        facts = self._facts
        details = {"parent_model": "", "format": "gguf", "family": "", "families": [""], "parameter_size": "",
                   "quantization_level": ""}  # fmt: skip
        listed = {
            "name": facts.model, "model": facts.model, "modified_at": "", "size": "", "digest": "",
            "type": "model", "description": "", "tags": [""], "capabilities": ["completion"],
            "parameters": "", "details": details,
        }  # fmt: skip
        meta = {
            "vocab_type": 2, "n_vocab": facts.vocab, "n_ctx": facts.context_limit,
            "n_ctx_train": facts.trained_context, "n_embd": facts.hidden, "n_params": int(facts.params),
            "size": int(facts.weights_bytes), "ftype": "simulated",
        }  # fmt: skip
        model = {
            "id": facts.model, "aliases": [facts.model], "tags": [], "object": "model",
            "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
            "created": int(view.started_unix), "owned_by": "llamacpp", "meta": meta,
        }  # fmt: skip
        return {"models": [listed], "object": "list", "data": [model]}

    def _exposition(self, view: View) -> Answer:
        if not self._metrics:
            return self._off("metrics endpoint", "--metrics")
        # Not Unix time, in the real server either: a marker that changes with the process.
        marker = b"%d" % (int(view.started_unix * 1e6) & 0xFFFFFFFF)
        kind = (b"Content-Type", b"text/plain; version=0.0.4")
        return Answer(200, metrics(view), (*_COMMON, (b"Process-Start-Time-Unix", marker), kind))

    def _tokenize(self, request: Request) -> Answer:
        try:
            data = msgspec.json.decode(request.body)["content"].encode("utf-8", "replace")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, AttributeError):
            data = b""
        size = BYTES_PER_TOKEN
        tokens = [int.from_bytes(data[at : at + size], "big") & 0x1FFFF for at in range(0, len(data), size)]
        return self._json(200, {"tokens": tokens})

    def _off(self, what: str, switch: str) -> Answer:
        message = f"This server does not support {what}. Start it with `{switch}`"
        return self._error(501, message, "not_supported_error")

    def _bad(self, message: str) -> RefusedError:
        return RefusedError(self._error(400, message, "invalid_request_error"))

    def _error(
        self,
        status: int,
        message: str,
        kind: str,
        *,
        message_first: bool = False,
        more: dict[str, Any] | None = None,
    ) -> Answer:
        """The real server has two orders of fields, by where the error arises."""
        if message_first:
            fields: dict[str, Any] = {"message": message, "type": kind, "code": status}
        else:
            fields = {"code": status, "message": message, "type": kind}
        body = _encode({"error": {**fields, **(more or {})}})
        return Answer(status, body, (*_COMMON, _JSON), close=True)

    @staticmethod
    def _json(status: int, value: Any) -> Answer:
        return Answer(status, _encode(value), (*_COMMON, _JSON))
