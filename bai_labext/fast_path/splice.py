"""Long answers on their way through the session's server: the kernel moves them."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress

# As much as one pipe takes without any right of the process.
PIPE_BYTES = 2**20
# So much goes before whatever else the server does has a turn.
TURN_BYTES = 4 * PIPE_BYTES


async def moved(source: int, target: int, count: int) -> int:
    """Move up to ``count`` bytes between two sockets that do not block; return how many went.

    Fewer if the source ends, or if the kernel cannot at all. The event loop must watch the sockets
    under other numbers.

    Raises
    ------
    OSError
        If either side breaks.
    """
    out, into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return await _moved((source, into, out, target), count)
    finally:
        os.close(out)
        os.close(into)


async def _moved(way: tuple[int, int, int, int], count: int) -> int:
    source, into, out, target = way
    loop = asyncio.get_running_loop()
    went = held = turn = 0
    while went < count:
        try:
            if not held:
                held = os.splice(source, into, min(count - went, PIPE_BYTES))
                if not held:
                    break
            sent = os.splice(out, target, held)
        except BlockingIOError:
            if held:
                await _ready(loop.add_writer, loop.remove_writer, target)
            else:
                await _ready(loop.add_reader, loop.remove_reader, source)
            turn = 0
            continue
        except OSError:
            if went or held:
                raise
            break
        went, held, turn = went + sent, held - sent, turn + sent
        if turn >= TURN_BYTES:
            turn = 0
            await asyncio.sleep(0)
    return went


async def _ready(add: Callable[..., None], remove: Callable[[int], bool], number: int) -> None:
    ready = asyncio.Event()
    add(number, ready.set)
    try:
        await ready.wait()
    finally:
        remove(number)
