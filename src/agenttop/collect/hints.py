"""Which engine a command line starts, and at which port. Pure but for the list of kinds.

Engines are started by their own program, by an interpreter (`python -m vllm.entrypoints...`, a script in a
`bin` folder), or by a program that starts another one (`uv run`, `conda run`, `mpirun`). Some set a title in
place of their command line (`VLLM::APIServer_0`, `sglang::...`, `ray::ProxyActor`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from agenttop.collect.engine.kind import EngineKind
from agenttop.collect.engine.registry import registry
from agenttop.collect.process import Command

USUAL_PORTS = (8080, 8000, 11434, 30000, 23333, 3000, 1234, 5001, 5000, 4000, 8081)
"""Asked even when the process behind them cannot be seen (another user's, a container's)."""

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*w?(?:-[\w.]+)?", re.IGNORECASE)
_TAKE_A_VALUE = ("-X", "-W", "--check-hash-based-pycs")
_SCRIPTED = re.compile(r"(?:node|bun|bash|dash|zsh|sh|perl|ruby)", re.IGNORECASE)
_STARTERS = re.compile(
    r"""env | uvx? | conda | mamba | micromamba | pixi | poetry | pipenv | pdm | hatch | rye
      | mpirun | mpiexec | orterun | prterun | srun | torchrun | accelerate | trtllm-llmapi-launch
      | nohup | nice | ionice | setsid | chrt | taskset | numactl | stdbuf | time | timeout
      | sudo | doas | runuser | gosu | su-exec | systemd-run | systemd-inhibit | tini | dumb-init | catatonit
      | nsys | ncu | caffeinate | unbuffer""",
    re.VERBOSE,
)
"""Programs whose arguments are another command line. They hold no port of the engine's."""
_FIRST_WORDS = 40
_OWN_PROGRAM = "agenttop"
_SIMULATES = {"vllm": "vLLM", "llama.cpp": "llama.cpp"}
"""`agenttop sim --wire`."""


class Judged(msgspec.Struct, frozen=True):
    """What a command line says about its process."""

    kind: EngineKind
    direct: bool
    """The process is the server itself, not one that has started it."""


def kind_of(command: Command) -> EngineKind | None:
    """The kind of engine a command line starts; None for everything else."""
    judged = judge(command)
    return judged.kind if judged is not None else None


def judge(command: Command) -> Judged | None:
    """The same, and whether the process itself is the server. None for what is no engine."""
    words = [word for word in command.words[:_FIRST_WORDS] if word]
    judged = _judge(words)
    if judged is None and len(words) == 1 and " " in words[0]:
        return _judge(words[0].split()[:_FIRST_WORDS])  # a title that looks like a command line
    return judged


def is_own(command: Command) -> bool:
    """Whether a process is agenttop's own (a node, a console, a driver) and no engine that it simulates."""
    words = [word for word in command.words[:_FIRST_WORDS] if word]
    names = [_without_ending(_last(word)) for word in words[:1]]
    if names and _PYTHON.fullmatch(names[0]):
        module = next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "-m"), "")
        names = [module.partition(".")[0] if module else _last(next(_no_options(words[1:]), ""))]
    return names == [_OWN_PROGRAM] and judge(command) is None


def port_in(command: Command, kind: EngineKind) -> int | None:
    """The port that the command line names, also as `HOST:PORT`; None when it names none, or 0."""
    named = re.search(r"(?:^|:)(\d{1,5})$", command.value(*kind.look.port_options) or "")
    port = int(named[1]) if named is not None else 0
    return port if 0 < port < 65536 else None


def kind_of_image(image: str) -> EngineKind | None:
    """The kind of engine in a container image of this name."""
    name = image.lower()
    for kind in registry().kinds:
        if any(part.lower() in name for part in kind.look.images):
            return kind
    return None


def usual_ports() -> frozenset[int]:
    """Where engines listen when nothing is said, those of plug-ins too; without 80, where all the web is."""
    return frozenset((*USUAL_PORTS, *(port for kind in registry().kinds for port in kind.look.ports))) - {80}


def _judge(words: Sequence[str], direct: bool = True) -> Judged | None:
    if not words:
        return None
    program = _last(words[0])
    kind = _fitting([program])
    if kind is not None:
        return Judged(kind, direct)
    name = _without_ending(program)
    if name == _OWN_PROGRAM:
        return _own(words[1:], direct)
    if _PYTHON.fullmatch(name):
        return _of_python(words[1:], direct)
    if _SCRIPTED.fullmatch(name):
        kind = _fitting(_names_of(next(_no_options(words[1:]), "")))
        return Judged(kind, direct and name in ("node", "bun")) if kind is not None else None
    if _STARTERS.fullmatch(name):
        for index in range(1, len(words)):
            if _is_name(words[index]):
                judged = _judge(words[index:], direct=False)
                if judged is not None:
                    return judged
    return None


def _of_python(words: Sequence[str], direct: bool) -> Judged | None:
    """What Python is to run: a module, or a script."""
    index = 0
    while index < len(words) and words[index].startswith("-"):
        if words[index] == "-c":
            return None
        if words[index] == "-m":
            module = words[index + 1] if index + 1 < len(words) else ""
            if module == _OWN_PROGRAM:
                return _own(words[index + 2 :], direct)
            kind = _fitting([], module)
            return Judged(kind, direct) if kind is not None else None
        index += 2 if words[index] in _TAKE_A_VALUE else 1
    if index >= len(words):
        return None
    if _without_ending(_last(words[index])) == _OWN_PROGRAM:
        return _own(words[index + 1 :], direct)
    kind = _fitting(_names_of(words[index]))
    return Judged(kind, direct) if kind is not None else None


def _own(words: Sequence[str], direct: bool) -> Judged | None:
    """agenttop itself is no engine, except the one that it simulates."""
    if not words or words[0] != "sim":
        return None
    wire = Command(list(words)).value("--wire") or "vllm"
    kind = registry().named(_SIMULATES.get(wire, ""))
    return Judged(kind, direct) if kind is not None else None


def _fitting(names: Sequence[str], module: str = "") -> EngineKind | None:
    """The first kind that one of the names, or the module, belongs to."""
    both = [*names, *(_without_ending(name) for name in names)]
    for kind in registry().kinds:
        programs = _compiled(kind.look.programs)
        if any(programs.fullmatch(name) for name in both):
            return kind
        if module and module.startswith(kind.look.modules or ("\0",)):
            return kind
    return None


@lru_cache(maxsize=256)
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


def _names_of(script: str) -> list[str]:
    """`main.py` and `tabbyAPI/main.py` of a path: some scripts are known only by their folder."""
    parts = [part for part in re.split(r"[/\\]", script) if part]
    return [parts[-1], *(["/".join(parts[-2:])] if len(parts) > 1 else [])] if parts else []


def _no_options(words: Sequence[str]) -> Iterator[str]:
    return (word for word in words if not word.startswith("-"))


def _is_name(word: str) -> bool:
    """Whether a word may be a program: no option, no `NAME=VALUE`, no number."""
    return not word.startswith("-") and "=" not in word and not word.isdigit()


def _last(word: str) -> str:
    return re.split(r"[/\\]", word)[-1]


def _without_ending(name: str) -> str:
    return re.sub(r"\.(?:exe|cmd|bat)$", "", name, flags=re.IGNORECASE)
