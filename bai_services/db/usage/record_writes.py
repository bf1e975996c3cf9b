"""Write usage records in the transaction of the change.

All records can be derived from the ledger (``allocations``), the history (``status_history``), the
sessions and the devices, so ``rebuild_held`` and ``rebuild_waits`` can write missing records later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from bai_services.core.sessions.lifecycle import Status
from bai_services.core.usage.model import SESSIONS, WAITING, SessionKind

from .. import bulk
from ..sqlite_driver import LONG
from ..tables.base import UtcDateTime
from ..tables.cluster import devices
from ..tables.sessions import allocations, sessions, status_history
from ..tables.usage import usage_records


class seconds_of(GenericFunction[int]):
    """Unix time of a column, in whole seconds, rounded down like ``int(at.timestamp())``."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(seconds_of, "sqlite")
def _on_sqlite(element: seconds_of, compiler: Any, **more: Any) -> str:
    # Remove the fraction: ``strftime`` rounds to milliseconds, so 0.9995 s would count as the next
    # second, and a rebuild would write a second record in addition to the record that was written
    # with the change.
    whole_seconds = f"substr({compiler.process(element.clauses, **more)}, 1, 19)"
    return f"CAST(strftime('%s', {whole_seconds}) AS INTEGER)"


@compiles(seconds_of, "postgresql")
def _on_postgresql(element: seconds_of, compiler: Any, **more: Any) -> str:
    return f"CAST(floor(EXTRACT(EPOCH FROM {compiler.process(element.clauses, **more)})) AS BIGINT)"


_records = usage_records.c

# A row of the ledger: session, kernel, agent, device (or None), slot, amount.
Allocated = tuple[str, str, str, str | None, str, int]


# Use literals instead of parameters, because PostgreSQL would not recognize the expressions in
# GROUP BY.
_NONE: sa.ColumnElement[str] = sa.literal_column("''", sa.String())
# The ``SessionKind`` of a session.
KIND: sa.ColumnElement[str] = sa.case(
    (
        sessions.c.is_pipeline_task,
        sa.literal_column(f"'{SessionKind.PIPELINE_TASK.value}'", sa.String()),
    ),
    else_=sessions.c.type,
)


def _holder(model: sa.ColumnElement[str]) -> list[sa.ColumnElement[Any]]:
    s = sessions.c
    return [s.owner_id, s.project_id, s.domain, s.resource_group, s.image, KIND, model]


_MODEL = sa.func.coalesce(devices.c.model, _NONE)
_LEDGER = allocations.join(sessions, allocations.c.session_id == sessions.c.id).outerjoin(
    devices,
    sa.and_(devices.c.id == allocations.c.device_id, devices.c.agent_id == allocations.c.agent_id),
)
_HELD = (
    allocations.c.session_id,
    allocations.c.kernel_id,
    allocations.c.slot,
    sa.func.coalesce(allocations.c.device_id, _NONE),
)
_ALLOCATED = seconds_of(allocations.c.allocated_at)
_FREED = seconds_of(allocations.c.freed_at)
# The end of a group of ledger rows: NULL until all rows are freed. A group of a session has one row
# for each kernel, slot and device. A group of a kernel has several rows only if the clock was set
# back.
_ENDED = sa.case(
    (sa.func.count() == sa.func.count(allocations.c.freed_at), sa.func.max(_FREED)), else_=sa.null()
)
_HAS_LENGTH = sa.or_(allocations.c.freed_at.is_(None), _FREED > _ALLOCATED)


