"""Store of the audit log: one row per action.

The row for a change is inserted in the transaction of the change.
"""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role
from bai_services.core.audit import AuditEntry, LoggedEntry, OwnerEntry
from bai_services.core.listing import ListQuery, Page

from .accounts.visibility import is_owner_visible
from .database import Database
from .listing import Listing
from .tables.accounts import audit_log

_ENTRY = audit_log.insert()

# The name of an entry's object: the name in the entry, which most entries contain; else the name of
# the actor, if the actor is the object (as in sign-ins); else the id of the object.
_ENTITY_NAME = sa.func.coalesce(
    audit_log.c.details["name"].as_string(),
    sa.case((audit_log.c.entity_id == audit_log.c.actor_id, audit_log.c.actor)),
    audit_log.c.entity_id,
)
_LISTING = Listing(
    columns={
        **{column.name: column for column in audit_log.columns if column.name != "details"},
        "entity_name": _ENTITY_NAME,
    },
    default_sort=("-id",),
)

# Columns of ``LoggedEntry``.
ENTRY_COLUMNS = (*audit_log.columns, _ENTITY_NAME.label("entity_name"))
_OWNER_COLUMNS = tuple(
    column for column in ENTRY_COLUMNS if column.name in OwnerEntry.__dataclass_fields__
)
_OWNER_LISTING = Listing(
    columns={
        name: column
        for name, column in _LISTING.columns.items()
        if name in OwnerEntry.__dataclass_fields__
    },
    default_sort=("-id",),
)


async def record(tx: AsyncConnection, entry: AuditEntry) -> None:
    """Insert one entry as part of ``tx``."""
    values = {name: getattr(entry, name) for name in entry.__dataclass_fields__}
    values["entity_id"] = entry.entity_id[:255]
    values["on_behalf_of"] = entry.on_behalf_of[:64]
    await tx.execute(_ENTRY, values)


class AuditStore:
    """Reads the log, and adds entries for actions without other changes in the database."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def add(self, entry: AuditEntry) -> None:
        async with self._db.write() as tx:
            await record(tx, entry)

    async def page(
        self, query: ListQuery, domain: str | None = None, hidden_roles: Collection[Role] = ()
    ) -> Page[LoggedEntry]:
        """Return a page of the log; with ``domain``, only the entries of this domain.

        Entries of actors with a current role in ``hidden_roles`` are omitted.
        """
        rows = sa.select(*ENTRY_COLUMNS)
        rows = rows.where(is_owner_visible(audit_log.c.actor_id, hidden_roles))
        if domain is not None:
            rows = rows.where(audit_log.c.domain == domain)
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, LoggedEntry)

    async def page_of_object(
        self, query: ListQuery, entity: str, entity_id: str
    ) -> Page[OwnerEntry]:
        """Return a page of the entries about one object."""
        rows = sa.select(*_OWNER_COLUMNS).where(
            audit_log.c.entity == entity, audit_log.c.entity_id == entity_id
        )
        async with self._db.read() as tx:
            return await _OWNER_LISTING.page(tx, rows, query, OwnerEntry)

    async def page_of_owner(self, query: ListQuery, owner_id: str) -> Page[OwnerEntry]:
        """Return a page of the entries of other actors about objects of ``owner_id``."""
        rows = sa.select(*_OWNER_COLUMNS).where(
            audit_log.c.owner_id == owner_id,
            sa.or_(audit_log.c.actor_id.is_(None), audit_log.c.actor_id != owner_id),
        )
        async with self._db.read() as tx:
            return await _OWNER_LISTING.page(tx, rows, query, OwnerEntry)
