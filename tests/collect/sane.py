"""What every GPU sample must be, whatever a file or a driver says."""

from __future__ import annotations

import math

from agenttop.model.frames import GpuSample

HOSTILE: list[str | bytes] = [b"", b"\xff\xfe\x00", "garbage", "-1", "9" * 400, "nan", "4294967295", "1 2 3"]
"""Contents that a file of numbers may turn out to have."""


def assert_sane(sample: GpuSample) -> None:
    """No figure is negative, infinite or no number; no share is above 1."""
    for name in sample.__struct_fields__:
        value = getattr(sample, name)
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert math.isfinite(value), name
            assert value >= (-40 if name.endswith("_c") else 0), name
            if name.endswith("_fraction"):
                assert value <= 1, name
