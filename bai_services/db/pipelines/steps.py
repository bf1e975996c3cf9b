"""Store for the runner of pipelines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.pipelines.definition import PipelineDefinition
from bai_services.core.pipelines.states import ACTIVE, RUN_ENDED, RunStatus, TaskStatus
from bai_services.core.sessions.lifecycle import ENDED, Status

from ..database import Database
from ..notifications.events import raise_events
from ..records import records
from ..tables.pipelines import pipeline_runs, pipeline_tasks, pipelines
from ..tables.sessions import sessions
from .runs import HAS_FOLLOWER, RUNS, RunRow, notices_of, run_row
from .task_runs import Decision, TaskChanges, TaskRow, read_tasks, write_tasks

# Maximum number of waiting runs that one step starts; the next step starts the others.
BATCH = 500

Decide = Callable[[RunRow, Sequence[TaskRow]], Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRun:
    """A run for the next step to process."""

    id: str
    pipeline_id: str
    pipeline_version: int
    owner_id: str
    task_count: int


@dataclass(frozen=True, slots=True)
class SteppedRun:
    """A run and its task runs after a step."""

    run: RunRow
    tasks: Sequence[TaskRow]


_OPEN = [RunStatus.RUNNING, RunStatus.CANCELLING]
# These statements run every second. They are built at import, because building one takes longer
# than running it.
_WAITING = sa.select(pipeline_runs.c.id).where(pipeline_runs.c.status == RunStatus.WAITING).limit(1)
_REQUESTED = sa.select(pipeline_runs.c.id).where(
    pipeline_runs.c.status.in_(_OPEN), pipeline_runs.c.is_due
)
_RETRIED = sa.select(pipeline_tasks.c.run_id).where(
    pipeline_tasks.c.status == TaskStatus.RETRYING,
    pipeline_tasks.c.retry_at <= sa.bindparam("now"),
)
_LIVE_SESSIONS = (
    sa.select(sessions.c.id)
    .join_from(pipeline_tasks, sessions, pipeline_tasks.c.session_id == sessions.c.id)
    .join(pipeline_runs, pipeline_tasks.c.run_id == pipeline_runs.c.id)
    .where(sessions.c.status.not_in(sorted({*ENDED, Status.TERMINATING})))
)
_CANCELLED_SESSIONS = _LIVE_SESSIONS.where(pipeline_runs.c.status == RunStatus.CANCELLING)
_CANCELLED_OR_ORPHANED_SESSIONS = _LIVE_SESSIONS.where(
    (pipeline_runs.c.status == RunStatus.CANCELLING)
    | pipeline_tasks.c.status.not_in(sorted(ACTIVE))
)
_SESSION_ENDED = sessions.c.status.in_(sorted(ENDED))
_UPDATE_RUN = (
    sa.update(pipeline_runs)
    .where(pipeline_runs.c.id == sa.bindparam("b_id"))
    .values(
        status=sa.bindparam("b_status"),
        is_due=False,
        fires_triggers=sa.case(
            (sa.bindparam("b_is_ended", type_=sa.Boolean), HAS_FOLLOWER), else_=False
        ),
        ended_at=sa.bindparam("b_ended_at"),
    )
)


def _runs_of(run_ids: sa.SelectBase) -> sa.Select[Any]:
    runs = pipeline_runs.c
    return (
        sa.select(
            runs.id,
            runs.pipeline_id,
            runs.pipeline_version,
            runs.owner_id,
            runs.tasks.label("task_count"),
        )
        .where(runs.id.in_(run_ids), runs.status.in_(_OPEN))
        .order_by(runs.started_at, runs.id)
    )


_DUE = _runs_of(sa.union(_REQUESTED, _RETRIED))


class PipelineStepStore:
    """Reads and writes runs for the pipeline runner. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def start_waiting(self, now: datetime) -> int:
        """Start waiting runs, oldest first, within their pipelines' limits; return how many."""
        async with self._db.read() as tx:
            if not (await tx.execute(_WAITING)).all():
                return 0
        runs, others = pipeline_runs.c, pipeline_runs.alias()
        # Count once per pipeline, not once per waiting run.
        running = (
            sa.select(others.c.pipeline_id, sa.func.count().label("number"))
            .where(others.c.status.in_(_OPEN))
            .group_by(others.c.pipeline_id)
            .subquery()
        )
        room = pipelines.c.max_concurrent_runs - sa.func.coalesce(running.c.number, 0)
        number = sa.func.row_number().over(
            partition_by=runs.pipeline_id, order_by=(runs.created_at, runs.id)
        )
        waiting = (
            sa.select(runs.id, room.label("room"), number.label("number"))
            .join_from(pipeline_runs, pipelines, runs.pipeline_id == pipelines.c.id)
            .outerjoin(running, running.c.pipeline_id == pipelines.c.id)
            .where(runs.status == RunStatus.WAITING, room > 0)
            .subquery()
        )
        # Take the first run of each pipeline before second runs, so that no pipeline fills the
        # batch.
        rows = (
            sa.select(waiting.c.id)
            .where(waiting.c.number <= waiting.c.room)
            .order_by(waiting.c.number, waiting.c.id)
            .limit(BATCH)
        )
        async with self._db.read() as tx:
            if not (await tx.execute(rows.limit(1))).all():
                return 0
        async with self._db.write() as tx:
            started = list(await tx.scalars(rows))
            await tx.execute(
                sa.update(pipeline_runs)
                .where(runs.id.in_(started), runs.status == RunStatus.WAITING)
                .values(status=RunStatus.RUNNING, started_at=now, is_due=True)
            )
            return len(started)

    async def due(self, now: datetime, session_ids: Collection[str]) -> list[DueRun]:
        """Return open runs with an unprocessed request, a due retry or one of these sessions."""
        if not session_ids:
            return await self._read(_DUE, now=now)
        of_sessions = sa.select(pipeline_tasks.c.run_id).where(
            pipeline_tasks.c.session_id.in_(sorted(session_ids))
        )
        return await self._read(_runs_of(sa.union(_REQUESTED, _RETRIED, of_sessions)), now=now)

    async def unprocessed(self) -> list[DueRun]:
        """Return open runs that missed a session change.

        A task is stored as queued or running, but its session is missing, has ended or (if queued)
        is running. Such runs exist only if the manager was killed before the step.
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
        return await self._read(_runs_of(rows))

    async def _read(self, rows: sa.Select[Any], **values: datetime) -> list[DueRun]:
        async with self._db.read() as tx:
            return records(DueRun, await tx.execute(rows, values))

    async def definition(self, run_id: str) -> PipelineDefinition | None:
        """Return the definition of a run; None if the run no longer exists."""
        rows = sa.select(pipeline_runs.c.parsed).where(pipeline_runs.c.id == run_id)
        async with self._db.read() as tx:
            parsed = await tx.scalar(rows)
        return None if parsed is None else PipelineDefinition.from_json(parsed)

    async def step(
        self, run_ids: Collection[str], decide: Decide, now: datetime
    ) -> Mapping[str, SteppedRun]:
        """Apply decisions to runs that have not ended; return these runs and their task runs."""
        rows = (
            RUNS.add_columns(pipeline_runs.c.is_due)
            .where(pipeline_runs.c.id.in_(sorted(run_ids)), pipeline_runs.c.status.in_(_OPEN))
            # Lock in this order, to prevent deadlocks.
            .order_by(pipeline_runs.c.id)
            .with_for_update(of=pipeline_runs)
        )
        async with self._db.write() as tx:
            found = records(_locked_run, await tx.execute(rows))
            before = await read_tasks(tx, [row.id for row, _ in found])
            decisions = {row.id: decide(row, before[row.id]) for row, _ in found}
            after = await write_tasks(
                tx,
                [
                    TaskChanges(run_id, before[run_id], decision.changed)
                    for run_id, decision in decisions.items()
                ],
                now,
            )
            changed = [
                {
                    "b_id": row.id,
                    "b_status": status,
                    "b_is_ended": status in RUN_ENDED,
                    "b_ended_at": now if status in RUN_ENDED else None,
                }
                for row, is_due in found
                if (status := decisions[row.id].status) is not row.status or is_due
            ]
            if changed:
                await tx.execute(_UPDATE_RUN, changed)
            await raise_events(
                tx, [each for row, _ in found for each in notices_of(row, decisions[row.id], now)]
            )
        return {
            row.id: SteppedRun(replace(row, status=decisions[row.id].status), after[row.id])
            for row, _ in found
        }

    async def sessions_to_end(self, *, includes_inactive_tasks: bool) -> list[str]:
        """Return the live sessions of runs that are being cancelled.

        With ``includes_inactive_tasks``, also return live sessions of inactive task runs. A manager
        that has lost the lease can leave such sessions.
        """
        select = _CANCELLED_OR_ORPHANED_SESSIONS if includes_inactive_tasks else _CANCELLED_SESSIONS
        async with self._db.read() as tx:
            return list(await tx.scalars(select))


def _locked_run(*, is_due: bool, **columns: Any) -> tuple[RunRow, bool]:
    return run_row(**columns), is_due
