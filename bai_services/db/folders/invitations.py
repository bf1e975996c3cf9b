"""Store of invitations to folders."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, Conflict, NotFound
from bai_services.core.folders.sharing import Invitation
from bai_services.core.folders.vfolders import InvitationStatus
from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications.events import Event

from ..audit import record
from ..database import Database
from ..listing import Listing
from ..notifications.events import raise_events
from ..tables.accounts import users
from ..tables.folders import vfolder_grants, vfolder_invitations, vfolders
from .vfolders import (
    lock_for_grantee,
    owns_another_named,
    require_name_free_for_invitee,
    require_ready,
)

_table = vfolder_invitations


_invitees = users.alias("invitees")
_owners = users.alias("owners")
_LISTING = Listing(
    columns={
        "id": _table.c.id,
        "created_at": _table.c.created_at,
        "vfolder_id": _table.c.vfolder_id,
        "vfolder": vfolders.c.name,
        "domain": vfolders.c.domain,
        "owner": _owners.c.username,
        "invitee_id": _table.c.invitee_id,
        "invitee": _invitees.c.username,
        "inviter_id": _table.c.inviter_id,
        "inviter": _table.c.inviter,
        "permission": _table.c.permission,
        "status": _table.c.status,
        "status_changed_at": _table.c.status_changed_at,
    },
    default_sort=("-created_at", "-id"),
)


class InvitationStore:
    """Reads and writes invitations to folders. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, query: ListQuery, user_id: str | None = None, vfolder_id: str | None = None
    ) -> Page[Invitation]:
        """Return a page of the invitations.

        ``user_id`` (the inviter or the invitee) and ``vfolder_id`` restrict the list if given.
        """
        rows = _rows()
        if user_id is not None:
            rows = rows.where(
                sa.or_(_table.c.invitee_id == user_id, _table.c.inviter_id == user_id)
            )
        if vfolder_id is not None:
            rows = rows.where(_table.c.vfolder_id == vfolder_id)
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, Invitation)

    async def get(self, invitation_id: str) -> Invitation | None:
        async with self._db.read() as tx:
            rows = await tx.execute(_rows().where(_table.c.id == invitation_id))
            row = rows.mappings().one_or_none()
        return None if row is None else Invitation(**row)

    async def create(self, values: Mapping[str, Any], audit: AuditEntry, event: Event) -> None:
        """Insert an invitation, and raise the event that notifies the invitee.

        Raises
        ------
        AlreadyExists
            If the invitee has a pending invitation to the folder or access to it, or owns a folder
            of the same name.
        NotFound
            If the folder or the invitee no longer exists, or the invitee is in another domain.
        Conflict
            If the folder is not ready.
        """
        async with self._db.write() as tx:
            # Lock the folder: of two concurrent invitations, the second must find the first.
            row = await lock_for_grantee(tx, values["vfolder_id"], values["invitee_id"])
            require_ready(row)
            both = (
                (_table, _table.c.invitee_id, _table.c.status == InvitationStatus.PENDING),
                (vfolder_grants, vfolder_grants.c.user_id, sa.true()),
            )
            for table, user, condition in both:
                known = await tx.scalar(
                    sa.select(sa.func.count())
                    .select_from(table)
                    .where(
                        table.c.vfolder_id == values["vfolder_id"],
                        user == values["invitee_id"],
                        condition,
                    )
                )
                if known:
                    what = "an invitation" if table is _table else "access"
                    raise AlreadyExists(
                        f"that user already has {what}; change the permission instead"
                    )
            await require_name_free_for_invitee(tx, row, values["invitee_id"])
            await tx.execute(_table.insert().values(**values, status=InvitationStatus.PENDING))
            await raise_events(tx, [event])
            await record(tx, audit)

    async def change(self, invitation_id: str, permission: str, audit: AuditEntry) -> None:
        """Change the permission of a pending invitation."""
        async with self._db.write() as tx:
            await _pending(tx, invitation_id)
            await tx.execute(
                _table.update().where(_table.c.id == invitation_id).values(permission=permission)
            )
            await record(tx, audit)

    async def settle(
        self, invitation_id: str, status: InvitationStatus, at: datetime, audit: AuditEntry
    ) -> None:
        """Set the final status of a pending invitation; an acceptance creates a grant.

        Raises
        ------
        Conflict
            If the invitation is no longer pending, or is accepted while the folder is not ready.
            Transfers and moves to another domain also end invitations.
        AlreadyExists
            If the invitation is accepted while the invitee owns a folder of the same name.
        NotFound
            If there is no such invitation, or the invitee is not in the folder's domain.
        """
        async with self._db.write() as tx:
            row = await _pending(tx, invitation_id, locks=status is not InvitationStatus.ACCEPTED)
            if status is InvitationStatus.ACCEPTED:
                folder = await lock_for_grantee(tx, row["vfolder_id"], row["invitee_id"])
                # Read the invitation again, because it may have changed. The order of locks is
                # user, folder, invitation, as in a change of a user's domain.
                row = await _pending(tx, invitation_id)
                require_ready(folder)
                if await owns_another_named(tx, folder, row["invitee_id"]):
                    name = folder["name"]
                    raise AlreadyExists(
                        f"you already have a folder named {name}; rename it, then accept the "
                        "invitation",
                        name=name,
                    )
                await tx.execute(
                    vfolder_grants.delete().where(
                        vfolder_grants.c.vfolder_id == row["vfolder_id"],
                        vfolder_grants.c.user_id == row["invitee_id"],
                    )
                )
                await tx.execute(
                    vfolder_grants.insert().values(
                        vfolder_id=row["vfolder_id"],
                        user_id=row["invitee_id"],
                        created_at=at,
                        permission=row["permission"],
                        granted_by=row["inviter"],
                    )
                )
            await tx.execute(
                _table.update()
                .where(_table.c.id == invitation_id)
                .values(status=status, status_changed_at=at)
            )
            await record(tx, audit)


def _rows() -> sa.Select[Any]:
    return (
        sa.select(*(column.label(name) for name, column in _LISTING.columns.items()))
        .join_from(_table, vfolders, _table.c.vfolder_id == vfolders.c.id)
        .join(_invitees, _table.c.invitee_id == _invitees.c.id)
        .outerjoin(_owners, vfolders.c.owner_id == _owners.c.id)
    )


async def _pending(tx: AsyncConnection, invitation_id: str, *, locks: bool = True) -> sa.RowMapping:
    select = sa.select(_table).where(_table.c.id == invitation_id)
    rows = await tx.execute(select.with_for_update() if locks else select)
    row = rows.mappings().one_or_none()
    if row is None:
        raise NotFound("there is no such invitation")
    if row["status"] != InvitationStatus.PENDING:
        raise Conflict(f"the invitation is already {row['status']}", status=row["status"])
    return row
