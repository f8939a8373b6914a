"""The GPU of a Mac with Apple silicon: macmon where it is installed, and what macOS itself tells."""

from __future__ import annotations

from agenttop.collect.gpu.apple.adapter import AppleAdapter as AppleAdapter
from agenttop.collect.gpu.base import GpuKind

KIND = GpuKind(name="apple", proper="Apple", adapter=AppleAdapter, platforms=("darwin",), rank=4)
