"""Traces of kv-cache-tester, also published by Weka and used by InferenceX: sizes, times and block hashes.

Format: https://github.com/callanjfox/agentic-coding-analysis/blob/master/docs/TRACE_FORMAT.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from agenttop.agents.imports.source import (
    Recorded,
    Report,
    Request,
    UnusableError,
    Values,
    objects,
    pause,
    seconds,
    tokens,
)


def looks_like(value: dict[str, Any]) -> bool:
    """Whether this object is a trace."""
    return "requests" in value and any(key in value for key in ("block_size", "hash_id_scope", "tool_tokens"))


def read(values: Values, report: Report) -> Iterator[Recorded]:
    """One conversation for each trace, and one for each sub-agent in it, right after."""
    for place, value in values:
        try:
            if isinstance(value.get("requests"), str):  # some tables hold the list as text
                value["requests"] = msgspec.json.decode(value["requests"])
            yield from _trace(value, place, report)
        except (UnusableError, msgspec.DecodeError) as error:
            report.skip(place, str(error))


def _trace(value: dict[str, Any], place: str, report: Report) -> Iterator[Recorded]:
    name = str(value.get("id") or place)
    main = Recorded(name, system=tokens(value, "tool_tokens", 0) + tokens(value, "system_tokens", 0) or None)
    block = tokens(value, "block_size", 64)
    children: list[Recorded] = []
    requests: list[dict[str, Any]] = []
    for number, item in enumerate(objects(value, "requests"), start=1):
        if item.get("type") != "subagent":
            requests.append(item)
            continue
        try:
            system = tokens(item, "tool_tokens", 0) + tokens(item, "system_tokens", 0) or None
            child = Recorded(f"{name}/{number}", system=system, parent=name)
            child.requests = _requests(objects(item, "requests"), block, f"{place} request {number}", report)
            children.append(child)
        except UnusableError as error:
            report.skip(f"{place} request {number}", str(error))
    main.requests = _requests(requests, block, place, report)
    if main.requests:
        yield main
    yield from (child for child in children if child.requests)


def _requests(items: list[dict[str, Any]], block: int, place: str, report: Report) -> list[Request]:
    made: list[Request] = []
    seen: set[Any] = set()
    stop = ""
    for number, item in enumerate(items, start=1):
        try:
            request = _request(item, stop)
            request.cached = _cached(item, seen, block, request.prompt)
            made.append(request)
        except UnusableError as error:
            report.skip(f"{place} request {number}", str(error))
            continue
        stop = str(item.get("stop") or "")
        if request.pause_s is None and request.end_s is None:
            report.note("pauses include the time of the reply where a trace tells only when requests came")
    return made


def _request(item: dict[str, Any], stop: str) -> Request:
    """`stop`: why the reply before it had ended."""
    prompt, output = tokens(item, "in"), tokens(item, "out")
    if prompt == 0:
        raise UnusableError("in: an empty prompt")
    start, took = seconds(item, "t"), pause(item, "api_time")
    added = item.get("input_types")
    by_tool = isinstance(added, list) and "tool_result" in added
    return Request(
        prompt=prompt,
        output=output,
        kind="tool" if stop == "tool_use" or (stop != "end_turn" and by_tool) else "human",
        ready_s=start,
        end_s=None if start is None or took is None else start + took,
        pause_s=pause(item, "think_time"),
    )


def _cached(item: dict[str, Any], seen: set[Any], block: int, prompt: int) -> int | None:
    """Tokens of the leading blocks that earlier requests had. A block's id stands for all before it, too."""
    ids = item.get("hash_ids")
    if not isinstance(ids, list) or not all(isinstance(one, int) for one in ids):
        return None
    hits = 0
    for one in ids:
        if one not in seen:
            break
        hits += 1
    first = not seen
    seen.update(ids)
    return None if first else min(hits * block, prompt)
