"""Runs the NVIDIA adapter in a process of its own, on a clock that is told how late it is.

Reads one command a line (`detect`, `open`, `sample SECONDS`, `close`) and answers each with one JSON line.
Started by rig.py, with the library path set: a library is looked for once in the life of a process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from agenttop.collect.gpu.detect import detect
from agenttop.collect.gpu.nvidia import NvidiaAdapter
from agenttop.model.clock import ManualClock


def main() -> None:
    root = Path(sys.argv[1])
    clock = ManualClock(1000.0)
    adapter = NvidiaAdapter(clock, root)
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        reply: object = None
        if command == "detect":
            found = detect(0.0, root)
            reply = [[each.vendor for each in found.adapters], msgspec.to_builtins(found.missing)]
            for each in found.adapters:
                each.close()
        elif command == "open":
            reply = msgspec.to_builtins(adapter.open(0.0).missing)
        elif command == "sample":
            clock.advance(float(argument))
            reading = adapter.sample(clock.now)
            reply = {
                "samples": [msgspec.structs.asdict(sample) for sample in reading.samples],
                "missing": {frame.what: [frame.why, frame.fix] for frame in reading.missing},
                "holders": reading.holders,
            }
        elif command == "close":
            adapter.close()
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
