"""Frames and commands as JSON lines.

Grammar: one JSON object a line, UTF-8, `\n` at the end; frames carry `kind` and `t`, commands `do`.
A kind this version does not know is kept as `Unknown` with its line, so that a newer node can be
recorded by an older console and nothing is lost; unknown fields of a known kind are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from agenttop.model.commands import AnyCommand, AnyDriverCommand, Command, DriverCommand
from agenttop.model.frames import FRAME_TYPES, Frame, kind_of

MAX_LINE_BYTES = 8 * 1024 * 1024
"""A line longer than this is not one of ours; it is dropped and counted."""


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """A frame of a kind this version does not know, kept as it came."""

    t: float
    kind: str
    line: bytes


class WireError(ValueError):
    """A line that is no frame or command; the message says what was wrong with it."""


class _Head(msgspec.Struct):
    kind: str
    t: float


_encoder = msgspec.json.Encoder()
_decoders: dict[str, msgspec.json.Decoder[Frame]] = {
    kind_of(frame_type): msgspec.json.Decoder(frame_type) for frame_type in FRAME_TYPES
}
_head = msgspec.json.Decoder(_Head)
_command = msgspec.json.Decoder(AnyCommand)
_driver_command = msgspec.json.Decoder(AnyDriverCommand)


def encode(value: Frame | Unknown | Command | DriverCommand) -> bytes:
    """One line, with its newline."""
    if isinstance(value, Unknown):
        return value.line + b"\n"
    return _encoder.encode(value) + b"\n"


def decode_frame(line: bytes) -> Frame | Unknown:
    """One line to a frame. Raises WireError."""
    line = line.strip()
    try:
        head = _head.decode(line)
        decoder = _decoders.get(head.kind)
        if decoder is None:
            return Unknown(t=head.t, kind=head.kind, line=line)
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not a frame: {error}") from error


def decode_command(line: bytes) -> Command:
    """One line to a command of the console. Raises WireError."""
    try:
        return _command.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not a command: {error}") from error


def decode_driver_command(line: bytes) -> DriverCommand:
    """One line to a command of the node. Raises WireError."""
    try:
        return _driver_command.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"not a driver command: {error}") from error


class LineSplitter:
    """Bytes in pieces of any size to whole lines; remembers the unfinished tail."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._tail = bytearray()
        self._limit = limit
        self._skipping = False
        self.dropped = 0

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Lines completed by `data`, without their newline; empty lines are skipped."""
        pieces = data.split(b"\n")
        lines: list[bytes] = []
        for piece in pieces[:-1]:
            if self._skipping:
                self._skipping = False
                continue
            line = bytes(self._tail) + piece if self._tail else piece
            self._tail.clear()
            if line.strip():
                lines.append(line)
        if not self._skipping:
            self._tail += pieces[-1]
            if len(self._tail) > self._limit:
                self._tail.clear()
                self._skipping = True
                self.dropped += 1
        return lines
