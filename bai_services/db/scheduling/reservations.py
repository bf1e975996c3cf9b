"""Read the pending sessions with a reservation from the stored reasons."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.scheduling.queue.explain import RESERVATION, has_reservation
from bai_services.core.sessions.lifecycle import Status

from ..tables.sessions import sessions

# Few sessions have a reservation, so a text search avoids parsing the reasons of all others.
_CANDIDATES = sa.select(sessions.c.id, sessions.c.reasons).where(
    sessions.c.status == Status.PENDING,
    sa.cast(sessions.c.reasons, sa.Text).contains(f'"{RESERVATION}"'),
)


async def read_reserved(tx: AsyncConnection) -> frozenset[str]:
    """Return the ids of the pending sessions that had a reservation after the last pass."""
    rows = await tx.execute(_CANDIDATES)
    return frozenset(row.id for row in rows if has_reservation(row.id, row.reasons))
