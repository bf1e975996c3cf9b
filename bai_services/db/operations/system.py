"""Facts about the database."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from ..database import Database
from ..tables.accounts import audit_log, users
from ..tables.cluster import agents
from ..tables.sessions import sessions


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """Kind, version, size and schema revision, and numbers of rows."""

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
            by_status = [
                dict(
                    (row.status, row.count)
                    for row in await tx.execute(
                        sa.select(column.label("status"), sa.func.count().label("count")).group_by(
                            column
                        )
                    )
                )
                for column in (sessions.c.status, agents.c.status)
            ]
            counts = [
                int(await tx.scalar(sa.select(sa.func.count()).select_from(table)) or 0)
                for table in (users, audit_log)
            ]
        return DatabaseFacts(
            tx.dialect.name, str(version), int(size), str(revision), *by_status, *counts
        )
