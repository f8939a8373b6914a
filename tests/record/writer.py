"""A process that records until it is killed: `python -m tests.record.writer FILE [LIMIT_BYTES]`.

Prints the `t` of every commit once it is done. With a limit, files may not grow beyond it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agenttop.record.write import Recorder
from tests.record.build import session, tick


def main() -> None:
    path = Path(sys.argv[1])
    if len(sys.argv) > 2:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = int(sys.argv[2])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    recorder = Recorder(path, session())
    sys.stdout.write("0.0\n")
    sys.stdout.flush()
    t = 0.0
    while recorder.failure is None:
        t += 1.0
        for frame in tick(t):
            recorder.add(frame)
        recorder.commit()
        if recorder.failure is None:
            sys.stdout.write(f"{t}\n")
            sys.stdout.flush()
    sys.stdout.write(recorder.failure + "\n")
    recorder.add(tick(t)[0])
    recorder.commit()
    recorder.close()


if __name__ == "__main__":
    main()
