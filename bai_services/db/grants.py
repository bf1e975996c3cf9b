"""Who else may use a folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.errors import NotFound
from bai_services.core.listing import ListQuery, Page

from .audit import AuditEntry, record
from .database import Database
from .integrity import broken_means
from .listing import Listing
from .tables.accounts import users
from .tables.vfolders import vfolder_grants
from .vfolders import locked


@dataclass(frozen=True, slots=True)
class Grant:
    user: str
    user_id: str
    permission: str
    granted_by: str
    created_at: datetime


_GRANTS = Listing(
    columns={
        "user": users.c.username,
        "user_id": users.c.id,
        "permission": vfolder_grants.c.permission,
        "granted_by": vfolder_grants.c.granted_by,
        "created_at": vfolder_grants.c.created_at,
    },
    default_sort=("user",),
)


class GrantStore:
    """One public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def grants(
        self, vfolder_id: str, query: ListQuery, user_id: str | None = None
    ) -> Page[Grant]:
        """Return a page of a folder's grants, or the one of ``user_id``."""
        rows = (
            sa.select(*(column.label(name) for name, column in _GRANTS.columns.items()))
            .join_from(vfolder_grants, users, vfolder_grants.c.user_id == users.c.id)
            .where(vfolder_grants.c.vfolder_id == vfolder_id)
        )
        if user_id is not None:
            rows = rows.where(vfolder_grants.c.user_id == user_id)
        async with self._db.read() as tx:
            items, total = await _GRANTS.page(tx, rows, query)
        return Page([Grant(**item) for item in items], total, query.limit, query.offset)

    async def person(self, key: str, domain: str) -> sa.RowMapping | None:
        """Return the person of a domain with that id, user name or e-mail address."""
        lower = key.strip().lower()
        async with self._db.read() as tx:
            found = await tx.execute(
                sa.select(users.c.id, users.c.username, users.c.status, users.c.domain).where(
                    users.c.domain == domain,
                    sa.or_(users.c.id == key, users.c.username == lower, users.c.email == lower),
                )
            )
            rows = found.mappings().all()
        # A user name may look like somebody else's address, an id is never anything else.
        ranked = sorted(rows, key=lambda row: (row["id"] != key, row["username"] != lower))
        return ranked[0] if ranked else None

    async def anybody(self, key: str) -> sa.RowMapping | None:
        """Return the person of any domain with that id, user name or e-mail address."""
        lower = key.strip().lower()
        async with self._db.read() as tx:
            domain = await tx.scalar(
                sa.select(users.c.domain)
                .where(sa.or_(users.c.id == key, users.c.username == lower, users.c.email == lower))
                .order_by(users.c.id != key, users.c.username != lower)
                .limit(1)
            )
        return None if domain is None else await self.person(key, domain)

    async def container_uid(self, user_id: str | None) -> int | None:
        """Return the uid that a person's containers have, None where none was set."""
        async with self._db.read() as tx:
            uid = await tx.scalar(sa.select(users.c.container_uid).where(users.c.id == user_id))
        return None if uid is None else int(uid)

    async def grant(self, values: Mapping[str, Any], audit: AuditEntry) -> bool:
        """Give a permission or change it; return whether it is new."""
        key = sa.and_(
            vfolder_grants.c.vfolder_id == values["vfolder_id"],
            vfolder_grants.c.user_id == values["user_id"],
        )
        async with self._db.write() as tx:
            row = await locked(tx, values["vfolder_id"])
            if row["live_name"] is None:
                raise NotFound("there is no such folder any more")
            changed = await tx.execute(
                vfolder_grants.update().where(key).values(permission=values["permission"])
            )
            if not changed.rowcount:
                with broken_means(NotFound("that person is gone")):
                    await tx.execute(vfolder_grants.insert().values(values))
            await record(tx, audit)
            return not changed.rowcount

    async def revoke(self, vfolder_id: str, user_id: str, audit: AuditEntry) -> None:
        """Take a permission away; ``NotFound`` if there is none."""
        async with self._db.write() as tx:
            gone = await tx.execute(
                vfolder_grants.delete().where(
                    vfolder_grants.c.vfolder_id == vfolder_id,
                    vfolder_grants.c.user_id == user_id,
                )
            )
            if not gone.rowcount:
                raise NotFound("the folder is not shared with that person")
            await record(tx, audit)
