"""What does not change about a host: name, system, CPU, cores, memory."""

from __future__ import annotations

import contextlib
import platform
import re
import socket
import sys
from pathlib import Path

import psutil

from agenttop.model.text import clean


def host_facts() -> dict[str, str | int | None]:
    """`host`, `os`, `cpu`, `cores_physical`, `cores_logical`, `ram_total_bytes`."""
    return {
        "host": clean(socket.gethostname(), 64) or "unknown",
        "os": clean(_os_name(), 100),
        "cpu": cpu_name(),
        "cores_physical": cores_physical(),
        "cores_logical": psutil.cpu_count(),
        "ram_total_bytes": psutil.virtual_memory().total,
    }


def cores_physical() -> int | None:
    """Of this host, as psutil counts them."""
    return psutil.cpu_count(logical=False)


def _os_name() -> str:
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            name = platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
            return f"{name}, kernel {platform.release()}"
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    return f"{platform.system()} {platform.release()} {platform.version()}"


def cpu_name() -> str | None:
    """As the CPU calls itself; a board's name where it does not."""
    if sys.platform == "linux":
        for path in ("/proc/cpuinfo", "/proc/device-tree/model"):
            with contextlib.suppress(OSError):
                text = Path(path).read_text(errors="replace")
                match = re.search(r"^(?:model name|Model|cpu model)\s*:\s*(.+)", text, re.MULTILINE)
                found = match[1] if match else (text if "device-tree" in path else "")
                if found.strip("\0 \n"):
                    return clean(found.strip("\0"), 100)
    return clean(platform.processor() or platform.machine(), 100) or None
