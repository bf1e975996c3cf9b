"""Start, limit and kill the processes that unpack archives."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from bai_services.core.errors import InvalidRequest, Unavailable, by_code
from bai_services.core.folders.entries import Unpacked

from .unpack_worker import Job

log = logging.getLogger(__name__)

# Takes the total size of the unpacked files in bytes; raises an error if they may not be stored.
Require = Callable[[int], Awaitable[None]]

# The CPU time limit is BASE_CPU_SECONDS plus 1 s per BYTES_PER_CPU_SECOND.
BASE_CPU_SECONDS = 300
BYTES_PER_CPU_SECOND = 4 * 2**20
# Wall-clock limit as a multiple of the CPU time limit: the process also waits for disks.
WALL_FACTOR = 4
# Time between SIGTERM and SIGKILL, so that a process that is moving files into the folder can
# finish.
KILL_AFTER_SECONDS = 60.0
_PASSED_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


def cpu_seconds(archive_bytes: int) -> int:
    """Return the CPU time limit in seconds for unpacking an archive of that size."""
    return BASE_CPU_SECONDS + archive_bytes // BYTES_PER_CPU_SECOND


async def unpack(job: Job, require: Require | None = None) -> Unpacked:
    """Unpack an archive in a separate process.

    Return the number of files and their total size. ``require`` is called with the total size in
    bytes before the first file is moved into the folder; its error stops the process.

    Cancelling this call stops the process, unless it has begun to move files into the folder.

    Raises
    ------
    InvalidRequest
        If the archive is invalid, or exceeds its time or memory limit.
    Unavailable
        If the process is killed, for example because the machine runs out of memory.
    BaiError
        Any other error that the process reports.
    """
    # Pass only a few variables, because the manager's environment contains secrets.
    environ = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "bai_services.storage.transfers.unpack_worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**environ, "LC_ALL": "C.UTF-8"},
        cwd="/",
    )
    try:
        async with asyncio.timeout(job.cpu_seconds * WALL_FACTOR):
            output = await _exchange(process, job, require)
    except TimeoutError:
        raise _too_slow(job) from None
    finally:
        if process.returncode is None:
            await asyncio.shield(asyncio.ensure_future(_terminate(process)))
    return _result(job, process.returncode or 0, output)


async def _exchange(
    process: asyncio.subprocess.Process, job: Job, require: Require | None
) -> bytes:
    """Send the job and, when ``require`` has accepted the size, the permission to move the files.

    Return the last line of the output.
    """
    assert process.stdin is not None and process.stdout is not None
    # A process that has ended closes its input; its exit status shows why it ended.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
        await process.stdin.drain()
    output = await process.stdout.readline()
    if output and "total_bytes" in (found := json.loads(output)):
        if require is not None:
            await require(found["total_bytes"])
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(b"\n")
            await process.stdin.drain()
        output = await process.stdout.readline()
    await process.wait()
    return output


async def _terminate(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), KILL_AFTER_SECONDS)
        except TimeoutError:
            process.kill()
            # A process that hangs in a dead mount cannot be killed until the mount is released.
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), KILL_AFTER_SECONDS)


def _result(job: Job, code: int, output: bytes) -> Unpacked:
    if code == -signal.SIGXCPU:
        raise _too_slow(job)
    if code == -signal.SIGKILL:
        log.error("the process that unpacks an archive was killed")
        raise Unavailable(
            "the process that unpacks the archive was killed, probably because the machine has too "
            "little free memory; try again later"
        )
    if code:
        log.error("the process that unpacks an archive exited with status %d", code)
        raise InvalidRequest(
            "the archive cannot be unpacked: it needs too much memory, or is broken"
        )
    found = json.loads(output)
    if "error" in found:
        raise by_code()[found["error"]](found["message"], **found["details"])
    return Unpacked(**found)


def _too_slow(job: Job) -> InvalidRequest:
    return InvalidRequest(
        f"the archive takes too long to unpack; the limits for its size are {job.cpu_seconds} s of "
        f"CPU time and {job.cpu_seconds * WALL_FACTOR} s of elapsed time; split it into smaller "
        "archives",
        limit_seconds=job.cpu_seconds,
    )
