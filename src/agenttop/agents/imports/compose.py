"""From requests as a source tells them to the turns of a trace: side requests out, compactions marked."""

from __future__ import annotations

from collections.abc import Iterator

from agenttop.agents.imports.source import Recorded, Report, Request
from agenttop.agents.tracefile import LONGEST_PAUSE_S, MOST_TOKENS, TraceSession, TraceTurn

DROP = 0.5
"""A prompt below this share of the one before it does not go on from it."""

COMPACTION_FROM = 60_000
"""From a smaller context such a drop is a new conversation, unless the source says that it was compacted."""

BACK = 0.9
"""A prompt that is back at this share of the one before the drop belongs to the same conversation..."""

SIDE_MOST = 3
"""...and the few in between were requests beside it: titles, checks by a smaller model."""


def sessions(recorded: Recorded, report: Report, name: str) -> Iterator[TraceSession]:
    """The conversation as one session; as more where the context begins anew within it."""
    sound = [one for one in recorded.requests if one.prompt <= MOST_TOKENS and one.output <= MOST_TOKENS]
    for _ in range(len(recorded.requests) - len(sound)):
        report.skip(f"session {name}", f"a prompt or reply of more than {MOST_TOKENS} tokens")
    requests, set_aside = _without_side_requests(sound)
    report.leave_out(
        "requests beside a conversation (a title, a check), much smaller than those around", set_aside
    )
    parts: list[list[TraceTurn]] = [[]]
    before: Request | None = None
    for request in requests:
        kind, fresh = _kind(request, before)
        if fresh:
            parts.append([])
        turn = _turn(request, before if parts[-1] else None, kind)
        if turn.pause_s == LONGEST_PAUSE_S:
            report.note("pauses longer than a day count as a day")
        parts[-1].append(turn)
        before = request
    for number, turns in enumerate((part for part in parts if part), start=1):
        yield TraceSession(
            session=name if number == 1 else f"{name}.{number}",
            turns=turns,
            system=_system(recorded.system, turns),
            parent=recorded.parent,
        )


def _without_side_requests(requests: list[Request]) -> tuple[list[Request], int]:
    kept: list[Request] = []
    set_aside = 0
    at = 0
    while at < len(requests):
        if kept and requests[at].prompt < DROP * kept[-1].prompt:
            for ahead in range(at + 1, min(at + 1 + SIDE_MOST, len(requests))):
                if requests[ahead].prompt >= BACK * kept[-1].prompt:
                    set_aside += ahead - at
                    at = ahead
                    break
        kept.append(requests[at])
        at += 1
    return kept, set_aside


def _kind(request: Request, before: Request | None) -> tuple[str, bool]:
    """(kind of the turn, whether it begins a new conversation)."""
    if before is None:
        return request.kind, False
    if request.compacted and request.prompt < before.prompt:
        return "compact", False
    if request.prompt < DROP * before.prompt:
        return ("compact", False) if before.prompt > COMPACTION_FROM else (request.kind, True)
    return request.kind, False


def _turn(request: Request, before: Request | None, kind: str) -> TraceTurn:
    pause_s = None
    if before is not None:
        pause_s = request.pause_s
        if pause_s is None and request.ready_s is not None and before.end_s is not None:
            pause_s = request.ready_s - before.end_s
        if pause_s is None and request.ready_s is not None and before.ready_s is not None:
            pause_s = request.ready_s - before.ready_s
    return TraceTurn(
        prompt=request.prompt,
        output=max(1, request.output),
        pause_s=None if pause_s is None else round(min(max(pause_s, 0.0), LONGEST_PAUSE_S), 3),
        kind=kind,
        cached=request.cached,
        text=request.text,
    )


def _system(system: int | None, turns: list[TraceTurn]) -> int | None:
    """No system prompt is larger than the smallest prompt it is in."""
    return None if system is None else max(1, min(system, min(turn.prompt for turn in turns) - 1))
