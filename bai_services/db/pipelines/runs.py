"""Store of the runs of pipelines and of their task runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import NotFound, QuotaExceeded
from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines.definition import PipelineDefinition, Value
from bai_services.core.pipelines.records import MAX_OPEN_RUNS, RUNS_KEPT_PER_USER
from bai_services.core.pipelines.requests import session_id_of
from bai_services.core.pipelines.states import (
    ACTIVE,
    RUN_ENDED,
    TASK_ENDED,
    Plan,
    RunStatus,
    TaskRun,
    TaskStatus,
)
from bai_services.core.sessions.lifecycle import ENDED, Result, Status

from ..accounts.user_domains import lock_active
from ..audit import record
from ..database import Database
from ..listing import Listing
from ..records import first_record, records
from ..tables.accounts import projects, users
from ..tables.pipelines import pipeline_runs, pipeline_tasks, pipelines
from ..tables.sessions import sessions
from .definitions import FOLDER_ID, OPEN_RUNS, PipelineRow, no_pipeline, visible_to

# Runs and waiting runs that one step reads; the next step reads the others.
BATCH = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run with its pipeline, without its definition."""

    id: str
    created_at: datetime
    pipeline_id: str
    pipeline_version: int
    status: RunStatus
    parameters: Mapping[str, Value]
    tasks: int
    started_at: datetime | None
    ended_at: datetime | None
    pipeline: str
    vfolder_id: str | None
    owner_id: str
    owner: str
    owner_role: Role
    project_id: str
    project: str
    domain: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRow:
    """A task run with the state of the session of its last attempt, None if there is none."""

    task: str
    item_index: int
    position: int
    status: TaskStatus
    attempt: int
    failures: int
    retry_at: datetime | None
    message: str
    session_id: str | None
    queued_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    session_status: Status | None
    session_result: Result | None
    session_info: str
    session_code: str
    session_started_at: datetime | None

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
        )


@dataclass(frozen=True, slots=True)
class Decision:
    """What a step changes."""

    changed: Sequence[TaskRun]
    status: RunStatus


Decide = Callable[[RunRow, Sequence[TaskRow]], Decision]

_RUN_COLUMNS = (
    "id", "created_at", "pipeline_id", "pipeline_version", "status", "parameters", "tasks",
    "started_at", "ended_at",
)  # fmt: skip
_RUNS = (
    sa.select(
        *(pipeline_runs.c[name] for name in _RUN_COLUMNS),
        pipelines.c.name.label("pipeline"),
        FOLDER_ID,
        pipelines.c.owner_id,
        pipelines.c.project_id,
        users.c.username.label("owner"),
        users.c.role.label("owner_role"),
        projects.c.domain,
        projects.c.name.label("project"),
    )
    .join_from(pipeline_runs, pipelines, pipeline_runs.c.pipeline_id == pipelines.c.id)
    .join(users, pipelines.c.owner_id == users.c.id)
    .join(projects, pipelines.c.project_id == projects.c.id)
)
_LISTING = Listing(
    columns={
        **{name: pipeline_runs.c[name] for name in _RUN_COLUMNS if name != "parameters"},
        "pipeline": pipelines.c.name,
        "owner_id": pipelines.c.owner_id,
        "owner": users.c.username,
        "project_id": pipelines.c.project_id,
        "project": projects.c.name,
        "domain": projects.c.domain,
    },
    default_sort=("-created_at", "id"),
)
_TASKS = sa.select(
    *(column for column in pipeline_tasks.columns if column.name != "run_id"),
    sessions.c.status.label("session_status"),
    sessions.c.result.label("session_result"),
    sessions.c.status_info.label("session_info"),
    sessions.c.status_coded.label("session_coded"),
    sessions.c.started_at.label("session_started_at"),
).outerjoin_from(pipeline_tasks, sessions, pipeline_tasks.c.session_id == sessions.c.id)
_SESSION_ENDED = sessions.c.status.in_(sorted(ENDED))


