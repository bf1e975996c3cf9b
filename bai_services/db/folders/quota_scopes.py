"""Store of quota scopes: storage limits and usage of users and projects on storage hosts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.folders.vfolders import VfolderStatus
from bai_services.core.listing import ListQuery, Page

from ..audit import record
from ..database import Database
from ..listing import Listing
from ..tables.accounts import (
    domains,
    keypair_policies,
    keypairs,
    memberships,
    project_policies,
    projects,
    user_policies,
    users,
)
from ..tables.folders import quota_scopes, vfolders

UNLIMITED = -1

# All scopes with a folder on a host, or with a row in ``quota_scopes`` for the host.
_known = sa.union(
    sa.select(vfolders.c.host, vfolders.c.scope).where(
        vfolders.c.status != VfolderStatus.DELETE_COMPLETE
    ),
    sa.select(quota_scopes.c.host, quota_scopes.c.scope),
).subquery("known")
_policy = sa.func.coalesce(
    user_policies.c.max_quota_scope_bytes, project_policies.c.max_quota_scope_bytes, UNLIMITED
)
_limit = sa.func.coalesce(quota_scopes.c.override_bytes, _policy)


@dataclass(frozen=True, slots=True)
class QuotaScopeRow:
    """Limits and usage of a scope on a host; -1 means unlimited.

    ``override_bytes`` is None if the limit of the policy applies. ``enforced_bytes`` is the limit
    last set in the file system, None if no limit was ever set. ``used_bytes`` and ``counted_at``
    are None before the first measurement.
    """

    host: str
    scope: str
    domain: str | None
    owner: str | None
    owner_id: str | None
    owner_role: str | None
    project: str | None
    project_id: str | None
    limit_bytes: int
    policy_bytes: int
    override_bytes: int | None
    enforced_bytes: int | None
    used_bytes: int | None
    counted_at: datetime | None


_LISTING = Listing(
    columns={
        "host": _known.c.host,
        "scope": _known.c.scope,
        "domain": sa.func.coalesce(users.c.domain, projects.c.domain),
        "owner": users.c.username,
        "owner_id": users.c.id,
        "owner_role": users.c.role,
        "project": projects.c.name,
        "project_id": projects.c.id,
        "limit_bytes": _limit,
        "policy_bytes": _policy,
        "override_bytes": quota_scopes.c.override_bytes,
        "enforced_bytes": quota_scopes.c.enforced_bytes,
        "used_bytes": quota_scopes.c.used_bytes,
        "counted_at": quota_scopes.c.counted_at,
    },
    default_sort=("host", "scope"),
)


class QuotaStore:
    """Reads and writes quota scopes. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self,
        query: ListQuery,
        domain: str | None = None,
        user_id: str | None = None,
        project_ids: Collection[str] = (),
    ) -> Page[QuotaScopeRow]:
        """Return a page of the scopes of ``domain``, or of the user and projects; by default, of
        all."""
        rows = _rows()
        if domain is not None:
            rows = rows.where(_LISTING.columns["domain"] == domain)
        elif user_id is not None:
            scopes = [f"user:{user_id}", *(f"project:{key}" for key in sorted(project_ids))]
            rows = rows.where(_known.c.scope.in_(scopes))
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, QuotaScopeRow)

    async def get(self, host: str, scope: str) -> QuotaScopeRow | None:
        """Return a scope on a host; None if the scope has neither folders nor a row there."""
        async with self._db.read() as tx:
            found = await tx.execute(_rows().where(_known.c.host == host, _known.c.scope == scope))
            row = found.mappings().one_or_none()
        return None if row is None else QuotaScopeRow(**row)

    async def all_scopes(self) -> list[QuotaScopeRow]:
        async with self._db.read() as tx:
            found = await tx.execute(_rows())
            return [QuotaScopeRow(**row) for row in found.mappings()]

    async def owner_exists(self, kind: str, key: str) -> bool:
        """Return whether the user or project with that id exists."""
        table = users if kind == "user" else projects
        async with self._db.read() as tx:
            return await tx.scalar(sa.select(table.c.id).where(table.c.id == key)) is not None

    async def override(
        self, host: str, scope: str, limit_bytes: int | None, audit: AuditEntry
    ) -> None:
        """Override the policy's limit of a scope; None removes the override."""
        async with self._db.write() as tx:
            await _put(tx, host, scope, {"override_bytes": limit_bytes})
            await record(tx, audit)

    async def record_enforced_limit(self, host: str, scope: str, limit_bytes: int) -> None:
        """Store the limit that was set in the file system."""
        async with self._db.write() as tx:
            await _put(tx, host, scope, {"enforced_bytes": limit_bytes})

    async def record_scope_usage(
        self, host: str, scope: str, used_bytes: int, at: datetime
    ) -> None:
        """Store the measured usage of a scope."""
        async with self._db.write() as tx:
            await _put(tx, host, scope, {"used_bytes": used_bytes, "counted_at": at})

    async def record_folder_usage(
        self, vfolder_id: str, files: int, size: int, at: datetime, sums_scope: bool
    ) -> None:
        """Store the measured usage of a folder.

        With ``sums_scope``, also set the usage of the folder's scope to the sum of all folders in
        the scope.
        """
        async with self._db.write() as tx:
            found = await tx.execute(
                vfolders.update()
                .where(vfolders.c.id == vfolder_id)
                .values(used_files=files, used_bytes=size, counted_at=at)
                .returning(vfolders.c.host, vfolders.c.scope)
            )
            row = found.one_or_none()
            if row is not None and sums_scope:
                await sum_scope(tx, row.host, row.scope, at)

    async def least_recently_measured(
        self, before: datetime, limit: int, hosts: Collection[str]
    ) -> list[str]:
        """Return at most ``limit`` ids of managed folders on hosts, without a measurement since
        ``before``.

        Folders without any measurement come first, then folders with the oldest measurement.
        """
        async with self._db.read() as tx:
            found = await tx.execute(
                sa.select(vfolders.c.id)
                .where(
                    vfolders.c.status.in_((VfolderStatus.READY, VfolderStatus.DELETE_PENDING)),
                    vfolders.c.unmanaged_path.is_(None),
                    vfolders.c.host.in_(hosts),
                    sa.or_(vfolders.c.counted_at.is_(None), vfolders.c.counted_at < before),
                )
                .order_by(vfolders.c.counted_at.is_not(None), vfolders.c.counted_at)
                .limit(limit)
            )
            return [str(key) for key in found.scalars()]

    async def host_permission_maps(
        self, user_id: str, access_key: str | None, project_ids: Collection[str]
    ) -> list[dict[str, list[str]]]:
        """Return the permissions on storage hosts that apply to a user, as maps by host.

        The permissions are granted by the user's domain, by the policy of the keypair (default: the
        main keypair), and by the user's projects in ``project_ids``.
        """
        key = sa.func.coalesce(access_key, users.c.main_access_key)
        of_user = (
            sa.select(domains.c.allowed_vfolder_hosts, keypair_policies.c.allowed_vfolder_hosts)
            .join_from(users, domains, users.c.domain == domains.c.name)
            .outerjoin(keypairs, keypairs.c.access_key == key)
            .outerjoin(keypair_policies, keypairs.c.resource_policy == keypair_policies.c.name)
            .where(users.c.id == user_id)
        )
        of_projects = (
            sa.select(projects.c.allowed_vfolder_hosts)
            .join(memberships, memberships.c.project_id == projects.c.id)
            .where(memberships.c.user_id == user_id, projects.c.id.in_(sorted(project_ids)))
        )
        async with self._db.read() as tx:
            first = (await tx.execute(of_user)).one_or_none()
            maps: list[Any] = list(first or ())
            maps += (await tx.execute(of_projects)).scalars().all()
        return [found for found in maps if found]


