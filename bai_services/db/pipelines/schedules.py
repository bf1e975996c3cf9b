"""Store of the schedules of pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import refusal
from bai_services.core.errors import NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines.definition import Value
from bai_services.core.pipelines.schedules import MAX_SCHEDULES_PER_PIPELINE, CatchUp, Timing
from bai_services.core.refusal_texts import RefusalText

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation, update_version
from ..records import first_record, records
from ..tables.pipelines import pipeline_schedules
from .attached import insert_with_limit, listing_with_pipeline, name_taken, select_with_pipeline
from .definitions import is_visible

# Maximum number of due schedules that one step reads; the next step reads the others.
BATCH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineScheduleRow:
    """A schedule with its pipeline and owner."""

    id: str
    created_at: datetime
    version: int
    pipeline_id: str
    name: str
    start: str | None
    every_minutes: int | None
    time_zone: str
    anchor_at: datetime
    parameters: Mapping[str, Value]
    catch_up: CatchUp
    is_paused: bool
    next_start_at: datetime | None
    last_start_at: datetime | None
    last_run_id: str | None
    last_message: str
    pipeline: str
    project_id: str
    project: str
    domain: str
    owner_id: str
    owner: str
    owner_role: Role

    @property
    def timing(self) -> Timing:
        return Timing(self.start, self.every_minutes, self.time_zone, self.anchor_at)


_ROWS = select_with_pipeline(pipeline_schedules)
_LISTING = listing_with_pipeline(
    pipeline_schedules,
    (
        "id", "created_at", "pipeline_id", "name", "start", "every_minutes", "time_zone",
        "catch_up", "is_paused", "last_start_at", "last_run_id", "last_message",
    ),
)  # fmt: skip


class PipelineScheduleStore:
    """Reads and writes schedules of pipelines. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, visible: Visibility) -> Page[PipelineScheduleRow]:
        async with self._db.read() as tx:
            rows = _ROWS.where(is_visible(visible, pipeline_schedules.c.owner_id))
            return await _LISTING.page(tx, rows, query, _row)

    async def find(self, key: str, visible: Visibility) -> PipelineScheduleRow:
        """Return a visible schedule.

        Raises
        ------
        NotFound
            If no visible schedule has that id.
        """
        condition = is_visible(visible, pipeline_schedules.c.owner_id)
        rows = _ROWS.where(condition, pipeline_schedules.c.id == key)
        async with self._db.read() as tx:
            found = first_record(_row, await tx.execute(rows))
        if found is None:
            raise NotFound(refusal(RefusalText.NO_SCHEDULE, name=key), schedule=key)
        return found

    async def create(self, pipeline: str, values: Mapping[str, Any], audit: AuditEntry) -> None:
        """Insert a schedule of the pipeline named ``pipeline``.

        Raises
        ------
        AlreadyExists
            If the pipeline has a schedule with that name.
        QuotaExceeded
            If the pipeline has too many schedules.
        NotFound
            If the pipeline no longer exists.
        """
        async with self._db.write() as tx:
            await insert_with_limit(
                tx,
                pipeline_schedules,
                pipeline,
                values,
                kind="schedule",
                limit=MAX_SCHEDULES_PER_PIPELINE,
            )
            await record(tx, audit)

    async def update(
        self, row: PipelineScheduleRow, version: int, changes: Mapping[str, Any], audit: AuditEntry
    ) -> None:
        """Change a schedule that has ``version``.

        Raises
        ------
        Conflict
            If the schedule has another version.
        AlreadyExists
            If the pipeline has another schedule with the new name.
        """
        async with self._db.write() as tx:
            with raise_on_violation(name_taken("schedule", changes.get("name", row.name))):
                await update_version(tx, pipeline_schedules, row.id, version, changes)
            await record(tx, audit)

    async def delete(self, schedule_id: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(pipeline_schedules).where(pipeline_schedules.c.id == schedule_id)
            )
            await record(tx, audit)

    async def due(self, now: datetime) -> list[PipelineScheduleRow]:
        """Return schedules with a next start at or before ``now``, earliest first."""
        rows = (
            _ROWS.where(pipeline_schedules.c.next_start_at <= now)
            .order_by(pipeline_schedules.c.next_start_at, pipeline_schedules.c.id)
            .limit(BATCH)
        )
        async with self._db.read() as tx:
            return records(_row, await tx.execute(rows))

    async def finish(
        self,
        row: PipelineScheduleRow,
        next_start_at: datetime | None,
        *,
        last_start_at: datetime,
        run_id: str | None,
        message: str,
    ) -> None:
        """Store the result of the due starts of a schedule, and its next start.

        A schedule that a user has changed since it was read keeps its next start.
        """
        is_same = (
            (pipeline_schedules.c.id == row.id)
            & (pipeline_schedules.c.version == row.version)
            & (pipeline_schedules.c.next_start_at == row.next_start_at)
        )
        values = {
            "next_start_at": next_start_at,
            "last_start_at": last_start_at,
            "last_message": message,
            **({} if run_id is None else {"last_run_id": run_id}),
        }
        async with self._db.write() as tx:
            await tx.execute(sa.update(pipeline_schedules).where(is_same).values(values))


def _row(*, catch_up: str, owner_role: str, **columns: Any) -> PipelineScheduleRow:
    return PipelineScheduleRow(catch_up=CatchUp(catch_up), owner_role=Role(owner_role), **columns)
