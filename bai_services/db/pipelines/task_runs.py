"""Read task runs with the state of their sessions, and store their changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.pipelines.caching import CACHED_LINE
from bai_services.core.pipelines.requests import session_id_of
from bai_services.core.pipelines.states import ACTIVE, TASK_ENDED, RunStatus, TaskRun, TaskStatus
from bai_services.core.sessions.kernel_group import MAIN
from bai_services.core.sessions.lifecycle import ENDED, Result, Status

from ..scheduling.caps import CHUNK
from ..tables.pipelines import pipeline_tasks
from ..tables.sessions import kernels, sessions


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A task run with the state of the session of its last attempt; None without a session.

    ``session_is_cached``: the session has ended without running the command, because the outputs
    were in the cache; only set while the task run is active.
    """

    task: str
    item_index: int
    position: int
    status: TaskStatus
    attempt: int
    failures: int
    retry_at: datetime | None
    message: str
    is_cached: bool
    session_id: str | None
    queued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    session_status: Status | None
    session_result: Result | None
    session_info: str
    session_coded: Mapping[str, Any] | None
    session_started_at: datetime | None
    session_is_cached: bool

    @property
    def run(self) -> TaskRun:
        return TaskRun(
            self.task,
            self.item_index,
            self.status,
            self.attempt,
            self.failures,
            self.retry_at,
            self.message,
            self.is_cached,
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """The changes of a step."""

    changed: Sequence[TaskRun]
    status: RunStatus


_COLUMNS = (
    "run_id", "task", "item_index", "position", "status", "attempt", "failures", "retry_at",
    "message", "is_cached", "session_id", "queued_at", "started_at", "ended_at",
)  # fmt: skip
# In the order of the parameters of ``_task``.
_TASKS = (
    sa.select(
        *(pipeline_tasks.c[name] for name in _COLUMNS),
        sessions.c.status.label("session_status"),
        sessions.c.result.label("session_result"),
        sessions.c.status_info.label("session_info"),
        sessions.c.status_coded.label("session_coded"),
        sessions.c.started_at.label("session_started_at"),
        kernels.c.log.contains(CACHED_LINE, autoescape=True).label("session_is_cached"),
    )
    .outerjoin_from(pipeline_tasks, sessions, pipeline_tasks.c.session_id == sessions.c.id)
    # Only the step that finds that a session has ended needs the session's log.
    .outerjoin(
        kernels,
        (kernels.c.session_id == sessions.c.id)
        & (kernels.c.role == MAIN)
        & pipeline_tasks.c.status.in_(sorted(ACTIVE))
        & sessions.c.status.in_(sorted(ENDED)),
    )
)
_STATUSES = {str(status): status for status in TaskStatus}
_CHANGED_COLUMNS = (
    "status", "attempt", "failures", "retry_at", "message", "is_cached", "session_id", "queued_at",
    "started_at", "ended_at",
)  # fmt: skip
_UPDATE = (
    sa.update(pipeline_tasks)
    .where(
        pipeline_tasks.c.run_id == sa.bindparam("b_run"),
        pipeline_tasks.c.task == sa.bindparam("b_task"),
        pipeline_tasks.c.item_index == sa.bindparam("b_index"),
    )
    .values({name: sa.bindparam(f"v_{name}") for name in _CHANGED_COLUMNS})
)


async def read_tasks(
    tx: AsyncConnection, run_ids: Collection[str]
) -> Mapping[str, Sequence[TaskRow]]:
    """Return the task runs of runs by run id, in topological order."""
    order = (pipeline_tasks.c.run_id, pipeline_tasks.c.position, pipeline_tasks.c.item_index)
    rows = _TASKS.where(pipeline_tasks.c.run_id.in_(sorted(run_ids))).order_by(*order)
    found: dict[str, list[TaskRow]] = {run_id: [] for run_id in run_ids}
    # Read the values by position: a step reads up to 2,000 rows, and access by name takes twice as
    # long.
    for run_id, *columns in (await tx.execute(rows)).all():
        found[run_id].append(_task(*columns))
    return found


async def with_waiting_reasons(tx: AsyncConnection, tasks: Sequence[TaskRow]) -> Sequence[TaskRow]:
    """Return the task runs, with the reasons of pending sessions in ``session_coded``.

    Only pages need these codes, so the steps of runs do not read them.
    """
    waiting = [
        task.session_id
        for task in tasks
        if task.session_id is not None and task.session_status is Status.PENDING
    ]
    codes: dict[str, Mapping[str, Any]] = {}
    for start in range(0, len(waiting), CHUNK):
        chunk = waiting[start : start + CHUNK]
        rows = sa.select(sessions.c.id, sessions.c.status_info, sessions.c.reasons)
        for row in await tx.execute(rows.where(sessions.c.id.in_(chunk))):
            for reason in row.reasons or ():
                if reason.get("message") == row.status_info and reason.get("coded"):
                    codes[row.id] = reason["coded"]
    return [
        replace(task, session_coded=codes[task.session_id]) if task.session_id in codes else task
        for task in tasks
    ]


async def count_tasks(
    tx: AsyncConnection, run_ids: Collection[str]
) -> Mapping[str, Mapping[str, int]]:
    """Return the number of task runs by status, for each run."""
    tasks = pipeline_tasks.c
    rows = (
        sa.select(tasks.run_id, tasks.status, sa.func.count().label("number"))
        .where(tasks.run_id.in_(sorted(run_ids)))
        .group_by(tasks.run_id, tasks.status)
        .order_by(tasks.status)
    )
    found: dict[str, dict[str, int]] = {run_id: {} for run_id in run_ids}
    for row in await tx.execute(rows):
        found[row.run_id][row.status] = row.number
    return found


@dataclass(frozen=True, slots=True)
class TaskChanges:
    """The changed task runs of a run; ``before`` are its previous task runs."""

    run_id: str
    before: Sequence[TaskRow]
    changed: Sequence[TaskRun]


async def write_tasks(
    tx: AsyncConnection, changes: Sequence[TaskChanges], now: datetime
) -> Mapping[str, Sequence[TaskRow]]:
    """Store changed task runs, with the times and sessions that follow from their status; return
    all task runs of each run.
    """
    stored = {each.run_id: _stored(each, now) for each in changes}
    values = [
        {
            "b_run": run_id,
            "b_task": task,
            "b_index": index,
            **{f"v_{name}": value for name, value in columns.items()},
        }
        for run_id, of_run in stored.items()
        for (task, index), columns in of_run.items()
    ]
    if values:
        await tx.execute(_UPDATE, values)
    # Avoid a new query, which would read up to 1,000 rows for each run.
    return {
        each.run_id: [
            _changed(row, stored[each.run_id].get((row.task, row.item_index)))
            for row in each.before
        ]
        for each in changes
    }


def _stored(changes: TaskChanges, now: datetime) -> dict[tuple[str, int], dict[str, Any]]:
    former = {(row.task, row.item_index): row for row in changes.before}
    return {
        (run.task, run.index): _values(changes.run_id, former[run.task, run.index], run, now)
        for run in changes.changed
    }


def _changed(row: TaskRow, changes: Mapping[str, Any] | None) -> TaskRow:
    if changes is None:
        return row
    if changes["session_id"] == row.session_id:
        return replace(row, **changes)
    # The session of a new attempt does not exist yet.
    no_session: dict[str, Any] = {
        "session_status": None,
        "session_result": None,
        "session_info": "",
        "session_coded": None,
        "session_started_at": None,
        "session_is_cached": False,
    }
    return replace(row, **changes, **no_session)


def _values(run_id: str, row: TaskRow, run: TaskRun, now: datetime) -> dict[str, Any]:
    queued_at, started_at, session_id = row.queued_at, row.started_at, row.session_id
    if run.status is TaskStatus.WAITING:
        queued_at = started_at = None
    elif run.status is TaskStatus.QUEUED:
        queued_at, started_at, session_id = now, None, session_id_of(run_id, run)
    elif run.status is TaskStatus.APPROVAL:
        queued_at = started_at = now
    elif started_at is None and run.attempt:
        started_at = row.session_started_at
    return {
        "status": run.status,
        "attempt": run.attempt,
        "failures": run.failures,
        "retry_at": run.retry_at,
        "message": run.message,
        "is_cached": run.is_cached,
        "session_id": session_id,
        "queued_at": queued_at,
        "started_at": started_at,
        "ended_at": now if run.status in {*TASK_ENDED, TaskStatus.RETRYING} else None,
    }


def _task(
    task: str,
    item_index: int,
    position: int,
    status: str,
    attempt: int,
    failures: int,
    retry_at: datetime | None,
    message: str,
    is_cached: bool,
    session_id: str | None,
    queued_at: datetime | None,
    started_at: datetime | None,
    ended_at: datetime | None,
    session_status: str | None,
    session_result: str | None,
    session_info: str | None,
    session_coded: Mapping[str, Any] | None,
    session_started_at: datetime | None,
    session_is_cached: bool | None,
) -> TaskRow:
    return TaskRow(
        task,
        item_index,
        position,
        _STATUSES[status],
        attempt,
        failures,
        retry_at,
        message,
        is_cached,
        session_id,
        queued_at,
        started_at,
        ended_at,
        None if session_status is None else Status(session_status),
        None if session_result is None else Result(session_result),
        session_info or "",
        session_coded,
        session_started_at,
        bool(session_is_cached),
    )
