"""Store of the suspensions of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from bai_services.core.errors import Conflict, QuotaExceeded
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.suspensions import (
    MAX_SUSPENDED_PER_USER,
    Phase,
    PreparationReport,
    Purpose,
    Suspension,
    report_from_json,
)

from ..database import Database
from ..tables.accounts import users
from ..tables.sessions import sessions
from ..tables.suspensions import session_suspensions as suspensions
from .session_insert import next_sequences

_COLUMNS = [suspensions.c[f.name] for f in fields(Suspension)]
_MAX_ROWS = 500

# These statements run every second. They are built at import, because building one takes longer
# than running it.
_PREPARING = (
    sa.select(*_COLUMNS)
    .where(suspensions.c.phase == Phase.PREPARING)
    .order_by(suspensions.c.deadline, suspensions.c.session_id)
    .limit(_MAX_ROWS)
)
_SUSPENDED = (
    sa.select(*_COLUMNS)
    .where(suspensions.c.phase == Phase.SUSPENDED)
    .order_by(suspensions.c.suspended_at, suspensions.c.session_id)
    .limit(_MAX_ROWS)
)
_TO_REQUEUE = _SUSPENDED.where(suspensions.c.purpose == Purpose.REQUEUE)
_EXPIRED = _SUSPENDED.where(
    (suspensions.c.expires_at <= sa.bindparam("now"))
    | (
        suspensions.c.expires_at.is_(None)
        & (suspensions.c.purpose == Purpose.SUSPEND)
        & (suspensions.c.suspended_at <= sa.bindparam("latest"))
    )
)


class SuspensionStore:
    """Reads and writes suspensions. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def begin(self, suspension: Suspension) -> None:
        """Insert the suspension of a running session; replace an earlier, resumed suspension.

        Raises
        ------
        Conflict
            If the session is no longer running, or is already preparing for a stop.
        QuotaExceeded
            If the owner has too many suspended sessions.
        """
        async with self._db.write() as tx:
            row = (
                await tx.execute(
                    sa.select(sessions.c.status, sessions.c.owner_id)
                    .where(sessions.c.id == suspension.session_id)
                    .with_for_update()
                )
            ).one_or_none()
            if row is None or row.status != Status.RUNNING:
                raise Conflict("the session is not running")
            if suspension.purpose is Purpose.SUSPEND:
                # Lock the owner: of two concurrent suspensions, the second must count the first.
                await tx.execute(
                    sa.select(users.c.id)
                    .where(users.c.id == row.owner_id)
                    .with_for_update(key_share=True)
                )
                # Sessions that are still being suspended also count.
                count = await tx.scalar(
                    sa.select(sa.func.count())
                    .join_from(suspensions, sessions, suspensions.c.session_id == sessions.c.id)
                    .where(
                        sessions.c.owner_id == row.owner_id,
                        suspensions.c.purpose == Purpose.SUSPEND,
                        suspensions.c.phase != Phase.RESUMED,
                    )
                )
                if count is not None and count >= MAX_SUSPENDED_PER_USER:
                    raise QuotaExceeded(
                        f"the owner already has {count} suspended sessions, the maximum"
                    )
            of_session = suspensions.c.session_id == suspension.session_id
            await tx.execute(
                sa.delete(suspensions).where(of_session, suspensions.c.phase == Phase.RESUMED)
            )
            if await tx.scalar(sa.select(suspensions.c.phase).where(of_session)) is not None:
                raise Conflict("the session is already preparing for a stop")
            await tx.execute(sa.insert(suspensions).values(**_values(suspension)))

    async def get(self, session_id: str) -> Suspension | None:
        """Return the last suspension of a session, or None."""
        async with self._db.read() as tx:
            found = await tx.execute(
                sa.select(*_COLUMNS).where(suspensions.c.session_id == session_id)
            )
            row = found.mappings().one_or_none()
        return None if row is None else _suspension(dict(row))

    async def report(self, session_id: str, report: PreparationReport) -> bool:
        """Store the report of a preparation; return False if the session is not preparing."""
        async with self._db.write() as tx:
            changed = await tx.execute(
                sa.update(suspensions)
                .where(
                    suspensions.c.session_id == session_id,
                    suspensions.c.phase == Phase.PREPARING,
                )
                .values(report=asdict(report))
            )
            return changed.rowcount > 0

    async def cancel(self, session_id: str) -> bool:
        """Delete the suspension of a session that was not resumed; return whether one existed."""
        async with self._db.write() as tx:
            deleted = await tx.execute(
                sa.delete(suspensions).where(
                    suspensions.c.session_id == session_id, suspensions.c.phase != Phase.RESUMED
                )
            )
            return deleted.rowcount > 0

    async def cancel_preparation(self, session_id: str) -> None:
        """Delete a running session's preparation for a stop that was cancelled."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(suspensions).where(
                    suspensions.c.session_id == session_id,
                    suspensions.c.phase == Phase.PREPARING,
                    suspensions.c.purpose == Purpose.STOP,
                    sa.exists().where(
                        sessions.c.id == session_id, sessions.c.status == Status.RUNNING
                    ),
                )
            )

    async def preparing(self) -> list[Suspension]:
        """Return the preparations in progress, the earliest deadline first."""
        return await self._read(_PREPARING)

    async def to_requeue(self) -> list[Suspension]:
        """Return the suspended sessions that must return to the queue immediately."""
        return await self._read(_TO_REQUEUE)

    async def expired(self, now: datetime, retention: timedelta) -> list[Suspension]:
        """Return the suspended sessions that were not resumed in time.

        ``retention``: the time limit for sessions that could not be resumed.
        """
        return await self._read(_EXPIRED, now=now, latest=now - retention)

    async def move_to_end_of_queue(self, session_id: str) -> None:
        """Give a suspended session a new sequence number, so that it is behind pending sessions."""
        async with self._db.write() as tx:
            sequence = (await next_sequences(tx, 1))[0]
            await tx.execute(
                sa.update(sessions)
                .where(sessions.c.id == session_id, sessions.c.status == Status.SUSPENDED)
                .values(sequence=sequence)
            )

    async def _read(self, rows: sa.Select[Any], **values: datetime) -> list[Suspension]:
        async with self._db.read() as tx:
            found = await tx.execute(rows, values)
            return [_suspension(dict(row)) for row in found.mappings()]


def _values(suspension: Suspension) -> dict[str, Any]:
    values = {f.name: getattr(suspension, f.name) for f in fields(Suspension)}
    return {**values, "report": None}


def _suspension(row: Mapping[str, Any]) -> Suspension:
    report = row["report"]
    return Suspension(
        **{
            **row,
            "phase": Phase(row["phase"]),
            "purpose": Purpose(row["purpose"]),
            "report": None if report is None else report_from_json(report),
        }
    )
