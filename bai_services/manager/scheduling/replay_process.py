"""Start, limit and kill the processes that compare policies."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process

from bai_services.core.counts import counted
from bai_services.core.errors import TooLarge, Unavailable
from bai_services.core.scheduling.replay.comparison import FullComparison
from bai_services.core.scheduling.replay.simulate import OnProgress

from .replay_worker import OUT_OF_MEMORY, RESULT, ReplayTask

log = logging.getLogger(__name__)

# Limit of the address space; numba and numpy alone map more than 1 GiB.
MEMORY_BYTES = 4 * 2**30
CPU_SECONDS = 600
# Wall-clock limit; it is higher than the CPU limit, because the process has a low priority and may
# wait for the CPU.
WALL_SECONDS = 1800.0
_PASSED_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "HOME", "NUMBA_CACHE_DIR")


async def run_replay(task: ReplayTask, on_progress: OnProgress) -> FullComparison:
    """Compare policies in a separate process. Cancelling this call kills the process.

    Raises
    ------
    TooLarge
        If the process exceeds its time or memory limit, or fails.
    Unavailable
        If the process is killed, for example because the machine runs out of memory.
    """
    content = await asyncio.to_thread(pickle.dumps, task)
    # The manager's environment contains secrets.
    environ = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "bai_services.manager.scheduling.replay_worker"),
        stdin=PIPE,
        stdout=PIPE,
        # The replay uses one thread; each additional thread would reserve memory.
        env={**environ, "LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"},
    )
    try:
        async with asyncio.timeout(WALL_SECONDS):
            result = await _exchange(process, content, on_progress)
            code = await process.wait()
    except TimeoutError:
        raise _too_large(task, "time") from None
    finally:
        if process.returncode is None:
            process.kill()
            await asyncio.shield(process.wait())
    if code == -signal.SIGXCPU:
        raise _too_large(task, "time")
    if code == -signal.SIGKILL:
        log.error("the process that compares policies was killed")
        raise Unavailable(
            "the process that compares the policies was killed, probably because the machine has "
            "too little free memory; try again later, or choose a shorter period"
        )
    if code == OUT_OF_MEMORY:
        raise _too_large(task, "memory")
    if code or result is None:
        log.error("the process that compares policies exited with status %d", code)
        # If native libraries cannot allocate memory, they end the process in different ways.
        raise TooLarge(
            "the policies could not be compared: the replay needed too much memory, or failed; "
            "choose a shorter period"
        )
    comparison: FullComparison = await asyncio.to_thread(pickle.loads, result)
    return comparison


async def _exchange(process: Process, content: bytes, on_progress: OnProgress) -> bytes | None:
    """Send the task and return the result; None if the process ended without a result."""
    assert process.stdin is not None and process.stdout is not None
    # If the process has already failed, its stdin is closed. Ignore that here; the caller
    # evaluates the exit status.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(content)
        await process.stdin.drain()
        process.stdin.close()
    while line := await process.stdout.readline():
        if line == RESULT:
            return await process.stdout.read()
        on_progress(float(line))
    return None


def _too_large(task: ReplayTask, limit: str) -> TooLarge:
    count = len(task.record.sessions)
    return TooLarge(
        f"the replay of {counted(count, 'sessions')} exceeded its {limit} limit; choose a shorter "
        "period or fewer policies",
        sessions=count,
    )
