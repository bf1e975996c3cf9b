"""Invite users to folders, and accept, decline or withdraw invitations."""

from __future__ import annotations

import uuid
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.sharing import Invitation
from bai_services.core.folders.vfolders import InvitationStatus, Permission
from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications.events import folder_shared
from bai_services.db.folders.grants import GrantStore
from bai_services.db.folders.invitations import InvitationStore
from bai_services.db.folders.rows import VfolderRow

from ..context import ManagerContext
from ..events import FOLDER, INVITATION
from .access import VFolderAccess, manages_row, require_manages, require_ready
from .grants import find_invitee
from .storage_hosts import StorageHosts


class Invitations:
    """Creates, lists and answers invitations to folders."""

    def __init__(self, context: ManagerContext, hosts: StorageHosts) -> None:
        self._store = InvitationStore(context.database)
        self._grants = GrantStore(context.database)
        self._access = VFolderAccess(context.database)
        self._hosts = hosts
        self._clock = context.clock
        self._audit = context.audit
        self._events = context.events

    async def page(self, caller: Caller, query: ListQuery) -> Page[Invitation]:
        """Return the invitations that the caller has received or sent."""
        if caller.user_id is None:
            raise Forbidden(f"{caller.role} is a system component and has no invitations")
        return await self._store.page(query, user_id=caller.user_id)

    async def page_of_folder(self, caller: Caller, key: str, query: ListQuery) -> Page[Invitation]:
        """Return the invitations to a folder.

        A caller who does not manage the folder gets only those that the caller received or sent.
        """
        row = await self._access.find(caller, key)
        user_id = None if manages_row(caller, row) else caller.user_id or ""
        return await self._store.page(query, user_id=user_id, vfolder_id=row.id)

    async def get(self, caller: Caller, invitation_id: str) -> Invitation:
        invitation, _ = await self._find(caller, invitation_id)
        return invitation

    async def create(
        self, caller: Caller, key: str, user_key: str, permission: Permission
    ) -> Invitation:
        """Invite a user of the folder's domain; ``user_key`` is an id, user name or e-mail address.

        Raises
        ------
        NotFound
            If the caller may not see the folder, or the user does not exist in the domain.
        Forbidden
            If the caller may not invite users to the folder.
        Conflict
            If the folder is not ready.
        AlreadyExists
            If the user already has an invitation, a grant, or a folder with this name.
        InvalidRequest
            If the folder belongs to a project, or to the invited user.
        """
        row = await self._access.find(caller, key)
        require_manages(caller, row)
        require_ready(row)
        if row.owner_id is None:
            raise InvalidRequest(
                "members of a project can use its folders without an invitation; "
                "share the folder with a user to change that user's permission",
                field="user",
            )
        await self._hosts.require(caller, row.host, "invite-others", row.project_id)
        user = await find_invitee(self._grants, row, user_key)
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "vfolder_id": row.id,
            "invitee_id": user["id"],
            "inviter_id": caller.user_id or "",
            "inviter": caller.username,
            "permission": str(permission),
            "status_changed_at": self._clock(),
        }
        entry = self._entry(
            caller, "vfolder.invite", row, user=user["username"], permission=str(permission)
        )
        event = folder_shared(
            values["id"],
            self._clock(),
            user["id"],
            row.domain,
            name=row.name,
            user=caller.username,
            permission=str(permission),
        )
        await self._store.create(values, entry, event)
        self._events.publish_to_user(user["id"], INVITATION)
        return await self.get(caller, values["id"])

    async def update(
        self, caller: Caller, invitation_id: str, permission: Permission
    ) -> Invitation:
        """Change the permission that a pending invitation offers."""
        invitation, row = await self._find(caller, invitation_id)
        if row is None:
            raise Forbidden("only users who may share the folder can change its invitations")
        require_manages(caller, row)
        entry = self._entry(
            caller, "vfolder.invite", row, user=invitation.invitee, permission=str(permission)
        )
        await self._store.change(invitation.id, str(permission), entry)
        return await self.get(caller, invitation_id)

    async def accept(self, caller: Caller, invitation_id: str) -> Invitation:
        """Accept an invitation: the caller receives the grant."""
        return await self._respond(
            caller, invitation_id, InvitationStatus.ACCEPTED, "vfolder.accept-invitation"
        )

    async def decline(self, caller: Caller, invitation_id: str) -> Invitation:
        return await self._respond(
            caller, invitation_id, InvitationStatus.REJECTED, "vfolder.decline-invitation"
        )

    async def withdraw(self, caller: Caller, invitation_id: str) -> None:
        """Withdraw a pending invitation."""
        invitation, row = await self._find(caller, invitation_id)
        if invitation.inviter_id != caller.user_id:
            if row is None:
                raise Forbidden(
                    "you can decline this invitation; only its inviter and those who manage the "
                    "folder can withdraw it"
                )
            require_manages(caller, row)
        await self._close(
            caller, invitation, InvitationStatus.CANCELED, "vfolder.withdraw-invitation"
        )

    async def _respond(
        self, caller: Caller, invitation_id: str, status: InvitationStatus, action: str
    ) -> Invitation:
        invitation, _ = await self._find(caller, invitation_id)
        if invitation.invitee_id != caller.user_id:
            raise Forbidden(f"only {invitation.invitee} can accept or decline this invitation")
        await self._close(caller, invitation, status, action)
        return await self.get(caller, invitation_id)

    async def _close(
        self, caller: Caller, invitation: Invitation, status: InvitationStatus, action: str
    ) -> None:
        entry = self._audit.entry(
            caller,
            action,
            invitation.vfolder_id,
            domain=invitation.domain,
            owner_id=invitation.inviter_id,
            name=invitation.vfolder,
            user=invitation.invitee,
            permission=invitation.permission,
        )
        await self._store.settle(invitation.id, status, self._clock(), entry)
        # Notify both users: the inviter's list of users with access and the invitee's list of
        # invitations have changed.
        self._events.publish_to_user(invitation.inviter_id, FOLDER)
        self._events.publish_to_user(invitation.invitee_id, INVITATION)

    async def _find(
        self, caller: Caller, invitation_id: str
    ) -> tuple[Invitation, VfolderRow | None]:
        """Return an invitation and its folder (None: the caller may not see the folder).

        Raises
        ------
        NotFound
            If there is no such invitation, or the caller is not its inviter, its invitee or a
            manager of the folder.
        """
        invitation = None if "\0" in invitation_id else await self._store.get(invitation_id)
        if invitation is None:
            raise NotFound("there is no such invitation, or it is not for you")
        try:
            row = await self._access.find(caller, invitation.vfolder_id)
        except (NotFound, Forbidden):
            row = None
        is_own = caller.user_id in (invitation.invitee_id, invitation.inviter_id)
        if not is_own and (row is None or not manages_row(caller, row)):
            raise NotFound("there is no such invitation, or it is not for you")
        return invitation, row

    def _entry(self, caller: Caller, action: str, row: VfolderRow, **details: Any) -> AuditEntry:
        return self._audit.entry(
            caller,
            action,
            row.id,
            domain=row.domain,
            owner_id=row.owner_id,
            name=row.name,
            **details,
        )
