"""What recording costs: `python benchmarks/bench_record.py [SECONDS]`.

A host, 2 GPUs, 16 slots and 16 agents that decode without a pause at 50 tok/s each, sampled at 1 Hz, through
the real recorder with one commit per second of session time; then what reading it back costs. Then three
engines that are watched side by side, without agents: vLLM with four ranks and its latencies, a router with
three models and eight slots, Ollama with one.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import msgspec
from tests.record.build import session, session_frames
from tests.view import engine_scenes as kinds
from tests.view import scenes

from agenttop.model.frames import Frame, PartSample, Turn
from agenttop.record.read import Recording
from agenttop.record.write import Recorder
from agenttop.stream.history import HISTORY_S
from agenttop.stream.replay import MOST_FRAMES


def by_second(seconds: int, pause: bool) -> list[list[Frame]]:
    """Frames of one session, second by second."""
    frames = session_frames(
        [(16, float(seconds))], slots=16, gpus=2, stagger=0.0, pause=2.0 if pause else 0.0
    )
    split: list[list[Frame]] = [[] for _ in range(int(frames[-1].t) + 2)]
    for frame in frames:
        split[max(0, int(frame.t + 0.75))].append(frame)
    return split


def engines(seconds: int) -> list[list[Frame]]:
    """Frames of three engines, second by second."""
    split: list[list[Frame]] = []
    for t in range(1, seconds + 1):
        frames: list[Frame] = [scenes.host(t), *(scenes.gpu(t, index) for index in range(2))]
        frames += [kinds.vllm(t, running=20 + t % 5), *kinds.ranks(t)]
        frames += [kinds.router(t), *kinds.router_parts(t), *kinds.router_slots(t)]
        frames += [kinds.ollama(t), *kinds.ollama_parts(t)]
        frames += kinds.vllm_latencies(t) if t % 5 == 0 else []
        # Two of the ranks are at work: what they hold is never the same.
        split.append([_moving(frame, t) for frame in frames])
    return split


def _moving(frame: Frame, t: int) -> Frame:
    if isinstance(frame, PartSample) and frame.part in ("0", "1"):
        return msgspec.structs.replace(frame, kv_used_tokens=(frame.kv_used_tokens or 0) + t)
    return frame


def write(path: Path, seconds: list[list[Frame]]) -> tuple[float, float]:
    """CPU and wall seconds per second of session."""
    recorder = Recorder(path, session())
    cpu, wall = time.process_time(), time.perf_counter()
    for frames in seconds:
        for frame in frames:
            recorder.add(frame)
        recorder.commit()
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    recorder.close()
    assert recorder.failure is None, recorder.failure
    return cpu / len(seconds), wall / len(seconds)


def timed(name: str, work: Callable[[], Any]) -> None:
    """Print the CPU time of one piece of work."""
    begun = time.process_time()
    result = work()
    took = time.process_time() - begun
    print(f"  {name:44} {took * 1000:8.1f} ms  ({len(result)} frames)")


def main() -> None:
    """Print all figures."""
    length = int(sys.argv[1]) if len(sys.argv) > 1 else 600
    with tempfile.TemporaryDirectory() as folder:
        for name, pause in (
            ("agents that pause 2 s between turns", True),
            ("agents that never pause", False),
        ):
            path = Path(folder) / f"{pause}.agenttop"
            seconds = by_second(length, pause)
            frames = [frame for some in seconds for frame in some]
            turns = [frame for frame in frames if isinstance(frame, Turn)]
            cpu, wall = write(path, seconds)
            size = path.stat().st_size / len(seconds)
            packed = sum(len(turn.arrivals or b"") for turn in turns) / len(seconds)
            print(
                f"{name}: {len(frames) / len(seconds):.1f} frames/s, {len(turns) / len(seconds):.1f} turns/s"
            )
            print(f"  writing: {cpu * 1000:.2f} ms of CPU and {wall * 1000:.2f} ms in all per second")
            per_day = size * 86400 / 1e6
            print(
                f"  size: {size / 1000:.2f} kB/s = {per_day:.0f} MB a day, {packed / size:.0%} of it arrivals"
            )
        seconds = engines(length)
        beside = Path(folder) / "engines.agenttop"
        cpu, _ = write(beside, seconds)
        size = beside.stat().st_size / length
        print(f"three engines, no agents: {sum(map(len, seconds)) / length:.1f} frames/s")
        print(f"  writing: {cpu * 1000:.2f} ms of CPU per second")
        print(f"  size: {size / 1000:.2f} kB/s = {size * 86400 / 1e6:.0f} MB a day")
        with Recording(path) as recording:
            end = recording.duration
            timed("everything", recording.frames)
            timed(
                "a seek to the end (300 s window)", lambda: recording.state_at(end, HISTORY_S, MOST_FRAMES)[0]
            )
            timed("a quarter of a second at 64x", lambda: recording.news(end / 2, end / 2 + 16, 1 << 62)[0])
            timed("the state at one moment", lambda: recording.latest_before(end / 2))


if __name__ == "__main__":
    main()
