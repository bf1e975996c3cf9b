"""Store of projects and their members."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.records import Member, Project
from bai_services.core.accounts.roles import Role
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, NotFound
from bai_services.core.listing import ListQuery, Page

from ..audit import record
from ..cluster.images import lock_default_image
from ..database import Database
from ..integrity import delete_unused, insert_ignoring, raise_on_violation
from ..listing import Listing
from ..records import first_record, records
from ..serving.chat_tokens import delete_unusable_chat_tokens
from ..serving.routes_version import bump_routes
from ..tables.accounts import memberships, projects, users
from ..tables.cluster import custom_images, resource_group_links
from ..tables.folders import vfolders
from ..tables.pipelines import pipelines
from ..tables.serving import endpoints
from ..tables.sessions import sessions
from .checked_users import CheckedUser, lock_unchanged

_LISTING = Listing(
    columns={
        name: projects.c[name]
        for name in (
            "id",
            "name",
            "domain",
            "created_at",
            "description",
            "is_active",
            "type",
            "resource_policy",
            "default_image",
            "max_concurrent_sessions",
        )
    },
    default_sort=("domain", "name", "id"),
)

_MEMBERS = Listing(
    columns={
        name: users.c[name] for name in ("id", "username", "email", "full_name", "role", "status")
    },
    default_sort=("username",),
)


class ProjectStore:
    """Reads and writes projects and members. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self,
        query: ListQuery,
        domain: str | None = None,
        ids: Collection[str] | None = None,
    ) -> Page[Project]:
        """Return a page of the projects; ``domain`` and ``ids`` restrict them if given."""
        async with self._db.read() as tx:
            return await _LISTING.page(tx, _visible(domain, ids), query, Project)

    async def named(
        self,
        key: str,
        domain: str | None = None,
        ids: Collection[str] | None = None,
    ) -> Sequence[Project]:
        """Return the visible project with the id ``key``, else all visible projects named ``key``.

        A name can also be written as ``DOMAIN/NAME``.
        """
        in_domain, slash, name = key.partition("/")
        condition = (
            sa.and_(projects.c.domain == in_domain, projects.c.name == name)
            if slash
            else sa.or_(projects.c.id == key, projects.c.name == key)
        )
        async with self._db.read() as tx:
            rows = await tx.execute(_visible(domain, ids).where(condition))
            matches = records(Project, rows)
        return [project for project in matches if project.id == key] or matches

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> None:
        """Insert a project.

        Raises
        ------
        AlreadyExists
            If the domain has a project with that name.
        NotFound
            If the domain or the project policy no longer exists.
        InvalidRequest
            If the default image does not exist.
        """
        name, domain = values["name"], values["domain"]
        async with self._db.write() as tx:
            if image := values.get("default_image"):
                await lock_default_image(tx, image)
            with raise_on_violation(
                NotFound(f"domain {domain} or the project policy no longer exists"),
                AlreadyExists(f"domain {domain} already has a project {name}", name=name),
            ):
                await tx.execute(projects.insert().values(values))
            await record(tx, audit)

    async def update(
        self, project_id: str, changes: Mapping[str, Any], audit: AuditEntry
    ) -> Project:
        """Change columns of a project and return it.

        Raises
        ------
        AlreadyExists
            If the domain has another project with the new name.
        NotFound
            If the project or the new project policy no longer exists.
        InvalidRequest
            If the new default image does not exist. An unchanged image is not checked.
        """
        async with self._db.write() as tx:
            if image := changes.get("default_image"):
                current = sa.select(projects.c.default_image).where(projects.c.id == project_id)
                if image != await tx.scalar(current):
                    await lock_default_image(tx, image)
            if changes:
                with raise_on_violation(
                    NotFound("the project policy no longer exists"),
                    AlreadyExists("the domain already has a project with that name"),
                ):
                    await tx.execute(
                        projects.update().where(projects.c.id == project_id).values(changes)
                    )
            rows = await tx.execute(sa.select(projects).where(projects.c.id == project_id))
            project = first_record(Project, rows)
            if project is None:
                raise NotFound("the project no longer exists")
            await record(tx, audit)
            return project

    async def delete(self, project_id: str, audit: AuditEntry) -> None:
        """Delete a project, its memberships and its links to resource groups.

        Raises
        ------
        InUse
            If the project has folders, sessions, endpoints, pipelines or custom images; ended
            sessions count.
        NotFound
            If the project does not exist.
        """
        uses = {
            "folders": vfolders.c.project_id == project_id,
            "sessions": sessions.c.project_id == project_id,
            "endpoints": endpoints.c.project_id == project_id,
            "pipelines": pipelines.c.project_id == project_id,
            "custom images": custom_images.c.project_id == project_id,
        }
        async with self._db.write() as tx:
            await tx.execute(
                resource_group_links.delete().where(
                    resource_group_links.c.kind == "project",
                    resource_group_links.c.target == project_id,
                )
            )
            what = f"project {audit.details.get('name', project_id)}"
            await delete_unused(tx, what, (projects, projects.c.id == project_id), uses)
            await record(tx, audit)

    async def members(self, project_id: str, query: ListQuery) -> Page[Member]:
        rows = (
            sa.select(*_MEMBERS.columns.values())
            .join(memberships, memberships.c.user_id == users.c.id)
            .where(memberships.c.project_id == project_id)
        )
        async with self._db.read() as tx:
            return await _MEMBERS.page(tx, rows, query, _member)

    async def add_member(self, project_id: str, user: CheckedUser, audit: AuditEntry) -> bool:
        """Add a user to a project; return False if the user was already a member."""
        async with self._db.write() as tx:
            await lock_unchanged(tx, user)
            added = await add_memberships(tx, user.id, [project_id])
            if added:
                await record(tx, audit)
            return bool(added)

    async def remove_member(self, project_id: str, user: CheckedUser, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await lock_unchanged(tx, user)
            deleted = await tx.execute(
                memberships.delete().where(
                    memberships.c.project_id == project_id, memberships.c.user_id == user.id
                )
            )
            if not deleted.rowcount:
                raise NotFound("that user is not a member of the project")
            await delete_unusable_chat_tokens(tx, user.id)
            await bump_routes(tx)
            await record(tx, audit)


async def add_memberships(tx: AsyncConnection, user_id: str, project_ids: Sequence[str]) -> int:
    """Add a user to projects; return the number of new memberships."""
    if not project_ids:
        return 0
    values = [{"user_id": user_id, "project_id": project_id} for project_id in project_ids]
    with raise_on_violation(NotFound("the project or the user no longer exists")):
        # Count the returned rows, because psycopg reports no row count if several rows are
        # inserted.
        added = await tx.execute(
            insert_ignoring(tx, memberships).values(values).returning(memberships.c.project_id)
        )
    return len(added.all())


def _member(*, role: str, **columns: Any) -> Member:
    return Member(role=Role(role), **columns)


def _visible(domain: str | None, ids: Collection[str] | None) -> sa.Select[Any]:
    rows = sa.select(projects)
    if domain is not None:
        rows = rows.where(projects.c.domain == domain)
    if ids is not None:
        rows = rows.where(projects.c.id.in_(sorted(ids)))
    return rows
