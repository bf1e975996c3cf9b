"""Invitations to folders: accepted or declined by the invitee, withdrawn by the inviter."""

from __future__ import annotations

import uuid
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.vfolders import InvitationStatus, Permission
from bai_services.core.listing import ListQuery, Page
from bai_services.db.folders.grants import GrantStore
from bai_services.db.folders.invitations import Invitation, InvitationStore
from bai_services.db.folders.vfolders import VfolderRow

from ..context import ManagerContext
from .access import VFolderAccess, permission_of, require_manages, require_ready
from .grants import find_person, refuse_more
from .storage_hosts import StorageHosts


class Invitations:
    """One method per verb; a user is named by id, user name or e-mail address."""

    def __init__(self, context: ManagerContext, hosts: StorageHosts) -> None:
        self._store = InvitationStore(context.database)
        self._grants = GrantStore(context.database)
        self._access = VFolderAccess(context.database)
        self._hosts = hosts
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, query: ListQuery) -> Page[Invitation]:
        """Return the invitations that the caller has received and sent."""
        if caller.user_id is None:
            raise Forbidden(f"{caller.role} has no invitations")
        return await self._store.page(query, user_id=caller.user_id)

    async def of_folder(self, caller: Caller, key: str, query: ListQuery) -> Page[Invitation]:
        """Return a folder's invitations; a caller who only uses it sees their own."""
        row = await self._access.find(caller, key)
        manages = permission_of(caller, row) is Permission.WD
        user_id = None if manages else caller.user_id or ""
        return await self._store.page(query, user_id=user_id, vfolder_id=row.id)

    async def get(self, caller: Caller, invitation_id: str) -> Invitation:
        found, _ = await self._found(caller, invitation_id)
        return found

    async def create(
        self, caller: Caller, key: str, user: str, permission: Permission
    ) -> Invitation:
        """Invite a user of the folder's domain to it.

        Raises
        ------
        AlreadyExists
            If they have been invited already, or have the folder.
        InvalidRequest
            If they are members of the project that the folder belongs to, or its owner.
        """
        row = await self._access.find(caller, key)
        require_manages(caller, row)
        require_ready(row)
        if row.owner_id is None:
            raise InvalidRequest(
                "members of a project can use its folders without an invitation; "
                "use a grant to change somebody's permission",
                field="user",
            )
        await self._hosts.require(caller, row.host, "invite-others", row.project_id)
        refuse_more(caller, row, permission)
        person = await find_person(self._grants, row, user)
        values = {
            "id": str(uuid.uuid4()),
            "created_at": self._clock(),
            "vfolder_id": row.id,
            "invitee_id": person["id"],
            "inviter_id": caller.user_id or "",
            "inviter": caller.username,
            "permission": str(permission),
            "status_changed_at": self._clock(),
        }
        entry = self._entry(
            caller, "vfolder.invite", row, user=person["username"], permission=str(permission)
        )
        await self._store.create(values, entry)
        return await self.get(caller, values["id"])

    async def update(
        self, caller: Caller, invitation_id: str, permission: Permission
    ) -> Invitation:
        """Change the permission that a pending invitation offers."""
        found, row = await self._found(caller, invitation_id)
        if row is None:
            raise Forbidden("only users who may share the folder can change an invitation to it")
        require_manages(caller, row)
        refuse_more(caller, row, permission)
        entry = self._entry(
            caller, "vfolder.invite", row, user=found.invitee, permission=str(permission)
        )
        await self._store.change(found.id, str(permission), entry)
        return await self.get(caller, invitation_id)

    async def accept(self, caller: Caller, invitation_id: str) -> Invitation:
        """Accept: the folder is shared with the caller from now on."""
        return await self._answer(
            caller, invitation_id, InvitationStatus.ACCEPTED, "vfolder.accept-invitation"
        )

    async def decline(self, caller: Caller, invitation_id: str) -> Invitation:
        return await self._answer(
            caller, invitation_id, InvitationStatus.REJECTED, "vfolder.decline-invitation"
        )

    async def withdraw(self, caller: Caller, invitation_id: str) -> None:
        """Withdraw a pending invitation."""
        found, row = await self._found(caller, invitation_id)
        if found.inviter_id != caller.user_id:
            if row is None:
                raise Forbidden("only the inviter can withdraw it; an invitee can decline it")
            require_manages(caller, row)
        await self._settle(caller, found, InvitationStatus.CANCELED, "vfolder.withdraw-invitation")

    async def _answer(
        self, caller: Caller, invitation_id: str, status: InvitationStatus, action: str
    ) -> Invitation:
        found, _ = await self._found(caller, invitation_id)
        if found.invitee_id != caller.user_id:
            raise Forbidden(f"only {found.invitee} can answer this invitation")
        await self._settle(caller, found, status, action)
        return await self.get(caller, invitation_id)

    async def _settle(
        self, caller: Caller, found: Invitation, status: InvitationStatus, action: str
    ) -> None:
        entry = self._audit.entry(
            caller,
            action,
            found.vfolder_id,
            domain=found.domain,
            name=found.vfolder,
            user=found.invitee,
            permission=found.permission,
        )
        await self._store.settle(found.id, status, self._clock(), entry)

    async def _found(
        self, caller: Caller, invitation_id: str
    ) -> tuple[Invitation, VfolderRow | None]:
        """Return an invitation of or to the caller, and its folder if they see that."""
        found = None if "\0" in invitation_id else await self._store.get(invitation_id)
        if found is None:
            raise NotFound("there is no such invitation, or it is not for you")
        try:
            row = await self._access.find(caller, found.vfolder_id)
        except (NotFound, Forbidden):
            row = None
        concerns = caller.user_id in (found.invitee_id, found.inviter_id)
        if not concerns and (row is None or permission_of(caller, row) is not Permission.WD):
            raise NotFound("there is no such invitation, or it is not for you")
        return found, row

    def _entry(self, caller: Caller, action: str, row: VfolderRow, **details: Any) -> Any:
        return self._audit.entry(
            caller, action, row.id, domain=row.domain, name=row.name, **details
        )
