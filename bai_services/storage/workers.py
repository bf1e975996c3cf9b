"""Thread pool for file operations with timeouts, so that they never block the event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import errno
import functools
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from bai_services.core.errors import (
    BaiError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    StorageFull,
    Unavailable,
)

from . import safe_paths

log = logging.getLogger(__name__)
T = TypeVar("T")
_Job: TypeAlias = "tuple[concurrent.futures.Future[Any], Callable[[], Any]]"

# Grace period for running operations at the end of the process; an operation on a dead mount never
# returns.
STOP_GRACE_SECONDS = 3.0
# Timeout of one file operation: one chunk of a file, one page of a directory, one rename.
STEP_TIMEOUT_SECONDS = 60.0


class Workers:
    """A thread pool of one storage host; a slow host cannot block the other hosts.

    A thread that hangs in a dead mount cannot be stopped: its caller gets an error after a timeout.
    While all threads hang, every call fails immediately. The threads are daemons, because the
    threads of a ``ThreadPoolExecutor`` would prevent the process from exiting.
    """

    def __init__(self, name: str, threads: int) -> None:
        self._name = name
        self._size = threads
        self._jobs: queue.SimpleQueue[_Job | None] | None = None
        self._threads: list[threading.Thread] = []
        self._hanging = 0

    def start(self) -> None:
        self._jobs = queue.SimpleQueue()
        self._threads = [
            threading.Thread(
                target=_work, args=(self._jobs,), name=f"bai-{self._name}-{number}", daemon=True
            )
            for number in range(self._size)
        ]
        for thread in self._threads:
            thread.start()

    async def stop(self, seconds: float = STOP_GRACE_SECONDS) -> None:
        """Cancel queued jobs, and wait up to ``seconds`` for the running ones."""
        if self._jobs is None:
            return
        jobs, self._jobs = self._jobs, None
        with contextlib.suppress(queue.Empty):
            while job := jobs.get_nowait():
                job[0].cancel()
        for _ in self._threads:
            jobs.put(None)
        await asyncio.to_thread(self._join, time.monotonic() + seconds)

    def _join(self, deadline: float) -> None:
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        hanging = sum(thread.is_alive() for thread in self._threads)
        if hanging:
            log.warning(
                "storage host %s: %d file operations are still running", self._name, hanging
            )

    async def run(
        self, work: Callable[..., T], *arguments: Any, seconds: float | None = STEP_TIMEOUT_SECONDS
    ) -> T:
        """Run a file operation in a thread, and return its result; ``seconds`` None: no timeout.

        Raises
        ------
        Unavailable
            If all threads hang, the threads are stopped, or the operation does not finish in time.
            In the last case, it may still finish later.
        BaiError
            If the operation raises an OSError that ``_MEANINGS`` translates.
        """
        if self._jobs is None:
            raise self._not_running()
        if self._hanging >= self._size:
            raise self._not_responding()
        job_future: concurrent.futures.Future[T] = concurrent.futures.Future()
        future = asyncio.wrap_future(job_future)
        self._jobs.put((job_future, functools.partial(translate_errors, work, *arguments)))
        try:
            done, _ = await asyncio.wait([future], timeout=seconds)
        except asyncio.CancelledError:
            future.add_done_callback(_consume_error)
            raise
        if done:
            if future.cancelled():
                raise self._not_running()
            return future.result()
        self._hanging += 1
        future.add_done_callback(self._on_late_end)
        raise self._not_responding()

    def _on_late_end(self, future: asyncio.Future[Any]) -> None:
        self._hanging -= 1
        _consume_error(future)

    def _not_running(self) -> Unavailable:
        return Unavailable("the storage host is not running; try again shortly", host=self._name)

    def _not_responding(self) -> Unavailable:
        return Unavailable(
            f"storage host {self._name} does not respond at the moment; try again shortly",
            host=self._name,
        )


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    """Run jobs from the queue, one at a time, until None is received."""
    while job := jobs.get():
        future, work = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
        # Release the references to the job before waiting for the next job.
        del job, future, work


def _consume_error(future: asyncio.Future[Any]) -> None:
    """Retrieve the error of a job whose caller no longer waits; otherwise asyncio would log it."""
    if not future.cancelled():
        future.exception()


_MEANINGS: dict[int, Callable[[], BaiError]] = {
    errno.ENOENT: lambda: NotFound("there is no such file in the folder"),
    errno.EXDEV: safe_paths.path_escape_error,
    errno.ELOOP: safe_paths.path_escape_error,
    errno.ENOTDIR: lambda: Conflict("a part of the path is a file, not a directory"),
    errno.EISDIR: lambda: Conflict("a directory with this name exists"),
    errno.EEXIST: lambda: Conflict("a file or directory with this name already exists"),
    errno.ENOTEMPTY: lambda: Conflict("the directory is not empty; remove its files first"),
    errno.ENAMETOOLONG: lambda: InvalidRequest("the path is too long", field="path"),
    errno.EINVAL: lambda: InvalidRequest("the file system rejects this path", field="path"),
    errno.EILSEQ: lambda: InvalidRequest("the file system rejects this name", field="path"),
    errno.EBUSY: lambda: Conflict(
        "the file or directory is in use, or a file system is mounted there"
    ),
    errno.ETXTBSY: lambda: Conflict("the file is being executed"),
    errno.EMLINK: lambda: Conflict("the directory cannot contain more directories"),
    errno.EACCES: lambda: Forbidden("the permissions of the file or directory forbid this"),
    errno.EPERM: lambda: Forbidden("the permissions of the file or directory forbid this"),
    errno.EROFS: lambda: Unavailable("the storage host is read-only at the moment"),
    errno.EAGAIN: lambda: Unavailable("the folder is changing too fast; try again"),
    errno.EDQUOT: lambda: QuotaExceeded(
        "the storage quota is used up: remove files, or ask an administrator for a larger quota; "
        "nothing was changed"
    ),
    errno.ENOSPC: lambda: StorageFull("the storage host is full; nothing was changed"),
    errno.EFBIG: lambda: StorageFull(
        "the file is too large for the storage host; nothing was changed"
    ),
    errno.EMFILE: lambda: Unavailable("too many files are open; try again shortly"),
    errno.ENFILE: lambda: Unavailable("too many files are open; try again shortly"),
}
_UNREACHABLE = (
    *(errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.ENODEV, errno.ESHUTDOWN),
    *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNREFUSED),
)
for _number in _UNREACHABLE:
    _MEANINGS[_number] = lambda: Unavailable("the storage host cannot be reached at the moment")


def translate_errors(work: Callable[..., T], *arguments: Any) -> T:
    """Run a file operation and convert an OSError to a ``BaiError`` that users may read.

    An OSError without a translation is raised unchanged.
    """
    try:
        return work(*arguments)
    except OSError as error:
        meaning = _MEANINGS.get(error.errno or 0)
        if meaning is None:
            raise
        raise meaning() from error
