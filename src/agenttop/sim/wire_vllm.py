"""The wire of vLLM 0.32: OpenAI streams with usage, errors, models, as its API server sends them.

Field by field from captured replies. What a simulated engine adds to be honest: the name of the model and
the version say that it is simulated. `prompt_tokens_details` is filled in, as with
`--enable-prompt-tokens-details`.
"""

from __future__ import annotations

import time
from email.utils import formatdate
from typing import Any

import msgspec

from agenttop.sim.asking import Body, Job, decode_body
from agenttop.sim.http import Request
from agenttop.sim.prompt import BYTES_PER_TOKEN, count
from agenttop.sim.vllm_metrics import exposition
from agenttop.sim.wire import DONE, SIMULATED, Answer, Facts, RefusedError, View, event

VERSION = "0.32.0+simulated"
_encode = msgspec.json.Encoder().encode
_Pairs = tuple[tuple[bytes, bytes], ...]


class VllmWire:
    """vLLM's API server."""

    refuses_while_loading = True

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._model = _encode(facts.model)
        self._fingerprint = f"vllm-{VERSION}-{facts.options.max_num_seqs:08x}"

    def guards(self, path: str) -> bool:
        """`--api-key` guards the API alone."""
        return path.startswith("/v1")

    def chat_paths(self) -> dict[str, bool]:
        """Chat, and the older completions."""
        return {"/v1/chat/completions": True, "/v1/completions": False}

    def looks(self, request: Request, view: View) -> Answer:
        """Everything but completions."""
        if request.method in ("GET", "HEAD"):
            if request.path in ("/health", "/ping"):
                return Answer(200, b"", self._headers(None))
            if request.path == "/version":
                return self._json(200, {"version": VERSION})
            if request.path == "/load":
                return self._json(200, {"server_load": 0})  # counted only with --enable-server-load-tracking
            if request.path == "/v1/models":
                return self._json(200, self._models(view))
            if request.path == "/metrics":
                text = exposition(self._facts, view)
                return Answer(200, text, self._headers(b"text/plain; version=1.0.0; charset=utf-8"))
        if request.path == "/tokenize" and request.method == "POST":
            return self._tokenize(request)
        known = {*self.chat_paths(), "/tokenize", "/health", "/ping", "/version", "/load", "/metrics"}
        if request.path in known:
            return self._json(405, {"detail": "Method Not Allowed"})
        return self._json(404, {"detail": "Not Found"})

    def read(self, request: Request, chat: bool) -> Body:
        """A body that can be served; see `Wire`."""
        wanted = "messages" if chat else "prompt"
        try:
            body = decode_body(request.body)
        except msgspec.ValidationError as error:
            raise self._bad(
                f"1 validation error:\n  {{'type': 'type_error', 'msg': '{error}'}}", "body"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            place = f"body.{len(request.body)}"
            message = (
                f"1 validation error:\n  {{'type': 'json_invalid', 'loc': '{place}', 'msg': "
                "'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}}"
            )
            raise self._bad(message, place) from None
        if getattr(body, wanted) is None:
            fields = len(msgspec.json.decode(request.body))
            message = (
                f"1 validation error:\n  {{'type': 'missing', 'loc': 'body.{wanted}', 'msg': "
                f"'Field required', 'input': '<dict of {fields} items>'}}"
            )
            raise self._bad(message, f"body.{wanted}")
        if body.model is not None and body.model != self._facts.model:
            message = f"The model `{body.model}` does not exist. Valid aliases: {self._facts.model}."
            raise RefusedError(self._error(404, message, "NotFoundError", "model"))
        return body

    def check(self, body: Body, prompt_tokens: int) -> int | None:
        """Lengths against the context; see `Wire`."""
        limit, most = body.limit, self._facts.context_limit
        if limit is not None and limit < 1:
            message = f"max_tokens must be at least 1, got {limit}. (parameter=max_tokens, value={limit})"
            raise RefusedError(self._error(400, message, "BadRequestError", "max_tokens"))
        if limit is not None and limit > most:
            message = (
                f"max_tokens={limit} cannot be greater than max_model_len={most}. Please request fewer "
                f"output tokens. (parameter=max_tokens, value={limit})"
            )
            raise RefusedError(self._error(400, message, "BadRequestError", "max_tokens"))
        if prompt_tokens >= most:
            raise RefusedError(self.too_long(prompt_tokens, most))
        if limit is not None and prompt_tokens + limit > most:
            message = (
                f"This model's maximum context length is {most} tokens. However, you requested {limit} "
                f"output tokens and your prompt contains {prompt_tokens} input tokens, for a total of "
                f"{prompt_tokens + limit} tokens. Please reduce the length of the input prompt or the number "
                f"of requested output tokens. (parameter=input_tokens, value={prompt_tokens})"
            )
            raise RefusedError(self._error(400, message, "BadRequestError", "input_tokens"))
        return limit

    def job_id(self, number: int, seed: int, chat: bool) -> str:
        """`chatcmpl-` and sixteen hexadecimal digits."""
        return f"{'chatcmpl' if chat else 'cmpl'}-{seed & 0xFFFFFF:06x}{number:010x}"

    # Streams

    def stream_headers(self) -> _Pairs:
        """Headers of an event stream."""
        return self._headers(b"text/event-stream; charset=utf-8")

    def opening(self, job: Job) -> bytes:
        """The role, with no text."""
        if not job.chat:
            return b""
        usage = self._usage_on_chunk(job, 0)
        delta = b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        return event(
            self._head(job) + b'"delta":' + delta + usage + b',"prompt_token_ids":null,"prompt_text":null}'
        )

    def progress(self, job: Job, processed: int, t: float) -> bytes:
        """vLLM does not tell."""
        return b""

    def chunk(self, job: Job, text: bytes, done: int, t: float, *, thinking: bool, ended: bool) -> bytes:
        """One piece of output; the last one carries the finish reason."""
        reason = b'"%s","stop_reason":null' % (job.reason or "stop").encode() if ended else b"null"
        usage = self._usage_on_chunk(job, done) if job.continuous else b""
        if job.chat:
            field = b"reasoning" if thinking else b"content"
            part = b'"delta":{"%s":"%s"},"logprobs":null,"finish_reason":%s,"token_ids":null}]' % (
                field, text, reason,
            )  # fmt: skip
        else:
            stop = b"" if ended else b',"stop_reason":null'
            part = b'"text":"%s","logprobs":null,"finish_reason":%s%s,"token_ids":null}]' % (
                text,
                reason,
                stop,
            )
        return b"data: %s%s%s}\n\n" % (job.head or self._head(job), part, usage)

    def closing(self, job: Job, t: float) -> list[bytes]:
        """The counts, where they are wanted, and the end."""
        if not job.usage or job.usage_factor is None:
            return [DONE]
        usage = _encode({**self._usage(job, job.done), "prompt_tokens_details": self._details(job)})
        head = (job.head or self._head(job)).replace(b'"choices":[{"index":0,', b'"choices":[]', 1)
        tail = b',"usage":%s,"system_fingerprint":%s}' % (usage, _encode(self._fingerprint))
        return [event(head + tail), DONE]

    def whole(self, job: Job, text: str, thinking: str, t: float) -> Answer:
        """The reply in one piece."""
        common: dict[str, Any] = {
            "logprobs": None, "finish_reason": job.reason, "stop_reason": None, "token_ids": None,
        }  # fmt: skip
        if job.chat:
            message = {
                "role": "assistant", "content": text, "refusal": None, "annotations": None, "audio": None,
                "function_call": None, "reasoning": thinking or None,
            }  # fmt: skip
            choice = {"index": 0, "message": message, **common, "routed_experts": None}
            rest = {"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None}
        else:
            extra = {"prompt_logprobs": None, "prompt_token_ids": None, "routed_experts": None}
            choice = {"index": 0, "text": thinking + text, **common, **extra}
            rest = {}
        usage = None
        if job.usage_factor is not None:
            usage = {
                **self._usage(job, job.done),
                "prompt_tokens_details": {**self._details(job), "multimodal_tokens": None},
                "completion_tokens_details": None,
            }
        reply = {
            "id": job.id, "object": "chat.completion" if job.chat else "text_completion",
            "created": job.created, "model": job.model, "choices": [choice], "service_tier": None,
            "system_fingerprint": self._fingerprint, "usage": usage, **rest, "kv_transfer_params": None,
            "ec_transfer_params": None, "metrics": None,
        }  # fmt: skip
        return self._json(200, reply)

    def broken(self, message: str) -> list[bytes]:
        """The engine process has died: an error event, and `[DONE]` nonetheless."""
        text = message or "EngineCore encountered an issue. See stack trace (above) for the root cause."
        return [event(_encode(_error_body(500, text, "InternalServerError", None))), DONE]

    # Refusals

    def failure(self, status: int, message: str) -> Answer:
        """Any status, in vLLM's form."""
        kinds = {
            400: "BadRequestError",
            404: "NotFoundError",
            429: "RateLimitError",
            503: "ServiceUnavailableError",
        }
        fallback = "InternalServerError" if status >= 500 else "BadRequestError"
        return self._error(status, message, kinds.get(status, fallback), None)

    def too_long(self, prompt_tokens: int, limit: int) -> Answer:
        """The prompt alone fills the context."""
        least = limit + 1
        message = (
            f"This model's maximum context length is {limit} tokens. However, your prompt contains at least "
            f"{least} input tokens, which exceeds this limit even without any output tokens. Please reduce "
            f"the length of the input prompt. (parameter=input_tokens, value={least})"
        )
        return self._error(400, message, "BadRequestError", "input_tokens")

    def unauthorised(self) -> Answer:
        """A bare string, unlike all other errors."""
        return self._json(401, {"error": "Unauthorized"})

    def loading(self) -> Answer:
        """Not seen on the wire: the port is closed until vLLM has started."""
        return self.failure(503, "Service Unavailable")

    # Inside

    def _head(self, job: Job) -> bytes:
        if not job.head:
            kind = b"chat.completion.chunk" if job.chat else b"text_completion"
            job.head = b'{"id":"%s","object":"%s","created":%d,"model":%s,"choices":[{"index":0,' % (
                job.id.encode(), kind, job.created, self._model,
            )  # fmt: skip
        return job.head

    def _usage_on_chunk(self, job: Job, done: int) -> bytes:
        if not job.continuous or job.usage_factor is None:
            return b""
        prompt, output = job.shown(job.prompt.tokens), job.shown(done)
        counts = b'"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d' % (
            prompt, prompt + output, output,
        )  # fmt: skip
        return b',"usage":{%s,"completion_tokens_details":null}' % counts

    @staticmethod
    def _usage(job: Job, done: int) -> dict[str, Any]:
        prompt, output = job.shown(job.prompt.tokens), job.shown(done)
        return {"prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output}

    def _details(self, job: Job) -> dict[str, Any]:
        size = self._facts.options.block_tokens
        created = (job.prompt.tokens - job.cached) // size * size
        return {"cached_tokens": job.cached, "created_cache_tokens": created}

    def _models(self, view: View) -> dict[str, Any]:
        created = int(view.started_unix)
        permission = {
            "id": f"modelperm-{created:016x}", "object": "model_permission", "created": created,
            "allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True,
            "allow_search_indices": False, "allow_view": True, "allow_fine_tuning": False,
            "organization": "*", "group": None, "is_blocking": False,
        }  # fmt: skip
        model = {
            "id": self._facts.model, "object": "model", "created": created, "owned_by": "vllm",
            "root": f"{self._facts.preset}{SIMULATED}", "parent": None,
            "max_model_len": self._facts.context_limit, "permission": [permission],
        }  # fmt: skip
        return {"object": "list", "data": [model]}

    def _tokenize(self, request: Request) -> Answer:
        try:
            fields = msgspec.json.decode(request.body)
            if "prompt" in fields:
                text = fields["prompt"]
            else:
                text = "".join(message["content"] for message in fields["messages"])
                if fields.get("tools"):
                    text += msgspec.json.encode(fields["tools"]).decode()
            data = text.encode("utf-8", "replace")
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError, AttributeError):
            return self._bad(
                "1 validation error:\n  {'type': 'missing', 'loc': 'body.prompt'}", "body"
            ).answer
        tokens = [
            int.from_bytes(data[at : at + BYTES_PER_TOKEN], "big") & 0x1FFFF
            for at in range(0, len(data), BYTES_PER_TOKEN)
        ]
        return self._json(
            200,
            {
                "count": count(text),
                "max_model_len": self._facts.context_limit,
                "tokens": tokens,
                "token_strs": None,
            },
        )

    def _bad(self, message: str, place: str) -> RefusedError:
        return RefusedError(self._error(400, message, "Bad Request", place))

    def _error(self, status: int, message: str, kind: str, param: str | None) -> Answer:
        return self._json(status, _error_body(status, message, kind, param))

    def _json(self, status: int, value: Any) -> Answer:
        return Answer(status, _encode(value), self._headers(b"application/json"))

    @staticmethod
    def _headers(content_type: bytes | None) -> _Pairs:
        date = formatdate(time.time(), usegmt=True).encode()
        pairs: list[tuple[bytes, bytes]] = [(b"date", date), (b"server", b"uvicorn")]
        if content_type is not None:
            pairs.append((b"content-type", content_type))
        return tuple(pairs)


def _error_body(status: int, message: str, kind: str, param: str | None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}
