"""How far a row is with what it is doing now."""

from __future__ import annotations

from agenttop.model import units
from agenttop.model.frames import AgentSample, SlotSample
from agenttop.view.glyphs import bar
from agenttop.view.rows import Row
from agenttop.view.spans import Line, cut, foreign
from agenttop.view.store import Store


def progress(store: Store, row: Row, width: int) -> Line:
    """Tokens of a reply, share of a prefill, or the rest of a pause; at most `width` cells."""
    if row.state in ("decode", "compact"):
        return _reply(row.agent, row.slot, width)
    if row.state in ("prefill", "prime"):
        return _prefill(row.agent, row.slot, width)
    agent = row.agent
    if agent is None:
        return []
    if agent.state in ("backoff", "stopped") and agent.error:
        return [(cut(foreign(agent.error, 120), width), "bad")]
    since = max(0.0, store.now - agent.state_since)
    if agent.state == "stalled":
        silent = agent.silent_s if agent.silent_s is not None else since
        return [(cut(f"silent for {units.seconds(silent)}", width), "bad")]
    if agent.state == "children":
        at_work = agent.children
        told = "waits for sub-agents" if at_work is None else f"{at_work} at work"
        lasting = f"{told}, {units.seconds(since)}"
        return [(lasting if len(lasting) <= width else cut(told, width), "label")]
    if agent.state_until is not None and agent.state_until > agent.state_since:
        whole = agent.state_until - agent.state_since
        left = max(0.0, agent.state_until - store.now)
        return _gauge(min(1.0, since / whole), f"{units.seconds(left)} left", "pause", width)
    if agent.state in ("queued", "stopping", "waiting"):
        return [(f"for {units.seconds(since)}", "label")]
    return []


def _gauge(share: float | None, text: str, role: str, width: int) -> Line:
    """A bar with its text behind it; the text alone where there is no room for both."""
    room = min(16, width - len(text) - 1)
    if room < 3:
        return [(cut(text, width), "text")]
    return [*bar(share, room, role), (f" {text}", "text")]


def _reply(agent: AgentSample | None, slot: SlotSample | None, width: int) -> Line:
    role = "compact" if agent is not None and agent.state == "compact" else "decode"
    done = limit = None
    if agent is not None:
        done, limit = agent.output_tokens, agent.output_limit_tokens
    if done is None and slot is not None:
        done = slot.decoded_tokens
        if (
            slot.decoded_tokens is not None
            and slot.remaining_tokens is not None
            and slot.remaining_tokens >= 0
        ):
            limit = slot.decoded_tokens + slot.remaining_tokens
    if done is None:
        return []
    if not limit:
        return [(f"{units.count(done)} tok", "text")]
    return _gauge(done / limit, f"{units.count(done)}/{units.count(limit)}", role, width)


def _prefill(agent: AgentSample | None, slot: SlotSample | None, width: int) -> Line:
    done = total = None
    if agent is not None:
        done, total = agent.prefilled_tokens, agent.prompt_tokens
    speed = slot.prefill_tok_s if slot is not None else None
    if done is None and slot is not None:
        done = slot.prefilled_tokens
    if done is None:
        return []
    if not total:
        return [(f"{units.count(done)} tok", "text")]
    share = min(1.0, done / total)
    text = units.percent(share)
    if speed and total > done and width >= 14:
        text += f"  {units.seconds((total - done) / speed)}"
    return _gauge(share, text, "prefill", width)
