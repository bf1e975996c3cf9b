"""What a command in a session says over one stream: output, errors and its exit code, in pieces."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from .frames import MOST_DATA_BYTES, ProtocolError

_HEADER = struct.Struct("!BI")


class Channel(IntEnum):
    ALIVE = 0  # nothing; shows whether anybody still listens
    OUTPUT = 1
    ERRORS = 2
    EXIT = 3  # the exit code as text, the last piece


def pack(channel: Channel, content: bytes = b"") -> bytes:
    return _HEADER.pack(channel, len(content)) + content


class ChannelReader:
    """Finds the pieces in what comes, however it is cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, content: bytes) -> Iterator[tuple[Channel, bytes]]:
        """Yield every piece that is whole now.

        Raises
        ------
        ProtocolError
            If something else comes.
        """
        self._buffer += content
        while len(self._buffer) >= _HEADER.size:
            number, size = _HEADER.unpack_from(self._buffer)
            if number > max(Channel) or size > MOST_DATA_BYTES:
                raise ProtocolError(f"a piece of {size} bytes on channel {number}")
            end = _HEADER.size + size
            if len(self._buffer) < end:
                return
            piece = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield Channel(number), piece
