"""Events come out whole, whatever the pieces they arrive in."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agenttop.wire.sse import SseError, SseParser

CAPTURES = sorted((Path(__file__).parent / "captures").glob("*.sse"))


def feed(parser: SseParser, *pieces: bytes) -> list[bytes]:
    return [event for piece in pieces for event in parser.feed(piece)]


def test_one_event_a_read() -> None:
    assert feed(SseParser(), b"data: a\n\n", b"data: b\n\n") == [b"a", b"b"]


def test_several_events_share_a_read() -> None:
    assert feed(SseParser(), b"data: a\n\ndata: b\n\ndata: c") == [b"a", b"b"]


def test_an_event_split_over_many_reads() -> None:
    assert feed(SseParser(), b"da", b"ta: {", b'"x": 1}', b"\n", b"\nda", b"ta: y\n\n") == [b'{"x": 1}', b"y"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_every_line_end(end: bytes) -> None:
    stream = end.join([b"event: message", b"data: a", b"", b": ping", b"", b"data: b", b"", b""])
    for cut in range(len(stream) + 1):
        parser = SseParser()
        # A lone CR at the very end may be half of a CRLF, but its line has ended all the same.
        assert feed(parser, stream[:cut], stream[cut:]) == [b"a", b"b"], cut
        assert parser.comments == 1


def test_comments_and_other_fields_are_read_over() -> None:
    parser = SseParser()
    assert feed(parser, b": keepalive 96/97\n\n", b"event: x\nid: 7\nretry: 10\ndata: a\n\n", b":\n\n") == [
        b"a"
    ]
    assert parser.comments == 2


def test_data_of_several_lines_is_joined() -> None:
    assert feed(SseParser(), b"data: a\ndata: b\n\n") == [b"a\nb"]


def test_data_without_a_space_and_with_colons() -> None:
    assert feed(SseParser(), b"data:a:b\n\ndata:  c\n\n") == [b"a:b", b" c"]


def test_the_error_field_of_older_builds_is_handed_out() -> None:
    assert feed(SseParser(), b'error: {"message": "no"}\n\n') == [b'{"message": "no"}']


def test_a_byte_order_mark_is_dropped() -> None:
    assert feed(SseParser(), b"\xef\xbb\xbfdata: a\n\n") == [b"a"]


def test_the_last_event_may_lack_its_blank_line() -> None:
    parser = SseParser()
    assert parser.feed(b"data: a\n\ndata: [DONE]\n") == [b"a"]
    assert parser.finish() == [b"[DONE]"]


def test_a_line_cut_in_the_middle_is_no_event() -> None:
    parser = SseParser()
    parser.feed(b'data: {"choices": [')
    assert parser.finish() == []


def test_an_endless_event_is_refused() -> None:
    parser = SseParser(limit=1000)
    with pytest.raises(SseError, match="larger than 1000 bytes"):
        feed(parser, *[b"data: " + b"x" * 50] * 1000)


def test_an_endless_event_of_many_lines_is_refused() -> None:
    parser = SseParser(limit=1000)
    with pytest.raises(SseError):
        feed(parser, *[b"data: x\n"] * 1000)


def test_tiny_reads_cost_no_more_than_their_bytes() -> None:
    """Quadratic work would cost the longer stream 16 times as much per byte."""

    def cost(size: int) -> float:
        parser = SseParser()
        stream = b"data: " + b"x" * size + b"\n\n"
        started = time.process_time()
        events = feed(parser, *(stream[at : at + 3] for at in range(0, len(stream), 3)))
        assert [len(event) for event in events] == [size]
        return (time.process_time() - started) / size

    small = min(cost(20_000) for _ in range(3))
    large = min(cost(320_000) for _ in range(3))
    assert large < 8 * small


@pytest.mark.parametrize("capture", CAPTURES, ids=lambda path: path.stem)
def test_captured_streams_do_not_depend_on_the_reads(capture: Path) -> None:
    stream = capture.read_bytes()
    whole = feed(SseParser(), stream)
    assert len(whole) == stream.count(b"data: ")
    rng = random.Random(1)
    for _ in range(5):
        cuts = sorted(rng.randrange(len(stream)) for _ in range(200))
        pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        assert feed(SseParser(), *pieces) == whole
    assert feed(SseParser(), stream.replace(b"\n", b"\r\n")) == whole


@given(
    st.lists(st.binary(max_size=30).map(lambda data: data.translate(None, b"\r\n")), max_size=8),
    st.lists(st.integers(0, 400), max_size=20),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_any_data_any_cut(payloads: list[bytes], cuts: list[int], end: bytes) -> None:
    stream = b"".join(b"data: " + payload + end + end for payload in payloads)
    points = sorted(min(cut, len(stream)) for cut in cuts)
    pieces = [stream[a:b] for a, b in zip([0, *points], [*points, len(stream)], strict=True)]
    assert feed(SseParser(), *pieces) == payloads
