"""Store of folders: lifecycle, and checks for mounts in live sessions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.counts import counted
from bai_services.core.errors import AlreadyExists, InUse, NotFound, QuotaExceeded
from bai_services.core.folders.vfolders import (
    NAME_RESERVING,
    VfolderEvent,
    VfolderStatus,
    next_status,
    not_ready,
    valid_statuses,
)
from bai_services.core.listing import ListQuery, Page

from ..accounts.user_domains import lock_active_in, lock_domain_of
from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..records import records
from ..tables.accounts import project_policies, projects, user_policies, users
from ..tables.folders import vfolder_grants, vfolder_mounts, vfolders
from ..tables.sessions import sessions
from .domain_moves import end_access_between_domains, end_access_of
from .quota_scopes import sum_scope
from .rows import (
    LISTING,
    VfolderRow,
    VfolderVisibility,
    read_folders,
    select_auto_mounted,
    select_folders,
    select_mountable,
    to_row,
)

_SHOWN_SESSIONS = 5
_REFUSED_WHILE_MOUNTED = {
    VfolderEvent.TRASHED: "deleted",
    VfolderEvent.HANDED_OVER: "handed over",
}


class VfolderStore:
    """Reads and writes folders. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, seen: VfolderVisibility) -> Page[VfolderRow]:
        """Return a page of visible folders; purged folders only with a filter on ``status``."""
        rows = select_folders(seen.user_id).where(seen.condition())
        if not any(name.partition("__")[0] == "status" for name in query.filters):
            rows = rows.where(vfolders.c.status != VfolderStatus.DELETE_COMPLETE)
        async with self._db.read() as tx:
            columns = {**LISTING.columns, "relation": seen.relation()}
            return await replace(LISTING, columns=columns).page(tx, rows, query, to_row)

    async def named(
        self, key: str, seen: VfolderVisibility, statuses: Collection[VfolderStatus]
    ) -> list[VfolderRow]:
        """Return the visible folder with the id ``key``, else all visible folders that are named
        ``key`` and have a status in ``statuses``.
        """
        named = sa.and_(vfolders.c.name == key, vfolders.c.status.in_(sorted(statuses)))
        condition = sa.and_(seen.condition(), sa.or_(vfolders.c.id == key, named))
        async with self._db.read() as tx:
            rows = await read_folders(tx, seen.user_id, condition)
        return [row for row in rows if row.id == key] or rows

    async def mountable(
        self, user_id: str, project_id: str | None, keys: Collection[str] | None = None
    ) -> list[VfolderRow]:
        """Return the ready folders that a user may mount in a session of a project.

        These are the user's own folders, granted folders, the folders of the user's model stores,
        and, if the user is a member of the project, its folders. Without a project, the folders of
        all the user's projects are included. ``keys`` restricts the result to these ids or names.
        """
        return await self._mountable(user_id, project_id, keys, [VfolderStatus.READY])

    async def auto_mounted(self, user_id: str) -> list[VfolderRow]:
        """Return the ready folders of a user that are mounted into every session of the user."""
        async with self._db.read() as tx:
            rows = await tx.execute(select_auto_mounted(), {"of_user": user_id})
            return records(to_row, rows)

    async def not_ready(
        self, user_id: str, project_id: str, keys: Collection[str]
    ) -> list[VfolderRow]:
        """Return the folders that could be mounted if they were ready."""
        statuses = set(VfolderStatus) - {VfolderStatus.READY}
        return await self._mountable(user_id, project_id, keys, statuses)

    async def complete_transfer(
        self, vfolder_id: str, owner_id: str, at: datetime, *, sums_scopes: bool
    ) -> set[str]:
        """Set a folder's new owner and the owner's domain, after the files were transferred.

        End the new owner's access by grant or invitation, and the access of users of other domains.
        With ``sums_scopes``, set the usage of both owners' scopes to the sums of their folders.
        Return the ids of the users of other domains who have lost access or an invitation.

        Raises
        ------
        AlreadyExists
            If the new owner now has another folder with that name.
        InvalidTransition
            If the folder is not being transferred.
        NotFound
            If the folder or the new owner no longer exists.
        """
        async with self._db.write() as tx:
            # Lock the owner: a concurrent change of the domain must also move this folder.
            domain = await lock_domain_of(tx, owner_id)
            changes = {
                "owner_id": owner_id,
                "domain": domain,
                "scope": f"user:{owner_id}",
                "next_owner_id": None,
                "status_info": "",
            }
            before = await _apply_event(tx, vfolder_id, VfolderEvent.ARRIVED, at, changes)
            if sums_scopes:
                # Use a fixed order, because both rows are locked.
                for scope in sorted({before["scope"], f"user:{owner_id}"}):
                    await sum_scope(tx, before["host"], scope, at)
            await end_access_of(tx, vfolder_id, owner_id, at)
            return await end_access_between_domains(tx, owner_id, at)

    async def require_name_free(self, scope: str, name: str) -> None:
        """Raise ``AlreadyExists`` if a scope has a folder with that name."""
        async with self._db.read() as tx:
            folder_id = await tx.scalar(
                sa.select(vfolders.c.id).where(
                    vfolders.c.scope == scope, vfolders.c.live_name == name
                )
            )
        if folder_id is not None:
            raise AlreadyExists(
                f"folder {name} already exists; rename one of the two folders", name=name
            )

    async def by_id(self, vfolder_id: str) -> list[VfolderRow]:
        """Return a list with the folder, or [] if it is missing; permissions are not checked."""
        async with self._db.read() as tx:
            return await read_folders(tx, None, vfolders.c.id == vfolder_id)

    async def in_status(self, status: VfolderStatus) -> list[VfolderRow]:
        async with self._db.read() as tx:
            return await read_folders(tx, None, vfolders.c.status == status)

    async def trashed_before(self, time: datetime) -> list[VfolderRow]:
        """Return the folders that were moved to the trash before a time."""
        async with self._db.read() as tx:
            return await read_folders(
                tx,
                None,
                sa.and_(
                    vfolders.c.status == VfolderStatus.DELETE_PENDING,
                    vfolders.c.status_changed_at < time,
                ),
            )

    async def create(
        self,
        values: Mapping[str, Any],
        audit: AuditEntry,
        status: VfolderStatus = VfolderStatus.READY,
    ) -> None:
        """Insert a folder.

        Raises
        ------
        AlreadyExists
            If the scope has a folder with that name outside the trash.
        QuotaExceeded
            If the scope has the maximum number of folders that its policy allows. Folders in the
            trash count.
        NotFound
            If the owner or project no longer exists.
        Conflict
            If the owner is no longer active or has moved to another domain.
        """
        name = values["name"]
        async with self._db.write() as tx:
            await _check_count(tx, values)
            if values.get("owner_id") is not None:
                await lock_active_in(tx, values["owner_id"], values["domain"])
            with raise_on_violation(AlreadyExists(f"folder {name} already exists", name=name)):
                await tx.execute(
                    vfolders.insert().values(
                        **values,
                        live_name=name,
                        status=status,
                        status_changed_at=values["created_at"],
                    )
                )
            await record(tx, audit)

    async def update(self, vfolder_id: str, changes: Mapping[str, Any], audit: AuditEntry) -> None:
        """Update a ready folder.

        Raises
        ------
        AlreadyExists
            If the scope has another folder with the new name.
        InUse
            If the folder is renamed while a live session mounts it.
        NotFound
            If there is no folder with that id.
        Conflict
            If the folder is not ready.
        """
        async with self._db.write() as tx:
            values = dict(changes)
            if "name" in values:
                values["live_name"] = values["name"]
            with raise_on_violation(
                AlreadyExists(f"folder {values.get('name')} already exists", field="name")
            ):
                # The update locks the folder: a concurrent session creation either waits, or its
                # mount is found by the check below.
                changed = await tx.execute(
                    vfolders.update()
                    .where(vfolders.c.id == vfolder_id, vfolders.c.status == VfolderStatus.READY)
                    .values(values)
                )
            if not changed.rowcount:
                require_ready(await lock_folder(tx, vfolder_id))
            if "name" in values:
                await _require_unmounted(tx, vfolder_id, "renamed")
            await record(tx, audit)

    async def apply_event(
        self,
        vfolder_id: str,
        event: VfolderEvent,
        at: datetime,
        audit: AuditEntry | None = None,
        changes: Mapping[str, Any] | None = None,
        *,
        sums_scope: bool = False,
    ) -> None:
        """Apply a lifecycle event to a folder, and write other ``changes``.

        With ``sums_scope``, also set the usage of the folder's scope to the sum of all folders in
        the scope.

        Raises
        ------
        InvalidTransition
            If the event is not valid in the folder's status.
        InUse
            If the folder is trashed or handed over while a live session mounts it.
        AlreadyExists
            If another folder in the scope now has the name.
        NotFound
            If the folder no longer exists.
        """
        async with self._db.write() as tx:
            row = await _apply_event(tx, vfolder_id, event, at, changes or {})
            if sums_scope:
                await sum_scope(tx, row["host"], row["scope"], at)
            if audit is not None:
                await record(tx, audit)

    async def _mountable(
        self,
        user_id: str,
        project_id: str | None,
        keys: Collection[str] | None,
        statuses: Collection[VfolderStatus],
    ) -> list[VfolderRow]:
        values: dict[str, Any] = {"of_user": user_id, "statuses": sorted(statuses)}
        if project_id is not None:
            values["of_project"] = project_id
        if keys is not None:
            values["wanted"] = sorted(set(keys))
        select = select_mountable(project_id is not None, keys is not None)
        async with self._db.read() as tx:
            rows = await tx.execute(select, values)
            return records(to_row, rows)


