"""What the tensors of a model's files add up to: all of them, and those read to decode one token. Pure.

Rules
- A mixture of experts reads, for one token of one sequence, the experts that are used: their share of all.
- The input embedding is a table of which one row is read. Where the output layer has no tensor of its own it
  is the same table, and then all of it is read.
- What looks at pictures or sound is not run while decoding.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

EXPERT = re.compile(r"_exps\b|_exps\.|\.experts\.")
"""In names of GGUF (`ffn_up_exps`) and of safetensors (`mlp.experts.3.up_proj`); shared experts, which every
token uses, are named otherwise."""
EMBEDDING = re.compile(r"(^|\.)(token_embd|embed_tokens|wte|word_embeddings|tok_embeddings)\.weight$")
OUTPUT = re.compile(r"(^|\.)(output|lm_head|embed_out)\.weight$")
OTHER_SENSES = re.compile(r"^(model\.)?(visual|vision_\w+|audio_\w+|multi_modal_projector|mm_projector)\.")


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes."""

    total: int
    active: int | None
    """None where it cannot be told: experts without the numbers that say how many are used."""
    source: str
    """gguf, safetensors."""
    experts: int | None = None
    experts_used: int | None = None


def add_up(tensors: Mapping[str, int], experts: int | None, used: int | None, source: str) -> Weights:
    """`tensors`: name to bytes."""
    routed = sum(size for name, size in tensors.items() if EXPERT.search(name))
    idle = sum(size for name, size in tensors.items() if OTHER_SENSES.match(name))
    tables = [name for name in tensors if EMBEDDING.search(name)]
    if any(OUTPUT.search(name) for name in tensors):
        idle += sum(tensors[name] for name in tables if not OTHER_SENSES.match(name))
    total = sum(tensors.values())
    sparse = experts is not None and used is not None and 0 < used <= experts
    active: int | None = total - idle
    if routed and sparse:
        assert experts is not None
        assert used is not None
        active = total - idle - routed + routed * used // experts
    elif routed:
        active = None
    return Weights(
        total=total,
        active=active,
        source=source,
        experts=experts if routed and sparse else None,
        experts_used=used if routed and sparse else None,
    )
