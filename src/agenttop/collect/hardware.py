"""What the machine is made of: sockets, NUMA nodes, memory modules. Read once."""

from __future__ import annotations

import os
from pathlib import Path

from agenttop.model.frames import Hardware


def hardware(t: float, root: Path = Path("/")) -> Hardware:
    """What can be read without special rights. `root` is where /proc, /sys and /run are found."""
    return Hardware(t=t, cores_logical=os.cpu_count())
