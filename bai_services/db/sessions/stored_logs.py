"""Store of the output of ended sessions: search and retention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa

from bai_services.core.sessions.logs import joined_log

from ..database import Database
from ..sqlite_driver import LONG
from ..tables.sessions import kernel_attempts, kernels, sessions
from . import attempt_logs
from .rows import LOG_LIMIT

_HAS_ENDED = sessions.c.live_name.is_(None)
_HAS_LOG = sa.or_(
    kernels.c.log != "", sa.exists().where(kernel_attempts.c.kernel_id == kernels.c.id)
)
# Newest session first; kernels of a session by name.
_ORDER = (sessions.c.created_at, sessions.c.id, kernels.c.hostname)


@dataclass(frozen=True, slots=True)
class StoredLog:
    """The output of one kernel of an ended session, with its earlier attempts."""

    session_id: str
    session: str
    kernel: str
    terminated_at: datetime | None
    log: str


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The position of a log in the list of a user's logs."""

    session_id: str
    kernel: str


class StoredLogStore:
    """Reads and writes stored logs. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, owner_id: str, after: LogPosition | None, limit: int
    ) -> Sequence[StoredLog]:
        """Return the logs of a user's ended sessions, newest session first.

        ``after`` is the last log of the previous page; the result is empty for an unknown log.
        """
        chosen = (
            sa.select(
                sessions.c.id.label("session_id"),
                sessions.c.name.label("session"),
                kernels.c.hostname.label("kernel"),
                sessions.c.terminated_at,
                kernels.c.log,
                kernels.c.id.label("kernel_id"),
            )
            .join_from(sessions, kernels, kernels.c.session_id == sessions.c.id)
            .where(sessions.c.owner_id == owner_id, _HAS_ENDED, _HAS_LOG)
            .order_by(*(column.desc() for column in _ORDER))
            .limit(limit)
            # The logs can be megabytes long, so the query must not run in the event loop.
            .prefix_with(LONG, dialect="sqlite")
        )
        if after is not None:
            created_at = (
                sa.select(sessions.c.created_at)
                .where(sessions.c.id == after.session_id, sessions.c.owner_id == owner_id)
                .scalar_subquery()
            )
            last = sa.tuple_(created_at, sa.literal(after.session_id), sa.literal(after.kernel))
            chosen = chosen.where(sa.tuple_(*_ORDER) < last)
        async with self._db.read() as tx:
            rows = (await tx.execute(chosen)).all()
            earlier = await attempt_logs.logs_of(tx, [row.kernel_id for row in rows])
        return [
            StoredLog(*row[:4], joined_log(earlier.get(row.kernel_id, ()), row.log, LOG_LIMIT))
            for row in rows
        ]

    async def remove(self, before: datetime, limit: int) -> int:
        """Remove at most ``limit`` logs of sessions that ended before ``before``.

        Return the number of removed logs. Running sessions of any age are not affected.
        """
        old = (
            sa.select(kernels.c.id)
            .join_from(kernels, sessions, kernels.c.session_id == sessions.c.id)
            # Implied by the next condition; added so that an index can be used.
            .where(kernels.c.log.is_not(None), kernels.c.created_at < before)
            .where(_HAS_ENDED, sessions.c.terminated_at < before)
            .order_by(kernels.c.created_at)
            .limit(limit)
        )
        async with self._db.write() as tx:
            await attempt_logs.remove(tx, old)
            removed = await tx.execute(
                sa.update(kernels).where(kernels.c.id.in_(old)).values(log=None)
            )
            return int(removed.rowcount)
