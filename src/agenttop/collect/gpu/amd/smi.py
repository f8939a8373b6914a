"""AMD's own library, amdsmi: only for Instinct cards whose `gpu_metrics` this agenttop cannot decode.

Everything it tells, the driver's files tell as well and cheaper; what remains is a card or driver newer than
the layouts known here. Of those it tells what holds the clocks down.

Rules
- Never where a card sleeps: the library opens all of them.
- Never in the sampling path: one call takes two looks of its own with a pause between.
- The package on the package index holds no library; without ROCm its import prints, and raises a KeyError.
  Whatever import and start print goes nowhere.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from agenttop.model.clock import Clock

OFFICIAL = "opt/rocm/share/amd_smi"
"""Where ROCm puts the Python side that fits its library."""
WORDS = {
    "prochot_thrm": "prochot",
    "ppt_pwr": "power cap",
    "socket_thrm": "thermal (socket)",
    "vr_thrm": "thermal (vr)",
    "hbm_thrm": "thermal (memory)",
}
_PERIOD_S = 2.0
_FRESH_S = 10.0


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Descriptors 1 and 2 lead nowhere: libraries in C write to them without asking Python."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    kept = os.dup(1), os.dup(2)
    try:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        for to, saved in zip((1, 2), kept, strict=True):
            os.dup2(saved, to)
            os.close(saved)
        os.close(nowhere)


def load(root: str = "/") -> Any:
    """The started library, or None where there is none that works. Never raises, never prints."""
    with silence():
        for folder in (os.path.join(root, OFFICIAL), None):  # noqa: PTH118 - text, as all paths of this package
            if folder is not None and not os.path.isdir(folder):  # noqa: PTH112
                continue
            library = _started(folder)
            if library is not None:
                return library
    return None


def _started(folder: str | None) -> Any:
    if folder is not None:
        sys.path.insert(0, folder)
    try:
        library = importlib.import_module("amdsmi")
        library.amdsmi_init()
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException:  # noqa: BLE001 - whatever a foreign package raises; some of them end the program
        for name in [name for name in sys.modules if name == "amdsmi" or name.startswith("amdsmi.")]:
            del sys.modules[name]
        return None
    else:
        return library
    finally:
        if folder is not None:
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)


def violations(library: Any, handle: Any) -> dict[str, float] | None:
    """Share of the library's last window spent in each state; None where it tells none."""
    try:
        status = library.amdsmi_get_violation_status(handle)
    except Exception:  # noqa: BLE001 - a foreign package
        return None
    if not isinstance(status, dict):
        return None
    found = {words: status.get(f"per_{name}") for name, words in WORDS.items()}
    # bool is a number in Python, and what is not told is the text N/A.
    shares = {
        words: value / 100
        for words, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100
    }
    return shares or None


class Violations:
    """Asks the library in a thread of its own."""

    def __init__(self, root: str, clock: Clock, period_s: float = _PERIOD_S) -> None:
        self._clock = clock
        self._period_s = period_s
        self._latest: dict[str, tuple[float, dict[str, float]]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(root,), name="amdsmi", daemon=True)
        self._thread.start()

    def latest(self, bus: str) -> dict[str, float] | None:
        """Of the last few seconds."""
        at, shares = self._latest.get(bus, (0.0, None))
        return shares if shares is not None and self._clock.monotonic() - at <= _FRESH_S else None

    def close(self) -> None:
        """End the thread; one that hangs in the library is left behind (it is a daemon)."""
        self._stop.set()
        self._thread.join(1.0)

    def _run(self, root: str) -> None:
        library = load(root)
        if library is None:
            return
        try:
            handles = {str(library.amdsmi_get_gpu_device_bdf(each)).lower(): each for each in _all(library)}
            while not self._stop.is_set():
                for bus, handle in handles.items():
                    shares = violations(library, handle)
                    if shares is not None:
                        self._latest[bus] = self._clock.monotonic(), shares
                self._stop.wait(self._period_s)
        except Exception:  # noqa: BLE001 - a foreign package: it is asked no more
            pass
        finally:
            with contextlib.suppress(Exception):
                library.amdsmi_shut_down()


def _all(library: Any) -> list[Any]:
    return list(library.amdsmi_get_processor_handles())
