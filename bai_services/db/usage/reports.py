"""Compute sums for usage reports from stored totals and from newer records."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.usage.model import (
    DAY,
    HOUR,
    MEASURES,
    SESSIONS,
    WAITING,
    Dimension,
    Measures,
    UsageRecord,
)
from bai_services.core.usage.periods import Interval, parts_of

from ..database import Database
from ..tables.accounts import projects, users
from ..tables.sessions import sessions
from ..tables.usage import usage_hours, usage_records, usage_totals
from .aggregates import (
    first_record,
    overlapping,
    pages,
    pending_sessions,
    read_done_until,
    record_of,
    waiting_record,
)

_FACT_COLUMNS = {
    Dimension.USER: usage_hours.c.owner_id,
    Dimension.PROJECT: usage_hours.c.project_id,
    Dimension.DOMAIN: usage_hours.c.domain,
    Dimension.RESOURCE_GROUP: usage_hours.c.resource_group,
    Dimension.IMAGE: usage_hours.c.image,
    Dimension.SESSION_KIND: usage_hours.c.session_kind,
    Dimension.DEVICE_MODEL: usage_hours.c.device_model,
}


@dataclass(frozen=True, slots=True)
class UsageScope:
    """The usage that a report contains; None in a field means no restriction.

    An empty slot means all slots; without keys, all groups are included.
    """

    by: Dimension
    domain: str | None = None
    owner_id: str | None = None
    slot: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sum:
    """Usage of a slot by a group; ``at`` is the start of the step, None for a whole interval."""

    at: int | None
    key: str
    slot: str
    measures: Measures


class UsageReportStore:
    """Reads sums for reports. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def done_until(self) -> int | None:
        """Return the end of the stored totals, or the start of the oldest record or wait.

        None: there are no totals, no records and no pending sessions.
        """
        async with self._db.read() as tx:
            done = await read_done_until(tx)
            return await first_record(tx) if done is None else done

    async def sums(self, scope: UsageScope, interval: Interval) -> list[Sum]:
        """Return the sums over an interval of whole hours, for each group and slot.

        A group and slot can have several sums, which the caller must add.
        """
        async with self._db.read() as tx:
            if scope.owner_id is not None:
                return await _sums(tx, _fact_sums(scope, interval))
            parts, found = parts_of(interval), []
            if parts.days is not None:
                found += await _sums(tx, _total_sums(scope, parts.days, DAY))
            for hours in parts.hours:
                found += await _sums(tx, _total_sums(scope, hours, HOUR))
            return found

    async def sums_of_steps(
        self, scope: UsageScope, interval: Interval, step: int, offset: int
    ) -> list[Sum]:
        """Return the sums over steps of an interval, for each group and slot.

        A step begins ``offset`` seconds before a multiple of ``step`` seconds. ``Sum.at`` is the
        start of the step. The interval has whole hours, and the step is an hour or a day.
        """
        is_of_days = step == DAY and offset % DAY == 0
        async with self._db.read() as tx:
            if scope.owner_id is not None:
                return await _sums(tx, _fact_sums(scope, interval, (step, offset)))
            parts, found = parts_of(interval), []
            if not is_of_days or parts.days is None:
                return await _sums(tx, _total_sums(scope, interval, HOUR, (step, offset)))
            found += await _sums(tx, _total_sums(scope, parts.days, DAY, (step, offset)))
            for hours in parts.hours:
                found += await _sums(tx, _total_sums(scope, hours, HOUR, (step, offset)))
            return found

    async def recent(self, scope: UsageScope, interval: Interval) -> AsyncIterator[UsageRecord]:
        """Yield the records that overlap an interval, and pending sessions as open records."""
        conditions = _record_conditions(scope)
        async with self._db.read_one_state() as tx:
            query = overlapping(interval.start, interval.end, *conditions)
            async for page in pages(tx, query):
                for row in page:
                    yield record_of(row)
            if scope.slot in ("", SESSIONS):
                async for page in pages(tx, pending_sessions(*_pending_conditions(scope))):
                    for row in page:
                        yield waiting_record(row)

    async def names(self, by: Dimension, keys: Sequence[str]) -> dict[str, str]:
        """Return the names of users or projects by id; empty for other dimensions."""
        if by not in (Dimension.USER, Dimension.PROJECT) or not keys:
            return {}
        async with self._db.read() as tx:
            if by is Dimension.USER:
                query = sa.select(users.c.id, users.c.username).where(users.c.id.in_(keys))
                return {row[0]: row[1] for row in await tx.execute(query)}
            named = sa.select(projects.c.id, projects.c.domain, projects.c.name)
            rows = await tx.execute(named.where(projects.c.id.in_(keys)))
            return {row[0]: f"{row[1]}/{row[2]}" for row in rows}

    async def user_id(self, username: str, domain: str | None) -> str | None:
        """Return the id of a user in a domain (None: any domain); None if there is no such user."""
        query = sa.select(users.c.id).where(users.c.username == username)
        if domain is not None:
            query = query.where(users.c.domain == domain)
        async with self._db.read() as tx:
            found: str | None = await tx.scalar(query)
            return found


