"""Captured replies of real servers (tests/samples)."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

ROOT = Path(__file__).parents[1] / "samples"


def body(name: str) -> bytes:
    return (ROOT / name).read_bytes()


def series(name: str) -> list[tuple[float, bytes]]:
    """(time of arrival in seconds, body) of every good reply."""
    packed = (ROOT / name).read_bytes()
    text = (gzip.decompress(packed) if name.endswith(".gz") else packed).decode()
    replies = [json.loads(line) for line in text.splitlines()]
    return [
        (reply["t"] + reply["latency_ms"] / 1000, reply["body"].encode())
        for reply in replies
        if reply["status"] == 200
    ]
