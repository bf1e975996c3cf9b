"""Store of the runs of schedules: due starts and their sessions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.sessions.lifecycle import LIVE
from bai_services.core.sessions.schedules.records import RunStatus

from ...database import Database
from ...integrity import insert_ignoring
from ...records import records
from ...tables.schedules import schedule_runs, session_schedules
from ...tables.sessions import sessions
from .schedules import ROWS, ScheduleRow, schedule_row

# Maximum number of schedules or runs that one step reads; the next step reads the others.
BATCH = 100


@dataclass(frozen=True, slots=True)
class NewRun:
    """A start that became due; ``next_start_at`` is the next start after it."""

    id: str
    schedule_id: str
    due_at: datetime
    status: RunStatus
    reason: Mapping[str, Any] | None
    next_start_at: datetime | None


@dataclass(frozen=True, slots=True)
class DueRun:
    """A run without a session yet."""

    id: str
    due_at: datetime
    schedule: ScheduleRow


@dataclass(frozen=True, slots=True)
class DueStop:
    """A started run with a due stop; ``is_live``: its session has not ended."""

    id: str
    schedule: str
    is_live: bool


@dataclass(frozen=True, slots=True)
class ScheduledStop:
    """When a schedule stops a session."""

    stops_at: datetime
    schedule: str


_IS_LIVE = sessions.c.status.in_(sorted(LIVE))


class ScheduleRunStore:
    """Reads and writes runs of schedules. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def due_schedules(self, now: datetime) -> list[ScheduleRow]:
        """Return schedules with a next start at or before ``now``, earliest first."""
        rows = (
            ROWS.where(session_schedules.c.next_start_at <= now)
            .order_by(session_schedules.c.next_start_at, session_schedules.c.id)
            .limit(BATCH)
        )
        async with self._db.read() as tx:
            return records(schedule_row, await tx.execute(rows))

    async def open_runs(self, runs: Sequence[tuple[ScheduleRow, NewRun]]) -> None:
        """Insert the runs of schedules, and set their next starts.

        A schedule that has changed since it was read is skipped; the next step reads it again.
        """
        async with self._db.write() as tx:
            for schedule, run in runs:
                changed = await tx.execute(
                    sa.update(session_schedules)
                    .where(
                        session_schedules.c.id == schedule.id,
                        session_schedules.c.version == schedule.version,
                        session_schedules.c.next_start_at == schedule.next_start_at,
                    )
                    .values(next_start_at=run.next_start_at)
                )
                if changed.rowcount:
                    values = {
                        "id": run.id,
                        "schedule_id": run.schedule_id,
                        "due_at": run.due_at,
                        "status": run.status,
                        "reason": run.reason,
                    }
                    await tx.execute(insert_ignoring(tx, schedule_runs).values(values))

    async def due_runs(self) -> list[DueRun]:
        """Return the runs without a session yet, earliest first."""
        selected = (
            sa.select(schedule_runs.c.id, schedule_runs.c.due_at, schedule_runs.c.schedule_id)
            .where(schedule_runs.c.status == RunStatus.DUE)
            .order_by(schedule_runs.c.due_at, schedule_runs.c.id)
            .limit(BATCH)
        )
        async with self._db.read() as tx:
            runs = (await tx.execute(selected)).all()
            ids = {run.schedule_id for run in runs}
            rows = ROWS.where(session_schedules.c.id.in_(sorted(ids)))
            found = records(schedule_row, await tx.execute(rows)) if ids else []
        by_id = {schedule.id: schedule for schedule in found}
        return [
            DueRun(run.id, run.due_at, by_id[run.schedule_id])
            for run in runs
            if run.schedule_id in by_id
        ]

    async def session_exists(self, run_id: str) -> bool:
        """Return whether the session of a run was created, even if it has ended."""
        async with self._db.read() as tx:
            found = sa.select(sessions.c.id).where(sessions.c.id == run_id)
            return await tx.scalar(found) is not None

    async def live_session(self, schedule_id: str) -> str | None:
        """Return the id of a live session of the schedule, or None."""
        live = (
            sa.select(sessions.c.id)
            .join_from(schedule_runs, sessions, schedule_runs.c.id == sessions.c.id)
            .where(schedule_runs.c.schedule_id == schedule_id, _IS_LIVE)
            .limit(1)
        )
        async with self._db.read() as tx:
            found: str | None = await tx.scalar(live)
            return found

    async def finish(
        self,
        run_id: str,
        status: RunStatus,
        *,
        reason: Mapping[str, Any] | None = None,
        stops_at: datetime | None = None,
    ) -> None:
        """Store the result of a due run."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(schedule_runs)
                .where(schedule_runs.c.id == run_id, schedule_runs.c.status == RunStatus.DUE)
                .values(status=status, reason=reason, stops_at=stops_at)
            )

    async def started(self, schedule_id: str) -> dict[str, datetime]:
        """Return when the started runs with live sessions were due, by run id."""
        rows = (
            sa.select(schedule_runs.c.id, schedule_runs.c.due_at)
            .join_from(schedule_runs, sessions, schedule_runs.c.id == sessions.c.id)
            .where(
                schedule_runs.c.schedule_id == schedule_id,
                schedule_runs.c.status == RunStatus.STARTED,
                _IS_LIVE,
            )
        )
        async with self._db.read() as tx:
            return {row.id: row.due_at for row in await tx.execute(rows)}

    async def due_stops(self, now: datetime) -> list[DueStop]:
        """Return the started runs with a due stop, earliest first."""
        rows = (
            sa.select(
                schedule_runs.c.id,
                session_schedules.c.name.label("schedule"),
                sa.func.coalesce(_IS_LIVE, sa.false()).label("is_live"),
            )
            .join_from(
                schedule_runs,
                session_schedules,
                schedule_runs.c.schedule_id == session_schedules.c.id,
            )
            .outerjoin(sessions, schedule_runs.c.id == sessions.c.id)
            .where(schedule_runs.c.status == RunStatus.STARTED, schedule_runs.c.stops_at <= now)
            .order_by(schedule_runs.c.stops_at, schedule_runs.c.id)
            .limit(BATCH)
        )
        async with self._db.read() as tx:
            return [
                DueStop(row.id, row.schedule, bool(row.is_live)) for row in await tx.execute(rows)
            ]

    async def close(self, run_ids: Collection[str], status: RunStatus) -> None:
        """Set the status of started runs after their stop."""
        if not run_ids:
            return
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(schedule_runs)
                .where(
                    schedule_runs.c.id.in_(sorted(run_ids)),
                    schedule_runs.c.status == RunStatus.STARTED,
                )
                .values(status=status)
            )

    async def clean_up(self, before: datetime, kept: int) -> None:
        """Delete runs that were due before ``before``, and all but the newest ``kept`` of each
        schedule; runs of live sessions remain.
        """
        numbered = sa.select(
            schedule_runs.c.id,
            schedule_runs.c.due_at,
            sa.func.row_number()
            .over(partition_by=schedule_runs.c.schedule_id, order_by=schedule_runs.c.due_at.desc())
            .label("number"),
        ).subquery()
        old = sa.select(numbered.c.id).where(
            (numbered.c.number > kept) | (numbered.c.due_at < before)
        )
        live = sa.select(sessions.c.id).where(sessions.c.id == schedule_runs.c.id, _IS_LIVE)
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(schedule_runs).where(
                    schedule_runs.c.id.in_(old),
                    schedule_runs.c.status != RunStatus.DUE,
                    ~live.exists(),
                )
            )


_STOPS = (
    sa.select(
        schedule_runs.c.id, schedule_runs.c.stops_at, session_schedules.c.name.label("schedule")
    )
    .join_from(
        schedule_runs, session_schedules, schedule_runs.c.schedule_id == session_schedules.c.id
    )
    .where(
        schedule_runs.c.id.in_(sa.bindparam("ids", expanding=True)),
        schedule_runs.c.status == RunStatus.STARTED,
        schedule_runs.c.stops_at.is_not(None),
    )
)


async def read_scheduled_stops(tx: AsyncConnection, ids: Sequence[str]) -> dict[str, ScheduledStop]:
    """Return when schedules stop the sessions with these ids; omit sessions without a stop."""
    rows: Any = await tx.execute(_STOPS, {"ids": list(ids)})
    return {row.id: ScheduledStop(row.stops_at, row.schedule) for row in rows}
