import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.model import commands as c
from agenttop.model import frames as f
from agenttop.model.identity import identity
from agenttop.wire.codec import (
    LineSplitter,
    Unknown,
    WireError,
    decode_command,
    decode_driver_command,
    decode_frame,
    encode,
)


def filled(frame_type):
    """A frame of any type with every field set, made from the type itself."""
    values = {}
    for field in msgspec.structs.fields(frame_type):
        values[field.encode_name] = example(field.type)
    return msgspec.convert({**values, "kind": f.kind_of(frame_type)}, frame_type)


def example(kind):
    text = str(kind)
    if "list[int]" in text:
        return [1, 2]
    if "list[float]" in text:
        return [0.5]
    if "list[str]" in text:
        return ["a"]
    if "dict[str, str]" in text:
        return {"key": "value"}
    if "dict" in text:
        return {"key": 1}
    if "bool" in text:
        return True
    if "bytes" in text:
        return "AQID"
    if "str" in text:
        return "text"
    return 2


@pytest.mark.parametrize("frame_type", f.FRAME_TYPES, ids=lambda t: f.kind_of(t))
def test_every_frame_survives_the_wire(frame_type):
    frame = filled(frame_type)
    line = encode(frame)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_frame(line) == frame
    fields = msgspec.json.decode(line)
    assert fields["kind"] == f.kind_of(frame_type)
    assert "t" in fields


def test_a_frame_of_a_newer_kind_is_kept_as_it_came():
    line = b'{"kind":"quantum","t":4.5,"spin":[1,2]}'
    frame = decode_frame(line)
    assert frame == Unknown(t=4.5, kind="quantum", line=line)
    assert encode(frame) == line + b"\n"


def test_unknown_fields_of_a_known_kind_are_skipped():
    assert decode_frame(b'{"kind":"event","t":1,"event":"mark","text":"x","colour":"red"}') == f.Event(
        t=1, event="mark", text="x"
    )


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[]",
        b"hello",
        b'{"t":1}',
        b'{"kind":"event"}',
        b'{"kind":"host","t":"soon"}',
        b"\xff\xfe{",
        b"null",
    ],
)
def test_lines_that_are_no_frames_are_named_as_such(line):
    with pytest.raises(WireError, match="not a frame"):
        decode_frame(line)


@given(st.binary(max_size=200))
def test_no_line_however_odd_raises_anything_else(line):
    try:
        decode_frame(line)
    except WireError:
        pass
    try:
        decode_command(line)
    except WireError:
        pass


@pytest.mark.parametrize(
    "command",
    [
        c.StartAgents(engine="http://127.0.0.1:1", profile="human", target=4),
        c.SetTarget(target=3),
        c.AddAgents(count=-1),
        c.StopAgent(agent="a1"),
        c.StopAll(),
        c.Drain(),
        c.Pause(on=True),
        c.Mark(text="here"),
        c.RunPlan(engine="u", profile="busy", levels=[4, 8], seconds=60.0),
        c.Leave(),
        c.Quit(),
    ],
    ids=lambda command: type(command).__name__,
)
def test_every_command_survives_the_wire(command):
    assert decode_command(encode(command)) == command


def test_driver_commands_survive_the_wire():
    for command in (c.LaunchAgent(agent="a1", number=1, at=2.0), c.HaltAll(now=True), c.Shutdown()):
        assert decode_driver_command(encode(command)) == command


@given(
    st.lists(st.binary(min_size=1, max_size=20).filter(lambda b: b"\n" not in b and b.strip()), max_size=8),
    st.data(),
)
def test_lines_come_whole_however_the_bytes_are_cut(lines, data):
    stream = b"".join(line + b"\n" for line in lines)
    splitter = LineSplitter()
    got = []
    position = 0
    while position < len(stream):
        step = data.draw(st.integers(1, 7))
        got += splitter.feed(stream[position : position + step])
        position += step
    assert got == lines


def test_an_endless_line_is_dropped_and_the_next_one_read():
    splitter = LineSplitter(limit=100)
    assert list(splitter.feed(b"x" * 300)) == []
    assert list(splitter.feed(b"x" * 50 + b"\nnext\n")) == [b"next"]
    assert splitter.dropped == 1


def test_samples_replace_each_other_and_facts_do_not():
    assert identity(f.SlotSample(t=1, engine="e", slot=2, phase="idle")) == ("slot", "e", 2)
    assert identity(f.Event(t=1, event="mark", text="x")) is None
    assert identity(filled(f.Turn)) is None
