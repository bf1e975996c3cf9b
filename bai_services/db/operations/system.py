"""Facts about the database."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from ..database import Database
from ..tables.accounts import audit_log, users
from ..tables.cluster import agents
from ..tables.sessions import sessions


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Kind, version, size and schema revision of the database, and numbers of rows.

    ``sessions`` and ``agents`` are counts by status.
    """

    kind: str
    version: str
    size_bytes: int
    revision: str
    sessions: dict[str, int]
    agents: dict[str, int]
    users: int
    audit_entries: int


class SystemStore:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def facts(self) -> DatabaseFacts:
        async with self._db.read() as tx:
            if tx.dialect.name == "sqlite":
                version = await tx.scalar(sa.text("SELECT sqlite_version()"))
                pages = await tx.scalar(sa.text("PRAGMA page_count"))
                size = pages * await tx.scalar(sa.text("PRAGMA page_size"))
            else:
                version = await tx.scalar(sa.text("SHOW server_version"))
                size = await tx.scalar(sa.text("SELECT pg_database_size(current_database())"))
            revision = await tx.scalar(sa.text("SELECT version_num FROM alembic_version"))
            of_sessions = await _by_status(tx, sessions.c.status)
            of_agents = await _by_status(tx, agents.c.status)
            user_count = await tx.scalar(sa.select(sa.func.count()).select_from(users))
            entry_count = await tx.scalar(sa.select(sa.func.count()).select_from(audit_log))
        return DatabaseFacts(
            kind=tx.dialect.name,
            version=str(version),
            size_bytes=int(size),
            revision=str(revision),
            sessions=of_sessions,
            agents=of_agents,
            users=int(user_count or 0),
            audit_entries=int(entry_count or 0),
        )


async def _by_status(tx: AsyncConnection, status: sa.Column[str]) -> dict[str, int]:
    """Return the number of rows with each status."""
    counts = sa.select(status.label("status"), sa.func.count().label("number")).group_by(status)
    return {row.status: row.number for row in await tx.execute(counts)}
