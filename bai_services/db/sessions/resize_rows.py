"""Read the resizes of sessions, and insert the sizes of elastic sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.resources import ResourceSlots
from bai_services.core.sessions.resizing import Elasticity, ResizeState, SessionResize

from ..tables.resizes import elastic_sessions, session_resizes


async def read_resizes(
    tx: AsyncConnection, ids: Sequence[str]
) -> tuple[dict[str, SessionResize], dict[str, Elasticity]]:
    """Return the last resizes, and the sizes of elastic sessions, by session id."""
    rows = await tx.execute(sa.select(session_resizes).where(session_resizes.c.session_id.in_(ids)))
    resizes = {row.session_id: resize_of(row) for row in rows}
    of = elastic_sessions.c
    rows = await tx.execute(sa.select(elastic_sessions).where(of.session_id.in_(ids)))
    return resizes, {row.session_id: Elasticity(row.minimum, row.preferred) for row in rows}


async def insert_elastic(tx: AsyncConnection, elastic: Mapping[str, Elasticity]) -> None:
    """Insert the sizes of new elastic sessions, by session id."""
    rows = [
        {"session_id": key, "minimum": one.minimum, "preferred": one.preferred}
        for key, one in elastic.items()
    ]
    if rows:
        await tx.execute(sa.insert(elastic_sessions), rows)


async def end_resizes(tx: AsyncConnection, session_id: str, at: datetime) -> ResourceSlots | None:
    """Mark the pending resize of a stopped session as failed; the session will start again.

    Return the size for the next start: the minimum of an elastic session, or the size before the
    resize; None: the current size.
    """
    _r = session_resizes.c
    previous: ResourceSlots | None = await tx.scalar(
        sa.update(session_resizes)
        .where(_r.session_id == session_id, _r.state == ResizeState.PENDING)
        .values(state=ResizeState.FAILED, finished_at=at, message="the session was stopped before")
        .returning(_r.previous)
    )
    minimum: ResourceSlots | None = await tx.scalar(
        sa.select(elastic_sessions.c.minimum).where(elastic_sessions.c.session_id == session_id)
    )
    return previous if minimum is None else minimum


def resize_of(row: Any) -> SessionResize:
    return SessionResize(
        ResizeState(row.state),
        row.previous,
        row.requested,
        row.by,
        row.requested_at,
        row.finished_at,
        row.message,
    )
