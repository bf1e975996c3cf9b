"""Compile the scheduler's code before its first pass, in a separate process."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable

from bai_services.core.scheduling.queue import warm

from .idle_scheduling import settle

log = logging.getLogger(__name__)

# exit_with_parent ends it when the manager is killed.
_COMMAND = ("-m", "bai_services.exit_with_parent", "bai_services.core.scheduling.queue.warm")

# GIL switch interval while a pass runs: Python's default of 5 ms adds up to 0.1 s for an answer
# that queries the database several times.
SWITCH_SECONDS = 0.0005

_is_warm = False


class JitWarmup:
    """Callers that need the scheduler's code wait here while it is being compiled.

    That takes half a minute after an installation, and one or two seconds later. A caller that ran
    it earlier would compile it a second time and block all other requests.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, then: Callable[[], None]) -> None:
        """Start to compile, and call ``then`` when done."""

        async def run() -> None:
            await warm_up()
            then()

        self._task = asyncio.create_task(run(), name="compile placement")

    async def is_over(self, within: float | None = None) -> bool:
        """Wait for at most ``within`` seconds; True at once if nothing is being compiled."""
        if self._task is None:
            return True
        return bool((await asyncio.wait([self._task], timeout=within))[0])

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def warm_up() -> None:
    """Compile the code of a pass; only the first call in a process does anything.

    Compilation takes seconds in which no other thread of its process runs, so another process
    compiles and caches the code on disk; here it is only loaded.
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
        log.warning("the scheduler's code could not be compiled ahead of time: %s", errors.decode())
    await asyncio.to_thread(warm.warm_up)
    settle()
    _is_warm = True
