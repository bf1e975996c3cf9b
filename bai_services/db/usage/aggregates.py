"""Store of the hourly and daily totals, and of their sources, records and samples."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.sessions.lifecycle import Status
from bai_services.core.usage.model import (
    DAY,
    HOUR,
    MEASURES,
    STORED_DIMENSIONS,
    WAITING,
    FactKey,
    Holder,
    Measures,
    TotalKey,
    UsageRecord,
)

from ..database import Database
from ..scheduling import lease
from ..sqlite_driver import LONG
from ..tables.sessions import allocations, counters, sessions, status_history
from ..tables.usage import usage_hours, usage_records, usage_totals
from . import record_writes

# Counter with the time until which the totals are stored and current.
_DONE_UNTIL = "usage-totals"
# Number of rows per page in ``pages``, which can be processed in a few milliseconds.
_PAGE = 500
# Number of rows of the ledger or the history that one transaction of ``rebuild`` checks.
_REBUILD_PAGE = 2000

_record = usage_records.c
_RECORD_COLUMNS = (
    _record.session_id,
    _record.kernel_id,
    _record.slot,
    _record.device_id,
    _record.amount,
    _record.started_at,
    _record.ended_at,
    _record.owner_id,
    _record.project_id,
    _record.domain,
    _record.resource_group,
    _record.image,
    _record.session_kind,
    _record.device_model,
)


# Number of columns of ``Holder``, which are the first columns of ``_FACTS``.
_HOLDER = len(Holder.__dataclass_fields__)
_fact_columns = usage_hours.c
_FACTS = sa.select(
    *(_fact_columns[name] for name in Holder.__dataclass_fields__),
    _fact_columns.slot,
    *(_fact_columns[name] for name in MEASURES),
)


class UsageAggregateStore:
    """Reads and writes totals of usage.

    Each public method is one transaction, except ``rebuild``, which has one per page.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def done_until(self) -> int | None:
        """Return the time until which the totals are current; None without totals."""
        async with self._db.read() as tx:
            return await read_done_until(tx)

    async def first_record(self) -> int | None:
        """Return the start of the oldest record or pending session's wait; None without either."""
        async with self._db.read() as tx:
            return await first_record(tx)

    async def records_between(self, start: int, end: int) -> list[UsageRecord]:
        """Return the records that overlap a period, and pending sessions as open records."""
        records: list[UsageRecord] = []
        async with self._db.read_one_state() as tx:
            async for page in pages(tx, overlapping(start, end)):
                records += [record_of(row) for row in page]
            async for page in pages(tx, pending_sessions()):
                records += [waiting_record(row) for row in page]
        return records

    async def facts(self, hour: int) -> dict[FactKey, Measures]:
        """Return the stored facts of an hour; empty if it was not computed."""
        facts: dict[FactKey, Measures] = {}
        async with self._db.read() as tx:
            async for page in pages(tx, _FACTS.where(usage_hours.c.start == hour)):
                for row in page:
                    holder, slot, measures = row[:_HOLDER], row[_HOLDER], row[_HOLDER + 1 :]
                    facts[Holder(*holder), slot] = Measures(*measures)
        return facts

    async def write_hour(
        self,
        hour: int,
        facts: Mapping[FactKey, Measures],
        totals: Mapping[TotalKey, Measures],
        token: int | None,
    ) -> None:
        """Replace the totals of an hour and, if it is the last hour of a day (UTC), of this day.

        Raises
        ------
        StaleLease
            If ``token`` is not the current lease token. With the token None, no lease is needed.
        """
        async with self._db.write() as tx:
            if token is not None:
                await lease.require(tx, token)
            await tx.execute(_long(sa.delete(usage_hours)).where(usage_hours.c.start == hour))
            await _delete_totals(tx, HOUR, usage_totals.c.start == hour)
            if facts:
                await tx.execute(sa.insert(usage_hours), [_fact(hour, *it) for it in facts.items()])
                rows = [_total(hour, *it) for it in totals.items()]
                await tx.execute(sa.insert(usage_totals), rows)
            if (hour + HOUR) % DAY == 0:
                await _write_day(tx, hour + HOUR - DAY)
            await _set_done(tx, hour + HOUR)

    async def rebuild(self, token: int | None, since: int = 0) -> int:
        """Write missing records and ends; set ``done_until`` back to the first changed hour.

        ``since`` limits the check to resources in use, resources released after this time, and
        waits that ended after this time. Return the number of records that were missing or not
        ended.
        """
        count = 0
        async with self._db.read() as tx:
            first_row, last_row = await _ledger_range(tx, since)
            first_step, last_step = await _history_range(tx, since)
        for start in range(first_row, last_row + 1, _REBUILD_PAGE):
            count += await self._rebuild_page(record_writes.rebuild_held, start, since, token)
        for start in range(first_step, last_step + 1, _REBUILD_PAGE):
            count += await self._rebuild_page(record_writes.rebuild_waits, start, since, token)
        return count

    async def _rebuild_page(self, rebuild: Any, first: int, since: int, token: int | None) -> int:
        last = first + _REBUILD_PAGE - 1
        async with self._db.write() as tx:
            if token is not None:
                await lease.require(tx, token)
            changed: list[int] = await rebuild(tx, first, last, since)
            done = await read_done_until(tx)
            if changed and done is not None and min(changed) < done:
                await _set_done(tx, min(changed) // HOUR * HOUR)
        return len(changed)

    async def delete_before(self, at: int) -> None:
        """Delete records that ended, and totals of hours that began, before a time."""
        async with self._db.write() as tx:
            await tx.execute(_long(sa.delete(usage_records)).where(_record.ended_at < at))
            await tx.execute(_long(sa.delete(usage_hours)).where(usage_hours.c.start < at))
            for interval in (HOUR, DAY):
                await _delete_totals(tx, interval, usage_totals.c.start < at)


def _long(statement: Any) -> Any:
    """Mark a statement that changes many rows, so that the SQLite driver runs it in a thread."""
    return statement.prefix_with(LONG, dialect="sqlite")


async def pages(tx: AsyncConnection, query: sa.Select[Any]) -> AsyncIterator[Sequence[Any]]:
    """Yield the rows of a query in pages; other tasks run between two pages."""
    for page in (await tx.execute(query)).partitions(_PAGE):
        yield page
        await asyncio.sleep(0)


def overlapping(start: int, end: int, *conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select the records that overlap a period, for ``record_of``."""
    return sa.select(*_RECORD_COLUMNS).where(
        sa.or_(_record.ended_at.is_(None), _record.ended_at > start),
        _record.started_at < end,
        *conditions,
    )


def record_of(row: Sequence[Any]) -> UsageRecord:
    session_id, kernel_id, slot, device_id, amount, started_at, ended_at, *holder = row
    return UsageRecord(
        session_id, kernel_id, slot, device_id, amount, started_at, ended_at, Holder(*holder)
    )


def pending_sessions(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select pending sessions, for ``waiting_record``; they have no record before the wait ends."""
    s = sessions.c
    seconds = record_writes.seconds_of
    earliest, since = sa.func.coalesce(seconds(s.starts_at), 0), seconds(s.status_changed_at)
    start = sa.case((earliest > since, earliest), else_=since)
    holder = (s.owner_id, s.project_id, s.domain, s.resource_group, s.image, record_writes.KIND)
    is_pending = (s.live_name.is_not(None), s.status == Status.PENDING)
    return sa.select(s.id, start.label("start"), *holder).where(*is_pending, *conditions)


def waiting_record(row: Sequence[Any]) -> UsageRecord:
    session_id, start, *holder = row
    return UsageRecord(session_id, "", WAITING, "", 1, start, None, Holder(*holder))


async def first_record(tx: AsyncConnection) -> int | None:
    """Return the start of the oldest record, or of the oldest wait of a pending session; None
    without either.
    """
    waits = pending_sessions().subquery()
    starts = [
        await tx.scalar(sa.select(sa.func.min(_record.started_at))),
        await tx.scalar(sa.select(sa.func.min(waits.c.start))),
    ]
    return min((start for start in starts if start is not None), default=None)


async def read_done_until(tx: AsyncConnection) -> int | None:
    done: int | None = await tx.scalar(
        sa.select(counters.c.value).where(counters.c.name == _DONE_UNTIL)
    )
    return done


async def _set_done(tx: AsyncConnection, at: int) -> None:
    moved = await tx.execute(
        sa.update(counters).where(counters.c.name == _DONE_UNTIL).values(value=at)
    )
    if not moved.rowcount:
        await tx.execute(sa.insert(counters).values(name=_DONE_UNTIL, value=at))


async def _ledger_range(tx: AsyncConnection, since: int) -> tuple[int, int]:
    row = allocations.c
    last = await tx.scalar(sa.select(sa.func.max(row.id))) or 0
    if not since:
        return 1, last
    # Use two queries instead of one with OR, because each of them can use an index.
    recent = (row.freed_at >= record_writes.time_of(since), row.freed_at.is_(None))
    firsts = [await tx.scalar(sa.select(sa.func.min(row.id)).where(where)) for where in recent]
    return min((first for first in firsts if first is not None), default=last + 1), last


async def _history_range(tx: AsyncConnection, since: int) -> tuple[int, int]:
    step = status_history.c
    last = await tx.scalar(sa.select(sa.func.max(step.id))) or 0
    if not since:
        return 1, last
    # This query needs no index on the time: it reads the table from its end, where the newest
    # earlier step is.
    earlier = sa.select(step.id).where(step.at < record_writes.time_of(since))
    newest = await tx.scalar(earlier.order_by(step.id.desc()).limit(1))
    return (newest or 0) + 1, last


async def _delete_totals(
    tx: AsyncConnection, interval: int, condition: sa.ColumnElement[bool]
) -> None:
    await tx.execute(
        _long(sa.delete(usage_totals)).where(
            usage_totals.c.dimension.in_(STORED_DIMENSIONS),
            usage_totals.c.interval_seconds == interval,
            condition,
        )
    )


async def _write_day(tx: AsyncConnection, day: int) -> None:
    t = usage_totals.c
    await _delete_totals(tx, DAY, t.start == day)
    group = [t.dimension, t.domain, t.key, t.slot]
    names = ["dimension", "domain", "key", "slot", "interval_seconds", "start", *MEASURES]
    sums = sa.select(
        *group,
        sa.literal(DAY, sa.Integer),
        sa.literal(day, sa.BigInteger),
        *(sa.func.sum(t[name]) for name in MEASURES),
    ).where(
        t.dimension.in_(STORED_DIMENSIONS),
        t.interval_seconds == HOUR,
        t.start >= day,
        t.start < day + DAY,
    )
    await tx.execute(_long(sa.insert(usage_totals)).from_select(names, sums.group_by(*group)))


def _fact(hour: int, key: FactKey, measures: Measures) -> dict[str, Any]:
    holder, slot = key
    return {
        "start": hour,
        "owner_id": holder.owner_id,
        "project_id": holder.project_id,
        "domain": holder.domain,
        "resource_group": holder.resource_group,
        "image": holder.image,
        "session_kind": holder.session_kind,
        "device_model": holder.device_model,
        "slot": slot,
        **_values(measures),
    }


def _total(hour: int, key: TotalKey, measures: Measures) -> dict[str, Any]:
    dimension, domain, group, slot = key
    return {
        "dimension": dimension,
        "interval_seconds": HOUR,
        "start": hour,
        "domain": domain,
        "key": group,
        "slot": slot,
        **_values(measures),
    }


def _values(measures: Measures) -> dict[str, Any]:
    return {name: getattr(measures, name) for name in MEASURES}
