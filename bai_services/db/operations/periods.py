"""Queries for tables with periods: announcements and maintenance."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.errors import Conflict
from bai_services.core.operations.periods import KEPT_AFTER_END


def not_ended(table: sa.Table, now: datetime) -> sa.ColumnElement[bool]:
    """Return the condition that the period of a row has not ended, even if it has not started."""
    return sa.or_(table.c.ends_at.is_(None), table.c.ends_at > now)


async def make_room(tx: AsyncConnection, table: sa.Table, now: datetime, maximum: int) -> None:
    """Remove rows with a period that ended long ago.

    Raises
    ------
    Conflict
        If at least ``maximum`` rows remain.
    """
    await tx.execute(sa.delete(table).where(table.c.ends_at < now - KEPT_AFTER_END))
    count = await tx.scalar(sa.select(sa.func.count()).select_from(table)) or 0
    if count >= maximum:
        raise Conflict(f"there are {count} {table.name}; delete old ones first")
