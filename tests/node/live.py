"""A session under test: a real node, driven as a console drives it, and everything it said."""

import contextlib
import time

from agenttop.model.clock import SystemClock
from agenttop.model.commands import Quit
from agenttop.model.frames import AgentSample, EngineSample, Event, LoadSample, Session, SlotSample, Turn
from agenttop.node.settings import NodeSettings
from agenttop.stream.lines import ChildSource


class Live:
    """Collects the frames of a source and waits for what a test expects in them."""

    def __init__(self, source):
        self.source = source
        self.frames = []
        self.ended = None
        self.now = 0.0

    def take(self):
        batch = self.source.take()
        self.frames += batch.frames
        self.ended = batch.ended
        self.now = batch.now
        return batch

    def until(self, look, timeout_s=30.0, what=""):
        """Take frames until `look()` gives something true; return that."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.take()
            if seen := look():
                return seen
            assert time.monotonic() < deadline, (
                f"waited {timeout_s:g} s in vain for {what or look}: {self.story()}"
            )
            assert self.ended is None or look(), f"the session ended: {self.ended}: {self.story()}"
            self.source.wait(0.05)

    def until_ended(self, timeout_s=30.0):
        deadline = time.monotonic() + timeout_s
        while self.take().ended is None:
            assert time.monotonic() < deadline, f"the session goes on: {self.story()}"
            self.source.wait(0.05)
        return self.ended

    def story(self):
        return [(round(event.t, 1), event.event, event.text) for event in self.of(Event)]

    def of(self, kind):
        return [frame for frame in self.frames if isinstance(frame, kind)]

    def event(self, name):
        return next((event for event in self.of(Event) if event.event == name), None)

    def newest(self, kind, **where):
        for frame in reversed(self.frames):
            if isinstance(frame, kind) and all(getattr(frame, key) == value for key, value in where.items()):
                return frame
        return None

    @property
    def session(self):
        return self.newest(Session)

    @property
    def engine(self):
        return self.newest(EngineSample)

    @property
    def load(self):
        return self.newest(LoadSample)

    @property
    def turns(self):
        return self.of(Turn)

    def agents(self):
        return {frame.agent: frame for frame in self.of(AgentSample)}

    def slots(self):
        return {frame.slot: frame for frame in self.of(SlotSample)}


@contextlib.contextmanager
def live(**settings):
    """A node with these settings; ended, and if need be killed, when the block is left."""
    settings.setdefault("discover", False)
    source = ChildSource(NodeSettings(**settings).argv(), SystemClock())
    session = Live(source)
    try:
        session.until(lambda: session.session, what="the session frame")
        yield session
    finally:
        source.send(Quit())
        if source.wait_exit(20.0) is None:
            source.process.kill()
            source.process.wait()
        source.close()
        source.process.stdout.close()