async def _apply_event(
    tx: AsyncConnection,
    vfolder_id: str,
    event: VfolderEvent,
    at: datetime,
    changes: Mapping[str, Any],
) -> sa.RowMapping:
    """Apply a lifecycle event (see ``VfolderStore.apply_event``); return the row before it."""
    row = await lock_folder(tx, vfolder_id)
    after = next_status(VfolderStatus(row["status"]), event)
    values: dict[str, Any] = {"status": after, "status_changed_at": at, **changes}
    values["live_name"] = row["name"] if after in NAME_RESERVING else None
    if after is VfolderStatus.DELETE_COMPLETE:
        # The row of a purged folder remains, but must not prevent the deletion of its
        # project.
        values["project_id"] = None
        await tx.execute(vfolder_grants.delete().where(vfolder_grants.c.vfolder_id == vfolder_id))
    with raise_on_violation(
        AlreadyExists(
            f"another folder is now named {row['name']}; rename that folder first",
            name=row["name"],
        )
    ):
        await tx.execute(
            vfolders.update()
            .where(vfolders.c.id == vfolder_id, vfolders.c.status.in_(valid_statuses(event)))
            .values(values)
        )
    if event in _REFUSED_WHILE_MOUNTED:
        await _require_unmounted(tx, vfolder_id, _REFUSED_WHILE_MOUNTED[event])
    return row


