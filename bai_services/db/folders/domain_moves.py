"""Move folders with their owner to another domain, and end access between domains."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.folders.vfolders import InvitationStatus

from ..tables.accounts import users
from ..tables.folders import vfolder_grants, vfolder_invitations, vfolders


async def move_folders_of(tx: AsyncConnection, user_id: str, domain: str, at: datetime) -> set[str]:
    """Move a user's folders, in any status, to another domain, and end access between domains.

    Return the ids of the users who have lost access or an invitation.
    """
    await tx.execute(vfolders.update().where(vfolders.c.owner_id == user_id).values(domain=domain))
    return await end_access_between_domains(tx, user_id, at)


async def end_access_between_domains(tx: AsyncConnection, user_id: str, at: datetime) -> set[str]:
    """End grants and pending invitations between a user and users of other domains.

    This applies to folders of the user and to folders of others. Otherwise, administrators of the
    folder's domain could not revoke this access, because they cannot see users of other domains.
    Return the ids of the users who have lost access or an invitation.
    """
    grants, invitations = vfolder_grants.c, vfolder_invitations.c
    granted = _is_between_domains(grants.vfolder_id, grants.user_id, user_id)
    invited = sa.and_(
        invitations.status == InvitationStatus.PENDING,
        _is_between_domains(invitations.vfolder_id, invitations.invitee_id, user_id),
    )
    ended = sa.union(
        sa.select(grants.user_id).where(granted), sa.select(invitations.invitee_id).where(invited)
    )
    user_ids = set(await tx.scalars(ended))
    # Start with the invitations: if one is being accepted at this moment, wait until its grant
    # exists.
    await tx.execute(
        vfolder_invitations.update()
        .where(invited)
        .values(status=InvitationStatus.CANCELED, status_changed_at=at)
    )
    await tx.execute(vfolder_grants.delete().where(granted))
    return user_ids


async def end_access_of(tx: AsyncConnection, vfolder_id: str, user_id: str, at: datetime) -> None:
    """Cancel a user's pending invitation to a folder and delete the grant."""
    await tx.execute(
        vfolder_invitations.update()
        .where(
            vfolder_invitations.c.vfolder_id == vfolder_id,
            vfolder_invitations.c.invitee_id == user_id,
            vfolder_invitations.c.status == InvitationStatus.PENDING,
        )
        .values(status=InvitationStatus.CANCELED, status_changed_at=at)
    )
    await tx.execute(
        vfolder_grants.delete().where(
            vfolder_grants.c.vfolder_id == vfolder_id, vfolder_grants.c.user_id == user_id
        )
    )


def _is_between_domains(
    folder_id: sa.ColumnElement[Any], grantee_id: sa.ColumnElement[Any], user_id: str
) -> sa.ColumnElement[bool]:
    return sa.exists().where(
        vfolders.c.id == folder_id,
        users.c.id == grantee_id,
        vfolders.c.domain != users.c.domain,
        sa.or_(vfolders.c.owner_id == user_id, users.c.id == user_id),
    )
