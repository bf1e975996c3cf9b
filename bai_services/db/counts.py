"""Counts of sessions and agents by status."""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa

from bai_services.core.sessions.lifecycle import LIVE

from .database import Database
from .tables.cluster import agents
from .tables.sessions import sessions


class CountStore:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def by_status(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """Return the number of live sessions by status, and the number of agents by status."""
        of_sessions = (
            sa.select(sessions.c.status, sa.func.count())
            .where(sessions.c.status.in_(LIVE))
            .group_by(sessions.c.status)
        )
        of_agents = sa.select(agents.c.status, sa.func.count()).group_by(agents.c.status)
        async with self._db.read() as tx:
            rows = await tx.execute(of_sessions)
            live = {status: count for status, count in rows}
            rows = await tx.execute(of_agents)
            return live, {status: count for status, count in rows}
