"""Token counts that cannot be right, whatever engine told them."""

from __future__ import annotations

from agenttop.model.frames import Turn

SLACK = 1.1
"""Beyond the tokens that were asked for: engines count the end of a reply in different ways."""

SLACK_TOKENS = 4

EVENTS_PER_TOKEN = 2.0
"""Stream events with text that one token may give (a tool call gives a name and its arguments)."""


def miscounted(turn: Turn) -> str | None:
    """Why the output tokens of a request cannot be right; None where they may be, or are not known."""
    output, limit = turn.output_tokens, turn.output_limit_tokens
    if output is None:
        return None
    if limit is not None and output > limit * SLACK + SLACK_TOKENS:
        return f"{output} output tokens where at most {limit} were asked for"
    if turn.events is not None and turn.events > output * EVENTS_PER_TOKEN + SLACK_TOKENS:
        return f"{output} output tokens in {turn.events} pieces of text"
    return None
