"""Threads for file work, with timeouts, so that the event loop never blocks on a file system."""

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

# Grace period at the end of the process: work in a dead mount never ends.
STOP_SECONDS = 3.0
# One step of file work: a piece of a file, a page of a directory, a rename.
STEP_SECONDS = 60.0


class Workers:
    """A thread pool of one storage host, so that a slow host cannot block others.

    A thread that hangs in a dead mount cannot be stopped: its caller gets an error after a timeout,
    and once all threads hang, every caller gets it at once. The threads are daemons, because those
    of a ``ThreadPoolExecutor`` would block the end of the process.
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

    async def stop(self, seconds: float = STOP_SECONDS) -> None:
        """Finish running work within that time; queued work is not started."""
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
                "storage host %s: %d steps of file work are still running", self._name, hanging
            )

    async def run(
        self, work: Callable[..., T], *arguments: Any, seconds: float | None = STEP_SECONDS
    ) -> T:
        """Run file work in a thread; ``seconds`` None means no timeout.

        Raises
        ------
        Unavailable
            If it is not finished in time; it may still finish later.
        BaiError
            The error for an OSError of the work.
        """
        if self._jobs is None:
            raise self._stopped()
        if self._hanging >= self._size:
            raise self._silent()
        given: concurrent.futures.Future[T] = concurrent.futures.Future()
        future = asyncio.wrap_future(given)
        self._jobs.put((given, functools.partial(translated, work, *arguments)))
        try:
            done, _ = await asyncio.wait([future], timeout=seconds)
        except asyncio.CancelledError:
            future.add_done_callback(_consume_error)
            raise
        if done:
            if future.cancelled():
                raise self._stopped()
            return future.result()
        self._hanging += 1
        future.add_done_callback(self._back)
        raise self._silent()

    def _back(self, future: asyncio.Future[Any]) -> None:
        self._hanging -= 1
        _consume_error(future)

    def _stopped(self) -> Unavailable:
        return Unavailable("the storage host is not running; try again shortly", host=self._name)

    def _silent(self) -> Unavailable:
        return Unavailable(
            f"storage host {self._name} does not answer at the moment; try again shortly",
            host=self._name,
        )


def _work(jobs: queue.SimpleQueue[_Job | None]) -> None:
    """Run one job after another, until None arrives."""
    while job := jobs.get():
        future, work = job
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)
        # Release the references of the job before waiting for the next one.
        del job, future, work


def _consume_error(future: asyncio.Future[Any]) -> None:
    """Consume the error of work whose caller has given up."""
    if not future.cancelled():
        future.exception()


_MEANINGS: dict[int, Callable[[], BaiError]] = {
    errno.ENOENT: lambda: NotFound("there is no such file in the folder"),
    errno.EXDEV: safe_paths.leads_out,
    errno.ELOOP: safe_paths.leads_out,
    errno.ENOTDIR: lambda: Conflict("a part of the path is a file, not a directory"),
    errno.EISDIR: lambda: Conflict("there is a directory of that name"),
    errno.EEXIST: lambda: Conflict("there is something of that name already"),
    errno.ENOTEMPTY: lambda: Conflict("the directory is not empty; remove its files first"),
    errno.ENAMETOOLONG: lambda: InvalidRequest("the path is too long", field="path"),
    errno.EINVAL: lambda: InvalidRequest("the file system refuses that path", field="path"),
    errno.EILSEQ: lambda: InvalidRequest("the file system refuses that name", field="path"),
    errno.EBUSY: lambda: Conflict("something is mounted there or it is in use"),
    errno.ETXTBSY: lambda: Conflict("the file is being run"),
    errno.EMLINK: lambda: Conflict("the directory cannot hold more directories"),
    errno.EACCES: lambda: Forbidden("the file's own permissions forbid it"),
    errno.EPERM: lambda: Forbidden("the file's own permissions forbid it"),
    errno.EROFS: lambda: Unavailable("the storage host is read-only at the moment"),
    errno.EAGAIN: lambda: Unavailable("the folder is changing too fast; try again"),
    errno.EDQUOT: lambda: QuotaExceeded(
        "the storage quota is used up: remove files, or ask for more; nothing was changed"
    ),
    errno.EMFILE: lambda: Unavailable("too many files are open; try again shortly"),
    errno.ENFILE: lambda: Unavailable("too many files are open; try again shortly"),
}
_AWAY = (
    *(errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.ENODEV, errno.ESHUTDOWN),
    *(errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ECONNREFUSED),
)
for _number in _AWAY:
    _MEANINGS[_number] = lambda: Unavailable("the storage host cannot be reached at the moment")
for _number in (errno.ENOSPC, errno.EFBIG):
    _MEANINGS[_number] = lambda: StorageFull("the storage host is full; nothing was changed")


def translated(work: Callable[..., T], *arguments: Any) -> T:
    """Run file work and convert an OSError to an error for users."""
    try:
        return work(*arguments)
    except OSError as error:
        meaning = _MEANINGS.get(error.errno or 0)
        if meaning is None:
            raise
        raise meaning() from error
