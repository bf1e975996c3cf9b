"""Downloads of files and archives."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
from collections.abc import AsyncIterator, Callable, Generator
from datetime import UTC, datetime
from typing import TypeVar

from bai_services.core.errors import Unavailable

from ..folder import etag_of
from ..workers import Workers

T = TypeVar("T")

CHUNK_BYTES = 2**20
# Maximum bytes that a worker sends before it serves the next waiting task.
TURN_BYTES = 16 * CHUNK_BYTES


class Descriptor:
    """A file descriptor that is used by worker threads, and closed only while no thread uses it.

    A *step* is one call of ``use``. It may still run, or be queued, after its caller has given up
    (timeout, disconnect). If the descriptor were closed then, the kernel could reuse its number:
    the step would read from another file or write to another connection.
    """

    def __init__(self, number: int, workers: Workers) -> None:
        self._number = number
        self._workers = workers
        self._step = threading.Lock()

    def use(self, step: Callable[..., T], *given: object) -> T:
        """Call ``step`` with the descriptor number and ``given``, and return its result.

        Blocking, for worker threads.

        Raises
        ------
        OSError
            If the descriptor is closed.
        """
        with self._step:
            if self._number < 0:
                raise OSError(errno.EBADF, "the caller of this step has given up")
            return step(self._number, *given)

    async def close(self) -> None:
        """Close the descriptor now, or in a worker thread after the step that is using it."""
        if self._step.acquire(blocking=False):
            # Close before releasing the lock. Otherwise a queued step could acquire the lock first,
            # and closing would have to wait for that step and block the event loop.
            try:
                self._close()
            finally:
                self._step.release()
            return
        await _run_later(self._workers, self._close_after_step)

    def _close_after_step(self) -> None:
        with self._step:
            self._close()

    def _close(self) -> None:
        """Close the descriptor; the caller holds the lock."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


class Download:
    """A file opened for reading; renaming or replacing the file has no effect on it.

    ``file`` is the descriptor. The caller must call ``close``, even after an error.
    """

    def __init__(self, file: int, workers: Workers) -> None:
        status = os.fstat(file)
        self.size = status.st_size
        self.modified_at = datetime.fromtimestamp(status.st_mtime, UTC)
        self.etag = etag_of(status)
        self._file = Descriptor(file, workers)
        self._workers = workers

    async def chunks(self, start: int, length: int) -> AsyncIterator[bytes]:
        """Yield ``length`` bytes from ``start``; fewer only if the file shrinks during the read."""
        end = start + length
        while start < end:
            wanted = min(CHUNK_BYTES, end - start)
            chunk = await self._workers.run(self._file.use, os.pread, wanted, start)
            if not chunk:
                return
            start += len(chunk)
            yield chunk

    async def send(self, sock: socket.socket, start: int, length: int) -> int:
        """Send ``length`` bytes from ``start`` to a socket with sendfile; return the number sent.

        A smaller number means that the file shrank, the connection broke or the file system does
        not support sendfile. Send the rest with ``chunks``, so that the actual error is raised.
        """
        # Duplicate it, because the event loop already watches the original descriptor number.
        number, sent = os.dup(sock.fileno()), 0
        out = Descriptor(number, self._workers)
        try:
            while sent < length:
                wanted = min(TURN_BYTES, length - sent)
                went, is_full = await self._workers.run(
                    out.use, self._send_some, start + sent, wanted
                )
                sent += went
                if is_full:
                    await _writable(number)
                elif went < wanted:
                    break
        finally:
            await out.close()
        return sent

    async def close(self) -> None:
        await self._file.close()

    def _send_some(self, out: int, start: int, length: int) -> tuple[int, bool]:
        return self._file.use(_send_some, out, start, length)


class ArchiveStream:
    """An archive that is created while it is sent.

    ``root`` is the descriptor of the archived directory; ``close`` closes it.
    """

    def __init__(self, root: int, chunks: Generator[bytes, None, None], workers: Workers) -> None:
        self._root = root
        self._chunks = chunks
        self._workers = workers
        # A step may still run and use the descriptors after its caller has given up.
        self._step_lock = threading.Lock()

    async def chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._workers.run(self._next):
            yield chunk

    async def close(self) -> None:
        if self._root >= 0:
            root, self._root = self._root, -1
            await _run_later(self._workers, self._end, root)

    def _next(self) -> bytes:
        with self._step_lock:
            return next(self._chunks, b"")

    def _end(self, root: int) -> None:
        with self._step_lock:
            self._chunks.close()
            os.close(root)


async def _run_later(workers: Workers, work: Callable[..., None], *given: object) -> None:
    """Run ``work`` exactly once: in a worker, or in a new thread if no worker runs it in time.

    ``work`` closes a descriptor. An aborted download starts at most two such threads: one for the
    file and one for the socket.
    """
    tried = threading.Lock()

    def once() -> None:
        if tried.acquire(blocking=False):
            work(*given)

    try:
        await workers.run(once)
    except Unavailable:
        threading.Thread(target=once, daemon=True).start()


def _send_some(file: int, out: int, start: int, length: int) -> tuple[int, bool]:
    """Return the number of bytes sent, and whether the socket's send buffer is full."""
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
    """Wait until a socket is writable or broken."""
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(number, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(number)
