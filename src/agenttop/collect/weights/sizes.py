"""What the tensors of a model's files add up to: all of them, and those read to decode one token. Pure.

Rules
- A mixture of experts reads, for one token of one sequence, the experts that are used: their share of all.
- The input embedding is a table of which one row is read. Where the output layer has no tensor of its own it
  is the same table, and then all of it is read. Of tables by layer or position it is always one row.
- What looks at pictures or sound, the encoder of a translator, and layers that only predict further tokens
  (MTP, NextN) are not run while decoding without drafts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

EXPERT = re.compile(r"_(ch)?exps\.|\.experts\.|\.switch_mlp\.|\.block_sparse_moe\.(input|output)_linear\.")
"""In names of GGUF (`ffn_up_exps.weight`), safetensors (`mlp.experts.3.up_proj`, Granite's two) and MLX
(`mlp.switch_mlp`); shared experts, which every token uses, are named otherwise."""
EMBEDDING = re.compile(r"(^|\.)(token_embd|embed_tokens|wte|word_embeddings|tok_embeddings|embed_in)\.\w+$")
OUTPUT = re.compile(r"(^|\.)((lm_head|embed_out|output_layer)\.\w+|output\.(weight|qweight|weight_packed))$")
ROWS = re.compile(
    r"(^|\.)(per_layer_token_embd|embed_tokens_per_layer|ngram_embedding|position_embd|embed_positions|wpe)\.\w+$"
)
"""Tables that are no output layer, of which a token reads a row, or one for each layer."""
NOT_DECODING = re.compile(
    r"^(model\.|thinker\.)?(visual|vision_\w+|audio_\w+|multi_modal_projector|mm_projector|encoder|enc|mtp)\."
)
LAYER = re.compile(r"^(?:blk|(?:\w+\.){0,3}?(?:layers|h))\.(\d{1,5})\.")


class Weights(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes in bytes."""

    total: int
    active: int | None
    """None where it cannot be told: experts without the numbers that say how many are used."""
    source: str
    """gguf, safetensors."""
    experts: int | None = None
    experts_used: int | None = None


def add_up(
    tensors: Mapping[str, int],
    experts: int | None,
    used: int | None,
    source: str,
    *,
    layers: int | None = None,
    tied: bool | None = None,
) -> Weights:
    """The sizes of a model.

    Args:
        tensors: name to bytes.
        experts: that a layer has, and below those that work on a token; None where it is not told.
        used: see above.
        source: see `Weights`.
        layers: that are run, where there are further ones; None where all are.
        tied: whether the output layer is the input embedding; None where tensors alone tell it.
    """
    outputs = [name for name in tensors if OUTPUT.search(name) and not NOT_DECODING.match(name)]
    total = sum(tensors.values())
    if tied and outputs and any(EMBEDDING.search(name) for name in tensors):
        twice = set(outputs)  # stored, and not loaded: the embedding is there for it
        tensors = {name: size for name, size in tensors.items() if name not in twice}
        total, outputs = sum(tensors.values()), []
    embedding_is_read = not outputs and tied is not False
    dense = routed = 0
    for name, size in tensors.items():
        if _is_idle(name, layers) or (EMBEDDING.search(name) and not embedding_is_read):
            continue
        if EXPERT.search(name):
            routed += size
        else:
            dense += size
    sparse = experts is not None and used is not None and 0 < used <= experts
    if not routed and not (sparse and used != experts):
        return Weights(total=total, active=dense, source=source)
    if (
        not routed or not sparse or experts is None or used is None
    ):  # experts whose tensors are named otherwise
        return Weights(total=total, active=None, source=source)
    active = dense + routed * used // experts
    return Weights(total=total, active=active, source=source, experts=experts, experts_used=used)


def _is_idle(name: str, layers: int | None) -> bool:
    """Whether decoding reads next to nothing of a tensor."""
    if NOT_DECODING.match(name) or ROWS.search(name):
        return True
    layer = LAYER.match(name) if layers is not None else None
    return layer is not None and layers is not None and int(layer[1]) >= layers
