"""Purge of a user: what happens to the user's folders, and the anonymous account that remains."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from ..errors import Conflict
from ..folders.vfolders import VfolderStatus, is_auto_mounted

MAX_FOLDER_NAME = 64
# Status of a purged account: only its row remains, because other records refer to its id.
PURGED = "purged"
_ID_DIGITS = 12


class PurgeAction(StrEnum):
    """What a purge does with a folder."""

    TRANSFER = "transfer"  # it gets a new owner
    DELETE = "delete"  # its files are deleted


@dataclass(frozen=True, slots=True)
class PurgeOptions:
    """How a purge treats the user's own folders, and the folders that are shared with other users.

    ``new_owner``: id, user name or e-mail address of the new owner; empty: the caller.
    """

    folders: PurgeAction = PurgeAction.TRANSFER
    shared_folders: PurgeAction = PurgeAction.TRANSFER
    new_owner: str = ""


@dataclass(frozen=True, slots=True)
class OwnedFolder:
    id: str
    name: str
    status: VfolderStatus
    is_shared: bool


@dataclass(frozen=True, slots=True)
class PurgedUser:
    """A purged account; the deletions and transfers of its folders continue in the background."""

    id: str
    username: str
    deleted_folders: int
    transferred_folders: int


_ALREADY_DELETED = frozenset({VfolderStatus.DELETE_ONGOING, VfolderStatus.DELETE_COMPLETE})
_BUSY = frozenset({VfolderStatus.CLONING, VfolderStatus.PERFORMING})


def purge_action_of(folder: OwnedFolder, options: PurgeOptions) -> PurgeAction | None:
    """Return what happens to a folder; None if its files are already being deleted.

    Folders in the trash and folders with incomplete files are always deleted.

    Raises
    ------
    Conflict
        If the files of the folder are being copied or transferred.
    """
    if folder.status in _ALREADY_DELETED:
        return None
    if folder.status in _BUSY:
        raise Conflict(
            f"folder {folder.name} is {folder.status}; try again when it is ready",
            vfolder=folder.id,
        )
    if folder.status is not VfolderStatus.READY:
        return PurgeAction.DELETE
    return options.shared_folders if folder.is_shared else options.folders


def name_after_transfer(name: str, username: str, taken: Collection[str]) -> str:
    """Return a folder's name after its transfer to an owner with folders named ``taken``.

    The old owner's user name is added as a prefix if the name is taken, or if the folder would be
    mounted automatically.
    """
    if not is_auto_mounted(name) and name not in taken:
        return name
    base = f"{username}-{name.lstrip('.')}"[: MAX_FOLDER_NAME - 4]
    candidates = (base, *(f"{base}-{number}" for number in range(2, 1000)))
    return next(candidate for candidate in candidates if candidate not in taken)


def anonymous_name(user_id: str) -> str:
    """Return the user name of a purged account."""
    return f"{PURGED}-{user_id.replace('-', '')[:_ID_DIGITS]}"
