"""Frames leave in whole lines; a reader that lags costs samples, never turns and never the loop's time."""

from __future__ import annotations

import os
import threading
import time

from agenttop.agents.outbox import CROWDED_BYTES, Outbox
from agenttop.model.frames import AgentSample, Event, Frame
from agenttop.wire.codec import LineSplitter, decode_frame
from tests.waiting import until


def sample(number: int) -> AgentSample:
    return AgentSample(
        t=float(number), agent="a" * 1000, engine="e", profile="p", state="tool", state_since=0.0
    )


def read_all(descriptor: int) -> list[Frame]:
    splitter = LineSplitter()
    frames: list[Frame] = []
    while data := os.read(descriptor, 65536):
        frames += [decode_frame(line) for line in splitter.feed(data)]
    os.close(descriptor)
    return frames


def test_a_lagging_reader() -> None:
    reading, writing = os.pipe()
    outbox = Outbox(writing)
    began = time.monotonic()
    for number in range(5000):
        outbox.add(sample(number), may_drop=True)
        outbox.add(Event(t=float(number), event="x", text="once"))
        outbox.flush()
    assert time.monotonic() - began < 10  # nobody reads, and nothing waited for it
    assert outbox.crowded
    assert 0 < outbox.dropped < 5000
    frames: list[Frame] = []
    reader = threading.Thread(target=lambda: frames.extend(read_all(reading)))
    reader.start()
    until(lambda: not outbox.crowded, what="the backlog to shrink")
    outbox.close()
    os.close(writing)
    reader.join()
    events = [frame.t for frame in frames if isinstance(frame, Event)]
    assert events == [float(number) for number in range(5000)]
    assert sum(isinstance(frame, AgentSample) for frame in frames) == 5000 - outbox.dropped
    assert CROWDED_BYTES < 2**21


def test_a_reader_that_is_gone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    outbox = Outbox(writing)
    outbox.add(Event(t=0.0, event="x", text="y"))
    outbox.flush()
    until(lambda: outbox.broken, what="the broken pipe")
    outbox.add(Event(t=0.0, event="x", text="y"))
    outbox.close()
    os.close(writing)
