"""What sampling NVIDIA GPUs costs: `python benchmarks/bench_gpu.py [LOOKS]`.

The unmodified nvidia-ml-py on the stand-in library of the tests, whose calls cost next to nothing, so this
is what agenttop and nvidia-ml-py take; a real driver adds its own (public measurements: 1 to 4 ms a look).
Looks are a second apart on the adapter's clock, and as fast as they go on the machine's.

Last figures (2 cores of an EPYC, Python 3.11): one GPU 0.03 CPU-seconds a minute (0.5 ms a look), eight 0.24.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.collect import nvml
from tests.collect.nvml.rig import H100

LOOKS = 600


def measure(looks: int) -> None:
    """In the process that has the library: CPU-seconds for a minute of looks."""
    from agenttop.collect.gpu.nvidia import NvidiaAdapter
    from agenttop.model.clock import ManualClock

    clock = ManualClock(1000.0)
    adapter = NvidiaAdapter(clock, Path(tempfile.gettempdir()) / "no-root")
    adapter.open(0.0)
    for _ in range(20):
        clock.advance(1.0)
        adapter.sample(clock.now)
    begun = time.process_time()
    for _ in range(looks):
        clock.advance(1.0)
        reading = adapter.sample(clock.now)
    spent = (time.process_time() - begun) * 60 / looks
    adapter.close()
    print(
        f"{len(reading.samples)} GPU(s): {spent:.3f} CPU-seconds a minute, {spent / 60 * 1e3:.2f} ms a look"
    )


def main() -> None:
    """One GPU and eight."""
    looks = int(sys.argv[1]) if len(sys.argv) > 1 else LOOKS
    if why := nvml.why_not():
        sys.exit(why)
    with tempfile.TemporaryDirectory() as folder:
        for count in (1, 8):
            script = Path(folder) / "script"
            values: dict[str, object] = {"count": count, "SystemGetDriverVersion": "580.95.05"}
            for index in range(count):
                values |= {f"{index}.{name}": value for name, value in H100.items()}
                values |= {f"{index}.DeviceGetUUID": f"GPU-{index}", f"{index}.bus": f"0000:0{index}:00.0"}
            nvml.write(script, values)
            environment = {**os.environ, **nvml.environment(script)}
            subprocess.run([sys.executable, __file__, "--measure", str(looks)], env=environment, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        measure(int(sys.argv[2]))
    else:
        main()
