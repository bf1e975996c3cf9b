"""Start, limit and kill the processes that unpack archives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from dataclasses import asdict

from bai_services.core.errors import InvalidRequest, by_code

from .unpack_worker import Job
from .unpacking import Unpacked

log = logging.getLogger(__name__)

# The CPU time limit is BASE_CPU_SECONDS plus 1 s per BYTES_PER_CPU_SECOND.
BASE_CPU_SECONDS = 300
BYTES_PER_CPU_SECOND = 4 * 2**20
# The limit of elapsed time as a multiple of that: the process also waits for disks.
WALL_FACTOR = 4
# Wait after SIGTERM before SIGKILL: a process that is placing files finishes first.
END_SECONDS = 60.0
_PASSED_ON = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


def cpu_seconds(archive_bytes: int) -> int:
    """Return how much processor time an archive of that size may take."""
    return BASE_CPU_SECONDS + archive_bytes // BYTES_PER_CPU_SECOND


async def unpack(job: Job) -> Unpacked:
    """Unpack in a separate process; cancelling this call stops it unless it is placing files.

    Raises
    ------
    InvalidRequest
        If the archive is refused, or exceeds its limit of time or memory.
    BaiError
        Any other error that the process reports.
    """
    # Pass no secret from the manager's environment.
    environ = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "bai_services.storage.transfers.unpack_worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**environ, "LC_ALL": "C.UTF-8"},
        cwd="/",
    )
    try:
        async with asyncio.timeout(job.cpu_seconds * WALL_FACTOR):
            answer, _ = await process.communicate(json.dumps(asdict(job)).encode())
    except TimeoutError:
        raise _too_slow(job) from None
    finally:
        if process.returncode is None:
            await asyncio.shield(asyncio.ensure_future(_end(process)))
    return _result(job, process.returncode or 0, answer)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), END_SECONDS)
        except TimeoutError:
            process.kill()
            # A process that hangs in a dead mount ends only with the mount.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), END_SECONDS)


def _result(job: Job, code: int, answer: bytes) -> Unpacked:
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        raise _too_slow(job)
    if code:
        log.error("the process that unpacks an archive ended with status %d", code)
        raise InvalidRequest(
            "the archive cannot be unpacked: it needs too much memory, or is broken"
        )
    found = json.loads(answer)
    if "error" in found:
        raise by_code()[found["error"]](found["message"], **found["details"])
    return Unpacked(**found)


def _too_slow(job: Job) -> InvalidRequest:
    return InvalidRequest(
        f"the archive takes too long to unpack: at most {job.cpu_seconds} s of processor time "
        f"and {job.cpu_seconds * WALL_FACTOR} s in all for its size; send it in smaller archives",
        limit_seconds=job.cpu_seconds,
    )
