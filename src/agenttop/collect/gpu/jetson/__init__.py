"""Jetson boards before Thor: NVML tells nothing there, the kernel's own files do."""

from __future__ import annotations

from agenttop.collect.gpu.base import GpuKind
from agenttop.collect.gpu.jetson.adapter import JetsonAdapter as JetsonAdapter

KIND = GpuKind(name="jetson", proper="NVIDIA Jetson", adapter=JetsonAdapter, platforms=("linux",), rank=1)
