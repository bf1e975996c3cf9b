"""Store of the budgets of projects, and of the spent amounts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications.events import Event
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.usage.model import WAITING
from bai_services.core.usage.periods import Interval

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation, update_version
from ..listing import Listing
from ..notifications.events import raise_events
from ..records import first_record, records
from ..tables.accounts import projects
from ..tables.budgets import project_budgets
from ..tables.sessions import sessions
from ..tables.usage import usage_records


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """A budget with its state; see the columns of ``project_budgets``."""

    project_id: str
    created_at: datetime
    version: int
    amount: Decimal
    mode: str
    warn_percents: list[int]
    period: str
    starts_at: datetime | None
    ends_at: datetime | None
    time_zone: str
    stop_after_minutes: int | None
    spent: float | None
    spent_at: datetime | None
    spent_since: datetime | None
    reported_percent: int
    blocked_at: datetime | None
    changed_by_role: str
    project: str
    domain: str


@dataclass(frozen=True, slots=True)
class BudgetState:
    """The new state of a budget, valid only if the budget still has this ``version``.

    ``reported_before`` is the ``reported_percent`` of the budget when it was read.
    """

    project_id: str
    version: int
    reported_before: int
    spent: float
    spent_at: datetime
    spent_since: datetime
    reported_percent: int
    blocked_at: datetime | None


@dataclass(frozen=True, slots=True)
class HeldAmount:
    """The sum of amount times seconds that a project held of a slot in a resource group."""

    project_id: str
    resource_group: str
    slot: str
    amount_seconds: float


@dataclass(frozen=True, slots=True)
class BudgetStop:
    """The time at which sessions of a project are stopped, because its budget is spent."""

    stops_at: datetime
    project: str


_ROWS = sa.select(
    *project_budgets.columns, projects.c.name.label("project"), projects.c.domain
).join_from(project_budgets, projects, project_budgets.c.project_id == projects.c.id)
_LISTING = Listing(
    columns={
        **{
            name: project_budgets.c[name]
            for name in ("project_id", "created_at", "amount", "mode", "period", "spent")
        },
        "blocked_at": project_budgets.c.blocked_at,
        "changed_by_role": project_budgets.c.changed_by_role,
        "project": projects.c.name,
        "domain": projects.c.domain,
    },
    default_sort=("domain", "project", "project_id"),
)
_STOPPING = (
    _ROWS.with_only_columns(
        project_budgets.c.project_id,
        project_budgets.c.blocked_at,
        project_budgets.c.stop_after_minutes,
        projects.c.name.label("project"),
    )
).where(
    project_budgets.c.blocked_at.is_not(None), project_budgets.c.stop_after_minutes.is_not(None)
)


class BudgetStore:
    """Reads and writes budgets. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, query: ListQuery, domain: str | None, project_ids: Collection[str] | None
    ) -> Page[BudgetRow]:
        """Return a page of budgets, filtered by domain and by projects (None: no filter)."""
        rows = _ROWS
        if domain is not None:
            rows = rows.where(projects.c.domain == domain)
        if project_ids is not None:
            rows = rows.where(projects.c.id.in_(sorted(project_ids)))
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, BudgetRow)

    async def find(self, project_id: str) -> BudgetRow | None:
        async with self._db.read() as tx:
            return await _find(tx, project_id)

    async def all(self) -> list[BudgetRow]:
        async with self._db.read() as tx:
            return records(BudgetRow, await tx.execute(_ROWS.order_by(projects.c.id)))

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> None:
        """Insert a budget.

        Raises
        ------
        AlreadyExists
            If the project has a budget.
        NotFound
            If the project does not exist.
        """
        taken = AlreadyExists("the project already has a budget; change it")
        async with self._db.write() as tx:
            with raise_on_violation(NotFound("the project no longer exists"), taken):
                await tx.execute(project_budgets.insert().values(values))
            await record(tx, audit)

    async def update(
        self, project_id: str, version: int, changes: Mapping[str, Any], audit: AuditEntry
    ) -> None:
        """Change a budget that has ``version``; raise ``Conflict`` for another version."""
        column = project_budgets.c.project_id
        async with self._db.write() as tx:
            await update_version(
                tx, project_budgets, project_id, version, changes, key_column=column
            )
            await record(tx, audit)

    async def delete(self, project_id: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(project_budgets).where(project_budgets.c.project_id == project_id)
            )
            await record(tx, audit)

    async def write_states(
        self,
        states: Sequence[BudgetState],
        entries: Mapping[str, AuditEntry],
        notices: Mapping[str, Event],
    ) -> set[str]:
        """Store the states of budgets with their audit entries and notifications, by project id.

        A budget is skipped if it has changed since it was read, or if another manager has reported
        a percentage in between. Return the ids of the projects with stored states.
        """
        b = project_budgets.c
        written: set[str] = set()
        async with self._db.write() as tx:
            for state in states:
                changed = await tx.execute(
                    sa.update(project_budgets)
                    .where(
                        b.project_id == state.project_id,
                        b.version == state.version,
                        b.reported_percent == state.reported_before,
                    )
                    .values(
                        spent=state.spent,
                        spent_at=state.spent_at,
                        spent_since=state.spent_since,
                        reported_percent=state.reported_percent,
                        blocked_at=state.blocked_at,
                    )
                )
                if changed.rowcount:
                    written.add(state.project_id)
            for project_id in sorted(written & entries.keys()):
                await record(tx, entries[project_id])
            await raise_events(tx, [notices[key] for key in sorted(written & notices.keys())])
        return written

    async def held(self, project_ids: Collection[str], interval: Interval) -> list[HeldAmount]:
        """Return the amounts that projects held in an interval, from overlapping usage records."""
        r = usage_records.c
        end = sa.case(
            (r.ended_at.is_(None) | (r.ended_at > interval.end), interval.end), else_=r.ended_at
        )
        begin = sa.case((r.started_at < interval.start, interval.start), else_=r.started_at)
        amount = sa.func.sum(sa.cast(r.amount, sa.Double) * (end - begin))
        query = (
            sa.select(r.project_id, r.resource_group, r.slot, amount)
            .where(
                r.project_id.in_(sorted(project_ids)),
                r.slot != WAITING,
                r.started_at < interval.end,
                r.ended_at.is_(None) | (r.ended_at > interval.start),
            )
            .group_by(r.project_id, r.resource_group, r.slot)
        )
        async with self._db.read() as tx:
            return [HeldAmount(*row) for row in await tx.execute(query)]

    async def due_stops(self, now: datetime, limit: int) -> list[tuple[str, str]]:
        """Return at most ``limit`` running sessions to stop because of spent budgets, as pairs
        (session id, project name).
        """
        async with self._db.read() as tx:
            due = {
                project_id: stop.project
                for project_id, stop in (await _stops(tx, _STOPPING)).items()
                if stop.stops_at <= now
            }
            if not due:
                return []
            rows = await tx.execute(
                sa.select(sessions.c.id, sessions.c.project_id)
                .where(sessions.c.status == Status.RUNNING, sessions.c.project_id.in_(sorted(due)))
                .order_by(sessions.c.sequence)
                .limit(limit)
            )
            return [(row.id, due[row.project_id]) for row in rows]


async def read_budget_stops(
    tx: AsyncConnection, project_ids: Collection[str]
) -> dict[str, BudgetStop]:
    """Return when running sessions of these projects are stopped; omit other projects."""
    chosen = project_budgets.c.project_id.in_(sorted(set(project_ids)))
    return await _stops(tx, _STOPPING.where(chosen))


async def _stops(tx: AsyncConnection, query: sa.Select[Any]) -> dict[str, BudgetStop]:
    return {
        row.project_id: BudgetStop(
            row.blocked_at + timedelta(minutes=row.stop_after_minutes), row.project
        )
        for row in await tx.execute(query)
    }


async def _find(tx: AsyncConnection, project_id: str) -> BudgetRow | None:
    found = await tx.execute(_ROWS.where(project_budgets.c.project_id == project_id))
    return first_record(BudgetRow, found)
