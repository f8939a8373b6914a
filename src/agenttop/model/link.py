"""What a PCIe link can carry. Pure.

Source: PCI-SIG's transfer rates less the line code (8b/10b up to generation 2, 128b/130b from 3 on, flits
from 6 on): what is left for packets, in one direction.
"""

from __future__ import annotations

LANE_BYTES_S = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.97e9, 5: 3.94e9, 6: 7.56e9}
"""Generation to bytes per second of one lane."""


def link_bytes_s(generation: int | None, width: int | None) -> float | None:
    """What the link can move in one direction; None when it is not known."""
    lane = LANE_BYTES_S.get(generation or 0)
    return lane * width if lane and width else None


def link_share(
    received: float | None, sent: float | None, generation: int | None, width: int | None
) -> float | None:
    """The busier direction, as a share of what the link can move as it is now; None where not known."""
    rates = [rate for rate in (received, sent) if rate is not None]
    most = link_bytes_s(generation, width)
    return max(rates) / most if rates and most else None