class PipelineRunStore:
    """Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, query: ListQuery, visible: Visibility
    ) -> tuple[Page[RunRow], Mapping[str, Mapping[str, int]]]:
        """Return a page of runs, and for each the number of task runs by status."""
        async with self._db.read() as tx:
            page = await _LISTING.page(tx, visible_to(_RUNS, visible), query, _run)
            return page, await _counts(tx, [row.id for row in page.items])

    async def find(self, key: str, visible: Visibility) -> RunRow:
        """Return a visible run.

        Raises
        ------
        NotFound
            If no visible run has that id.
        """
        rows = visible_to(_RUNS, visible).where(pipeline_runs.c.id == key)
        async with self._db.read() as tx:
            found = first_record(_run, await tx.execute(rows))
        if found is None:
            raise NotFound(f"there is no run {key!r}, or you may not see it", run=key)
        return found

    async def detail(self, run_id: str) -> tuple[str, Plan, Sequence[TaskRow]]:
        """Return the definition, the plan and the task runs of a run."""
        async with self._db.read_one_state() as tx:
            rows = sa.select(
                pipeline_runs.c.definition, pipeline_runs.c.parsed, pipeline_runs.c.parameters
            ).where(pipeline_runs.c.id == run_id)
            found = (await tx.execute(rows)).one_or_none()
            if found is None:
                raise NotFound("the run no longer exists", run=run_id)
            plan = Plan.of(PipelineDefinition.from_json(found.parsed), found.parameters)
            return found.definition, plan, await _tasks(tx, run_id)

    async def create(
        self,
        row: PipelineRow,
        run_id: str,
        plan: Plan,
        now: datetime,
        audit: AuditEntry,
    ) -> None:
        """Insert a run of a pipeline as it is now, with its task runs.

        Raises
        ------
        QuotaExceeded
            If the owner has too many runs that have not ended.
        NotFound
            If the pipeline no longer exists.
        """
        task_runs = plan.first_runs()
        async with self._db.write() as tx:
            await _lock_with_room(tx, row.owner_id)
            locked = await tx.execute(
                sa.update(pipelines).where(pipelines.c.id == row.id).values(last_run_id=run_id)
            )
            if not locked.rowcount:
                raise no_pipeline(row.name)
            # After the lock of the pipeline: a deletion locks it before its runs, too.
            await _delete_oldest(tx, row.owner_id)
            await tx.execute(
                pipeline_runs.insert().values(
                    id=run_id,
                    created_at=now,
                    pipeline_id=row.id,
                    pipeline_version=row.version,
                    status=RunStatus.WAITING,
                    definition=row.definition,
                    parsed=row.parsed,
                    parameters=dict(plan.parameters),
                    tasks=len(task_runs),
                    is_due=False,
                )
            )
            positions = {name: position for position, name in enumerate(plan.tasks)}
            values = [
                {
                    "run_id": run_id,
                    "task": each.task,
                    "item_index": each.index,
                    "position": positions[each.task],
                    "status": each.status,
                    "attempt": 0,
                    "failures": 0,
                    "message": "",
                }
                for each in task_runs
            ]
            if values:
                await tx.execute(pipeline_tasks.insert(), values)
            await record(tx, audit)

    async def start_waiting(self, now: datetime) -> int:
        """Let waiting runs run, the oldest first, up to the limit of their pipelines; return how
        many have started.
        """
        # One count for each pipeline, not for each waiting run.
        others = pipeline_runs.alias()
        running = (
            sa.select(others.c.pipeline_id, sa.func.count().label("number"))
            .where(others.c.status.in_([RunStatus.RUNNING, RunStatus.CANCELLING]))
            .group_by(others.c.pipeline_id)
            .subquery()
        )
        room = pipelines.c.max_concurrent_runs - sa.func.coalesce(running.c.number, 0)
        rows = (
            sa.select(
                pipeline_runs.c.id,
                pipeline_runs.c.pipeline_id,
                room.label("room"),
            )
            .join_from(pipeline_runs, pipelines, pipeline_runs.c.pipeline_id == pipelines.c.id)
            .outerjoin(running, running.c.pipeline_id == pipelines.c.id)
            .where(pipeline_runs.c.status == RunStatus.WAITING, room > 0)
            .order_by(pipeline_runs.c.created_at, pipeline_runs.c.id)
            .limit(BATCH)
        )
        async with self._db.read() as tx:
            if not (await tx.execute(rows.limit(1))).all():
                return 0
        async with self._db.write() as tx:
            taken: dict[str, int] = {}
            started: list[str] = []
            for row in await tx.execute(rows):
                count = taken.get(row.pipeline_id, 0)
                if count < row.room:
                    taken[row.pipeline_id] = count + 1
                    started.append(row.id)
            await tx.execute(
                sa.update(pipeline_runs)
                .where(pipeline_runs.c.id.in_(started), pipeline_runs.c.status == RunStatus.WAITING)
                .values(status=RunStatus.RUNNING, started_at=now, is_due=True)
            )
            return len(started)

    async def due(self, now: datetime, session_ids: Collection[str]) -> list[str]:
        """Return the runs that a request or one of the sessions has changed, and those with a retry
        that is due.
        """
        open_runs = pipeline_runs.c.status.in_([RunStatus.RUNNING, RunStatus.CANCELLING])
        requested = sa.select(pipeline_runs.c.id).where(open_runs, pipeline_runs.c.is_due)
        retried = sa.select(pipeline_tasks.c.run_id).where(
            pipeline_tasks.c.status == TaskStatus.RETRYING, pipeline_tasks.c.retry_at <= now
        )
        of_sessions = sa.select(pipeline_tasks.c.run_id).where(
            pipeline_tasks.c.session_id.in_(sorted(session_ids))
        )
        found = sa.union(requested, retried, *([of_sessions] if session_ids else []))
        async with self._db.read() as tx:
            return list(await tx.scalars(found))

    async def unprocessed(self) -> list[str]:
        """Return the runs with a task run whose session is missing, has started or has ended.

        Such changes are processed at once, unless the manager was killed.
        """
        is_queued = pipeline_tasks.c.status == TaskStatus.QUEUED
        is_running = pipeline_tasks.c.status == TaskStatus.RUNNING
        is_missing = sessions.c.id.is_(None)
        has_changed = is_missing | _SESSION_ENDED
        rows = (
            sa.select(pipeline_tasks.c.run_id)
            .outerjoin_from(pipeline_tasks, sessions, pipeline_tasks.c.session_id == sessions.c.id)
            .where(
                (is_queued & (has_changed | (sessions.c.status == Status.RUNNING)))
                | (is_running & has_changed)
            )
            .distinct()
        )
        async with self._db.read() as tx:
            return list(await tx.scalars(rows))

    async def step(
        self, run_id: str, decide: Decide, now: datetime
    ) -> tuple[RunRow, Sequence[TaskRow]] | None:
        """Apply a decision to a run; return the run and its task runs after it, None if it has
        ended.
        """
        async with self._db.write() as tx:
            await tx.execute(
                sa.select(pipeline_runs.c.id).where(pipeline_runs.c.id == run_id).with_for_update()
            )
            row = first_record(_run, await tx.execute(_RUNS.where(pipeline_runs.c.id == run_id)))
            if row is None or row.status in RUN_ENDED or row.status is RunStatus.WAITING:
                return None
            before = await _tasks(tx, run_id)
            decision = decide(row, before)
            after = await _write(tx, run_id, before, decision.changed, now)
            is_ended = decision.status in RUN_ENDED
            await tx.execute(
                sa.update(pipeline_runs)
                .where(pipeline_runs.c.id == run_id)
                .values(status=decision.status, is_due=False, ended_at=now if is_ended else None)
            )
            return replace(row, status=decision.status), after

    async def change(
        self,
        row: RunRow,
        decide: Callable[[RunStatus, Sequence[TaskRow]], Decision],
        now: datetime,
        audit: AuditEntry,
        *,
        opens: bool = False,
    ) -> None:
        """Apply the request of a user to a run; the next step processes it.

        ``opens``: the request opens an ended run.

        Raises
        ------
        QuotaExceeded
            If it opens a run and the owner has too many runs that have not ended.
        """
        run_id = row.id
        async with self._db.write() as tx:
            if opens:
                await _lock_with_room(tx, row.owner_id)
            status = await tx.scalar(
                sa.select(pipeline_runs.c.status)
                .where(pipeline_runs.c.id == run_id)
                .with_for_update()
            )
            if status is None:
                raise NotFound("the run no longer exists", run=run_id)
            before = await _tasks(tx, run_id)
            decision = decide(RunStatus(status), before)
            await _write(tx, run_id, before, decision.changed, now)
            is_ended = decision.status in RUN_ENDED
            await tx.execute(
                sa.update(pipeline_runs)
                .where(pipeline_runs.c.id == run_id)
                .values(
                    status=decision.status,
                    is_due=not is_ended,
                    ended_at=now if is_ended else None,
                )
            )
            await record(tx, audit)

    async def sessions_to_end(self, *, is_full: bool) -> list[str]:
        """Return the live sessions of runs that are being cancelled; with ``is_full`` also those of
        task runs that have ended, which a manager without the lease may have created.
        """
        rows = (
            sa.select(sessions.c.id)
            .join_from(pipeline_tasks, sessions, pipeline_tasks.c.session_id == sessions.c.id)
            .join(pipeline_runs, pipeline_tasks.c.run_id == pipeline_runs.c.id)
            .where(sessions.c.status.not_in(sorted({*ENDED, Status.TERMINATING})))
        )
        is_cancelling = pipeline_runs.c.status == RunStatus.CANCELLING
        is_left = pipeline_tasks.c.status.not_in(sorted(ACTIVE))
        async with self._db.read() as tx:
            return list(
                await tx.scalars(rows.where(is_cancelling | is_left if is_full else is_cancelling))
            )

    async def clean_up(self, before: datetime, kept: int) -> None:
        """Delete runs that ended before a time, and all but the latest ``kept`` of a pipeline."""
        ended = (
            sa.select(
                pipeline_runs.c.id,
                pipeline_runs.c.ended_at,
                sa.func.row_number()
                .over(
                    partition_by=pipeline_runs.c.pipeline_id,
                    order_by=pipeline_runs.c.created_at.desc(),
                )
                .label("number"),
            )
            .where(pipeline_runs.c.status.in_(sorted(RUN_ENDED)))
            .subquery()
        )
        old = sa.select(ended.c.id).where((ended.c.ended_at < before) | (ended.c.number > kept))
        async with self._db.write() as tx:
            # A run that was resumed meanwhile remains.
            is_ended = pipeline_runs.c.status.in_(sorted(RUN_ENDED))
            await tx.execute(sa.delete(pipeline_runs).where(pipeline_runs.c.id.in_(old), is_ended))


async def _lock_with_room(tx: AsyncConnection, owner_id: str) -> None:
    """Lock the owner of a run that is opened, who may not have too many open runs."""
    await lock_active(tx, owner_id)
    own = (
        sa.select(sa.func.count())
        .select_from(pipeline_runs)
        .join(pipelines, pipeline_runs.c.pipeline_id == pipelines.c.id)
        .where(pipelines.c.owner_id == owner_id, pipeline_runs.c.status.in_(OPEN_RUNS))
    )
    if int(await tx.scalar(own) or 0) >= MAX_OPEN_RUNS:
        raise QuotaExceeded(
            f"you have {MAX_OPEN_RUNS} runs that have not ended; wait for them or cancel some",
            limit=MAX_OPEN_RUNS,
        )


async def _delete_oldest(tx: AsyncConnection, owner_id: str) -> None:
    """Delete the oldest ended run of a user who has the maximum number of them.

    Delete only one: two transactions that delete several runs could deadlock.
    """
    is_ended = pipeline_runs.c.status.in_(sorted(RUN_ENDED))
    ended = (
        sa.select(pipeline_runs.c.id)
        .join(pipelines, pipeline_runs.c.pipeline_id == pipelines.c.id)
        .where(pipelines.c.owner_id == owner_id, is_ended)
    )
    number = await tx.scalar(sa.select(sa.func.count()).select_from(ended.subquery()))
    if int(number or 0) >= RUNS_KEPT_PER_USER:
        oldest = await tx.scalar(ended.order_by(pipeline_runs.c.ended_at).limit(1))
        await tx.execute(sa.delete(pipeline_runs).where(pipeline_runs.c.id == oldest, is_ended))


async def _tasks(tx: AsyncConnection, run_id: str) -> list[TaskRow]:
    rows = _TASKS.where(pipeline_tasks.c.run_id == run_id)
    order = (pipeline_tasks.c.position, pipeline_tasks.c.item_index)
    return records(_task, await tx.execute(rows.order_by(*order)))


async def _counts(tx: AsyncConnection, run_ids: Collection[str]) -> Mapping[str, Mapping[str, int]]:
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


async def _write(
    tx: AsyncConnection,
    run_id: str,
    before: Sequence[TaskRow],
    changed: Sequence[TaskRun],
    now: datetime,
) -> Sequence[TaskRow]:
    """Store changed task runs, with the times and sessions that follow from their status; return
    all task runs after that.
    """
    if not changed:
        return before
    former = {(row.task, row.item_index): row for row in before}
    values = [
        {"b_task": run.task, "b_index": run.index, **_values(run_id, former, run, now)}
        for run in changed
    ]
    names = [name for name in values[0] if not name.startswith("b_")]
    await tx.execute(
        sa.update(pipeline_tasks)
        .where(
            pipeline_tasks.c.run_id == run_id,
            pipeline_tasks.c.task == sa.bindparam("b_task"),
            pipeline_tasks.c.item_index == sa.bindparam("b_index"),
        )
        .values({name: sa.bindparam(f"v_{name}") for name in names}),
        [
            {name if name.startswith("b_") else f"v_{name}": value for name, value in each.items()}
            for each in values
        ],
    )
    # Without a new query: it would read up to 1,000 rows.
    stored = {(each["b_task"], each["b_index"]): each for each in values}
    return [
        _changed(row, stored[row.task, row.item_index])
        if (row.task, row.item_index) in stored
        else row
        for row in before
    ]


def _changed(row: TaskRow, values: Mapping[str, Any]) -> TaskRow:
    changes = {name: value for name, value in values.items() if not name.startswith("b_")}
    if changes["session_id"] == row.session_id:
        return replace(row, **changes)
    # The session of a new attempt is not created yet.
    no_session: dict[str, Any] = {
        "session_status": None,
        "session_result": None,
        "session_info": "",
        "session_code": "",
        "session_started_at": None,
    }
    return replace(row, **changes, **no_session)


def _values(
    run_id: str, former: Mapping[tuple[str, int], TaskRow], run: TaskRun, now: datetime
) -> dict[str, Any]:
    row = former[run.task, run.index]
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
        "session_id": session_id,
        "queued_at": queued_at,
        "started_at": started_at,
        "ended_at": now if run.status in {*TASK_ENDED, TaskStatus.RETRYING} else None,
    }


def _run(*, status: str, owner_role: str, **columns: Any) -> RunRow:
    return RunRow(status=RunStatus(status), owner_role=Role(owner_role), **columns)


def _task(
    *,
    status: str,
    session_status: str | None,
    session_result: str | None,
    session_info: str | None,
    session_coded: Mapping[str, Any] | None,
    **columns: Any,
) -> TaskRow:
    return TaskRow(
        status=TaskStatus(status),
        session_status=None if session_status is None else Status(session_status),
        session_result=None if session_result is None else Result(session_result),
        session_info=session_info or "",
        session_code="" if session_coded is None else str(session_coded["code"]),
        **columns,
    )