async def lock_folder(tx: AsyncConnection, vfolder_id: str) -> sa.RowMapping:
    """Lock and return a folder's row; raise ``NotFound`` if it does not exist."""
    rows = await tx.execute(
        sa.select(vfolders).where(vfolders.c.id == vfolder_id).with_for_update()
    )
    row = rows.mappings().one_or_none()
    if row is None:
        raise NotFound("the folder no longer exists")
    return row


async def lock_for_grantee(tx: AsyncConnection, vfolder_id: str, user_id: str) -> sa.RowMapping:
    """Lock a user, then a folder, and return the folder's row.

    Raises
    ------
    NotFound
        If the user or the folder does not exist, or the user is not in the folder's domain.
    """
    domain = await lock_domain_of(tx, user_id)
    row = await lock_folder(tx, vfolder_id)
    if row["domain"] != domain:
        raise NotFound("the user is no longer in the domain of the folder")
    return row


def require_ready(row: sa.RowMapping) -> None:
    """Check the status of a folder.

    Raises
    ------
    NotFound
        If the folder is deleted.
    Conflict
        If the folder is not ready for another reason, for example because it is in the trash.
    """
    status = VfolderStatus(row["status"])
    if status is VfolderStatus.DELETE_COMPLETE:
        raise NotFound("the folder no longer exists")
    if status is not VfolderStatus.READY:
        raise not_ready(row["name"], row["id"], status)


