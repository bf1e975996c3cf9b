"""Store of the runs of pipelines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import refusal
from bai_services.core.errors import AlreadyExists, NotFound, QuotaExceeded
from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications.events import Event
from bai_services.core.pipelines.definition import PipelineDefinition, Value
from bai_services.core.pipelines.notices import RunNotices
from bai_services.core.pipelines.records import MAX_OPEN_RUNS, RUNS_KEPT_PER_USER
from bai_services.core.pipelines.states import RUN_ENDED, Plan, RunStatus
from bai_services.core.refusal_texts import RefusalText

from ..accounts.user_domains import lock_active
from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..listing import Listing
from ..notifications.events import raise_events
from ..records import first_record
from ..tables.accounts import projects, users
from ..tables.pipelines import pipeline_runs, pipeline_tasks, pipeline_triggers, pipelines
from .definitions import FOLDER_ID, OPEN_RUNS, PipelineReader, PipelineRow, no_pipeline
from .task_runs import (
    Decision,
    TaskChanges,
    TaskRow,
    count_tasks,
    read_tasks,
    with_waiting_reasons,
    write_tasks,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run with its pipeline, without its definition. ``owner_id``: the user who started it."""

    id: str
    created_at: datetime
    pipeline_id: str
    pipeline_version: int
    status: RunStatus
    cause: str
    parameters: Mapping[str, Value]
    tasks: int
    started_at: datetime | None
    ended_at: datetime | None
    pipeline: str
    is_project_owned: bool
    vfolder_id: str | None
    owner_id: str
    owner: str
    owner_role: Role
    project_id: str
    project: str
    domain: str


_RUN_COLUMNS = (
    "id", "created_at", "pipeline_id", "pipeline_version", "status", "cause", "parameters",
    "tasks", "started_at", "ended_at",
)  # fmt: skip
RUNS = (
    sa.select(
        *(pipeline_runs.c[name] for name in _RUN_COLUMNS),
        pipelines.c.name.label("pipeline"),
        pipelines.c.owner_id.is_(None).label("is_project_owned"),
        FOLDER_ID,
        pipeline_runs.c.owner_id,
        pipelines.c.project_id,
        users.c.username.label("owner"),
        users.c.role.label("owner_role"),
        projects.c.domain,
        projects.c.name.label("project"),
    )
    .join_from(pipeline_runs, pipelines, pipeline_runs.c.pipeline_id == pipelines.c.id)
    .join(users, pipeline_runs.c.owner_id == users.c.id)
    .join(projects, pipelines.c.project_id == projects.c.id)
)
_LISTING = Listing(
    columns={
        **{name: pipeline_runs.c[name] for name in _RUN_COLUMNS if name != "parameters"},
        "pipeline": pipelines.c.name,
        "owner_id": pipeline_runs.c.owner_id,
        "owner": users.c.username,
        "project_id": pipelines.c.project_id,
        "project": projects.c.name,
        "domain": projects.c.domain,
    },
    default_sort=("-created_at", "id"),
)


# Whether the end of a run fires triggers.
HAS_FOLLOWER = sa.exists().where(
    pipeline_triggers.c.source_id == pipeline_runs.c.pipeline_id, pipeline_triggers.c.is_enabled
)


