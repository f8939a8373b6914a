"""How the console reads its terminal, where Textual's own way would end it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from textual.driver import Driver


def driver_class() -> type[Driver] | None:
    """Textual's driver for this system, made to outlive bytes that are no UTF-8; None: as it is.

    A terminal of another encoding sends such bytes for every accented key, and so does a paste.
    """
    if sys.platform == "win32":
        return None  # keys come as characters there
    from textual.drivers.linux_driver import LinuxDriver

    class ForgivingDriver(LinuxDriver):
        """Drops what it cannot read and reads on."""

        def run_input_thread(self) -> None:
            while not self.exit_event.is_set():
                try:
                    super().run_input_thread()
                except UnicodeDecodeError:
                    continue

    return ForgivingDriver
