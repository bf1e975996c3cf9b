"""Store of domains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.records import Domain
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, InUse, NotFound
from bai_services.core.listing import ListQuery, Page

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation, require_unused
from ..listing import Listing
from ..records import first_record
from ..serving.routes_version import bump_routes
from ..tables.accounts import domains, memberships, projects, users
from ..tables.folders import vfolders
from ..tables.sessions import sessions

_LISTING = Listing(
    columns={
        name: domains.c[name]
        for name in ("name", "created_at", "description", "is_active", "max_concurrent_sessions")
    },
    default_sort=("name",),
)


class DomainStore:
    """Reads and writes domains. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, name: str | None = None) -> Page[Domain]:
        """Return a page of all domains, or only the domain ``name``."""
        rows = sa.select(domains)
        if name is not None:
            rows = rows.where(domains.c.name == name)
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, Domain)

    async def one(self, name: str) -> Domain | None:
        async with self._db.read() as tx:
            rows = await tx.execute(sa.select(domains).where(domains.c.name == name))
            return first_record(Domain, rows)

    async def create(
        self, values: Mapping[str, Any], project: Mapping[str, Any], audit: AuditEntry
    ) -> None:
        """Insert a domain together with its first project.

        Raises
        ------
        AlreadyExists
            If the name is taken.
        NotFound
            If the project policy does not exist.
        """
        name = values["name"]
        async with self._db.write() as tx:
            with raise_on_violation(AlreadyExists(f"domain {name} already exists", name=name)):
                await tx.execute(domains.insert().values(values))
            policy = project["resource_policy"]
            with raise_on_violation(NotFound(f"there is no project policy {policy}", name=policy)):
                await tx.execute(projects.insert().values(project))
            await record(tx, audit)

    async def update(
        self, name: str, changes: Mapping[str, Any], signs_out: bool, audit: AuditEntry
    ) -> Domain:
        """Update a domain and return it.

        With ``signs_out``, all users of the domain except superadmins are marked for sign-out: an
        inactive domain must not lock out superadmins.

        Raises
        ------
        NotFound
            If the domain does not exist.
        """
        async with self._db.write() as tx:
            if changes:
                await tx.execute(domains.update().where(domains.c.name == name).values(changes))
            if "is_active" in changes:
                # Let the gateways read the routes again: they must reject requests to endpoints of
                # users in inactive domains.
                await bump_routes(tx)
            if signs_out:
                await tx.execute(
                    users.update()
                    .where(users.c.domain == name, users.c.role != "superadmin")
                    .values(needs_hub_sign_out=True, tokens_to_end="all")
                )
            rows = await tx.execute(sa.select(domains).where(domains.c.name == name))
            domain = first_record(Domain, rows)
            if domain is None:
                raise NotFound(f"there is no domain {name}")
            await record(tx, audit)
            return domain

    async def delete(self, name: str, audit: AuditEntry) -> None:
        """Delete a domain and its project ``default``.

        Raises
        ------
        InUse
            If the domain has users, other projects, folders or sessions.
        NotFound
            If the domain does not exist.
        """
        uses = {
            "users": users.c.domain == name,
            "projects": sa.and_(projects.c.domain == name, projects.c.name != "default"),
            "folders": vfolders.c.domain == name,
            "sessions": sessions.c.domain == name,
        }
        project_ids = sa.select(projects.c.id).where(projects.c.domain == name)
        async with self._db.write() as tx:
            await require_unused(tx, f"domain {name}", uses)
            with raise_on_violation(InUse(f"domain {name} is now in use; try again")):
                await tx.execute(
                    memberships.delete().where(memberships.c.project_id.in_(project_ids))
                )
                await tx.execute(projects.delete().where(projects.c.domain == name))
                deleted = await tx.execute(domains.delete().where(domains.c.name == name))
            if not deleted.rowcount:
                raise NotFound(f"there is no domain {name}")
            await record(tx, audit)
