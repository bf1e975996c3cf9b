"""Compile the scheduler's code before its first pass, in a separate process."""

from __future__ import annotations

import asyncio
import logging
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable

from bai_services.core.scheduling.queue.jit_warmup import is_compiled
from bai_services.core.scheduling.queue.jit_warmup import warm_up as compile_pass

from .idle_scheduling import freeze_objects

log = logging.getLogger(__name__)

# exit_with_parent ends the process when the manager is killed.
_COMMAND = (
    "-m",
    "bai_services.system.exit_with_parent",
    "bai_services.core.scheduling.queue.jit_warmup",
)

# GIL switch interval. With Python's default of 5 ms, a response with several database queries would
# take up to 0.1 s during a pass.
SWITCH_INTERVAL_SECONDS = 0.0005

_is_warm = False


class JitWarmup:
    """Compiles the scheduler's code in the background, and lets callers wait for it.

    Compilation takes half a minute after an installation; loading the cached code takes one or two
    seconds. Without waiting, a caller would compile the code again and block all requests.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def start(self, on_done: Callable[[], None]) -> None:
        """Start the compilation; ``on_done`` is called at its end."""

        async def run() -> None:
            await warm_up()
            on_done()

        self._task = asyncio.create_task(run(), name="compile placement")

    async def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for the compilation, if one was started, for at most ``timeout_seconds``.

        Return False if it is still running.
        """
        if self._task is None:
            return True
        return bool((await asyncio.wait([self._task], timeout=timeout_seconds))[0])

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


async def warm_up() -> None:
    """Compile and load the code of a scheduling pass, once per process.

    Compilation blocks all threads of its process for seconds. Therefore a separate process compiles
    the code, if necessary, and this process only loads it.
    """
    global _is_warm
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    if _is_warm:
        return
    if not is_compiled():
        await _compile()
    await asyncio.to_thread(compile_pass)
    freeze_objects()
    _is_warm = True


async def _compile() -> None:
    """Compile the code in a separate process, which caches it on disk."""
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
