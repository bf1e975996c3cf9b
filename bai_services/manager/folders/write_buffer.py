"""What is received, written in big pieces while the next one is on its way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bai_services.core.errors import Conflict
from bai_services.storage.host import StorageHost
from bai_services.storage.transfers.staging import Writer

# What is received waits until there is so much of it: fewer hops between threads.
PIECE_BYTES = 2 * 2**20

# Waits until something has come, puts it where it is told and returns how many bytes it was.
Receive = Callable[[memoryview], Awaitable[int]]


class WriteBuffer:
    """Two buffers take turns and are kept: new ones would cost more than the copying.

    Its methods are called one after another, but for ``settle``, which may come at any time.
    """

    def __init__(self, host: StorageHost, writer: Writer) -> None:
        self._host = host
        self._writer = writer
        self._filling, self._spare = bytearray(), bytearray()
        self._filled = 0
        self._writing: asyncio.Task[None] | None = None
        self._is_settled = False

    async def write(self, chunk: bytes) -> None:
        """Take a chunk that is here."""
        left = memoryview(chunk)
        while left:
            size = min(len(left), PIECE_BYTES - self._filled)
            self._room(size)[:] = left[:size]
            left = left[size:]
            await self._took(size)

    async def receive(self, receive: Receive, size: int) -> None:
        """Take so many bytes straight from where they come in."""
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
        """Return when nothing is being written any more, nor ever will be.

        With ``keeps_rest`` what is here is written first, unless something before it could not be.
        """
        self._is_settled = True
        (failed,) = await asyncio.gather(self._end(), return_exceptions=True)
        if keeps_rest and self._filled and failed is None:
            rest = self._host.run(self._write, *self._turned())
            await asyncio.gather(rest, return_exceptions=True)

    def _room(self, size: int) -> memoryview:
        """Return the next free place, of so many bytes."""
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
            raise Conflict("the upload was given up, or somebody else went on with it")
        if self._filled:
            self._writing = asyncio.create_task(self._host.run(self._write, *self._turned()))

    def _turned(self) -> tuple[bytearray, int]:
        """Return what is filled and how far; from now on the other one is."""
        full, size = self._filling, self._filled
        self._filling, self._spare, self._filled = self._spare, full, 0
        return full, size

    def _write(self, buffer: bytearray, size: int) -> None:
        # Let go of at once: a buffer that somebody looks at cannot grow.
        with memoryview(buffer)[:size] as piece:
            self._writer.write(piece)

    async def _end(self) -> None:
        # One that failed is kept: what comes after it has no place in the file.
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.result()
