"""NVIDIA GPUs through nvidia-ml-py."""

from __future__ import annotations

from agenttop.collect.gpu.base import GpuKind
from agenttop.collect.gpu.nvidia.adapter import NvidiaAdapter as NvidiaAdapter

KIND = GpuKind(name="nvidia", proper="NVIDIA", adapter=NvidiaAdapter, platforms=("linux", "win32"), rank=0)
