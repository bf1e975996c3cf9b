"""Run jobs in processes that are killed with SIGKILL between and inside transactions."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import sqlalchemy as sa

from . import forked

# A kill at a statement has the same effect as a kill before the commit of its transaction. So only
# `make soak` kills at each statement.
AT_EVERY_STATEMENT = bool(os.environ.get("BAI_KILL_AT_EVERY_STATEMENT"))

Job = Callable[..., Coroutine[Any, Any, None]]


async def until_killed(job: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Run the job, but kill this process with SIGKILL at a point; exit when the job ends.

    The points are: before each commit, and before the first statement of each transaction. The
    environment variable ``KILL_AT`` is the number of the point, counted from 1.
    """
    left = int(os.environ["KILL_AT"])
    is_after_commit = True

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    @sa.event.listens_for(sa.Engine, "before_cursor_execute")
    def count_statement(*args: object) -> None:
        nonlocal is_after_commit
        if is_after_commit or AT_EVERY_STATEMENT:
            count()
        is_after_commit = False

    @sa.event.listens_for(sa.Engine, "commit")
    def count_commit(connection: object) -> None:
        nonlocal is_after_commit
        count()
        is_after_commit = True

    await job()
    os._exit(0)


def kill_everywhere(job: Job, *arguments: Any, check: Callable[[], None]) -> int:
    """Run the job until a run completes; kill run number n at point n; return the number of points.

    The job must call ``until_killed``. ``check`` is called after each kill.
    """
    for kill_at in range(1, 200):
        process = forked.start(_run, kill_at, job, arguments)
        process.join(60)
        if process.exitcode == 0:
            return kill_at - 1
        assert process.exitcode == -signal.SIGKILL, f"{job.__name__}: {process.exitcode}"
        check()
    raise AssertionError("the job never finished")


def _run(kill_at: int, job: Job, arguments: tuple[Any, ...]) -> None:
    os.environ["KILL_AT"] = str(kill_at)
    asyncio.run(job(*arguments))
