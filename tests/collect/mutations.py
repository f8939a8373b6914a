"""Replies that have gone wrong: bytes changed, cut, doubled, numbers and words replaced."""

from __future__ import annotations

import re

from hypothesis import strategies as st

_ODD = [
    b"NaN",
    b"-1",
    b"1e999",
    b"+Inf",
    b"-Infinity",
    b"9" * 400,
    b"null",
    b'"x"',
    b"[]",
    b"{}",
    b"",
    b"true",
]
_NOISE = [b"\x1b[2J", b"\x00", b"\xff\xfe", b'"', b"}", b"\n", b"{" * 40, "\u202e".encode(), b" 1 2 3"]


@st.composite
def mutated(draw: st.DrawFn, body: bytes) -> bytes:
    """`body` with up to six things wrong."""
    for _ in range(draw(st.integers(1, 6))):
        if not body:
            break
        place = draw(st.integers(0, len(body) - 1))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            body = body[:place]
        elif kind == 1:
            body = body[:place] + draw(st.sampled_from(_NOISE)) + body[place:]
        elif kind == 2:
            number = re.compile(rb"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?").search(body, place)
            if number:
                body = body[: number.start()] + draw(st.sampled_from(_ODD)) + body[number.end() :]
        elif kind == 3:
            body = body[:place] + bytes([draw(st.integers(0, 255))]) + body[place + 1 :]
        elif kind == 4:
            body = body[:place] + body[place + draw(st.integers(1, 200)) :]
        else:
            line = body.find(b"\n", place)
            body = body[: line + 1] + body[place:]
    return body
