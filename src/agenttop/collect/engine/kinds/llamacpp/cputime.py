"""Whether the server's process works, told from outside: by its CPU time, on Linux.

A server that may fall asleep has to be left alone until it does, and every question that tells whether it
works starts its timer anew. Its CPU time does not: an idle llama-server uses none, and each token takes some.
"""

from __future__ import annotations

import os
from pathlib import Path

AT_WORK_S = 0.03
"""CPU seconds from one look to the next. Answering `/props` takes less than a millisecond."""


def cpu_seconds(pid: int | None) -> float | None:
    """Used so far by the process, its children not counted; None where that cannot be seen."""
    if pid is None:
        return None
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):  # AttributeError: Windows has no sysconf
        return None