class PipelineRunStore:
    """Reads and writes runs of pipelines. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, query: ListQuery, reader: PipelineReader
    ) -> tuple[Page[RunRow], Mapping[str, Mapping[str, int]]]:
        """Return a page of runs, and for each the number of task runs by status."""
        async with self._db.read() as tx:
            rows = RUNS.where(reader.condition(pipeline_runs.c.owner_id))
            page = await _LISTING.page(tx, rows, query, run_row)
            return page, await count_tasks(tx, [row.id for row in page.items])

    async def find(self, key: str, reader: PipelineReader) -> RunRow:
        """Return a visible run.

        Raises
        ------
        NotFound
            If no visible run has that id.
        """
        is_visible = reader.condition(pipeline_runs.c.owner_id)
        rows = RUNS.where(is_visible, pipeline_runs.c.id == key)
        async with self._db.read() as tx:
            found = first_record(run_row, await tx.execute(rows))
        if found is None:
            raise NotFound(refusal(RefusalText.NO_RUN, name=key), run=key)
        return found

    async def detail(self, run_id: str) -> tuple[str, Plan, Sequence[TaskRow]]:
        """Return the definition (as text), the plan and the task runs of a run."""
        async with self._db.read_one_state() as tx:
            rows = sa.select(
                pipeline_runs.c.definition, pipeline_runs.c.parsed, pipeline_runs.c.parameters
            ).where(pipeline_runs.c.id == run_id)
            found = (await tx.execute(rows)).one_or_none()
            if found is None:
                raise NotFound(refusal(RefusalText.RUN_REMOVED), run=run_id)
            plan = Plan.of(PipelineDefinition.from_json(found.parsed), found.parameters)
            tasks = (await read_tasks(tx, [run_id]))[run_id]
            return found.definition, plan, await with_waiting_reasons(tx, tasks)

    async def create(
        self,
        row: PipelineRow,
        run_id: str,
        plan: Plan,
        now: datetime,
        audit: AuditEntry,
        *,
        owner_id: str,
        cause: str = "",
    ) -> None:
        """Insert a run of a pipeline with its task runs; ``owner_id`` is the user who starts it.

        Raises
        ------
        AlreadyExists
            If there is a run with that id.
        QuotaExceeded
            If that user has too many runs that have not ended.
        NotFound
            If the pipeline no longer exists.
        """
        task_runs = plan.first_runs()
        async with self._db.write() as tx:
            await _lock_with_room(tx, owner_id)
            locked = await tx.execute(
                sa.update(pipelines).where(pipelines.c.id == row.id).values(last_run_id=run_id)
            )
            if not locked.rowcount:
                raise no_pipeline(row.name)
            # Lock runs only after the pipeline, in the same order as the deletion of a pipeline.
            await _delete_oldest(tx, owner_id)
            with raise_on_violation(
                AlreadyExists(refusal(RefusalText.RUN_EXISTS, name=run_id), run=run_id)
            ):
                await tx.execute(
                    pipeline_runs.insert().values(
                        id=run_id,
                        created_at=now,
                        pipeline_id=row.id,
                        pipeline_version=row.version,
                        owner_id=owner_id,
                        status=RunStatus.WAITING,
                        cause=cause,
                        definition=row.definition,
                        parsed=plan.definition.as_json(),
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
                    "is_cached": False,
                }
                for each in task_runs
            ]
            if values:
                await tx.execute(pipeline_tasks.insert(), values)
            await record(tx, audit)

    async def change(
        self,
        row: RunRow,
        decide: Callable[[RunStatus, Sequence[TaskRow]], Decision],
        now: datetime,
        audit: AuditEntry,
        *,
        opens: bool = False,
    ) -> None:
        """Apply a user's request to a run: store what ``decide`` returns for its current state.

        ``opens``: the request opens an ended run.

        Raises
        ------
        QuotaExceeded
            If the request opens a run and the owner has too many runs that have not ended.
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
                raise NotFound(refusal(RefusalText.RUN_REMOVED), run=run_id)
            before = (await read_tasks(tx, [run_id]))[run_id]
            decision = decide(RunStatus(status), before)
            await write_tasks(tx, [TaskChanges(run_id, before, decision.changed)], now)
            is_ended = decision.status in RUN_ENDED
            await tx.execute(
                sa.update(pipeline_runs)
                .where(pipeline_runs.c.id == run_id)
                .values(
                    status=decision.status,
                    is_due=not is_ended,
                    fires_triggers=HAS_FOLLOWER if is_ended else False,
                    ended_at=now if is_ended else None,
                )
            )
            former = replace(row, status=RunStatus(status))
            await raise_events(tx, notices_of(former, decision, now))
            await record(tx, audit)

    async def clean_up(self, before: datetime, kept: int) -> None:
        """Delete runs that ended before a time, and all but the latest ``kept`` per pipeline."""
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
            # Runs that were resumed in the meantime are not deleted.
            is_ended = pipeline_runs.c.status.in_(sorted(RUN_ENDED))
            await tx.execute(sa.delete(pipeline_runs).where(pipeline_runs.c.id.in_(old), is_ended))


async def _lock_with_room(tx: AsyncConnection, owner_id: str) -> None:
    """Lock the owner of a new run; raise ``QuotaExceeded`` for too many open runs."""
    await lock_active(tx, owner_id)
    own = (
        sa.select(sa.func.count())
        .select_from(pipeline_runs)
        .where(pipeline_runs.c.owner_id == owner_id, pipeline_runs.c.status.in_(OPEN_RUNS))
    )
    if int(await tx.scalar(own) or 0) >= MAX_OPEN_RUNS:
        raise QuotaExceeded(
            refusal(RefusalText.TOO_MANY_RUNS, limit=MAX_OPEN_RUNS),
            limit=MAX_OPEN_RUNS,
        )


async def _delete_oldest(tx: AsyncConnection, owner_id: str) -> None:
    """Delete the oldest ended run of a user with the maximum number of ended runs.

    Only one run is deleted, because two transactions that delete several runs could deadlock.
    """
    is_ended = pipeline_runs.c.status.in_(sorted(RUN_ENDED))
    ended = sa.select(pipeline_runs.c.id).where(pipeline_runs.c.owner_id == owner_id, is_ended)
    number = await tx.scalar(sa.select(sa.func.count()).select_from(ended.subquery()))
    if int(number or 0) >= RUNS_KEPT_PER_USER:
        oldest = await tx.scalar(ended.order_by(pipeline_runs.c.ended_at).limit(1))
        await tx.execute(sa.delete(pipeline_runs).where(pipeline_runs.c.id == oldest, is_ended))


def notices_of(row: RunRow, decision: Decision, now: datetime) -> list[Event]:
    """Return the events that a decision about a run raises; ``row`` is the run before it."""
    notices = RunNotices(row.id, row.owner_id, row.domain, row.pipeline)
    return list(notices.of_step(row.status, decision.status, decision.changed, now))


def run_row(*, status: str, owner_role: str, **columns: Any) -> RunRow:
    return RunRow(status=RunStatus(status), owner_role=Role(owner_role), **columns)
