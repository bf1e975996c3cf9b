"""Double buffer that writes one piece while the next one is received."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bai_services.core.errors import Conflict
from bai_services.storage.host import StorageHost
from bai_services.storage.transfers.staging import Writer

# Bytes collected before a write: fewer hops between threads.
PIECE_BYTES = 2 * 2**20

# Waits for data, stores it in the given buffer and returns the number of bytes.
Receive = Callable[[memoryview], Awaitable[int]]


class WriteBuffer:
    """Two buffers, used in turns and kept: allocating new ones would cost more than the copying.

    Its methods are called one at a time, except ``settle``, which may be called at any time.
    """

    def __init__(self, host: StorageHost, writer: Writer) -> None:
        self._host = host
        self._writer = writer
        self._filling, self._spare = bytearray(), bytearray()
        self._filled = 0
        self._writing: asyncio.Task[None] | None = None
        self._is_settled = False

    async def write(self, chunk: bytes) -> None:
        """Write a chunk that has been received."""
        left = memoryview(chunk)
        while left:
            size = min(len(left), PIECE_BYTES - self._filled)
            self._room(size)[:] = left[:size]
            left = left[size:]
            await self._took(size)

    async def receive(self, receive: Receive, size: int) -> None:
        """Receive ``size`` bytes directly into the buffer."""
        while size:
            room = self._room(min(size, PIECE_BYTES - self._filled))
            got = await receive(room)
            room.release()
            size -= got
            await self._took(got)

    async def flush(self) -> None:
        """Return when everything is written."""
        await self._begin()
        await self._end()

    async def settle(self, keeps_rest: bool) -> None:
        """Return when no write is in progress and none will follow.

        With ``keeps_rest``, buffered bytes are written first, unless an earlier write failed.
        """
        self._is_settled = True
        (failed,) = await asyncio.gather(self._end(), return_exceptions=True)
        if keeps_rest and self._filled and failed is None:
            rest = self._host.run(self._write, *self._swap_buffers())
            await asyncio.gather(rest, return_exceptions=True)

    def _room(self, size: int) -> memoryview:
        """Return a free part of the buffer, of ``size`` bytes."""
        missing = self._filled + size - len(self._filling)
        if missing > 0:
            self._filling.extend(bytes(missing))
        return memoryview(self._filling)[self._filled : self._filled + size]

    async def _took(self, size: int) -> None:
        self._filled += size
        if self._filled >= PIECE_BYTES:
            await self._begin()

    async def _begin(self) -> None:
        await self._end()
        if self._is_settled:
            raise Conflict("the upload was aborted, or continued by another request")
        if self._filled:
            self._writing = asyncio.create_task(self._host.run(self._write, *self._swap_buffers()))

    def _swap_buffers(self) -> tuple[bytearray, int]:
        """Return the filled buffer and its length, and switch to the other buffer."""
        full, size = self._filling, self._filled
        self._filling, self._spare, self._filled = self._spare, full, 0
        return full, size

    def _write(self, buffer: bytearray, size: int) -> None:
        # Released at once: a bytearray with an exported view cannot be resized.
        with memoryview(buffer)[:size] as piece:
            self._writer.write(piece)

    async def _end(self) -> None:
        # A failed write is kept: later bytes must not be written after a gap.
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.result()
