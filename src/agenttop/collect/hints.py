"""How inference engines look from outside: their command lines and their usual ports. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec


class EngineKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of server."""

    name: str
    programs: str
    """Expression for the name of the program, or of the script an interpreter runs."""
    modules: tuple[str, ...] = ()
    """After `python -m`; a prefix."""
    ports: tuple[int, ...] = ()
    """Where it listens when nothing is said."""


KINDS = (
    EngineKind(
        name="llama.cpp",
        programs=r"llama-server[\w.-]*",
        modules=("agenttop.demo.server", "llama_cpp.server"),
        ports=(8080,),
    ),
    EngineKind(
        name="vLLM",
        programs=r"vllm|vllm-rs|VLLM::APIServer.*",
        modules=("vllm.entrypoints",),
        ports=(8000,),
    ),
    EngineKind(name="SGLang", programs=r"sglang", modules=("sglang.launch_server",), ports=(30000,)),
    EngineKind(name="Ollama", programs=r"ollama(\.exe)?", ports=(11434,)),
    EngineKind(name="TensorRT-LLM", programs=r"trtllm-serve", ports=(8000,)),
    EngineKind(name="TGI", programs=r"text-generation-(launcher|router)", ports=(3000, 80)),
    EngineKind(name="LMDeploy", programs=r"lmdeploy", ports=(23333,)),
    EngineKind(name="LM Studio", programs=r"LM Studio.*|llmster", ports=(1234,)),
    EngineKind(name="KoboldCpp", programs=r"koboldcpp[\w.-]*", ports=(5001,)),
    EngineKind(name="llama-swap", programs=r"llama-swap[\w.-]*", ports=(8080,)),
    EngineKind(name="MLX", programs=r"mlx_lm\.server|omlx|vllm-mlx", modules=("mlx_lm",), ports=(8080, 8000)),
    EngineKind(name="LiteLLM", programs=r"litellm", ports=(4000,)),
)

USUAL_PORTS = (8080, 8000, 11434, 30000, 23333, 3000, 1234, 5001, 5000, 4000, 8081)
"""Asked even when the process behind them cannot be seen (another user's, a container's)."""

_INTERPRETER = re.compile(r"(python[\d.]*|node|bash|sh|env|uv|mpirun)(\.exe)?", re.IGNORECASE)


def kind_of(argv: Sequence[str]) -> EngineKind | None:
    """The kind of engine a command line starts; None for everything else."""
    words = [word for word in argv[:6] if word]
    if not words:
        return None
    names = [re.split(r"[/\\]", words[0])[-1]]
    module = ""
    if _INTERPRETER.fullmatch(names[0]):
        if "-m" in words[:-1]:
            module = words[words.index("-m") + 1]
        names += [re.split(r"[/\\]", word)[-1] for word in words[1:3] if not word.startswith("-")]
    for kind in KINDS:
        if any(re.fullmatch(kind.programs, name) for name in names):
            return kind
        if module and module.startswith(kind.modules or ("\0",)):
            return kind
    return None


def port_in(argv: Sequence[str]) -> int | None:
    """The value of `--port`; None when it is not given, or 0."""
    for index, word in enumerate(argv):
        name, equals, joined = word.partition("=")
        if name == "--port":
            text = joined if equals else argv[index + 1] if index + 1 < len(argv) else ""
            return int(text) if text.isdigit() and 0 < int(text) < 65536 else None
    return None
