"""Servers that tell which models they serve and whether they live, and nothing of what they do."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from agenttop.collect.engine.asked import Asked
from agenttop.collect.engine.base import ChangedError, EngineReading, Reasons
from agenttop.collect.engine.fields import Fields, fields_of, model_name
from agenttop.collect.engine.http import (
    CutError,
    EngineClient,
    Reply,
    UnexpectedError,
)
from agenttop.model.frames import EngineSample, Missing, PartSample

LIST = "/v1/models"
FIGURES = (
    "running waiting slots slots_total kv_used_tokens kv_used_fraction kv_pool_tokens decode_tok_s "
    "prefill_tok_s last_decode_tok_s output_tokens_total"
)
STREAMS = "speeds in the console are then those of its own agents' streams"
MOST_PARTS = 64
_EVERY_S = 3.0
_SELDOM_S = 60.0
_GATEWAY = (502, 504)
"""What a proxy says while the server is away."""


def nothing_shown(url: str, t: float, why: str, fix: str | None = None) -> list[Missing]:
    """One reason for all figures: the server wants a key, sleeps, or is not well."""
    reasons = Reasons(url, t)
    reasons.add(FIGURES, why, fix)
    return reasons.frames


class Stated(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of such a server."""

    name: str
    health: str = LIST
    """The GET that proves that it lives: cheap, harmless, answered from memory."""
    lists: bool = True
    """Whether the list of models may be asked for, which on some servers costs or harms."""
    why: str
    """Why there are no figures, in one sentence."""
    fix: str | None = None
    unhealthy: str = "it says that it is not well"
    """What 503 means."""
    first_is_served: bool = True
    """The first model of the list is served; else the list holds all that could be."""
    shows: Callable[[Reply], bool] | None = None
    """Whether an answer of `health` is its own, where that can be told."""
    version: Callable[[Reply], str | None] | None = None
    """Reads the version from an answer of `health`, where it is told."""
    owner: str | None = None
    """`owned_by` of its models, in lower case; another one is another engine's."""

    @property
    def allowed(self) -> frozenset[str]:
        """Its GETs."""
        return frozenset({self.health, LIST} if self.lists else {self.health})


class StatedAdapter:
    """Reads identity and liveness of one server."""

    def __init__(
        self,
        client: EngineClient,
        about: Stated,
        *,
        pid: int | None = None,
        model: str | None = None,
        context_limit: int | None = None,
    ) -> None:
        """`pid`, `model` and `context_limit` are told by the server's process, where it can be seen."""
        self.client = client
        self.name = about.name
        self.allowed_paths = about.allowed
        self._about = about
        self._url = client.base_url
        self._pid = pid
        self._model = model_name(model)
        self._context_limit = context_limit
        self._health = Asked(client, about.health, _EVERY_S)
        self._list = self._health if about.health == LIST else Asked(client, LIST, _SELDOM_S)

    async def alive(self) -> bool:
        """By the cheapest request."""
        return await self.client.answers(self._health.path)

    async def poll(self) -> EngineReading:
        """One look; see `EngineAdapter.poll`. The server itself is asked every 3 s."""
        reply = await self._ask_health()
        if reply.status == 503:
            note = f"{self.name} at {self._url} answers 503: {self._about.unhealthy}"
            sample = msgspec.structs.replace(self._sample(reply), state="down", note=note)
            missing = nothing_shown(self._url, reply.at, self._about.unhealthy)
            return EngineReading(sample=sample, missing=missing)
        listed = await self._ask_list()
        rows = fields_of(listed).objects("data")
        self._check(listed, rows)
        sample = self._sample(reply, rows)
        parts = self._parts(reply.at, rows) if len(rows) > 1 else []
        return EngineReading(sample=sample, parts=parts, missing=self._missing(sample, listed, rows))

    async def _ask_health(self) -> Reply:
        reply = await self._health.answer()
        if reply.status == 404 and self._health is not self._list and self._about.lists:
            self._health = self._list = Asked(self.client, LIST, _EVERY_S)  # a version without it
            reply = await self._health.answer()
        if reply.status == 404 or "llama.cpp" in reply.headers.get("server", ""):
            raise ChangedError
        if reply.status in _GATEWAY:
            raise CutError(
                f"answers GET {self._health.path} with {reply.status}: what serves it is gone, or starts"
            )
        if reply.status not in (200, 503):
            raise UnexpectedError(f"answers GET {self._health.path} with {reply.status}")
        if reply.status == 200 and self._about.shows is not None and not self._about.shows(reply):
            raise ChangedError
        return reply

    async def _ask_list(self) -> Reply | None:
        """None where it may not be asked for, or is not answered."""
        if not self._about.lists:
            return None
        return self._health.reply if self._list is self._health else await self._list.answer_if_any()

    def _check(self, listed: Reply | None, rows: list[Fields]) -> None:
        """Raises ChangedError, UnexpectedError."""
        if listed is not None and listed.content_type == "text/html":
            raise UnexpectedError(f"answers GET {LIST} with a web page")
        owner = (rows[0].text("owned_by") or "").lower() if rows else ""
        if self._about.owner is not None and owner not in ("", self._about.owner):
            raise ChangedError

    def _sample(self, reply: Reply, rows: Sequence[Fields] = ()) -> EngineSample:
        only = rows[0] if rows and (len(rows) == 1 or self._about.first_is_served) else Fields()
        return EngineSample(
            t=reply.at,
            engine=self._url,
            url=self._url,
            name=self.name,
            state="ok",
            version=self._about.version(reply) if self._about.version is not None else None,
            model=self._model or model_name(only.text("id", 200)),
            pid=self._pid,
            context_limit_tokens=self._context_limit or only.count("max_model_len", most=10**9) or None,
        )

    def _parts(self, t: float, rows: list[Fields]) -> list[PartSample]:
        names = {name: row for row in rows if (name := model_name(row.text("id", 200))) is not None}
        return [
            PartSample(
                t=t,
                engine=self._url,
                part=name,
                role="model",
                state="listed",
                context_limit_tokens=row.count("max_model_len", most=10**9) or None,
            )
            for name, row in list(names.items())[:MOST_PARTS]
        ]

    def _missing(self, sample: EngineSample, listed: Reply | None, rows: list[Fields]) -> list[Missing]:
        reasons = Reasons(self._url, sample.t)
        reasons.add(FIGURES, self._about.why, self._about.fix)
        if sample.model is None:
            reasons.add("model", self._why_no_model(listed, rows))
        if sample.context_limit_tokens is None:
            reasons.add("context_limit_tokens", "its API does not tell it")
        if sample.version is None:
            reasons.add("version quantisation", "its API does not tell it")
        return reasons.frames

    def _why_no_model(self, listed: Reply | None, rows: list[Fields]) -> str:
        if rows:
            return "it lists every model it could serve, not the one it serves"
        if not self._about.lists:
            return "asking for it would disturb the server, and no command line that names it can be seen"
        if listed is None:
            return f"GET {LIST} is not answered" + (": it needs a key" if self._list.locked else "")
        if listed.status != 200:
            return f"GET {LIST} is answered with {listed.status}"
        return f"GET {LIST} lists no model"
