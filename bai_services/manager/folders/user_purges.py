"""Purge of users: delete or transfer their folders, and make their accounts anonymous.

A purge that is interrupted can be repeated: it continues with the remaining folders.
"""

from __future__ import annotations

from bai_services.core.accounts.records import User
from bai_services.core.accounts.roles import Caller, Owner, Target
from bai_services.core.accounts.user_purges import (
    OwnedFolder,
    PurgeAction,
    PurgedUser,
    PurgeOptions,
    anonymous_name,
    name_after_transfer,
    purge_action_of,
)
from bai_services.core.errors import Conflict, NotFound
from bai_services.core.folders.vfolders import VfolderStatus
from bai_services.db.accounts.checked_users import CheckedUser
from bai_services.db.accounts.user_purges import UserPurgeStore

from ..accounts import authorizer
from ..accounts.users import Users
from ..context import ManagerContext
from .vfolders import VFolders

# Statuses in which a folder must be moved to the trash before its files can be deleted.
_NOT_IN_TRASH = frozenset({VfolderStatus.READY, VfolderStatus.ERROR})


class UserPurges:
    """Removes inactive users for superadmins."""

    def __init__(self, context: ManagerContext, users: Users, vfolders: VFolders) -> None:
        self._store = UserPurgeStore(context.database)
        self._audit = context.audit
        self._users = users
        self._vfolders = vfolders

    async def purge(self, caller: Caller, key: str, options: PurgeOptions) -> PurgedUser:
        """Remove a user; the row of the account remains under an anonymous name.

        Raises
        ------
        Conflict
            If the user is active, has sessions that have not ended, is still being signed out of
            the Hub, or has a folder that is being copied.
        NotFound
            If there is no such user, or the new owner is not an active user.
        InUse
            If a session of another user mounts a folder.
        """
        user = await self._users.get(caller, key)
        target = Target(domain=user.domain, owner=Owner(user.id, user.role))
        authorizer.require(caller, "user.purge", target)
        if user.status not in ("inactive", "deleted"):
            raise Conflict(
                f"{user.username} has the status {user.status}; only users who are inactive or "
                "deleted can be purged"
            )
        await self._store.require_purgeable(user.id)
        actions = [
            (folder, action)
            for folder in await self._store.folders_of(user.id)
            if (action := purge_action_of(folder, options)) is not None
        ]
        transferred = [folder for folder, action in actions if action is PurgeAction.TRANSFER]
        deleted = [folder for folder, action in actions if action is PurgeAction.DELETE]
        if transferred:
            await self._transfer(caller, user, transferred, options.new_owner)
        for folder in deleted:
            await self._delete(caller, folder)
        result = PurgedUser(user.id, anonymous_name(user.id), len(deleted), len(transferred))
        entry = self._audit.entry(
            caller,
            "user.purge",
            user.id,
            domain=user.domain,
            name=result.username,
            deleted_folders=result.deleted_folders,
            transferred_folders=result.transferred_folders,
        )
        checked = CheckedUser(user.id, {"status": user.status, "role": user.role})
        await self._store.purge(checked, user.email, entry)
        return result

    async def _transfer(
        self, caller: Caller, user: User, folders: list[OwnedFolder], owner_key: str
    ) -> None:
        owner = await self._users.get(caller, owner_key or caller.username)
        if owner.status != "active":
            raise NotFound(f"there is no active user {owner.username}", user=owner.username)
        taken = await self._store.folder_names_of(owner.id)
        for folder in folders:
            name = name_after_transfer(folder.name, user.username, taken)
            if name != folder.name:
                await self._vfolders.update(caller, folder.id, {"name": name})
            await self._vfolders.change_owner(caller, folder.id, owner.id)
            taken.add(name)

    async def _delete(self, caller: Caller, folder: OwnedFolder) -> None:
        if folder.status in _NOT_IN_TRASH:
            await self._vfolders.trash(caller, folder.id)
        await self._vfolders.purge(caller, folder.id)
