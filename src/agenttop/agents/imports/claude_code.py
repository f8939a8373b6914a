"""Session logs of Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`; sub-agents in
`<session>/subagents/`.

The format is declared internal and changes between versions
(https://code.claude.com/docs/en/sessions); described by observation in
https://github.com/skillsynchq/txcript/blob/main/docs/formats/claude-code.md. What is relied on here:

- one call of the API is written as several lines, one a content block, with the same `message.id` and
  `requestId`; early ones may hold a smaller `output_tokens`: the largest counts;
- the prompt is input_tokens + cache_creation_input_tokens + cache_read_input_tokens;
- a resumed or forked session repeats the lines of the one it came from: a call counts once in all files;
- `isCompactSummary` and `compact_boundary` mark a compaction. The call that made the summary is not logged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from agenttop.agents.imports.source import (
    Recorded,
    Report,
    Request,
    Source,
    UnusableError,
    content_text,
    text_tokens,
    tokens,
)

KINDS = ("user", "assistant", "system", "summary", "progress", "attachment", "file-history-snapshot")

SYNTHETIC = "<synthetic>"
"""The model of lines that Claude Code writes itself, e.g. when a call failed."""


def looks_like(value: dict[str, Any]) -> bool:
    """Whether this object is a line of such a log."""
    if value.get("type") not in KINDS:
        return False
    return any(key in value for key in ("sessionId", "leafUuid", "parentUuid", "snapshot", "isSidechain"))


def with_subagents(path: Path) -> list[Path]:
    """A session's log and those of its sub-agents."""
    folder = path.with_name(path.name.removesuffix(".gz").removesuffix(".jsonl")) / "subagents"
    return [path, *sorted(folder.glob("*.jsonl")), *sorted(folder.glob("*.jsonl.gz"))]


@dataclass
class _Call:
    """One call of the API, gathered from its lines."""

    request: Request
    first_s: float | None


@dataclass
class _Chain:
    """One conversation: the main one of a file, or one sub-agent in it."""

    calls: list[_Call] = field(default_factory=list)
    by_key: dict[str, _Call] = field(default_factory=dict)
    ready_s: float | None = None
    """The newest message of the user, or result of a tool, since the last call."""
    kind: str = "tool"
    added: list[str] = field(default_factory=list)
    compacted: bool = False
    first_tokens: int = 0
    """The user's first message, estimated."""

    def take_user(self, value: dict[str, Any], with_text: bool) -> None:
        at = _time(value)
        if value.get("isCompactSummary"):
            self.compacted = True
            return
        message = value.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        by_tool = isinstance(content, list) and any(
            isinstance(part, dict) and part.get("type") == "tool_result" for part in content
        )
        text = content_text(content)
        if not self.calls:
            self.first_tokens += text_tokens(text)
        if with_text and text:
            self.added.append(text)
        if value.get("isMeta") and not by_tool:
            return
        self.ready_s = at if at is not None else self.ready_s
        if not by_tool:
            self.kind = "human"

    def take_assistant(self, value: dict[str, Any], key: str) -> None:
        """Raises UnusableError when the line holds no sound counts."""
        message = value.get("message")
        usage = message.get("usage") if isinstance(message, dict) else None
        if not isinstance(usage, dict):
            raise UnusableError("an answer without usage")
        output, at = tokens(usage, "output_tokens", 0), _time(value)
        known = self.by_key.get(key)
        if known is not None:
            known.request.output = max(known.request.output, output)
            known.request.end_s = at if at is not None else known.request.end_s
            return
        cached = tokens(usage, "cache_read_input_tokens", 0)
        prompt = tokens(usage, "input_tokens") + tokens(usage, "cache_creation_input_tokens", 0) + cached
        if prompt == 0:
            raise UnusableError("an empty prompt")
        request = Request(
            prompt=prompt,
            output=output,
            kind=self.kind if self.calls else "human",
            ready_s=self.ready_s,
            end_s=at,
            cached=cached,
            text="\n".join(self.added) or None,
            compacted=self.compacted,
        )
        call = _Call(request, at)
        self.calls.append(call)
        self.by_key[key] = call
        self.kind, self.ready_s, self.added, self.compacted = "tool", None, [], False


def read(paths: Iterable[Path], report: Report, with_text: bool = False) -> Iterator[Recorded]:
    """One conversation for each log, and one for each sub-agent, right after the one that spawned it."""
    counted: set[str] = set()
    for path in paths:
        for file in with_subagents(path):
            for recorded in _file(file, report, counted, with_text):
                if file != path:
                    recorded.parent = path.stem
                yield recorded


def _file(path: Path, report: Report, counted: set[str], with_text: bool) -> Iterator[Recorded]:
    chains: dict[str, _Chain] = {}
    roots: dict[str, str] = {}
    for place, value in Source(path, report).values():
        kind = value.get("type")
        if kind not in ("user", "assistant", "system"):
            continue
        name = _chain_of(value, roots)
        chain = chains.setdefault(name, _Chain())
        try:
            if kind == "user":
                chain.take_user(value, with_text)
            elif kind == "system":
                chain.compacted |= value.get("subtype") == "compact_boundary"
            else:
                _take_answer(value, chain, place, counted, report)
        except (UnusableError, RecursionError) as error:
            report.skip(place, str(error))
    held = [(name, chain) for name, chain in chains.items() if chain.calls]
    held.sort(key=lambda item: item[0] != "")  # the main one first, the others as they came
    alone = not held or held[0][0] != ""  # the log of a sub-agent, read by itself
    for name, chain in held:
        recorded = _recorded(path.stem, name, chain)
        recorded.parent = None if alone else recorded.parent
        yield recorded


def _take_answer(value: dict[str, Any], chain: _Chain, place: str, counted: set[str], report: Report) -> None:
    message = value.get("message")
    if isinstance(message, dict) and message.get("model") == SYNTHETIC:
        report.leave_out("lines Claude Code wrote itself in place of an answer")
        return
    key = _key(value, place)
    if key not in chain.by_key:
        if key in counted:
            report.leave_out("lines of calls that another log has already told")
            return
        counted.add(key)
    chain.take_assistant(value, key)


def _key(value: dict[str, Any], place: str) -> str:
    """What all lines of one call share."""
    message = value.get("message")
    ident = message.get("id") if isinstance(message, dict) else None
    request = value.get("requestId")
    if not isinstance(ident, str) and not isinstance(request, str):
        return place
    return f"{ident or ''} {request or ''}"


def _chain_of(value: dict[str, Any], roots: dict[str, str]) -> str:
    """Which conversation of the file a line belongs to: empty for the main one."""
    if not value.get("isSidechain"):
        return ""
    if isinstance(value.get("agentId"), str):
        return str(value["agentId"])
    own, parent = value.get("uuid"), value.get("parentUuid")
    root = roots.get(parent, str(own)) if isinstance(parent, str) else str(own)
    if isinstance(own, str):
        roots[own] = root
    return root


def _recorded(stem: str, name: str, chain: _Chain) -> Recorded:
    requests = [call.request for call in chain.calls]
    for request in requests:
        request.output = max(1, request.output)
    first = requests[0]
    system = first.prompt - chain.first_tokens if chain.first_tokens and not first.compacted else None
    return Recorded(
        name=f"{stem}/{name}" if name else stem,
        requests=requests,
        system=system if system and system > 0 else None,
        parent=stem if name else None,
    )


def _time(value: dict[str, Any]) -> float | None:
    stamp = value.get("timestamp")
    if not isinstance(stamp, str):
        return None
    try:
        return datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
