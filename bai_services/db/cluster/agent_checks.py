"""Stores of checks of agents, and of requests to prune their images or to read SBOMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.audit import AuditEntry

from ..audit import record
from ..database import Database
from ..tables.cluster import agent_checks, agents


class AgentCheckStore:
    """Reads and writes checks of agents, or other requests with one result per agent.

    Each public method is one transaction.
    """

    def __init__(self, database: Database, table: sa.Table = agent_checks) -> None:
        self._db = database
        self._table = table

    async def request(
        self,
        check_id: str,
        agent_ids: Sequence[str],
        now: datetime,
        audit: AuditEntry | None = None,
        **columns: Any,
    ) -> None:
        """Replace the checks of agents with new checks without results.

        ``columns``: values for further columns of the new rows.
        """
        async with self._db.write() as tx:
            # Skip agents that have been deleted in the meantime, and lock the others.
            known = await tx.scalars(
                sa.select(agents.c.id)
                .where(agents.c.id.in_(agent_ids))
                .order_by(agents.c.id)
                .with_for_update()
            )
            rows = [
                {"agent_id": agent_id, "id": check_id, "created_at": now, "result": None, **columns}
                for agent_id in known
            ]
            await tx.execute(
                self._table.delete().where(
                    self._table.c.agent_id.in_([row["agent_id"] for row in rows])
                )
            )
            if rows:
                await tx.execute(self._table.insert(), rows)
            if audit is not None:
                await record(tx, audit)

    async def open(self, since: datetime) -> Mapping[str, str]:
        """Return the ids of checks without a result, by agent."""
        select = sa.select(self._table.c.agent_id, self._table.c.id).where(
            self._table.c.result.is_(None), self._table.c.created_at >= since
        )
        async with self._db.read() as tx:
            return {row.agent_id: row.id for row in await tx.execute(select)}

    async def open_requests(self, since: datetime) -> Mapping[str, Mapping[str, Any]]:
        """Return the rows of requests without a result, by agent."""
        select = sa.select(self._table).where(
            self._table.c.result.is_(None), self._table.c.created_at >= since
        )
        async with self._db.read() as tx:
            rows = (await tx.execute(select)).mappings()
            return {row["agent_id"]: dict(row) for row in rows}

    async def report(self, agent_id: str, check_id: str, result: Mapping[str, Any]) -> None:
        """Store the result of a check; ignore results of earlier checks."""
        async with self._db.write() as tx:
            await tx.execute(
                self._table.update()
                .where(self._table.c.agent_id == agent_id, self._table.c.id == check_id)
                .values(result=dict(result))
            )

    async def forget(self, check_id: str) -> None:
        """Delete a check and its results."""
        async with self._db.write() as tx:
            await tx.execute(self._table.delete().where(self._table.c.id == check_id))

    async def results(self, check_id: str) -> Mapping[str, Mapping[str, Any]]:
        """Return the results of a check by agent."""
        select = sa.select(self._table.c.agent_id, self._table.c.result).where(
            self._table.c.id == check_id, self._table.c.result.is_not(None)
        )
        async with self._db.read() as tx:
            return {row.agent_id: row.result for row in await tx.execute(select)}
