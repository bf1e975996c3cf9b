"""Start, observe and kill the processes that fetch git repositories."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bai_services.core.errors import InvalidRequest, Unavailable
from bai_services.core.folders.entries import FetchedFiles

from .git_worker import Job

log = logging.getLogger(__name__)

# Wall-clock limit of a fetch.
MAX_FETCH_SECONDS = 3600.0
_PASSED_VARIABLES = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")


async def fetch_repository(job: Job, report: Callable[[int], None]) -> FetchedFiles:
    """Write the files of a commit to a tar archive, in a separate process.

    ``report`` is called regularly with the number of received bytes; if it raises, the process
    is killed.

    Raises
    ------
    InvalidRequest
        If the repository cannot be fetched, or exceeds a limit.
    Unavailable
        If the process is killed, for example because the machine runs out of memory.
    """
    # Pass only a few variables, because the manager's environment contains secrets.
    environ = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "bai_services.storage.transfers.git_worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**environ, "LC_ALL": "C.UTF-8"},
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(MAX_FETCH_SECONDS):
            found = await _exchange(process, job, report)
    except TimeoutError:
        raise InvalidRequest(
            f"the repository takes more than {MAX_FETCH_SECONDS:g} s to fetch"
        ) from None
    finally:
        # Child processes of git belong to the same process group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(asyncio.ensure_future(process.wait()))
    if "error" in found:
        raise InvalidRequest(found["error"])
    return FetchedFiles(**found)


async def _exchange(
    process: asyncio.subprocess.Process, job: Job, report: Callable[[int], None]
) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(json.dumps(asdict(job)).encode() + b"\n")
        await process.stdin.drain()
    while line := await process.stdout.readline():
        found: dict[str, Any] = json.loads(line)
        if "error" in found or "commit" in found:
            return found
        report(found["bytes"])
    code = await process.wait()
    log.error("the process that fetches a repository exited with status %d", code)
    raise Unavailable(
        "the process that fetches the repository was killed: it needs too much memory or time"
    )
