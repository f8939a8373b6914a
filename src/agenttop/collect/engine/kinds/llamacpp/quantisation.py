"""How a model's weights are quantised, in llama.cpp's own words or by the name of its file. Pure."""

from __future__ import annotations

import re

from agenttop.model.text import clean

_IN_NAME = re.compile(
    r"""(?<![A-Za-z0-9])(
        (?:UD-)?(?:I?Q[1-8](?:_[0-9A-Z]{1,3}){0,4} | TQ[12]_0)
      | MXFP4(?:_MOE)? | NVFP4 | BF16 | F16 | F32 | FP16 | FP8
    )(?![A-Za-z0-9])""",
    re.VERBOSE | re.IGNORECASE,
)


def quantisation(model_ftype: str | None, file_name: str | None) -> str | None:
    """`Q4_K - Medium` where the server tells it, else `Q4_K_M` by the name of its file, else None."""
    told = clean(model_ftype or "", 40).removeprefix("(guessed) ").strip()
    if told and not told.lower().startswith("unknown"):
        return told
    found = _IN_NAME.findall(re.split(r"[/\\]", file_name or "")[-1][:200])
    return found[-1].upper() if found else None
