"""Store of grants: access of other users to a folder."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import NotFound
from bai_services.core.folders.sharing import Grant
from bai_services.core.folders.vfolders import InvitationStatus
from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications.events import Event

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..listing import Listing
from ..notifications.events import raise_events
from ..tables.accounts import memberships, users
from ..tables.folders import vfolder_grants, vfolder_invitations, vfolders
from .vfolders import lock_for_grantee, require_name_free_for_invitee, require_ready

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
    """Reads and writes grants. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def grants(
        self, vfolder_id: str, query: ListQuery, user_id: str | None = None
    ) -> Page[Grant]:
        """Return a page of a folder's grants, or only the grant of ``user_id``."""
        rows = (
            sa.select(*(column.label(name) for name, column in _GRANTS.columns.items()))
            .join_from(vfolder_grants, users, vfolder_grants.c.user_id == users.c.id)
            .where(vfolder_grants.c.vfolder_id == vfolder_id)
        )
        if user_id is not None:
            rows = rows.where(vfolder_grants.c.user_id == user_id)
        async with self._db.read() as tx:
            return await _GRANTS.page(tx, rows, query, Grant)

    async def users_of(self, vfolder_id: str) -> set[str]:
        """Return the ids of a folder's owner and grantees, and of the members of its project."""
        is_folder = vfolders.c.id == vfolder_id
        same_project = memberships.c.project_id == vfolders.c.project_id
        found = sa.union(
            sa.select(vfolders.c.owner_id).where(is_folder, vfolders.c.owner_id.is_not(None)),
            sa.select(vfolder_grants.c.user_id).where(vfolder_grants.c.vfolder_id == vfolder_id),
            sa.select(memberships.c.user_id)
            .join_from(memberships, vfolders, same_project)
            .where(is_folder),
        )
        async with self._db.read() as tx:
            return set(await tx.scalars(found))

    async def find_user(self, key: str, domain: str) -> sa.RowMapping | None:
        """Return the user of a domain with id, user name or e-mail address ``key``, or None."""
        return await self._find_user(key, users.c.domain == domain)

    async def find_user_in_any_domain(self, key: str) -> sa.RowMapping | None:
        """Return the user in any domain with id, user name or e-mail address ``key``, or None."""
        return await self._find_user(key)

    async def _find_user(
        self, key: str, *conditions: sa.ColumnElement[bool]
    ) -> sa.RowMapping | None:
        lower = key.strip().lower()
        async with self._db.read() as tx:
            result = await tx.execute(
                sa.select(users.c.id, users.c.username, users.c.status, users.c.domain)
                .where(
                    sa.or_(users.c.id == key, users.c.username == lower, users.c.email == lower),
                    *conditions,
                )
                # Several rows may match: ``key`` can be the id of one user and the name of another.
                .order_by(users.c.id != key, users.c.username != lower)
                .limit(1)
            )
            return result.mappings().one_or_none()

    async def container_uid(self, user_id: str | None) -> int | None:
        """Return the uid of a user's containers; None if it is not set."""
        async with self._db.read() as tx:
            uid = await tx.scalar(sa.select(users.c.container_uid).where(users.c.id == user_id))
        return None if uid is None else int(uid)

    async def pending(self, vfolder_id: str, user_id: str) -> Grant | None:
        """Return the pending invitation of a user to a folder as a grant, or None."""
        async with self._db.read() as tx:
            result = await tx.execute(
                sa.select(
                    users.c.username.label("user"),
                    users.c.id.label("user_id"),
                    vfolder_invitations.c.permission,
                    vfolder_invitations.c.inviter.label("granted_by"),
                    vfolder_invitations.c.created_at,
                    vfolder_invitations.c.id.label("invitation_id"),
                )
                .join_from(vfolder_invitations, users, _invitee)
                .where(_is_invited(vfolder_id, user_id))
                .limit(1)
            )
            row = result.mappings().one_or_none()
        return None if row is None else Grant(**row, is_pending=True)

    async def grant(self, values: Mapping[str, Any], audit: AuditEntry) -> None:
        """Create or change a grant without an invitation; accept a pending invitation."""
        async with self._db.write() as tx:
            await _lock_ready(tx, values["vfolder_id"], values["user_id"])
            if not await _change_grant(tx, values):
                with raise_on_violation(NotFound("that user no longer exists")):
                    await tx.execute(vfolder_grants.insert().values(values))
            await _close_invitations(tx, values, InvitationStatus.ACCEPTED, values["created_at"])
            await record(tx, audit)

    async def offer(
        self,
        values: Mapping[str, Any],
        invitation: Mapping[str, Any],
        audit: AuditEntry,
        event: Event,
    ) -> None:
        """Change the existing grant or pending invitation, or create an invitation.

        ``invitation`` has further columns of a new invitation, in addition to ``values``. The
        creation of an invitation raises ``event``.
        """
        async with self._db.write() as tx:
            row = await _lock_ready(tx, values["vfolder_id"], values["user_id"])
            if not await _change_grant(tx, values) and not await _change_invitation(tx, values):
                await require_name_free_for_invitee(tx, row, values["user_id"])
                await tx.execute(
                    vfolder_invitations.insert().values(
                        vfolder_id=values["vfolder_id"],
                        invitee_id=values["user_id"],
                        permission=values["permission"],
                        inviter=values["granted_by"],
                        created_at=values["created_at"],
                        status=InvitationStatus.PENDING,
                        status_changed_at=values["created_at"],
                        **invitation,
                    )
                )
                await raise_events(tx, [event])
            await record(tx, audit)

    async def is_member(self, user_id: str, project_id: str) -> bool:
        """Return whether a user is a member of a project."""
        async with self._db.read() as tx:
            member = await tx.scalar(
                sa.select(memberships.c.user_id).where(
                    memberships.c.user_id == user_id, memberships.c.project_id == project_id
                )
            )
        return member is not None

    async def revoke(self, vfolder_id: str, user_id: str, at: datetime, audit: AuditEntry) -> None:
        """Delete a grant and cancel a pending invitation; raise ``NotFound`` if neither exists."""
        values = {"vfolder_id": vfolder_id, "user_id": user_id}
        async with self._db.write() as tx:
            # Start with the invitation: if it is being accepted at this moment, wait until its
            # grant exists.
            withdrawn = await _close_invitations(tx, values, InvitationStatus.CANCELED, at)
            deleted = await tx.execute(vfolder_grants.delete().where(_is_granted(values)))
            if not deleted.rowcount and not withdrawn:
                raise NotFound("the folder is not shared with that user")
            await record(tx, audit)


