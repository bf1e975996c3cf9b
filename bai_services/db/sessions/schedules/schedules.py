"""Store of the schedules that users define."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import CodedText
from bai_services.core.counts import counted
from bai_services.core.errors import AlreadyExists, NotFound, QuotaExceeded
from bai_services.core.listing import ListQuery, Page
from bai_services.core.sessions.schedules.records import (
    MAX_SCHEDULES_PER_USER,
    RunStatus,
    ScheduleRun,
)

from ...accounts.visibility import visible_rows
from ...audit import record
from ...database import Database
from ...integrity import raise_on_violation, update_version
from ...listing import Listing
from ...records import first_record, records
from ...tables.accounts import user_policies, users
from ...tables.schedules import schedule_runs, session_schedules


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRow:
    """A schedule with its owner and its last run, if any."""

    id: str
    created_at: datetime
    version: int
    owner_id: str
    name: str
    template: str | None
    request: Mapping[str, Any]
    start: str
    stop: str | None
    time_zone: str
    valid_from: datetime | None
    valid_until: datetime | None
    is_paused: bool
    catch_up_minutes: int
    overlap: str
    next_start_at: datetime | None
    owner: str
    owner_role: Role
    domain: str
    last_start_at: datetime | None = None
    last_status: str | None = None
    last_run_reason: Mapping[str, Any] | None = None


_OTHER_RUNS = schedule_runs.alias("other_runs")
_LAST_DUE = (
    sa.select(sa.func.max(_OTHER_RUNS.c.due_at))
    .where(_OTHER_RUNS.c.schedule_id == session_schedules.c.id)
    .scalar_subquery()
)
ROWS = (
    sa.select(
        *session_schedules.columns,
        users.c.username.label("owner"),
        users.c.role.label("owner_role"),
        users.c.domain,
        schedule_runs.c.due_at.label("last_start_at"),
        schedule_runs.c.status.label("last_status"),
        schedule_runs.c.reason.label("last_run_reason"),
    )
    .join_from(session_schedules, users, session_schedules.c.owner_id == users.c.id)
    .outerjoin(
        schedule_runs,
        sa.and_(
            schedule_runs.c.schedule_id == session_schedules.c.id,
            schedule_runs.c.due_at == _LAST_DUE,
        ),
    )
)
_LISTING = Listing(
    columns={
        **{
            name: session_schedules.c[name]
            for name in ("id", "created_at", "name", "owner_id", "template", "start", "stop")
        },
        **{
            name: session_schedules.c[name]
            for name in ("time_zone", "is_paused", "overlap", "next_start_at")
        },
        "owner": users.c.username,
        "domain": users.c.domain,
        "last_start_at": schedule_runs.c.due_at,
        "last_status": schedule_runs.c.status,
    },
    default_sort=("name", "id"),
)
_RUN_LISTING = Listing(
    columns={name: schedule_runs.c[name] for name in ("id", "due_at", "status", "stops_at")},
    default_sort=("-due_at",),
)


class ScheduleStore:
    """Reads and writes schedules. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, visible: Visibility) -> Page[ScheduleRow]:
        async with self._db.read() as tx:
            return await _LISTING.page(tx, _visible_to(visible), query, schedule_row)

    async def find(self, key: str, visible: Visibility, owner_id: str | None) -> ScheduleRow:
        """Return the visible schedule with the id ``key``, else the owner's schedule of this name.

        Raises
        ------
        NotFound
            If no visible schedule matches.
        """
        is_own_name = sa.and_(
            session_schedules.c.name == key, session_schedules.c.owner_id == owner_id
        )
        matching = _visible_to(visible).where((session_schedules.c.id == key) | is_own_name)
        async with self._db.read() as tx:
            found = records(
                schedule_row, await tx.execute(matching.order_by(session_schedules.c.id != key))
            )
        if not found:
            raise no_schedule(key)
        return found[0]

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> ScheduleRow:
        """Insert a schedule.

        Raises
        ------
        AlreadyExists
            If the owner has a schedule with that name.
        QuotaExceeded
            If the owner's policy allows no more schedules.
        """
        async with self._db.write() as tx:
            await _check_count(tx, values["owner_id"])
            with raise_on_violation(_taken(values["name"])):
                await tx.execute(session_schedules.insert().values(values))
            await record(tx, audit)
            return await _one(tx, values["id"])

    async def update(
        self,
        key: str,
        version: int,
        changes: Mapping[str, Any],
        audit: AuditEntry,
        *,
        stops_at: Mapping[str, datetime | None],
    ) -> ScheduleRow:
        """Change a schedule that has ``version``, and the stops of its runs.

        ``stops_at`` has the new stop time of each started run, by run id.

        Raises
        ------
        Conflict
            If the schedule has another version.
        AlreadyExists
            If the owner has another schedule with the new name.
        """
        async with self._db.write() as tx:
            with raise_on_violation(_taken(str(changes.get("name", "")))):
                await update_version(tx, session_schedules, key, version, changes)
            found = await _one(tx, key)
            for run_id, stop in stops_at.items():
                await tx.execute(
                    sa.update(schedule_runs)
                    .where(
                        schedule_runs.c.id == run_id, schedule_runs.c.status == RunStatus.STARTED
                    )
                    .values(stops_at=stop)
                )
            await record(tx, audit)
            return found

    async def delete(self, key: str, audit: AuditEntry) -> None:
        """Delete a schedule with its runs; its sessions continue."""
        async with self._db.write() as tx:
            await tx.execute(sa.delete(session_schedules).where(session_schedules.c.id == key))
            await record(tx, audit)

    async def runs(self, schedule_id: str, query: ListQuery) -> Page[ScheduleRun]:
        rows = sa.select(schedule_runs).where(schedule_runs.c.schedule_id == schedule_id)
        async with self._db.read() as tx:
            return await _RUN_LISTING.page(tx, rows, query, _run)


