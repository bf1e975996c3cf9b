"""Move bytes from socket to socket inside the kernel (splice(2)), for long responses."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress

# The default limit of Linux on the size of a pipe of an unprivileged process.
PIPE_BYTES = 2**20
# Number of moved bytes after which other tasks of the event loop run.
MAX_BYTES_PER_TURN = 4 * PIPE_BYTES


async def splice_sockets(source: int, target: int, count: int) -> int:
    """Move up to ``count`` bytes between two non-blocking sockets; return the number moved.

    Fewer bytes are moved if the source ends, and none if the kernel cannot splice these sockets. If
    the event loop already watches a descriptor, pass a duplicate of it, because this function also
    registers the descriptor with the event loop.

    Raises
    ------
    OSError
        If either side fails after the first bytes were read; before that, the result is 0.
    """
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return await _splice(source, write_end, read_end, target, count)
    finally:
        os.close(read_end)
        os.close(write_end)


async def _splice(source: int, write_end: int, read_end: int, target: int, count: int) -> int:
    loop = asyncio.get_running_loop()
    moved = in_pipe = in_turn = 0
    while moved < count:
        try:
            if not in_pipe:
                in_pipe = os.splice(source, write_end, min(count - moved, PIPE_BYTES))
                if not in_pipe:
                    break
            sent = os.splice(read_end, target, in_pipe)
        except BlockingIOError:
            if in_pipe:
                await _ready(loop.add_writer, loop.remove_writer, target)
            else:
                await _ready(loop.add_reader, loop.remove_reader, source)
            in_turn = 0
            continue
        except OSError:
            if moved or in_pipe:
                raise
            break
        moved, in_pipe, in_turn = moved + sent, in_pipe - sent, in_turn + sent
        if in_turn >= MAX_BYTES_PER_TURN:
            in_turn = 0
            await asyncio.sleep(0)
    return moved


async def _ready(add: Callable[..., None], remove: Callable[[int], bool], descriptor: int) -> None:
    ready = asyncio.Event()
    add(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        remove(descriptor)
