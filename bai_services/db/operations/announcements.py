"""Store of announcements."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.operations.announcements import MAX_ANNOUNCEMENTS, Announcement

from ..audit import record
from ..database import Database
from ..integrity import insert_ignoring, raise_on_violation, update_version
from ..listing import Listing
from ..records import first_record, records
from ..tables.accounts import projects
from ..tables.operations import announcement_dismissals, announcements
from .periods import make_room, not_ended

_COLUMNS = (
    *(c for c in announcements.columns if c.name not in ("target", "project_id")),
    sa.func.coalesce(announcements.c.project_id, announcements.c.target).label("target"),
    sa.func.coalesce(projects.c.name, announcements.c.target).label("target_name"),
)
_ROWS = sa.select(*_COLUMNS).select_from(announcements.outerjoin(projects))
_LISTING = Listing(
    columns={
        **{c.name: c for c in announcements.columns if c.name != "project_id"},
        "target_name": _COLUMNS[-1],
    },
    default_sort=("-starts_at", "id"),
)


class AnnouncementStore:
    """Reads and writes announcements. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, domain: str | None = None) -> Page[Announcement]:
        """Return a page of announcements; with ``domain``, only of those for audiences in it."""
        rows = _ROWS if domain is None else _ROWS.where(announcements.c.domain == domain)
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, Announcement)

    async def one(self, key: str) -> Announcement:
        async with self._db.read() as tx:
            return await _one(tx, key)

    async def current(self, now: datetime, user_id: str) -> tuple[list[Announcement], set[str]]:
        """Return the announcements of all audiences with a period that includes ``now``, newest
        first, and the ids that the user has dismissed.
        """
        chosen = _ROWS.where(
            announcements.c.starts_at <= now, not_ended(announcements, now)
        ).order_by(announcements.c.starts_at.desc(), announcements.c.id)
        dismissed = sa.select(announcement_dismissals.c.announcement_id).where(
            announcement_dismissals.c.user_id == user_id
        )
        async with self._db.read() as tx:
            found = records(Announcement, await tx.execute(chosen.limit(MAX_ANNOUNCEMENTS)))
            return found, set((await tx.scalars(dismissed)).all()) if found else set()

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> Announcement:
        """Insert an announcement, and remove announcements with a period that ended long ago.

        Raises
        ------
        Conflict
            If there are too many announcements.
        """
        async with self._db.write() as tx:
            await make_room(tx, announcements, values["created_at"], MAX_ANNOUNCEMENTS)
            with raise_on_violation(NotFound("the domain or project no longer exists")):
                await tx.execute(announcements.insert().values(values))
            await record(tx, audit)
            return await _one(tx, values["id"])

    async def update(
        self, key: str, version: int, changes: Mapping[str, Any], audit: AuditEntry
    ) -> Announcement:
        """Change an announcement that has ``version``; raise ``Conflict`` for another version."""
        async with self._db.write() as tx:
            await update_version(tx, announcements, key, version, changes)
            found = await _one(tx, key)
            await record(tx, audit)
            return found

    async def delete(self, key: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await _one(tx, key)
            await tx.execute(sa.delete(announcements).where(announcements.c.id == key))
            await record(tx, audit)

    async def dismiss(self, key: str, user_id: str) -> None:
        """Mark an announcement as dismissed by a user; idempotent."""
        row = {"announcement_id": key, "user_id": user_id}
        async with self._db.write() as tx:
            await _one(tx, key)
            await tx.execute(insert_ignoring(tx, announcement_dismissals).values(row))


async def _one(tx: AsyncConnection, key: str) -> Announcement:
    found = first_record(Announcement, await tx.execute(_ROWS.where(announcements.c.id == key)))
    if found is None:
        raise no_announcement(key)
    return found


def no_announcement(key: str) -> NotFound:
    return NotFound(f"there is no announcement {key!r}, or you may not see it", announcement=key)
