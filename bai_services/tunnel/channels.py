"""Chunks with a channel number: output, errors and exit code of a command in one stream."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum

from .frames import MAX_DATA_BYTES, ProtocolError

_HEADER = struct.Struct("!BI")


class Channel(IntEnum):
    ALIVE = 0  # empty; a keepalive that detects a lost receiver
    OUTPUT = 1
    ERRORS = 2
    EXIT = 3  # the exit code as text; the last chunk


def pack(channel: Channel, content: bytes = b"") -> bytes:
    """Return a chunk: channel number, size and content."""
    return _HEADER.pack(channel, len(content)) + content


class ChannelReader:
    """Incremental parser of chunks."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Channel, bytes]]:
        """Yield every chunk that is complete.

        Raises
        ------
        ProtocolError
            If the bytes are not a valid chunk.
        """
        self._buffer += data
        while len(self._buffer) >= _HEADER.size:
            number, size = _HEADER.unpack_from(self._buffer)
            if number > max(Channel) or size > MAX_DATA_BYTES:
                raise ProtocolError(f"invalid chunk of {size} bytes on channel {number}")
            end = _HEADER.size + size
            if len(self._buffer) < end:
                return
            content = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield Channel(number), content
