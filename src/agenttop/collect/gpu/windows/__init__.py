"""AMD and Intel GPUs under Windows, by its performance counters."""

from __future__ import annotations

from agenttop.collect.gpu.base import GpuKind
from agenttop.collect.gpu.windows.adapter import WindowsAdapter as WindowsAdapter

KIND = GpuKind(name="windows", proper="AMD or Intel", adapter=WindowsAdapter, platforms=("win32",), rank=5)