async def sum_scope(tx: AsyncConnection, host: str, scope: str, at: datetime) -> None:
    """Set the usage of a scope to the sum of the stored usage of its folders."""
    # Lock the scope before the sum: of two concurrent sums, the second must include the changes of
    # the first transaction.
    await _put(tx, host, scope, {"counted_at": at})
    sums = await tx.execute(
        sa.select(
            sa.func.coalesce(sa.func.sum(vfolders.c.used_bytes), 0),
            # The measurement time of a sum is the time of its oldest part.
            sa.func.min(vfolders.c.counted_at),
        ).where(
            vfolders.c.host == host,
            vfolders.c.scope == scope,
            vfolders.c.unmanaged_path.is_(None),
            vfolders.c.status != VfolderStatus.DELETE_COMPLETE,
        )
    )
    used, oldest = sums.one()
    await _put(tx, host, scope, {"used_bytes": int(used), "counted_at": oldest or at})


def _rows() -> sa.Select[Any]:
    of_user = sa.literal("user:").concat(users.c.id)
    of_project = sa.literal("project:").concat(projects.c.id)
    return (
        sa.select(*(column.label(name) for name, column in _LISTING.columns.items()))
        .outerjoin_from(
            _known,
            quota_scopes,
            sa.and_(quota_scopes.c.host == _known.c.host, quota_scopes.c.scope == _known.c.scope),
        )
        .outerjoin(users, of_user == _known.c.scope)
        .outerjoin(projects, of_project == _known.c.scope)
        .outerjoin(user_policies, users.c.resource_policy == user_policies.c.name)
        .outerjoin(project_policies, projects.c.resource_policy == project_policies.c.name)
    )


async def _put(tx: AsyncConnection, host: str, scope: str, values: dict[str, Any]) -> None:
    key = sa.and_(quota_scopes.c.host == host, quota_scopes.c.scope == scope)
    # Try an update first, because it locks only this row. If there is no row, insert it. If a
    # concurrent transaction inserts it first, update it.
    changed = await tx.execute(quota_scopes.update().where(key).values(values))
    if not changed.rowcount:
        async with tx.begin_nested() as inner:
            try:
                await tx.execute(quota_scopes.insert().values(host=host, scope=scope, **values))
            except sa.exc.IntegrityError:
                await inner.rollback()
                await tx.execute(quota_scopes.update().where(key).values(values))
