"""Intel GPUs by i915 and xe: files of the kernel, and what it tells of each process."""

from __future__ import annotations

from agenttop.collect.gpu.base import GpuKind
from agenttop.collect.gpu.intel.adapter import IntelAdapter as IntelAdapter

KIND = GpuKind(name="intel", proper="Intel", adapter=IntelAdapter, platforms=("linux",), rank=3)
