"""The body of vllm-mlx's `/v1/status` to values (0.6.0). Pure.

- `tokens_per_second` of a request is its mean since its first token, not its rate of now: what it decodes now
  is the growth of `completion_tokens`.
- `total_completion_tokens` moves when a request ends, and not at all when its client has hung up.
- Without `--continuous-batching` a streamed request is listed twice, the second time without a phase, and one
  that is not streamed only so, without counts until it ends.
- `cached_tokens` counts only where `cache_hit_type` is told.
- With a registry of models there is a list of them and nothing else.
"""

from __future__ import annotations

import msgspec

from agenttop.collect.engine.fields import Fields, model_name

_PHASES = {"queued": "queued", "prefill": "prefill", "generation": "decode"}
_GIB = 1 << 30


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One that waits or runs."""

    id: str
    phase: str
    """queued, prefill, decode."""
    prompt: int | None
    decoded: int
    limit: int | None
    """Output tokens it may have."""
    cached: int | None
    """Of the prompt; None where that is not told."""
    prefilled: float | None
    """Share of the prompt, of models that take images; None elsewhere."""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One of a registry."""

    name: str
    state: str
    memory_bytes: int | None
    """What it is estimated to take."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """One reply; None: not told."""

    at: float
    state: str
    """running, stopped, not_loaded."""
    residency: str | None = None
    """unloaded, loading, loaded, unloading, failed, of a server that unloads an idle model."""
    model: str | None = None
    uptime_s: float | None = None
    running: int | None = None
    waiting: int | None = None
    finished: int | None = None
    prompt_total: int | None = None
    output_total: int | None = None
    """Of requests that have ended."""
    cached_total: int | None = None
    memory_bytes: int | None = None
    drafted: int | None = None
    accepted: int | None = None
    requests: tuple[Request, ...] = ()
    registry: tuple[Model, ...] | None = None
    """None without one."""

    @property
    def at_work(self) -> list[Request]:
        """Those that run."""
        return [request for request in self.requests if request.phase != "queued"]

    @property
    def hidden(self) -> int:
        """Requests that run and tell nothing of themselves."""
        return max(0, (self.running or 0) - len(self.at_work))


def read(found: Fields, at: float) -> Status | None:
    """None when the object is something else."""
    state = found.text("status", 40)
    if state is None:
        return None
    manager = found.object("model_manager")
    if manager.has("models"):
        return Status(at=at, state=state, registry=_registry(manager))
    if not found.has("requests"):
        return None
    metal, cache, drafts = found.object("metal"), found.object("cache"), found.object("mtp")
    memory = metal.number("active_memory_gb")
    return Status(
        at=at,
        state=state,
        residency=found.object("residency").text("state", 40),
        model=model_name(found.text("model", 200)),
        uptime_s=found.number("uptime_s"),
        running=found.count("num_running"),
        waiting=found.count("num_waiting"),
        finished=found.count("total_requests_processed"),
        prompt_total=found.count("total_prompt_tokens"),
        output_total=found.count("total_completion_tokens"),
        cached_total=cache.count("tokens_saved"),
        memory_bytes=int(memory * 1e9) if memory is not None and 0 < memory < 1e5 else None,
        drafted=drafts.count("attempted"),
        accepted=drafts.count("accepted"),
        requests=_requests(found),
    )


def _requests(found: Fields) -> tuple[Request, ...]:
    rows: dict[str, Request] = {}
    for row in found.objects("requests"):
        name, phase = row.text("request_id", 120), _PHASES.get(row.text("phase", 40) or "")
        if name is None or phase is None:
            continue
        progress = row.number("progress")
        decoded = row.count("completion_tokens") or 0
        rows[name] = Request(
            id=name,
            phase="decode" if decoded and phase == "prefill" else phase,
            prompt=row.positive("prompt_tokens"),
            decoded=decoded,
            limit=row.positive("max_tokens"),
            cached=row.count("cached_tokens") if row.text("cache_hit_type", 40) else None,
            prefilled=min(1.0, progress) if progress and phase == "prefill" else None,
        )
    return tuple(rows.values())


def _registry(manager: Fields) -> tuple[Model, ...]:
    models = []
    for row in manager.objects("models"):
        name, memory = model_name(row.text("id", 200)), row.number("memory_gb")
        if name is not None:
            models.append(
                Model(
                    name=name,
                    state=row.text("status", 40) or ("loaded" if row.flag("loaded") else "unloaded"),
                    memory_bytes=int(memory * _GIB) if memory is not None and 0 < memory < 1e5 else None,
                )
            )
    return tuple(models)
