"""The frame types: wire format, tables of a recording and columns of the analysis in one place.

Rules
- `t` is seconds since the session began (monotonic). The wall-clock origin stands once, in `Session`.
- Missing is `None`, never 0. Why it is missing is said once, in a `Missing` frame.
- The unit is in the name: `_s` seconds, `_bytes`, `_tokens`, `_tok_s` tokens per second, `_w` watts,
  `_c` degrees Celsius, `_mhz`; a `_fraction` is 0..1.
- Every rate states its window (`window_s`) or has it in its docstring.
- A field is added by adding it here: the codec, the tables and the exports follow from these types.
  Fields are only ever added, and only optional ones, within one schema number.
"""

from __future__ import annotations

import msgspec

SCHEMA = 1
"""Raised only when an old reader would misread a new file; added fields and kinds do not raise it."""


class Frame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """What every frame has."""

    t: float
    """Seconds since the session began."""
