"""Frames of a tunnel: one byte kind, four bytes stream number, then the payload of the kind.

A frame is one binary message of the websocket.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

VERSION = 1
KEY_BYTES = 16
MAX_DATA_BYTES = 256 * 1024
MAX_FRAME_BYTES = MAX_DATA_BYTES + 64
MAX_TEXT_BYTES = 4096

_HEADER = struct.Struct("!BI")
_COUNT = struct.Struct("!I")
_NUMBER = struct.Struct("!Q")
_HELLO = struct.Struct(f"!B?{KEY_BYTES}sQ")
HEADER_BYTES = _HEADER.size


class ProtocolError(Exception):
    """The other end violated the protocol; the connection must be closed."""


class FrameKind(IntEnum):
    # Kinds that belong to a stream: delivered exactly once, in order, even across a lost websocket.
    OPEN = 1  # text: the target
    DATA = 2  # bytes
    FINISH = 3  # no more data in this direction; the other one stays open
    RESET = 4  # text: why the stream has ended, in both directions
    CREDIT = 5  # count: additional bytes that the other end may send
    # Kinds that belong to one websocket.
    HELLO = 16
    ACK = 17  # number: frames of streams received so far
    PING = 18
    PONG = 19
    BYE = 20  # text: why this tunnel is closed for good


STREAM_KINDS = frozenset(
    {FrameKind.OPEN, FrameKind.DATA, FrameKind.FINISH, FrameKind.RESET, FrameKind.CREDIT}
)


@dataclass(frozen=True, slots=True)
class Frame:
    kind: FrameKind
    stream: int
    payload: memoryview

    @property
    def text(self) -> str:
        return bytes(self.payload).decode(errors="replace")

    @property
    def count(self) -> int:
        """Return the count of a CREDIT.

        Raises
        ------
        ProtocolError
            If the payload is not one.
        """
        return int(_unpacked(_COUNT, self.payload)[0])

    @property
    def number(self) -> int:
        """Return the number of an ACK; raises as ``count``."""
        return int(_unpacked(_NUMBER, self.payload)[0])


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of both ends: which tunnel this is and how many frames were received."""

    key: bytes
    is_resumed: bool
    received: int


def encode(kind: FrameKind, stream: int = 0, payload: bytes | memoryview = b"") -> bytes:
    return b"".join((_HEADER.pack(kind, stream), payload))


def encode_text(kind: FrameKind, stream: int, text: str) -> bytes:
    return encode(kind, stream, text.encode()[:MAX_TEXT_BYTES])


def encode_credit(stream: int, count: int) -> bytes:
    return encode(FrameKind.CREDIT, stream, _COUNT.pack(count))


def encode_ack(received: int) -> bytes:
    return encode(FrameKind.ACK, 0, _NUMBER.pack(received))


def encode_hello(hello: Hello) -> bytes:
    packed = _HELLO.pack(VERSION, hello.is_resumed, hello.key, hello.received)
    return encode(FrameKind.HELLO, 0, packed)


def decode(message: bytes) -> Frame:
    """Return the frame in a message.

    Raises
    ------
    ProtocolError
        If it is invalid or too long.
    """
    if not HEADER_BYTES <= len(message) <= MAX_FRAME_BYTES:
        raise ProtocolError(f"a frame of {len(message)} bytes")
    number, stream = _HEADER.unpack_from(message)
    try:
        kind = FrameKind(number)
    except ValueError:
        raise ProtocolError(f"a frame of kind {number}") from None
    return Frame(kind, stream, memoryview(message)[HEADER_BYTES:])


def decode_hello(frame: Frame) -> Hello:
    """Return the content of a HELLO.

    Raises
    ------
    ProtocolError
        If the frame is another one, or of another protocol version.
    """
    if frame.kind is not FrameKind.HELLO:
        raise ProtocolError(f"{frame.kind.name} before HELLO")
    if not frame.payload or frame.payload[0] != VERSION:
        raise ProtocolError(f"the tunnel speaks version {VERSION}; update bai or the session")
    _, is_resumed, key, received = _unpacked(_HELLO, frame.payload)
    return Hello(key, is_resumed, received)


def _unpacked(form: struct.Struct, payload: memoryview) -> tuple[Any, ...]:
    try:
        return form.unpack(payload)
    except struct.error:
        raise ProtocolError(f"{len(payload)} bytes instead of {form.size}") from None
