"""The one place that says what may be asked: of servers that are not known yet, and never of anybody.

Some GETs of inference servers load models, run inference, empty a queue, drop a cache or stop the server.
Every adapter's list is held against this module, those of plug-ins too, and the client sends nothing that is
not on its list.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

PROBES = frozenset(
    {
        "/",
        "/api/extra/version",
        "/api/status",
        "/api/v0/models",
        "/api/version",
        "/health/readiness",
        "/info",
        "/model_info",
        "/props",
        "/running",
        "/v1/models",
        "/v1/status",
        "/version",
    }
)
"""What may be asked of a server before it is known: on every engine these answer from memory, or with 404.
`/metrics` is not here: TensorRT-LLM's empties a queue. `/health` is not: SGLang's runs inference."""

CONFIRMATIONS = frozenset({"/load", "/openapi.json"})
"""What may be asked once another reply points to an engine on which it is harmless. On vLLM `/load` tells a
number from memory; elsewhere a path of this name may load something. `/openapi.json` describes an API, and
takes some servers a second to write."""

_NEVER = re.compile(
    r"""(?:/v\d)?/(?:
        terminate | shutdown | exit | stop\w* | restart | kill | abort\w* | cancel\w*
      | health_generate | health/drain | generate\w* | completions? | chat.* | embeddings?
      | api/(?:generate|chat|embed\w*|pull|push)
      | api/extra/generate/\w+ | api/extra/abort
      | upstream/.* | unload\w* | load_model\w* | models/(?:load|unload) | api/models/unload.* | model/\w+
      | sleep | wake_up | flush_cache | clear\w* | reset\w* | release_\w+ | resume_\w+ | update_\w+
      | (?:start|stop)_profile | profile\w* | start_expert\w* | dump_\w+ | slow_down | set_\w+
      | slots/\d+ | lora\w* | pause\w* | continue\w* | scale\w*
      | perf_metrics | kv_cache_events
    )/?""",
    re.VERBOSE | re.IGNORECASE,
)


def forbidden(paths: Iterable[str]) -> list[str]:
    """Those that no adapter may ever ask for, whatever its engine."""
    return sorted(path for path in paths if _is_forbidden(path))


def starts_something(prefix: str) -> bool:
    """Whether no question may be put below this path: llama-swap starts the model that `/upstream/` names."""
    return _NEVER.fullmatch(f"{prefix}/") is not None or _NEVER.fullmatch(f"{prefix}/props") is not None


def _is_forbidden(path: str) -> bool:
    bare = path.partition("?")[0]
    return not re.fullmatch(r"/[\w./-]*", bare) or ".." in bare or _NEVER.fullmatch(bare) is not None
