"""Share folders with individual users."""

from __future__ import annotations

import uuid
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import InvalidRequest, NotFound
from bai_services.core.folders.sharing import Grant
from bai_services.core.folders.vfolders import Permission
from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications.events import folder_shared
from bai_services.db.folders.grants import GrantStore
from bai_services.db.folders.rows import VfolderRow

from ..context import ManagerContext
from ..events import FOLDER
from .access import VFolderAccess, manages_row, require_manages, require_ready
from .folder_changes import FolderChanges
from .storage_hosts import StorageHosts


class Grants:
    """Manage grants; ``user_key`` is an id, a user name or an e-mail address."""

    def __init__(
        self, context: ManagerContext, hosts: StorageHosts, changes: FolderChanges
    ) -> None:
        self._hosts = hosts
        self._changes = changes
        self._store = GrantStore(context.database)
        self._access = VFolderAccess(context.database)
        self._clock = context.clock
        self._audit = context.audit
        self._events = context.events

    async def page(self, caller: Caller, key: str, query: ListQuery) -> Page[Grant]:
        """Return a folder's grants; callers who do not manage it get only their own grant."""
        row = await self._access.find(caller, key)
        user_id = None if manages_row(caller, row) else caller.user_id or ""
        return await self._store.grants(row.id, query, user_id)

    async def get(self, caller: Caller, key: str, user_key: str) -> Grant:
        row = await self._access.find(caller, key)
        user = await find_user_of_domain(self._store, row, user_key)
        if user["id"] != caller.user_id:
            require_manages(caller, row)
        return await self._one(row, user["id"], user["username"])

    async def put(self, caller: Caller, key: str, user_key: str, permission: Permission) -> Grant:
        """Share a folder with a user, or change the user's permission.

        A user without access is invited and has no access until accepting the invitation. If the
        user already has a grant or is a member of the folder's project, the permission changes
        immediately. Running sessions keep the permission with which they mounted the folder.

        Raises
        ------
        Forbidden
            If the caller may not change the folder, or may not share folders of its storage host.
        NotFound
            If the folder's domain has no such active user.
        InvalidRequest
            If the user owns the folder.
        """
        row = await self._access.find(caller, key)
        require_manages(caller, row)
        require_ready(row)
        needed = "invite-others" if row.project_id is None else "set-user-specific-permission"
        await self._hosts.require(caller, row.host, needed, row.project_id)
        user = await find_invitee(self._store, row, user_key)
        values = {
            "vfolder_id": row.id,
            "user_id": user["id"],
            "created_at": self._clock(),
            "permission": str(permission),
            "granted_by": caller.username,
        }
        entry = self._entry(caller, "vfolder.share", row, user, permission=str(permission))
        is_member = row.project_id is not None and await self._store.is_member(
            user["id"], row.project_id
        )
        if is_member or user["id"] == caller.user_id:
            await self._store.grant(values, entry)
        else:
            invitation = {"id": str(uuid.uuid4()), "inviter_id": caller.user_id or ""}
            event = folder_shared(
                invitation["id"],
                self._clock(),
                user["id"],
                row.domain,
                name=row.name,
                user=caller.username,
                permission=str(permission),
            )
            await self._store.offer(values, invitation, entry, event)
        await self._notify(row, user["id"])
        return await self._one(row, user["id"], user["username"])

    async def delete(self, caller: Caller, key: str, user_key: str) -> None:
        """Revoke a grant or withdraw an invitation; users may also end their own access."""
        row = await self._access.find(caller, key)
        user = await find_user_of_domain(self._store, row, user_key)
        if user["id"] != caller.user_id:
            require_manages(caller, row)
        entry = self._entry(caller, "vfolder.unshare", row, user)
        await self._store.revoke(row.id, user["id"], self._clock(), entry)
        await self._notify(row, user["id"])

    async def _notify(self, row: VfolderRow, user_id: str) -> None:
        """Notify the users of the folder, and the user whose permission has changed."""
        await self._changes.folder_changed(row)
        # ``folder_changed`` does not notify this user if the invitation is pending or withdrawn, or
        # if the grant was revoked.
        self._events.publish_to_user(user_id, FOLDER)

    async def _one(self, row: VfolderRow, user_id: str, username: str) -> Grant:
        page = await self._store.grants(row.id, ListQuery(limit=1), user_id)
        grant = page.items[0] if page.items else await self._store.pending(row.id, user_id)
        if grant is None:
            raise NotFound(f"folder {row.name} is not shared with {username}")
        return grant

    def _entry(
        self, caller: Caller, action: str, row: VfolderRow, user: Any, **details: Any
    ) -> AuditEntry:
        facts = {"name": row.name, "user": user["username"], **details}
        return self._audit.entry(
            caller, action, row.id, domain=row.domain, owner_id=row.owner_id, **facts
        )


async def find_user_of_domain(store: GrantStore, row: VfolderRow, key: str) -> Any:
    """Return an active or inactive user of the folder's domain."""
    user = None if "\0" in key else await store.find_user(key, row.domain)
    if user is None:
        # Do not reveal whether another domain has such a user.
        raise NotFound(
            f"there is no user {key!r} in domain {row.domain}; "
            "folders can only be shared within their domain",
            user=key,
        )
    return user


async def find_invitee(store: GrantStore, row: VfolderRow, key: str) -> Any:
    """Return the user to invite to a folder.

    Raises
    ------
    NotFound
        If the folder's domain has no such active user.
    InvalidRequest
        If the user owns the folder.
    """
    user = await find_user_of_domain(store, row, key)
    if user["id"] == row.owner_id:
        raise InvalidRequest(f"{user['username']} is the owner of folder {row.name}", field="user")
    if user["status"] != "active":
        raise NotFound(f"{key} is not active in domain {row.domain}")
    return user