def schedule_row(*, owner_role: str, **columns: Any) -> ScheduleRow:
    return ScheduleRow(owner_role=Role(owner_role), **columns)


def no_schedule(key: str) -> NotFound:
    return NotFound(f"there is no schedule {key!r}, or you may not see it", schedule=key)


def _run(*, reason: Mapping[str, Any] | None, status: str, id: str, **columns: Any) -> ScheduleRun:
    has_session = status in (RunStatus.STARTED, RunStatus.STOPPED, RunStatus.ENDED)
    return ScheduleRun(
        id=id,
        status=RunStatus(status),
        reason="" if reason is None else str(CodedText.from_json(reason)),
        coded=reason,
        session_id=id if has_session else None,
        **columns,
    )


def _visible_to(visible: Visibility) -> sa.Select[Any]:
    return ROWS.where(
        *visible_rows(visible, domain=users.c.domain, owner_id=session_schedules.c.owner_id)
    )


async def _check_count(tx: AsyncConnection, owner_id: str) -> None:
    # Lock the owner: of two concurrent creations, the second must count the schedule of the first.
    await tx.execute(
        sa.select(users.c.id).where(users.c.id == owner_id).with_for_update(key_share=True)
    )
    limit = await tx.scalar(
        sa.select(user_policies.c.max_schedules)
        .join_from(users, user_policies, users.c.resource_policy == user_policies.c.name)
        .where(users.c.id == owner_id)
    )
    most = MAX_SCHEDULES_PER_USER
    if limit is not None:
        most = min(int(limit), most)
    count = await tx.scalar(
        sa.select(sa.func.count()).where(session_schedules.c.owner_id == owner_id)
    )
    if (count or 0) >= most:
        raise QuotaExceeded(
            f"you may have at most {counted(most, 'schedules')}; delete one first",
            limit=most,
            used=count,
        )


async def _one(tx: AsyncConnection, key: str) -> ScheduleRow:
    found = first_record(schedule_row, await tx.execute(ROWS.where(session_schedules.c.id == key)))
    if found is None:
        raise no_schedule(key)
    return found


def _taken(name: str) -> AlreadyExists:
    return AlreadyExists(f"you already have a schedule {name}", name=name)
