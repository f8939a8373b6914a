"""A profile fitted to the context size of an engine: smaller in proportion, and saying so."""

from __future__ import annotations

import msgspec

from agenttop.agents.distribution import Distribution
from agenttop.agents.settings import Children, Profile
from agenttop.errors import AgenttopError

OVERHEAD = 64
"""Tokens of chat template and of the words that ask for a summary."""

RESERVE_FRACTION = 0.03
"""Of the engine's context: sizes are estimated before they are sent, and estimates are off by a little."""

LEAST_CONTEXT = 384
"""Below this there is no room for a conversation."""

LEAST_OUTPUT = 48
"""A median output below this is too short to show a decode rate; it is kept at this instead."""

LEAST_INPUT = 8


class Scaled(msgspec.Struct, frozen=True, kw_only=True):
    """The profile as it is applied, and what was changed, in words."""

    profile: Profile
    notes: list[str]


def scale(profile: Profile, context_limit: int | None) -> Scaled:
    """Fit `profile` to an engine that allows `context_limit` tokens per request (None: it does not tell).

    When the compaction limit, the summary and a reserve do not fit, every size is multiplied by the same
    factor, so that the number of turns between compactions, the share of the system prompt and the
    compaction target stay what they were. Pauses are not touched. Raises AgenttopError when the engine's
    context is too small for any conversation.
    """
    if context_limit is None:
        return Scaled(profile=profile, notes=["the engine tells no context size: nothing was scaled"])
    if context_limit < LEAST_CONTEXT:
        raise AgenttopError(
            f"a context of {context_limit} tokens is too small for agents",
            f"start the engine with at least {LEAST_CONTEXT} per slot",
        )
    usable = context_limit - OVERHEAD - max(16, round(context_limit * RESERVE_FRACTION))
    context, compaction = profile.context, profile.compaction
    if context.limit + compaction.summary <= usable:
        fitted = msgspec.structs.replace(context, engine_limit=context_limit)
        return Scaled(profile=msgspec.structs.replace(profile, context=fitted), notes=[])
    factor = usable / (context.limit + compaction.summary)
    replace = msgspec.structs.replace
    scaled = replace(
        profile,
        context=replace(
            context,
            limit=int(context.limit * factor),
            system=max(1, round(context.system * factor)),
            tools=round(context.tools * factor),
            first=context.first.scaled(factor, LEAST_INPUT),
            shared_document=round(context.shared_document * factor),
            engine_limit=context_limit,
        ),
        turn=replace(
            profile.turn,
            input=profile.turn.input.scaled(factor, LEAST_INPUT),
            output=profile.turn.output.scaled(factor, LEAST_OUTPUT),
        ),
        compaction=replace(
            compaction,
            summary=max(LEAST_INPUT, int(compaction.summary * factor)) if compaction.summary else 0,
        ),
        children=_scaled_children(profile.children, factor) if profile.children is not None else None,
        trace=None if profile.trace is None else replace(profile.trace, size_factor=factor),
    )
    notes = _notes(profile, scaled, factor, context_limit)
    if profile.trace is not None:
        notes.append(f"recorded sizes, outputs too, are multiplied by {factor:.3g}")
    return Scaled(profile=scaled, notes=notes)


def _scaled_children(children: Children, factor: float) -> Children:
    def fitted(sizes: Distribution | None, least: float) -> Distribution | None:
        return None if sizes is None else sizes.scaled(factor, least)

    return msgspec.structs.replace(
        children,
        system=max(1, round(children.system * factor)),
        first=children.first.scaled(factor, LEAST_INPUT),
        shared_document=round(children.shared_document * factor),
        input=fitted(children.input, LEAST_INPUT),
        output=fitted(children.output, LEAST_OUTPUT),
    )


def hasten(scaled: Scaled, pace: float) -> Scaled:
    """Every pause `pace` times shorter, and saying so: for a demo, or an experiment that cannot wait."""
    if pace == 1.0:
        return scaled

    def faster(pause: Distribution | None) -> Distribution | None:
        return None if pause is None else pause.scaled(1 / pace)

    pacing, children, trace = scaled.profile.pacing, scaled.profile.children, scaled.profile.trace
    replace = msgspec.structs.replace
    if children is not None:
        children = replace(children, tool_pause_s=faster(children.tool_pause_s))
    profile = replace(
        scaled.profile,
        pacing=replace(
            pacing,
            tool_pause_s=pacing.tool_pause_s.scaled(1 / pace),
            human_pause_s=faster(pacing.human_pause_s),
        ),
        children=children,
        trace=None if trace is None else replace(trace, pause_factor=trace.pause_factor / pace),
    )
    return Scaled(profile=profile, notes=[*scaled.notes, f"pauses are {pace:g} times shorter"])


def _notes(before: Profile, after: Profile, factor: float, context_limit: int) -> list[str]:
    sizes: list[tuple[str, float, float]] = [
        ("system prompt", before.context.system, after.context.system),
        ("tools", before.context.tools, after.context.tools),
        ("first message", before.context.first.median, after.context.first.median),
        ("input per turn", before.turn.input.median, after.turn.input.median),
        ("output per turn", before.turn.output.median, after.turn.output.median),
        ("summary", before.compaction.summary, after.compaction.summary),
    ]
    notes = [
        f"context limit {before.context.limit} → {after.context.limit} tokens "
        f"(engine: {context_limit} per request)",
        "medians: " + ", ".join(f"{name} {old:.0f} → {new:.0f}" for name, old, new in sizes if old),
    ]
    wanted = before.turn.output.median * factor
    if after.turn.output.median > wanted * 1.05:
        notes.append(
            f"output per turn kept at {after.turn.output.median:.0f} tokens, not {wanted:.0f}: "
            "a shorter one has no decode rate"
        )
    return notes