_invitee = vfolder_invitations.c.invitee_id == users.c.id


def _is_granted(values: Mapping[str, Any]) -> sa.ColumnElement[bool]:
    return sa.and_(
        vfolder_grants.c.vfolder_id == values["vfolder_id"],
        vfolder_grants.c.user_id == values["user_id"],
    )


def _is_invited(vfolder_id: str, user_id: str) -> sa.ColumnElement[bool]:
    return sa.and_(
        vfolder_invitations.c.vfolder_id == vfolder_id,
        vfolder_invitations.c.invitee_id == user_id,
        vfolder_invitations.c.status == InvitationStatus.PENDING,
    )


async def _lock_ready(tx: AsyncConnection, vfolder_id: str, user_id: str) -> sa.RowMapping:
    """Lock a user and a folder, to serialize changes of grants; return the folder.

    Raises
    ------
    NotFound
        If the folder is deleted, or the user does not exist or is not in the folder's domain.
    Conflict
        If the folder is not ready for another reason, for example because it is in the trash.
    """
    row = await lock_for_grantee(tx, vfolder_id, user_id)
    require_ready(row)
    return row


async def _change_grant(tx: AsyncConnection, values: Mapping[str, Any]) -> bool:
    changed = await tx.execute(
        vfolder_grants.update().where(_is_granted(values)).values(permission=values["permission"])
    )
    return bool(changed.rowcount)


async def _change_invitation(tx: AsyncConnection, values: Mapping[str, Any]) -> bool:
    changed = await tx.execute(
        vfolder_invitations.update()
        .where(_is_invited(values["vfolder_id"], values["user_id"]))
        .values(permission=values["permission"])
    )
    return bool(changed.rowcount)


async def _close_invitations(
    tx: AsyncConnection, values: Mapping[str, Any], status: InvitationStatus, at: datetime
) -> bool:
    changed = await tx.execute(
        vfolder_invitations.update()
        .where(_is_invited(values["vfolder_id"], values["user_id"]))
        .values(status=status, status_changed_at=at)
    )
    return bool(changed.rowcount)
