"""Files and archives on their way out."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator, Generator
from datetime import UTC, datetime

from bai_services.core.errors import Unavailable

from .folder import etag_of
from .workers import Workers

CHUNK_BYTES = 2**20
# So much goes out before whoever else waits for a worker has a turn.
TURN_BYTES = 16 * CHUNK_BYTES


class Download:
    """A file that was opened for reading; what happens to its name no longer matters.

    ``close`` must be called, also after an error.
    """

    def __init__(self, file: int, workers: Workers) -> None:
        facts = os.fstat(file)
        self.size = facts.st_size
        self.modified_at = datetime.fromtimestamp(facts.st_mtime, UTC)
        self.etag = etag_of(facts)
        self._file = file
        self._workers = workers

    async def chunks(self, start: int, length: int) -> AsyncIterator[bytes]:
        """Yield ``length`` bytes from ``start``; fewer only if the file shrank meanwhile."""
        end = start + length
        while start < end:
            wanted = min(CHUNK_BYTES, end - start)
            chunk = await self._workers.run(os.pread, self._file, wanted, start)
            if not chunk:
                return
            start += len(chunk)
            yield chunk

    async def send(self, wire: socket.socket, start: int, length: int) -> int:
        """Let the kernel move ``length`` bytes from ``start`` into a socket; return how many went.

        Fewer if the file shrank, the connection broke or the file system cannot: whoever sends
        the rest with `chunks` finds out which.
        """
        # A number of our own: the event loop watches the socket under its other one.
        out, sent = os.dup(wire.fileno()), 0
        try:
            while sent < length:
                wanted = min(TURN_BYTES, length - sent)
                went, is_full = await self._workers.run(
                    _send_some, out, self._file, start + sent, wanted
                )
                sent += went
                if is_full:
                    await _writable(out)
                elif went < wanted:
                    break
        finally:
            os.close(out)
        return sent

    async def close(self) -> None:
        if self._file >= 0:
            number, self._file = self._file, -1
            os.close(number)


class ArchiveStream:
    """An archive that is made while it is sent."""

    def __init__(self, root: int, pieces: Generator[bytes, None, None], workers: Workers) -> None:
        self._root = root
        self._pieces = pieces
        self._workers = workers
        # A step that nobody waits for any more still runs, and uses descriptors.
        self._step_lock = threading.Lock()

    async def chunks(self) -> AsyncIterator[bytes]:
        while piece := await self._workers.run(self._next):
            yield piece

    async def close(self) -> None:
        if self._root >= 0:
            root, self._root = self._root, -1
            # A host that stops or hangs closes it later, or with the process.
            with contextlib.suppress(Unavailable):
                await self._workers.run(self._end, root)

    def _next(self) -> bytes:
        with self._step_lock:
            return next(self._pieces, b"")

    def _end(self, root: int) -> None:
        with self._step_lock:
            self._pieces.close()
            os.close(root)


def _send_some(out: int, file: int, start: int, length: int) -> tuple[int, bool]:
    """Return how much went out, and whether the socket takes no more for now."""
    went = 0
    try:
        while went < length and (moved := os.sendfile(out, file, start + went, length - went)):
            went += moved
    except BlockingIOError:
        return went, True
    except OSError:
        return went, False
    return went, False


async def _writable(number: int) -> None:
    """Wait until a socket takes more, or is broken."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(number, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(number)