async def _sums(tx: AsyncConnection, query: sa.Select[Any]) -> list[Sum]:
    return [
        Sum(row[0], row[1], row[2], Measures(*row[3:])) for row in (await tx.execute(query)).all()
    ]


def _grouped(
    table: sa.Table,
    key: sa.ColumnElement[str],
    step: tuple[int, int] | None,
    conditions: Sequence[sa.ColumnElement[bool]],
) -> sa.Select[Any]:
    """Select (start of the step, key, slot, sums of the measures)."""
    at: sa.ColumnElement[Any] = sa.null()
    groups: list[sa.ColumnElement[Any]] = [table.c.slot]
    if step is not None:
        length, offset = (sa.literal_column(str(int(number)), sa.BigInteger()) for number in step)
        at = table.c.start - (table.c.start + offset) % length
        groups.append(at)
    if not isinstance(key, sa.BindParameter | sa.sql.elements.TextClause):
        groups.append(key)
    sums = (sa.func.sum(table.c[name]) for name in MEASURES)
    return sa.select(at, key, table.c.slot, *sums).where(*conditions).group_by(*groups)


def _total_sums(
    scope: UsageScope, interval: Interval, length: int, step: tuple[int, int] | None = None
) -> sa.Select[Any]:
    t = usage_totals.c
    is_total = scope.by is Dimension.TOTAL
    conditions = [
        t.dimension == (Dimension.DOMAIN if is_total else scope.by),
        t.interval_seconds == length,
        t.start >= interval.start,
        t.start < interval.end,
    ]
    if scope.domain is not None:
        conditions.append(t.domain == scope.domain)
    if scope.slot:
        conditions.append(t.slot == scope.slot)
    if scope.keys and not is_total:
        conditions.append(t.key.in_(scope.keys))
    return _grouped(usage_totals, _no_key() if is_total else t.key, step, conditions)


def _fact_sums(
    scope: UsageScope, interval: Interval, step: tuple[int, int] | None = None
) -> sa.Select[Any]:
    t = usage_hours.c
    key = _no_key() if scope.by is Dimension.TOTAL else _FACT_COLUMNS[scope.by]
    conditions = [
        t.owner_id == scope.owner_id,
        t.start >= interval.start,
        t.start < interval.end,
    ]
    if scope.domain is not None:
        conditions.append(t.domain == scope.domain)
    if scope.slot:
        conditions.append(t.slot == scope.slot)
    if scope.by is not Dimension.TOTAL:
        conditions.append(key != "")
        if scope.keys:
            conditions.append(key.in_(scope.keys))
    return _grouped(usage_hours, key, step, conditions)


def _no_key() -> sa.ColumnElement[str]:
    return sa.literal("", sa.String())


def _record_conditions(scope: UsageScope) -> list[sa.ColumnElement[bool]]:
    r = usage_records.c
    conditions = []
    if scope.owner_id is not None:
        conditions.append(r.owner_id == scope.owner_id)
    if scope.domain is not None:
        conditions.append(r.domain == scope.domain)
    if scope.slot == SESSIONS:
        conditions.append(r.slot.in_([SESSIONS, WAITING]))
    elif scope.slot:
        conditions.append(r.slot == scope.slot)
    return conditions


def _pending_conditions(scope: UsageScope) -> list[sa.ColumnElement[bool]]:
    conditions = []
    if scope.owner_id is not None:
        conditions.append(sessions.c.owner_id == scope.owner_id)
    if scope.domain is not None:
        conditions.append(sessions.c.domain == scope.domain)
    return conditions
