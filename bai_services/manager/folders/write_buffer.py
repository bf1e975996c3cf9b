"""Double buffer that writes one chunk while it receives the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bai_services.core.errors import Conflict
from bai_services.storage.host import StorageHost
from bai_services.storage.transfers.staging import Writer

# Bytes collected before a write; larger chunks need fewer thread switches.
CHUNK_BYTES = 2 * 2**20

# Waits for data, writes it to the given buffer and returns the number of bytes.
Receive = Callable[[memoryview], Awaitable[int]]


class WriteBuffer:
    """Two buffers that are used alternately, because allocating a buffer for each write would take
    more time.

    Calls must not overlap, except ``close``, which may be called at any time.
    """

    def __init__(self, host: StorageHost, writer: Writer) -> None:
        self._host = host
        self._writer = writer
        self._filling, self._spare = bytearray(), bytearray()
        self._filled = 0
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False

    async def write(self, chunk: bytes) -> None:
        """Append received bytes."""
        left = memoryview(chunk)
        while left:
            size = min(len(left), CHUNK_BYTES - self._filled)
            self._free_view(size)[:] = left[:size]
            left = left[size:]
            await self._add(size)

    async def receive(self, receive: Receive, size: int) -> None:
        """Receive ``size`` bytes directly into the buffer."""
        while size:
            view = self._free_view(min(size, CHUNK_BYTES - self._filled))
            received = await receive(view)
            view.release()
            size -= received
            await self._add(received)

    async def flush(self) -> None:
        """Write all buffered bytes and wait for the write."""
        await self._begin_write()
        await self._end_write()

    async def close(self, writes_rest: bool) -> None:
        """Wait for the write in progress and reject later writes.

        With ``writes_rest``, buffered bytes are written, unless an earlier write failed.
        """
        self._is_closed = True
        (failed,) = await asyncio.gather(self._end_write(), return_exceptions=True)
        if writes_rest and self._filled and failed is None:
            rest = self._host.run(self._write, *self._swap_buffers())
            await asyncio.gather(rest, return_exceptions=True)

    def _free_view(self, size: int) -> memoryview:
        """Return a view of the next ``size`` free bytes of the buffer."""
        missing = self._filled + size - len(self._filling)
        if missing > 0:
            self._filling.extend(bytes(missing))
        return memoryview(self._filling)[self._filled : self._filled + size]

    async def _add(self, size: int) -> None:
        self._filled += size
        if self._filled >= CHUNK_BYTES:
            await self._begin_write()

    async def _begin_write(self) -> None:
        await self._end_write()
        if self._is_closed:
            raise Conflict("the upload was aborted, or resumed by another request")
        if self._filled:
            self._writing = asyncio.create_task(self._host.run(self._write, *self._swap_buffers()))

    def _swap_buffers(self) -> tuple[bytearray, int]:
        """Return the filled buffer and its length, and switch to the other buffer."""
        full, size = self._filling, self._filled
        self._filling, self._spare, self._filled = self._spare, full, 0
        return full, size

    def _write(self, buffer: bytearray, size: int) -> None:
        # Release the view immediately: a bytearray with an exported view cannot be resized.
        with memoryview(buffer)[:size] as chunk:
            self._writer.write(chunk)

    async def _end_write(self) -> None:
        # Keep a failed task: after a failed write, later bytes must not be written.
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.result()
