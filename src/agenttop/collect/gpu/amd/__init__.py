"""AMD GPUs, from the files that the amdgpu driver shows below /sys."""

from agenttop.collect.gpu.amd.adapter import AmdAdapter
from agenttop.collect.gpu.base import GpuKind

KIND = GpuKind(name="amd", proper="AMD", adapter=AmdAdapter, platforms=("linux",), rank=2)
