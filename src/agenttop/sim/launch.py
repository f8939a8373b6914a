"""A simulated engine as its owner sees it: start, address, stop."""

from __future__ import annotations

from typing import Self

from agenttop.child import ServerChild
from agenttop.errors import AgenttopError


class SimProcess(ServerChild):
    """`agenttop sim` as a child of this process."""

    def __init__(self, words: list[str]) -> None:
        super().__init__("-m", "agenttop", "sim", "--json", "--with-parent", *words)
        self.url = ""
        self.simulated = ""

    @classmethod
    def start(
        cls,
        host: str,
        model: str,
        *,
        wire: str = "vllm",
        speedup: float = 1.0,
        seed: int = 0,
        more: list[str] | None = None,
        timeout_s: float = 30.0,
    ) -> Self:
        """Start it and wait until it says where it listens. Blocks; call it in a thread from a loop.

        Args:
            host: a preset's name, or a file.
            model: the same.
            wire: vllm or llama.cpp.
            speedup: how many times faster than life it runs.
            seed: of its noise and its text.
            more: further words of the command line.
            timeout_s: how long to wait for it.

        Raises:
            AgenttopError: it did not start; says why.
        """
        words = ["--host", host, "--model", model, "--wire", wire, "--speedup", str(speedup)]
        words += ["--seed", str(seed), *(more or [])]
        engine = cls(words)
        try:
            engine._wait(timeout_s)
        except BaseException:
            engine.stop()
            raise
        return engine

    def _wait(self, timeout_s: float) -> None:
        try:
            report = self.report(timeout_s)
        except TimeoutError:
            raise AgenttopError(f"the simulated engine said nothing for {timeout_s:.0f} s") from None
        if report is None:
            self.ending()
            log = self.log_tail
            why = log[-1].removeprefix("agenttop: ") if log else "it left no message"
            raise AgenttopError(f"the simulated engine did not start: {why}")
        self.url, self.simulated = str(report["url"]), str(report["simulated"])
