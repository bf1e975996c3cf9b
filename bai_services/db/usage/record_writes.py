"""Write usage records inside the transaction of the change that they describe.

The records are a function of the ledger (``allocations``), the history (``status_history``), the
sessions and the devices, so ``rebuild_held`` and ``rebuild_waits`` can write missing ones later.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import GenericFunction

from bai_services.core.sessions.lifecycle import Status
from bai_services.core.usage.model import SESSIONS, WAITING

from .. import bulk
from ..scheduling.caps import CHUNK
from ..sqlite_driver import LONG
from ..tables.base import UtcDateTime
from ..tables.cluster import devices
from ..tables.sessions import allocations, sessions, status_history
from ..tables.usage import usage_records


class seconds_of(GenericFunction[int]):
    """Unix time of a column, in whole seconds."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(seconds_of, "sqlite")
def _on_sqlite(element: seconds_of, compiler: Any, **more: Any) -> str:
    return f"CAST(strftime('%s', {compiler.process(element.clauses, **more)}) AS INTEGER)"


@compiles(seconds_of, "postgresql")
def _on_postgresql(element: seconds_of, compiler: Any, **more: Any) -> str:
    return f"CAST(floor(EXTRACT(EPOCH FROM {compiler.process(element.clauses, **more)})) AS BIGINT)"


_records = usage_records.c


def _holder(model: sa.ColumnElement[str]) -> list[sa.ColumnElement[Any]]:
    s = sessions.c
    return [s.owner_id, s.project_id, s.domain, s.resource_group, s.image, model]


# Not a parameter: PostgreSQL would not recognize the expression in GROUP BY.
_NONE: sa.ColumnElement[str] = sa.literal_column("''", sa.String())
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
# The end of a group of rows of the ledger: NULL until all of them are freed. A group of a session
# has one row for each kernel, slot and device. A group of a kernel has several rows only if the
# clock was set back.
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
    sa.select(sa.func.max(_earlier.c.at))
    .where(
        _earlier.c.session_id == status_history.c.session_id,
        _earlier.c.to_status == Status.PENDING,
        _earlier.c.id < status_history.c.id,
    )
    .scalar_subquery(),
    sessions.c.created_at,
)


def _waits(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
    """Select one record for each transition from PENDING in the history: the wait that it ended.

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


def _insert(is_postgres: bool, select: Any, returns: bool) -> Any:
    """Return an upsert of records.

    The end and the amount of an existing record are updated in two cases: the existing record is
    open and the new one has an end, or the existing record ends at its start.
    """
    insert = (postgresql if is_postgres else sqlite).insert(usage_records)
    insert = insert.from_select(_COLUMNS_IN_ORDER, select)
    insert = insert.on_conflict_do_update(
        index_elements=usage_records.primary_key,
        set_={"ended_at": insert.excluded.ended_at, "amount": insert.excluded.amount},
        where=sa.or_(
            sa.and_(_records.ended_at.is_(None), insert.excluded.ended_at.is_not(None)),
            _records.ended_at == _records.started_at,
        ),
    )
    if not returns:
        return insert
    return insert.prefix_with(LONG, dialect="sqlite").returning(_records.started_at)


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
    "device_model",
]


def _statements(*selects: Any, returns: bool = False) -> tuple[list[Any], list[Any]]:
    """Return the INSERT statements for SQLite and for PostgreSQL."""
    return [_insert(False, s, returns) for s in selects], [
        _insert(True, s, returns) for s in selects
    ]


# Built at import, because building a statement takes longer than running it.
_START: sa.BindParameter[int] = sa.bindparam("start", type_=sa.BigInteger())
_OPEN = _statements(
    # Grouped, because PostgreSQL rejects an INSERT that contains the same key twice.
    sa.select(*_HELD, _START, sa.null(), sa.func.max(allocations.c.amount), *_holder(_MODEL))
    .select_from(_LEDGER)
    .where(bulk.Among(allocations.c.session_id, "ids"), allocations.c.freed_at.is_(None))
    .group_by(*_HELD, *_holder(_MODEL)),
    sa.select(
        sessions.c.id,
        _NONE,
        sa.literal(SESSIONS),
        _NONE,
        _START,
        sa.null(),
        sa.literal(1),
        *_holder(_NONE),
    ).where(bulk.Among(sessions.c.id, "ids")),
)
_CLOSE = (
    sa.update(usage_records)
    .where(_records.session_id == sa.bindparam("of_session"), _records.ended_at.is_(None))
    .values(
        ended_at=sa.case(
            (_records.started_at > sa.bindparam("end"), _records.started_at),
            else_=sa.bindparam("end"),
        )
    )
)
_WAITED = _statements(_waits(bulk.Among(status_history.c.session_id, "ids")))
_SINCE: sa.BindParameter[Any] = sa.bindparam("since", type_=UtcDateTime())
_LEDGER_RANGE = sa.and_(
    allocations.c.id.between(sa.bindparam("first"), sa.bindparam("last")),
    sa.or_(allocations.c.freed_at.is_(None), allocations.c.freed_at >= _SINCE),
)
_REBUILD_HELD = _statements(_of_kernels(_LEDGER_RANGE), _of_sessions(_LEDGER_RANGE), returns=True)
_REBUILD_WAITS = _statements(
    _waits(
        status_history.c.id.between(sa.bindparam("first"), sa.bindparam("last")),
        status_history.c.at >= _SINCE,
    ),
    returns=True,
)


async def open_records(tx: AsyncConnection, session_ids: Sequence[str], at: datetime) -> None:
    """Insert the records of sessions whose resources were allocated at this time."""
    for start in range(0, len(session_ids), CHUNK):
        part = list(session_ids[start : start + CHUNK])
        await _run(tx, _OPEN, {"ids": part, "start": int(at.timestamp())})


async def close_records(tx: AsyncConnection, session_id: str, at: datetime) -> None:
    """End the open records of a session."""
    await tx.execute(_CLOSE, {"of_session": session_id, "end": int(at.timestamp())})


async def write_waits(tx: AsyncConnection, session_ids: Sequence[str]) -> None:
    """Insert the time in the queue of sessions that have just left it.

    The history must already contain the change.
    """
    for start in range(0, len(session_ids), CHUNK):
        await _run(tx, _WAITED, {"ids": list(session_ids[start : start + CHUNK])})


async def rebuild_held(tx: AsyncConnection, first: int, last: int, since: int) -> list[int]:
    """Write the missing records, and the missing ends, of a range of rows of the ledger.

    Rows that were released before ``since`` are skipped. Idempotent. Return the starts of the
    records that were missing or not ended.
    """
    values = {"first": first, "last": last, "since": time_of(since)}
    return await _run(tx, _REBUILD_HELD, values)


async def rebuild_waits(tx: AsyncConnection, first: int, last: int, since: int) -> list[int]:
    """Like ``rebuild_held``, for the time in the queue and a range of rows of the history."""
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