async def require_name_free_for_invitee(
    tx: AsyncConnection, folder: sa.RowMapping, invitee_id: str
) -> None:
    """Raise ``AlreadyExists`` if the invitee owns another folder with the name of ``folder``.

    Otherwise, the name would refer to the invitee's own folder, and the invitee could use
    ``folder`` only by its id.
    """
    if await owns_another_named(tx, folder, invitee_id):
        raise AlreadyExists(
            f"that user already has a folder named {folder['live_name']}; rename one of the two "
            "folders",
            field="user",
            name=folder["live_name"],
        )


async def owns_another_named(tx: AsyncConnection, folder: sa.RowMapping, user_id: str) -> bool:
    """Return whether a user owns another folder outside the trash with the name of ``folder``."""
    own_id = await tx.scalar(
        sa.select(vfolders.c.id).where(
            vfolders.c.scope == f"user:{user_id}", vfolders.c.live_name == folder["live_name"]
        )
    )
    return own_id is not None and own_id != folder["id"]


async def _require_unmounted(tx: AsyncConnection, vfolder_id: str, what: str) -> None:
    result = await tx.execute(
        sa.select(sessions.c.id, sessions.c.name, sessions.c.status, users.c.username)
        .join_from(vfolder_mounts, sessions, vfolder_mounts.c.session_id == sessions.c.id)
        .join(users, sessions.c.owner_id == users.c.id)
        .where(vfolder_mounts.c.vfolder_id == vfolder_id)
        .distinct()
        .order_by(sessions.c.name, sessions.c.id)
    )
    rows: Sequence[Any] = result.all()
    if not rows:
        return
    names = [f"{row.name} of {row.username}" for row in rows[:_SHOWN_SESSIONS]]
    more = f" and {len(rows) - _SHOWN_SESSIONS} more" if len(rows) > _SHOWN_SESSIONS else ""
    raise InUse(
        f"the folder cannot be {what} while sessions use it: {', '.join(names)}{more}; "
        "stop them first",
        sessions=[
            {"id": r.id, "name": r.name, "owner": r.username, "status": r.status} for r in rows
        ],
    )


async def _check_count(tx: AsyncConnection, values: Mapping[str, Any]) -> None:
    if values.get("owner_id") is not None:
        owner, key, policies, scope = users, values["owner_id"], user_policies, "user"
    else:
        owner, key, policies, scope = projects, values["project_id"], project_policies, "project"
    # Lock the owner: of two concurrent creations, the second must count the folder of the first.
    most = await tx.scalar(
        sa.select(policies.c.max_vfolder_count)
        .join_from(owner, policies, owner.c.resource_policy == policies.c.name)
        .where(owner.c.id == key)
        .with_for_update(of=owner)
    )
    if most is None:
        raise NotFound(f"the {scope} no longer exists")
    have = await tx.scalar(
        sa.select(sa.func.count())
        .select_from(vfolders)
        .where(
            vfolders.c.scope == values["scope"],
            vfolders.c.status != VfolderStatus.DELETE_COMPLETE,
        )
    )
    if most and (have or 0) >= most:
        raise QuotaExceeded(
            f"the {scope} policy allows {counted(most, 'folders')}, including those in the trash, "
            f"and the {scope} has {have}; purge a folder that is no longer needed",
            scope=scope,
            limit=most,
            used=have,
        )
