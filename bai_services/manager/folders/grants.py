"""Grants: folders shared with named users."""

from __future__ import annotations

import uuid
from typing import Any

from bai_services.core.accounts.roles import Caller
from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from bai_services.core.folders.vfolders import Permission
from bai_services.core.listing import ListQuery, Page
from bai_services.db.folders.grants import Grant, GrantStore
from bai_services.db.folders.vfolders import VfolderRow

from ..context import ManagerContext
from .access import VFolderAccess, permission_of, require_manages, require_ready
from .storage_hosts import StorageHosts


class Grants:
    """One method per verb; a user is named by id, user name or e-mail address."""

    def __init__(self, context: ManagerContext, hosts: StorageHosts) -> None:
        self._hosts = hosts
        self._store = GrantStore(context.database)
        self._access = VFolderAccess(context.database)
        self._clock = context.clock
        self._audit = context.audit

    async def page(self, caller: Caller, key: str, query: ListQuery) -> Page[Grant]:
        """Return with whom a folder is shared; a caller who only uses it sees their own grant."""
        row = await self._access.find(caller, key)
        manages = permission_of(caller, row) is Permission.WD
        return await self._store.grants(row.id, query, None if manages else caller.user_id or "")

    async def get(self, caller: Caller, key: str, user: str) -> Grant:
        row = await self._access.find(caller, key)
        person = await named_person(self._store, row, user)
        if person["id"] != caller.user_id:
            require_manages(caller, row)
        return await self._one(row, person["id"], person["username"])

    async def put(self, caller: Caller, key: str, user: str, permission: Permission) -> Grant:
        """Share a folder, or change what a user may do with it.

        A user who does not have the folder is invited: until they accept, they can do nothing with
        it and none of their sessions mounts it. A permission that they have already, also as a
        member of the folder's project, changes at once. Sessions that have the folder mounted keep
        the permission that they were started with.

        Raises
        ------
        Forbidden
            If the caller does not manage the folder.
        NotFound
            If its domain has no active user of that name.
        """
        row = await self._access.find(caller, key)
        require_manages(caller, row)
        require_ready(row)
        needed = "invite-others" if row.project_id is None else "set-user-specific-permission"
        await self._hosts.require(caller, row.host, needed, row.project_id)
        refuse_more(caller, row, permission)
        person = await find_person(self._store, row, user)
        values = {
            "vfolder_id": row.id,
            "user_id": person["id"],
            "created_at": self._clock(),
            "permission": str(permission),
            "granted_by": caller.username,
        }
        entry = self._entry(caller, "vfolder.share", row, person, permission=str(permission))
        is_member = row.project_id is not None and await self._store.is_member(
            person["id"], row.project_id
        )
        if is_member or person["id"] == caller.user_id:
            await self._store.grant(values, entry)
        else:
            invitation = {"id": str(uuid.uuid4()), "inviter_id": caller.user_id or ""}
            await self._store.offer(values, invitation, entry)
        return await self._one(row, person["id"], person["username"])

    async def delete(self, caller: Caller, key: str, user: str) -> None:
        """Revoke a grant or withdraw an invitation; everybody may give up their own."""
        row = await self._access.find(caller, key)
        person = await named_person(self._store, row, user)
        if person["id"] != caller.user_id:
            require_manages(caller, row)
        entry = self._entry(caller, "vfolder.unshare", row, person)
        await self._store.revoke(row.id, person["id"], self._clock(), entry)

    async def _one(self, row: VfolderRow, user_id: str, username: str) -> Grant:
        page = await self._store.grants(row.id, ListQuery(limit=1), user_id)
        found = page.items[0] if page.items else await self._store.pending(row.id, user_id)
        if found is None:
            raise NotFound(f"folder {row.name} is not shared with {username}")
        return found

    def _entry(
        self, caller: Caller, action: str, row: VfolderRow, person: Any, **details: Any
    ) -> Any:
        facts = {"name": row.name, "user": person["username"], **details}
        return self._audit.entry(caller, action, row.id, domain=row.domain, **facts)


async def named_person(store: GrantStore, row: VfolderRow, key: str) -> Any:
    """Return a user of the folder's domain, active or not."""
    person = None if "\0" in key else await store.find_user(key, row.domain)
    if person is None:
        # The caller must not learn whether another domain has a user of that name.
        raise NotFound(
            f"there is no user {key!r} in domain {row.domain}; "
            "folders can be shared within their domain only",
            user=key,
        )
    return person


async def find_person(store: GrantStore, row: VfolderRow, key: str) -> Any:
    """Return the user with whom a folder is to be shared.

    Raises
    ------
    NotFound
        If its domain has no active user of that name.
    InvalidRequest
        If the folder is their own.
    """
    person = await named_person(store, row, key)
    if person["id"] == row.owner_id:
        raise InvalidRequest(f"folder {row.name} is {person['username']}'s own", field="user")
    if person["status"] != "active":
        raise NotFound(f"{key} is not active in domain {row.domain}")
    return person


def refuse_more(caller: Caller, row: VfolderRow, permission: Permission) -> None:
    """Refuse a caller who grants a higher permission than their own."""
    mine = permission_of(caller, row)
    if mine is None or not mine.allows(permission):
        raise Forbidden(
            f"you may do {mine} with folder {row.name}, so you cannot grant {permission}"
        )
