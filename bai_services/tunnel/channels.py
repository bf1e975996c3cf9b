"""Framing of a command's output, errors and exit code in one stream."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from .frames import MAX_DATA_BYTES, ProtocolError

_HEADER = struct.Struct("!BI")


class Channel(IntEnum):
    ALIVE = 0  # empty; a keep-alive that shows whether the receiver is still there
    OUTPUT = 1
    ERRORS = 2
    EXIT = 3  # the exit code as text, the last piece


def pack(channel: Channel, content: bytes = b"") -> bytes:
    return _HEADER.pack(channel, len(content)) + content


class ChannelReader:
    """Parses pieces from a byte stream, however it is split."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, content: bytes) -> Iterator[tuple[Channel, bytes]]:
        """Yield every complete piece.

        Raises
        ------
        ProtocolError
            If the bytes are not a valid piece.
        """
        self._buffer += content
        while len(self._buffer) >= _HEADER.size:
            number, size = _HEADER.unpack_from(self._buffer)
            if number > max(Channel) or size > MAX_DATA_BYTES:
                raise ProtocolError(f"a piece of {size} bytes on channel {number}")
            end = _HEADER.size + size
            if len(self._buffer) < end:
                return
            piece = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield Channel(number), piece