def _of_kernels(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    held, holder = [*_HELD, _ALLOCATED], _holder(_MODEL)
    return (
        sa.select(*held, _ENDED, sa.func.max(allocations.c.amount), *holder)
        .select_from(_LEDGER)
        .where(_HAS_LENGTH, *conditions)
        .group_by(*held, *holder)
    )


def _of_sessions(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select one record for each period in which a session held resources."""
    a = allocations.c
    holder = _holder(_NONE)[:-1]
    return (
        sa.select(
            a.session_id,
            _NONE,
            sa.literal(SESSIONS),
            _NONE,
            _ALLOCATED,
            _ENDED,
            sa.literal(1),
            *holder,
            _NONE,
        )
        .select_from(allocations.join(sessions, a.session_id == sessions.c.id))
        .where(_HAS_LENGTH, *conditions)
        .group_by(a.session_id, _ALLOCATED, *holder)
    )


_earlier = status_history.alias("earlier")
_PENDING_SINCE = sa.func.coalesce(
    # Use the last row, as in ``write_waits``, not the latest time: the clock may have been set
    # back.
    sa.select(_earlier.c.at)
    .where(
        _earlier.c.session_id == status_history.c.session_id,
        _earlier.c.to_status == Status.PENDING,
        _earlier.c.id < status_history.c.id,
    )
    .order_by(_earlier.c.id.desc())
    .limit(1)
    .scalar_subquery(),
    sessions.c.created_at,
)


def _waits(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select one record for each wait, which ends with a transition from PENDING in the history.

    The wait of a batch session does not begin before the session's earliest start time.
    """
    earliest = sa.func.coalesce(seconds_of(sessions.c.starts_at), 0)
    pending_since, end = seconds_of(_PENDING_SINCE), seconds_of(status_history.c.at)
    start = sa.case((earliest > pending_since, earliest), else_=pending_since)
    waiting = sa.literal(WAITING)
    return (
        sa.select(sessions.c.id, _NONE, waiting, _NONE, start, end, sa.literal(1), *_holder(_NONE))
        .select_from(status_history.join(sessions, status_history.c.session_id == sessions.c.id))
        .where(start < end, status_history.c.from_status == Status.PENDING, *conditions)
    )


def _upsert(insert: bulk.Upsert, select: Any) -> bulk.Upsert:
    """Return an upsert of records.

    An existing record gets the new end and amount in two cases: it is open and the new record has
    an end, or it ends at its start.
    """
    insert = insert.from_select(_COLUMNS_IN_ORDER, select)
    return insert.on_conflict_do_update(
        index_elements=usage_records.primary_key,
        set_={"ended_at": insert.excluded.ended_at, "amount": insert.excluded.amount},
        where=sa.or_(
            sa.and_(_records.ended_at.is_(None), insert.excluded.ended_at.is_not(None)),
            _records.ended_at == _records.started_at,
        ),
    )


_COLUMNS_IN_ORDER = [
    "session_id",
    "kernel_id",
    "slot",
    "device_id",
    "started_at",
    "ended_at",
    "amount",
    "owner_id",
    "project_id",
    "domain",
    "resource_group",
    "image",
    "session_kind",
    "device_model",
]


def _rebuild(insert: bulk.Upsert, *selects: Any) -> list[Any]:
    return [
        _upsert(insert, select).prefix_with(LONG, dialect="sqlite").returning(_records.started_at)
        for select in selects
    ]


def _statements(*selects: Any) -> tuple[list[Any], list[Any]]:
    """Return the INSERT statements for SQLite and for PostgreSQL."""
    return (
        _rebuild(sqlite.insert(usage_records), *selects),
        _rebuild(postgresql.insert(usage_records), *selects),
    )


def _write(insert: bulk.Upsert, v: bulk.Values) -> sa.Insert:
    # Records without a device have "" as device and agent, which is not an id.
    model = sa.select(devices.c.model).where(
        devices.c.id == v["device_id"], devices.c.agent_id == v["agent_id"]
    )
    given = [v[name] for name in _COLUMNS_IN_ORDER if name in v]
    holder = _holder(sa.func.coalesce(model.scalar_subquery(), _NONE))
    return _upsert(insert, sa.select(*given, *holder).where(sessions.c.id == v["session_id"]))


# Built at import, because building a statement takes longer than running it. The caller passes the
# values, because PostgreSQL without statistics would read all live rows of the ledger to find them.
_WRITE = bulk.RowInsertSelect(
    usage_records,
    {
        "session_id": sa.String(),
        "kernel_id": sa.String(),
        "slot": sa.String(),
        "device_id": sa.String(),
        "started_at": sa.BigInteger(),
        "ended_at": sa.BigInteger(),
        "amount": sa.BigInteger(),
        "agent_id": sa.String(),
    },
    _write,
)
_CLOSE = (
    sa.update(usage_records)
    .where(bulk.Among(_records.session_id, "ids"), _records.ended_at.is_(None))
    .values(
        ended_at=sa.case(
            (_records.started_at > sa.bindparam("end"), _records.started_at),
            else_=sa.bindparam("end"),
        )
    )
)
_SINCE: sa.BindParameter[Any] = sa.bindparam("since", type_=UtcDateTime())
_LEDGER_RANGE = sa.and_(
    allocations.c.id.between(sa.bindparam("first"), sa.bindparam("last")),
    sa.or_(allocations.c.freed_at.is_(None), allocations.c.freed_at >= _SINCE),
)
_REBUILD_HELD = _statements(_of_kernels(_LEDGER_RANGE), _of_sessions(_LEDGER_RANGE))
_REBUILD_WAITS = _statements(
    _waits(
        status_history.c.id.between(sa.bindparam("first"), sa.bindparam("last")),
        status_history.c.at >= _SINCE,
    ),
)


async def open_records(tx: AsyncConnection, allocated: Sequence[Allocated], at: datetime) -> None:
    """Insert the records of resources that are allocated at ``at``, and of their sessions."""
    start = int(at.timestamp())
    held: dict[tuple[str, str, str, str], tuple[int, str]] = {}
    for session_id, kernel_id, agent_id, device_id, slot, amount in allocated:
        held[session_id, "", SESSIONS, ""] = (1, "")
        key = (session_id, kernel_id, slot, device_id or "")
        # PostgreSQL rejects an upsert that contains the same key twice.
        held[key] = max(held.get(key, (0, "")), (amount, agent_id if device_id else ""))
    await _WRITE.run(tx, [(*key, start, None, *values) for key, values in held.items()])


async def close_records(tx: AsyncConnection, session_ids: Sequence[str], at: datetime) -> None:
    """End the open records of sessions."""
    await tx.execute(_CLOSE, {"ids": list(session_ids), "end": int(at.timestamp())})


def wait_start(pending_since: datetime, starts_at: datetime | None) -> datetime:
    """Return when the wait of a session begins; ``starts_at`` is its earliest start."""
    return pending_since if starts_at is None else max(pending_since, starts_at)


async def write_waits(tx: AsyncConnection, starts: Mapping[str, datetime], at: datetime) -> None:
    """Insert the waits of sessions that leave the queue at ``at``.

    ``starts`` maps session ids to the starts of the waits.
    """
    end = int(at.timestamp())
    rows: list[bulk.Row] = []
    for session_id, since in starts.items():
        start = int(since.timestamp())
        if start < end:
            rows.append((session_id, "", WAITING, "", start, end, 1, ""))
    await _WRITE.run(tx, rows)


async def rebuild_held(tx: AsyncConnection, first: int, last: int, since: int) -> list[int]:
    """Write missing records and missing ends for a range of ledger rows.

    Rows that were released before ``since`` are skipped. Idempotent. Return the starts of the
    records that were missing or not ended.
    """
    values = {"first": first, "last": last, "since": time_of(since)}
    return await _run(tx, _REBUILD_HELD, values)


async def rebuild_waits(tx: AsyncConnection, first: int, last: int, since: int) -> list[int]:
    """Like ``rebuild_held``, for waits and a range of history rows."""
    values = {"first": first, "last": last, "since": time_of(since)}
    return await _run(tx, _REBUILD_WAITS, values)


def time_of(seconds: int) -> datetime:
    """Return the time with the Unix time ``seconds``."""
    return datetime.fromtimestamp(seconds, UTC)


async def _run(
    tx: AsyncConnection, statements: tuple[list[Any], list[Any]], values: dict[str, Any]
) -> list[int]:
    starts: list[int] = []
    for statement in statements[tx.dialect.name == "postgresql"]:
        result = await tx.execute(statement, values)
        starts += result.scalars() if result.returns_rows else ()
    return starts
