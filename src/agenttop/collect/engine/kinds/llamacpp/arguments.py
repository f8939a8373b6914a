"""What a llama.cpp server's command line says that its API does not. Pure.

Only the values named here are kept: a command line and an environment may hold keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec


class ServerArguments(msgspec.Struct, frozen=True, kw_only=True):
    """None: not given."""

    is_llama_server: bool = False
    """llama.cpp's own program, whose defaults are known; else a server built on its library."""
    context: int | None = None
    """KV cache in tokens, all slots together; 0: as the model was trained."""
    parallel: int | None = None
    unified: bool | None = None
    per_slot: int | None = None
    """Context limit of one slot in a shared pool."""
    sleep_idle_s: int | None = None
    """Seconds without a request after which the model is unloaded; -1: never."""
    cache_type_k: str | None = None
    """Of the keys in the KV cache; the values below."""
    cache_type_v: str | None = None

    @property
    def kv_dtype(self) -> str | None:
        """One word where both are the same, else both; None where it is not known."""
        default = "f16" if self.is_llama_server else None
        keys, values = self.cache_type_k or default, self.cache_type_v or default
        if keys is None or values is None:
            return None
        return keys if keys == values else f"K {keys}, V {values}"


def _number(text: str) -> int | None:
    return int(text) if re.fullmatch(r"-?\d{1,12}", text) else None


def _type(text: str) -> str | None:
    return text.lower() if re.fullmatch(r"\w{2,12}", text) else None


_VALUES: dict[str, tuple[str, Callable[[str], Any]]] = {
    **dict.fromkeys(("-c", "--ctx-size", "--context"), ("context", _number)),
    **dict.fromkeys(("-np", "--parallel"), ("parallel", _number)),
    "--kv-unified-per-slot": ("per_slot", _number),
    **dict.fromkeys(("-ctk", "--cache-type-k"), ("cache_type_k", _type)),
    **dict.fromkeys(("-ctv", "--cache-type-v"), ("cache_type_v", _type)),
    **dict.fromkeys(("--sleep-idle-seconds", "--sleep-idle", "--sleep"), ("sleep_idle_s", _number)),
}
_SWITCHES: dict[str, tuple[str, bool]] = {
    **dict.fromkeys(("-kvu", "--kv-unified", "--kvu", "--unified"), ("unified", True)),
    **dict.fromkeys(("-no-kvu", "--no-kv-unified"), ("unified", False)),
}
_VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "LLAMA_ARG_CTX_SIZE": ("context", _number),
    "LLAMA_ARG_N_PARALLEL": ("parallel", _number),
    "LLAMA_ARG_KV_UNIFIED_PER_SLOT": ("per_slot", _number),
    "LLAMA_ARG_CACHE_TYPE_K": ("cache_type_k", _type),
    "LLAMA_ARG_CACHE_TYPE_V": ("cache_type_v", _type),
    "LLAMA_ARG_SLEEP_IDLE_SECONDS": ("sleep_idle_s", _number),
}
ENVIRONMENT = frozenset({*_VARIABLES, "LLAMA_ARG_KV_UNIFIED"})
"""The variables that are read."""


def read_arguments(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> ServerArguments:
    """The values in a command line, and in the variables llama.cpp takes in their place; argv counts more."""
    found: dict[str, Any] = {}
    program = re.split(r"[/\\]", argv[0])[-1].lower() if argv else ""
    is_llama_server = re.fullmatch(r"llama-server[\w.-]*", program) is not None
    if is_llama_server:
        for name, (field, read) in _VARIABLES.items():
            found[field] = read((environment or {}).get(name, ""))
        switch = (environment or {}).get("LLAMA_ARG_KV_UNIFIED", "").lower()
        found["unified"] = None if not switch else switch in ("1", "true", "on", "enabled")
    rest = list(argv[1:])
    for index, word in enumerate(rest):
        name, equals, joined = word.partition("=")
        if name in _SWITCHES:
            field, value = _SWITCHES[name]
            found[field] = value
        elif name in _VALUES:
            field, read = _VALUES[name]
            found[field] = read(joined if equals else rest[index + 1] if index + 1 < len(rest) else "")
    return ServerArguments(is_llama_server=is_llama_server, **found)
