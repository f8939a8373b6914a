"""The hub: one place every frame passes, in order, into file, history and consoles."""

from agenttop.model.frames import Event, HostSample, RecordingState, Turn
from agenttop.node.hub import Hub
from agenttop.wire.codec import LineSplitter, decode_frame


class Console:
    def __init__(self):
        self.frames = []
        self._splitter = LineSplitter()

    def offer(self, lines):
        self.frames += [decode_frame(line) for line in self._splitter.feed(lines)]


class File:
    """A recorder whose disk fills up after `room` frames."""

    def __init__(self, room=1000):
        self.frames, self.room, self.failure, self.closed = [], room, None, False

    def add(self, frame):
        if len(self.frames) >= self.room:
            self.failure = "no space left on the disk of x.agenttop"
        else:
            self.frames.append(frame)

    def commit(self):
        pass

    def close(self):
        self.closed = True

    @property
    def size_bytes(self):
        return 10 * len(self.frames)


def host(t):
    return HostSample(t=t, cpu_fraction=0.5)


def test_frames_reach_file_and_consoles_in_the_order_they_came():
    sink, console = File(), Console()
    hub = Hub(lambda: 9.0, sink, "x.agenttop")
    hub.join(console)
    hub.publish([host(1.0), host(2.0)])
    hub.event("mark", "here", source="you")
    assert [frame.t for frame in console.frames] == [1.0, 2.0, 9.0]
    assert sink.frames == console.frames


def test_a_console_that_comes_late_is_brought_to_the_present():
    hub = Hub(lambda: 9.0, None, None)
    hub.publish([host(1.0), Event(t=1.5, event="mark", text="early"), host(2.0)])
    console = Console()
    hub.join(console)
    assert [frame.t for frame in console.frames] == [1.0, 1.5, 2.0]


def test_what_happened_long_before_the_window_still_counts():
    hub = Hub(lambda: 0.0, None, None)
    hub.publish([Event(t=1.0, event="mark", text="early"), host(1.0), host(2.0)])
    hub.publish([Event(t=5000.0, event="mark", text="late")])
    console = Console()
    hub.join(console)
    assert [frame.t for frame in console.frames] == [1.0, 2.0, 5000.0]


def test_a_full_disk_ends_the_recording_and_not_the_session():
    sink, console = File(room=2), Console()
    hub = Hub(lambda: 3.0, sink, "x.agenttop")
    hub.join(console)
    for t in range(5):
        hub.publish([host(float(t))])
    assert [frame.t for frame in console.frames if isinstance(frame, HostSample)] == [0.0, 1.0, 2.0, 3.0, 4.0]
    states = [frame for frame in console.frames if isinstance(frame, RecordingState)]
    assert [(state.state, state.why) for state in states] == [
        ("stopped", "no space left on the disk of x.agenttop")
    ]
    assert any(isinstance(frame, Event) and frame.severity == "bad" for frame in console.frames)


def test_events_that_follow_from_a_frame_come_right_after_it():
    console = Console()
    hub = Hub(lambda: 3.0, None, None)
    hub.join(console)
    hub.publish([Turn(t=2.0, agent="a1", engine="u", profile="p", turn=1, t_queued=0.0, error_kind="stall")])
    assert [type(frame).__name__ for frame in console.frames] == ["Turn", "Event"]
