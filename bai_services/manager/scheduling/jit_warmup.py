"""Has the scheduler's code compiled before its first pass, where that holds up nobody."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable

from bai_services.core.scheduling.queue import warm

from .idle_scheduling import settle

log = logging.getLogger(__name__)

# Attached: it ends with a manager that is killed.
_COMMAND = ("-m", "bai_services.exit_with_parent", "bai_services.core.scheduling.queue.warm")

# A pass in its thread gives way to the event loop this often; Python's own 5 ms add up to a
# tenth of a second for an answer that asks the database a few times.
SWITCH_SECONDS = 0.0005

_is_warm = False


class JitWarmup:
    """What needs the scheduler's code waits here while it is being compiled.

    That is for half a minute after an installation, and for a second or two later. Who ran it
    before would compile it a second time, and nobody else would be answered meanwhile.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, then: Callable[[], None]) -> None:
        """Begin, and call ``then`` when it is done."""

        async def run() -> None:
            await warm_up()
            then()

        self._task = asyncio.create_task(run(), name="compile placement")

    async def is_over(self, within: float | None = None) -> bool:
        """Wait, at most so many seconds; True at once where nothing is being compiled."""
        if self._task is None:
            return True
        return bool((await asyncio.wait([self._task], timeout=within))[0])

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def warm_up() -> None:
    """Compile what a pass runs; only the first call of a process does anything.

    Compiling takes seconds in which no other thread of its process runs, so it
    is done by another one, which leaves the code on disk; here it is loaded.
    """
    global _is_warm
    sys.setswitchinterval(SWITCH_SECONDS)
    if _is_warm:
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable, *_COMMAND, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE
    )
    try:
        _, errors = await process.communicate()
    except asyncio.CancelledError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        log.warning("the scheduler's code could not be compiled beforehand: %s", errors.decode())
    await asyncio.to_thread(warm.warm_up)
    settle()
    _is_warm = True
