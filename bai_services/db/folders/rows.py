"""Read folders for a user: visible folders, mountable folders, and the user's grants."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role
from bai_services.core.folders.vfolders import FolderRelation, VfolderStatus

from ..accounts.visibility import is_owner_visible
from ..listing import Listing
from ..records import records
from ..tables.accounts import memberships, projects, users
from ..tables.folders import vfolder_grants, vfolder_mounts, vfolders


@dataclass(frozen=True, slots=True)
class VfolderVisibility:
    """The caller for whom folders are selected.

    Callers see their own folders, granted ready folders, and ready folders of their projects. By
    role, a caller may also see all folders (``sees_all``), or all folders of ``domain`` except
    folders of owners with a role in ``hidden_roles``.
    """

    user_id: str | None
    hidden_roles: frozenset[Role]
    project_ids: frozenset[str] = frozenset()
    domain: str | None = None
    sees_all: bool = False

    def relation(self) -> sa.ColumnElement[str]:
        """Return the ``FolderRelation`` of the user and each folder."""
        user_id = self.user_id or ""
        return sa.case(
            (vfolders.c.owner_id == user_id, FolderRelation.OWN.value),
            (vfolders.c.project_id.in_(sorted(self.project_ids)), FolderRelation.PROJECT.value),
            (_is_granted(user_id), FolderRelation.SHARED.value),
            else_=FolderRelation.ROLE.value,
        )

    def condition(self) -> sa.ColumnElement[bool]:
        if self.sees_all:
            return sa.true()
        usable = sa.or_(
            _is_granted(self.user_id), vfolders.c.project_id.in_(sorted(self.project_ids))
        )
        conditions = [
            vfolders.c.owner_id == (self.user_id or ""),
            sa.and_(vfolders.c.status == VfolderStatus.READY, usable),
        ]
        if self.domain is not None:
            shown = is_owner_visible(vfolders.c.owner_id, self.hidden_roles)
            conditions.append(sa.and_(vfolders.c.domain == self.domain, shown))
        return sa.or_(*conditions)


@dataclass(frozen=True, slots=True)
class VfolderRow:
    """A folder as selected for one user; ``grant``: permission granted to that user, if any."""

    id: str
    name: str
    host: str
    domain: str
    scope: str
    owner_id: str | None
    owner: str | None
    # The owner's current role; None if the folder has no owner.
    owner_role: Role | None
    project_id: str | None
    project: str | None
    creator_id: str
    usage_mode: str
    permission: str
    cloneable: bool
    status: VfolderStatus
    status_changed_at: datetime
    created_at: datetime
    last_used_at: datetime | None
    status_info: str
    unmanaged_path: str | None
    source_id: str | None
    next_owner_id: str | None
    used_files: int | None
    used_bytes: int | None
    counted_at: datetime | None
    is_mounted: bool
    grant: str | None


_IS_MOUNTED = (
    sa.exists()
    .where(vfolder_mounts.c.vfolder_id == vfolders.c.id)
    .correlate(vfolders)
    .label("is_mounted")
)

LISTING = Listing(
    columns={
        **{
            name: vfolders.c[name]
            for name in (
                "id",
                "name",
                "host",
                "domain",
                "owner_id",
                "project_id",
                "usage_mode",
                "cloneable",
                "status",
                "used_bytes",
                "used_files",
                "created_at",
                "last_used_at",
            )
        },
        "owner": users.c.username,
        "project": projects.c.name,
        "is_mounted": _IS_MOUNTED,
        "is_auto_mounted": vfolders.c.name.startswith("."),
    },
    default_sort=("name", "id"),
)


_User = str | sa.BindParameter[str] | None


@functools.cache
def select_mountable(has_project: bool, has_keys: bool) -> sa.Select[Any]:
    """Return the query for mountable folders; cached, because it runs for each new session.

    Folders of the user's model stores can be mounted in sessions of every project.
    """
    user: sa.BindParameter[str] = sa.bindparam("of_user")
    project_ids = sa.select(memberships.c.project_id).where(memberships.c.user_id == user)
    if has_project:
        stores = sa.select(projects.c.id).where(projects.c.type == "model-store")
        project_ids = project_ids.where(
            (memberships.c.project_id == sa.bindparam("of_project"))
            | memberships.c.project_id.in_(stores)
        )
    select = select_folders(user).where(
        vfolders.c.status.in_(sa.bindparam("statuses", expanding=True)),
        sa.or_(
            vfolders.c.owner_id == user,
            _is_granted(user),
            vfolders.c.project_id.in_(project_ids),
        ),
    )
    if has_keys:
        wanted: sa.BindParameter[str] = sa.bindparam("wanted", expanding=True)
        select = select.where(sa.or_(vfolders.c.id.in_(wanted), vfolders.c.name.in_(wanted)))
    return select.order_by(vfolders.c.name)


@functools.cache
def select_auto_mounted() -> sa.Select[Any]:
    """Return the query for the user's ready folders that are mounted into all sessions; cached,
    because it runs for each new session.
    """
    user: sa.BindParameter[str] = sa.bindparam("of_user")
    return (
        select_folders(user)
        .where(
            vfolders.c.owner_id == user,
            vfolders.c.status == VfolderStatus.READY,
            vfolders.c.name.startswith("."),
        )
        .order_by(vfolders.c.name)
    )


def _grant_of(user_id: _User) -> sa.ColumnElement[bool]:
    """Return the condition for a user's grant; ignore grants for folders of other domains."""
    domain = sa.select(users.c.domain).where(users.c.id == user_id).scalar_subquery()
    return sa.and_(
        vfolder_grants.c.vfolder_id == vfolders.c.id,
        vfolder_grants.c.user_id == user_id,
        vfolders.c.domain == domain,
    )


def _is_granted(user_id: _User) -> sa.ColumnElement[bool]:
    return sa.exists().where(_grant_of(user_id)).correlate(vfolders)


def select_folders(user_id: _User) -> sa.Select[Any]:
    """Return the query for all folders, each with the grant of a user."""
    grant = (
        sa.select(vfolder_grants.c.permission)
        .where(_grant_of(user_id))
        .correlate(vfolders)
        .scalar_subquery()
    )
    own = [vfolders.c[f.name] for f in fields(VfolderRow) if f.name in vfolders.c]
    return (
        sa.select(
            *own,
            users.c.username.label("owner"),
            users.c.role.label("owner_role"),
            projects.c.name.label("project"),
            _IS_MOUNTED,
            grant.label("grant"),
        )
        .outerjoin_from(vfolders, users, vfolders.c.owner_id == users.c.id)
        .outerjoin(projects, vfolders.c.project_id == projects.c.id)
    )


def to_row(*, status: str, owner_role: str | None, is_mounted: bool, **columns: Any) -> VfolderRow:
    """Return a row of ``select_folders`` as a record."""
    return VfolderRow(
        status=VfolderStatus(status),
        owner_role=Role(owner_role) if owner_role else None,
        is_mounted=bool(is_mounted),
        **columns,
    )


async def read_folders(
    tx: AsyncConnection, user_id: str | None, condition: sa.ColumnElement[bool]
) -> list[VfolderRow]:
    """Return the folders that meet ``condition``, ordered by name."""
    rows = await tx.execute(select_folders(user_id).where(condition).order_by(vfolders.c.name))
    return records(to_row, rows)
