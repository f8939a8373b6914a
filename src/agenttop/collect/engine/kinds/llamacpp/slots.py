"""The body of llama.cpp's `/slots` to values, for every shape it has had. Pure.

    to Oct 2024     `state` 0/1, no `is_processing`; `next_token` an object
    to Aug 2025     `is_processing`; `next_token` an object
    from Aug 2025   a slot that never served has only id, n_ctx and is_processing; `next_token` a list of one
    from mid 2026   also `n_prompt_tokens` (tokens held, the generated ones included; kept after the request
                    has ended), `n_prompt_tokens_processed`, `n_prompt_tokens_cache`

On the end of a request builds from about 11063 on set `n_decoded` and `n_prompt_tokens_processed` to 0;
older ones keep the last `n_decoded`. `id_task` stays.
"""

from __future__ import annotations

import msgspec

SLOTS_LIMIT = 8_000_000
"""Bytes: 256 slots are 0.4 MB; builds before Aug 2025 put the whole prompts into the reply."""

MAX_COUNT = 1 << 40
"""No slot counts this far: a figure beyond it is a mistake of the server, and unknown to us."""


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """One slot at one moment. None: this build does not tell."""

    number: int
    processing: bool
    task: int | None
    """None: the slot has never served a request."""
    context_limit: int | None
    held: int | None
    """Tokens in its KV cache."""
    processed: int | None
    """Prompt tokens of this request processed so far, those from the cache not counted."""
    cached: int | None
    decoded: int | None
    remaining: int | None

    @property
    def phase(self) -> str:
        """idle, prefill or decode."""
        if not self.processing:
            return "idle"
        return "decode" if self.decoded else "prefill"


class _Next(msgspec.Struct):
    n_decoded: int | None = None
    n_remain: int | None = None


class _Row(msgspec.Struct):
    id: int
    n_ctx: int | None = None
    is_processing: bool | None = None
    state: int | None = None
    id_task: int | None = None
    task_id: int | None = None
    n_prompt_tokens: int | None = None
    n_prompt_tokens_processed: int | None = None
    n_prompt_tokens_cache: int | None = None
    next_token: _Next | list[_Next] | None = None


_decoder = msgspec.json.Decoder(list[_Row])


def parse_slots(body: bytes) -> list[Slot]:
    """All slots, in the order of the reply. Raises ValueError when the body is something else."""
    try:
        try:
            rows = _decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            rows = _decoder.decode(body.decode("utf-8", "replace").encode())  # DecodeError is a ValueError
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if any(not 0 <= row.id < MAX_COUNT for row in rows):
        raise ValueError("a slot has a number that is none")
    if len({row.id for row in rows}) != len(rows):
        raise ValueError("two slots have the same number")
    return [_slot(row) for row in rows]


def _slot(row: _Row) -> Slot:
    following = row.next_token[0] if isinstance(row.next_token, list) and row.next_token else row.next_token
    following = following if isinstance(following, _Next) else _Next()
    task = row.id_task if row.id_task is not None else row.task_id
    task = _count(task)
    processing = bool(row.state) if row.is_processing is None else row.is_processing
    never_used = task is None and not processing
    return Slot(
        number=row.id,
        processing=processing,
        task=task,
        context_limit=_count(row.n_ctx) or None,
        held=0 if never_used else _count(row.n_prompt_tokens),
        processed=_count(row.n_prompt_tokens_processed),
        cached=_count(row.n_prompt_tokens_cache),
        decoded=_count(following.n_decoded),
        remaining=_count(following.n_remain),
    )


def _count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value < MAX_COUNT else None
