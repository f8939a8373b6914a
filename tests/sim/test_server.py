"""The server around the simulated engine: connections, requests, time."""

from __future__ import annotations


def test_a_reply_arrives(start_sim):
    engine = start_sim()
    stream = engine.stream(max_tokens=5)
    assert (stream.status, stream.done, stream.ended) == (200, True, "end")
    assert stream.usage["completion_tokens"] == 5
    assert len(stream.text) == 20
