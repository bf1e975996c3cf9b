"""Frames of a tunnel: kind (1 byte), stream number (4 bytes) and payload.

Each frame is one binary message of the websocket.
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
    """The peer violated the protocol; the connection must be closed."""


class FrameKind(IntEnum):
    # Frames of a stream: delivered exactly once and in order, also across a reconnect.
    OPEN = 1  # text: the target
    DATA = 2  # bytes
    FINISH = 3  # no more data in this direction (half-close)
    RESET = 4  # text: reason; ends the stream in both directions
    CREDIT = 5  # count: additional bytes that the peer may send
    # Frames of one websocket connection.
    HELLO = 16
    ACK = 17  # number: stream frames received so far
    PING = 18
    PONG = 19
    BYE = 20  # text: reason; closes the tunnel permanently


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
        """Return the count of a CREDIT frame.

        Raises
        ------
        ProtocolError
            If the payload is not a count.
        """
        return int(_unpacked(_COUNT, self.payload)[0])

    @property
    def number(self) -> int:
        """Return the number of an ACK frame.

        Raises
        ------
        ProtocolError
            If the payload is not a number.
        """
        return int(_unpacked(_NUMBER, self.payload)[0])


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of both endpoints: key of the tunnel and number of stream frames received.

    ``is_resumed`` is true if the sender has the state of an earlier websocket of the tunnel.
    """

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
        If the message is not a valid frame.
    """
    if not HEADER_BYTES <= len(message) <= MAX_FRAME_BYTES:
        raise ProtocolError(f"invalid frame size: {len(message)} bytes")
    number, stream = _HEADER.unpack_from(message)
    try:
        kind = FrameKind(number)
    except ValueError:
        raise ProtocolError(f"unknown frame kind {number}") from None
    return Frame(kind, stream, memoryview(message)[HEADER_BYTES:])


def decode_hello(frame: Frame) -> Hello:
    """Return the content of a HELLO frame.

    Raises
    ------
    ProtocolError
        If the frame is of another kind or protocol version, or its payload has another size.
    """
    if frame.kind is not FrameKind.HELLO:
        raise ProtocolError(f"{frame.kind.name} before HELLO")
    if not frame.payload or frame.payload[0] != VERSION:
        raise ProtocolError(
            f"this endpoint supports protocol version {VERSION}; update bai or the session"
        )
    _, is_resumed, key, received = _unpacked(_HELLO, frame.payload)
    return Hello(key, is_resumed, received)


def _unpacked(form: struct.Struct, payload: memoryview) -> tuple[Any, ...]:
    try:
        return form.unpack(payload)
    except struct.error:
        raise ProtocolError(f"payload has {len(payload)} bytes instead of {form.size}") from None
