"""The one place through which every call into NVIDIA's library goes.

`Nvml.query` turns the library's many ways to refuse into three: a value, None (this device or driver does
not tell, or not now), or an exception that ends the sample (the GPU, or the driver, is gone). What a device
has once refused for good is not asked again.

Error codes: NVIDIA's NVML reference, `nvmlReturn_t`.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from typing import Any

FOR_GOOD = frozenset({2, 3, 4, 13, 25, 26})
"""Invalid argument, not supported, no permission, function not found, version mismatch, deprecated."""
LOST = frozenset({15, 16})
"""GPU is lost (fell off the bus), reset required."""
GONE = frozenset({1, 9, 12, 18, 28})
"""Uninitialised, driver not loaded, library not found, library and driver differ, GPU not found."""

NO_PERMISSION, NO_FUNCTION, UNKNOWN = 4, 13, 999
SHADOWED = -1
"""No code of NVML: another module answers to the name of nvidia-ml-py's."""
NEEDED = "nvmlMemory_v2"
"""What the module of nvidia-ml-py has, and an old package `pynvml` that shadows it has not."""
MOST_UNKNOWN = 8

WHY_NO_INIT = {
    4: ("no permission to use the NVIDIA driver", "add this user to the group that owns /dev/nvidia*"),
    9: ("the NVIDIA driver is not loaded", "load it (modprobe nvidia), or reinstall the driver"),
    12: ("no NVIDIA driver (its library libnvidia-ml was not found)", None),
    18: (
        "the NVIDIA driver was updated while the old one still runs",
        "reboot, or reload the nvidia kernel modules",
    ),
    SHADOWED: (
        "an old package named pynvml stands in the place of nvidia-ml-py and does not fit the driver",
        "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py",
    ),
    999: ("the NVIDIA driver answers with an unknown error", "run nvidia-smi; a reboot may be needed"),
}


class GpuLostError(Exception):
    """This GPU does not answer any more."""


class DriverGoneError(Exception):
    """The library has to be opened again before anything can be asked. `code` is NVML's."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def library_exists() -> bool:
    """Whether NVIDIA's library is there at all, before 50 ms are spent on importing its Python side."""
    if sys.platform == "win32":
        return True  # pynvml knows the two folders to look in
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class Nvml:
    """An open library. Calls may come from two threads: NVML itself is thread-safe."""

    def __init__(self, *, attach: bool = True) -> None:
        """Open the library; `attach=False` leaves GPUs alone until a handle is asked for.

        Raises DriverGoneError.
        """
        try:
            import pynvml
        except ImportError as error:
            raise DriverGoneError(12) from error
        if not hasattr(pynvml, NEEDED):
            raise DriverGoneError(SHADOWED)
        self._pynvml = pynvml
        self.refusals: dict[tuple[str, object], int] = {}
        """Calls that are not made any more, with the code of the refusal."""
        self._unknown = 0
        """Calls in a row that ended with the unknown error."""
        try:
            if attach:
                pynvml.nvmlInit()
            else:
                pynvml.nvmlInitWithFlags(pynvml.NVML_INIT_FLAG_NO_ATTACH)
        except pynvml.NVMLError as error:
            raise DriverGoneError(_code(error)) from error

    def query(self, function: str, *arguments: Any, device: object = None) -> Any:
        """Call `nvml<function>`; None when it has no answer. Raises GpuLostError, DriverGoneError.

        `device` names the GPU (and the variant of the call) that a refusal for good is remembered for.
        """
        key = (function, device)
        if key in self.refusals:
            return None
        call = getattr(self._pynvml, f"nvml{function}", None)
        if call is None:  # an older nvidia-ml-py
            self.refusals[key] = NO_FUNCTION
            return None
        try:
            value = call(*arguments)
        except self._pynvml.NVMLError as error:
            code = _code(error)
            if code in LOST:
                raise GpuLostError from error
            if code in GONE:
                raise DriverGoneError(code) from error
            if code in FOR_GOOD:
                self.refusals[key] = code
            self._count_unknown(code)
            return None
        except (UnicodeDecodeError, ValueError):
            return None
        self._unknown = 0
        return value

    def fields(
        self, handle: Any, ids: Sequence[int | tuple[int, int]], *, device: object
    ) -> dict[int | tuple[int, int], tuple[float, bool]]:
        """Field values in one call: id to (value, whether it is a 32-bit counter); absent when refused."""
        values = self.query("DeviceGetFieldValues", handle, list(ids), device=device) if ids else None
        found: dict[int | tuple[int, int], tuple[float, bool]] = {}
        for asked, value in zip(ids, values or [], strict=False):
            if value.nvmlReturn in LOST:
                raise GpuLostError
            if value.nvmlReturn == 0 and (member := _MEMBERS.get(value.valueType)) is not None:
                found[asked] = (getattr(value.value, member), value.valueType == 1)
        return found

    def _count_unknown(self, code: int) -> None:
        """Raises DriverGoneError where nothing but the unknown error comes any more: in a container whose
        devices were taken away (a reload of the host's service manager does that) opening anew may help."""
        self._unknown = self._unknown + 1 if code == UNKNOWN else 0
        if self._unknown >= MOST_UNKNOWN:
            self._unknown = 0
            raise DriverGoneError(UNKNOWN)

    def constant(self, name: str) -> Any:
        """A constant of the library; None in an nvidia-ml-py too old to know it."""
        return getattr(self._pynvml, name, None)

    def close(self) -> None:
        """Shut the library down; a library that is gone already is fine."""
        try:
            self._pynvml.nvmlShutdown()
        except self._pynvml.NVMLError:
            pass


_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
"""`nvmlValueType_t` to the member of the union that holds the value."""


def _code(error: Exception) -> int:
    return int(getattr(error, "value", 999))
