"""Mooncake traces, and AIPerf's additions to them: one line a request.

https://github.com/kvcache-ai/Mooncake (timestamp in ms, input_length, output_length, hash_ids of 512 tokens);
https://docs.nvidia.com/aiperf/benchmark-modes/trace-replay-with-mooncake-traces (session_id, delay in ms,
messages, text_input, message_mode).

Lines of one `session_id` hold the whole prompt in some files and only what a turn adds in others. The
sizes, and block hashes where there are any, tell which; where they do not, the user must.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from agenttop.agents.imports.source import (
    MESSAGE_TOKENS,
    Recorded,
    Report,
    Request,
    UnusableError,
    Values,
    compact_json,
    content_text,
    objects,
    pause,
    seconds,
    text_tokens,
    tokens,
)
from agenttop.errors import UsageError

BLOCK = 512
"""Tokens for each of `hash_ids`."""

LEAST_PAIRS = 5
"""Fewer neighbouring lines could grow by chance."""

SURE = 0.9
"""Of the neighbouring lines, so many must agree."""

HUMAN_FROM_S = 30.0
"""These files do not tell who made a pause: a longer one counts as a person's."""


@dataclass(slots=True)
class _Row:
    prompt: int
    output: int
    at_s: float | None
    pause_s: float | None
    ids: tuple[int, ...]
    text: str | None = None
    told: bool | None = None
    """Whether `prompt` is the whole prompt, where the line itself says so."""


@dataclass(slots=True)
class _Session:
    rows: list[_Row] = field(default_factory=list)


def looks_like(value: dict[str, Any]) -> bool:
    """Whether this object is a line of such a trace."""
    if "chat_id" in value or "turns" in value or "conversations" in value:
        return False
    if "input_length" in value:
        return True
    return ("text_input" in value or "messages" in value) and any(
        key in value for key in ("timestamp", "delay", "output_length", "session_id")
    )


def read(
    values: Values, report: Report, whole: bool | None = None, with_text: bool = False
) -> Iterator[Recorded]:
    """One conversation for each session id; lines without one are joined where block hashes show it.

    `whole`: each line holds the whole prompt (True) or what it adds (False); None: find out. Raises
    UsageError when that cannot be found out.
    """
    sessions: dict[str, _Session] = {}
    loose: list[_Row] = []
    for place, value in values:
        try:
            row = _row(value, report, with_text)
        except (UnusableError, RecursionError) as error:
            report.skip(place, str(error))
            continue
        name = value.get("session_id")
        if name is None:
            loose.append(row)
        else:
            sessions.setdefault(str(name), _Session()).rows.append(row)
    if whole is None and any(len(session.rows) > 1 for session in sessions.values()):
        whole = _holds_whole_prompts([session.rows for session in sessions.values()])
    for name, session in sessions.items():
        yield Recorded(name, _requests(session.rows, whole is not False, report))
    for number, rows in enumerate(_chains(loose), start=1):
        yield Recorded(f"row-{number}", _requests(rows, True, report))


def _row(value: dict[str, Any], report: Report, with_text: bool) -> _Row:
    text, told, prompt = None, None, 0
    if "messages" in value:
        messages = objects(value, "messages")
        told = value.get("message_mode") != "delta"
        prompt = sum(
            text_tokens(content_text(one.get("content")) + _calls(one)) + MESSAGE_TOKENS for one in messages
        )
        if value.get("tools"):
            prompt += text_tokens(compact_json(value["tools"]))
        text = content_text(messages[-1].get("content")) if messages else None
        report.estimated = True
    elif isinstance(value.get("text_input"), str):
        text = value["text_input"]
        prompt = text_tokens(text) + MESSAGE_TOKENS
        report.estimated = True
    else:
        prompt = tokens(value, "input_length")
    if prompt == 0:
        raise UnusableError("an empty prompt")
    ids = value.get("hash_ids")
    return _Row(
        prompt=prompt,
        output=max(1, tokens(value, "output_length", 1)),
        at_s=seconds(value, "timestamp", 1e-3),
        pause_s=pause(value, "delay", 1e-3),
        ids=tuple(ids) if isinstance(ids, list) and all(isinstance(one, int) for one in ids) else (),
        text=text if with_text else None,
        told=told,
    )


def _calls(message: dict[str, Any]) -> str:
    return compact_json(message["tool_calls"]) if message.get("tool_calls") else ""


def _holds_whole_prompts(sessions: Sequence[list[_Row]]) -> bool:
    """Whether lines hold whole prompts. Raises UsageError when neither is plain."""
    pairs = [pair for rows in sessions for pair in pairwise(rows)]
    told = {row.told for rows in sessions for row in rows if row.told is not None}
    if len(told) == 1:
        return told.pop()
    hashed = [pair for pair in pairs if _blocks(pair[0]) and pair[1].ids]
    if hashed:
        kept = sum(pair[1].ids[: len(_blocks(pair[0]))] == _blocks(pair[0]) for pair in hashed) / len(hashed)
        if kept >= SURE or kept <= 1 - SURE:
            return kept >= SURE
    growing = sum(after.prompt >= before.prompt + before.output / 2 for before, after in pairs)
    share = growing / len(pairs)
    if len(pairs) >= LEAST_PAIRS and share >= SURE:
        return True
    if share <= 0.6 and len(pairs) - growing >= 2:
        return False
    raise UsageError(
        f"the lines of a session may hold whole prompts or only what each turn adds: of {len(pairs)} "
        f"neighbouring lines {growing} grow as whole prompts do",
        "say which with --cumulative or --delta",
    )


def _blocks(row: _Row) -> tuple[int, ...]:
    """The hashes of its full blocks."""
    return row.ids[: row.prompt // BLOCK]


def _chains(rows: list[_Row]) -> Iterator[list[_Row]]:
    """Lines without a session, joined where one begins with all full blocks of an earlier one.

    At least two blocks must agree: the first may be a system prompt that many conversations share.
    """
    chains: list[list[_Row]] = []
    ends: dict[tuple[int, ...], int] = {}
    for row in rows:
        chain = None
        for length in range(len(row.ids) - 1, 1, -1):
            if (chain := ends.pop(row.ids[:length], None)) is not None:
                break
        if chain is None:
            chain = len(chains)
            chains.append([])
        chains[chain].append(row)
        if len(_blocks(row)) > 1:
            ends[_blocks(row)] = chain
    yield from chains


def _requests(rows: list[_Row], whole: bool, report: Report) -> list[Request]:
    made: list[Request] = []
    context = 0
    before: float | None = None
    for row in rows:
        holds_all = whole if row.told is None else row.told
        prompt = row.prompt if holds_all else context + row.prompt
        context = prompt + row.output
        gap = row.pause_s
        if gap is None and before is not None and row.at_s is not None and row.at_s >= before:
            gap = row.at_s - before
            report.note("pauses include the time of the reply where a trace tells only when requests came")
        before = row.at_s if row.at_s is not None else before
        kind = "tool" if gap is not None and gap < HUMAN_FROM_S and made else "human"
        made.append(Request(prompt, row.output, kind, pause_s=gap if made else None, text=row.text))
    return made
