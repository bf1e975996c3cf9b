"""Folders: names, permissions and lifecycle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..accounts.roles import Caller, Target, reaches
from ..errors import Conflict, InvalidRequest, InvalidTransition

MAX_NAME = 64

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9._-]*")
# Files and directories that a session creates in its home; a mounted folder must not hide them.
RESERVED_NAMES = frozenset({".terminfo", ".jupyter", ".tmux.conf", ".ssh"})
_RESERVED_PATTERNS = (re.compile(r"\.[a-z0-9]+rc"), re.compile(r"\.[a-z0-9]+_profile"))


class Permission(StrEnum):
    """A user's permission on the files of a folder; each value includes those listed before it."""

    RO = "ro"
    RW = "rw"
    WD = "wd"  # for users who manage the folder; a grant of wd equals rw

    @property
    def is_writable(self) -> bool:
        return self is not Permission.RO

    def allows(self, requested: Permission) -> bool:
        return _ORDER[requested] <= _ORDER[self]


_ORDER = {permission: rank for rank, permission in enumerate(Permission)}


def manages(caller: Caller, folder: Target) -> bool:
    """Return whether the caller may rename, share, delete and restore a folder.

    No grant is sufficient, not even of ``Permission.WD``.
    """
    return reaches(caller, "vfolder.write", folder)


def effective_permission(granted: Permission, requested: Permission | None) -> Permission:
    """Return the lower of two permissions, or ``granted`` if no permission is requested."""
    if requested is None or requested.allows(granted):
        return granted
    return requested


class FolderRelation(StrEnum):
    """Why a user sees a folder; if several values apply, the first one is used."""

    OWN = "own"
    PROJECT = "project"  # the user is a member of the folder's project
    SHARED = "shared"
    ROLE = "role"


class VfolderStatus(StrEnum):
    """Stored status of a folder; the API shows a ready folder as ``mounted`` while a live session
    mounts it.
    """

    CLONING = "cloning"  # its files are being copied from another folder
    READY = "ready"
    PERFORMING = "performing"  # its files are being transferred to another owner
    ERROR = "error"  # cloning failed; status_info has the reason
    DELETE_PENDING = "delete-pending"  # in the trash
    DELETE_ONGOING = "delete-ongoing"
    DELETE_COMPLETE = "delete-complete"  # its files are deleted; only the database row remains
    DELETE_ERROR = "delete-error"


class VfolderEvent(StrEnum):
    COPIED = "copied"  # the copy of a clone's files is complete
    HANDED_OVER = "handed-over"  # the transfer to another owner begins
    ARRIVED = "arrived"  # the transfer is complete
    BROKEN = "broken"  # the copy or the transfer failed
    TRASHED = "trashed"
    RESTORED = "restored"
    RESTORED_INCOMPLETE = "restored as incomplete"  # restored, but its cloning had failed
    PURGED = "purged"  # the deletion of its files begins
    EMPTIED = "emptied"  # all files are deleted
    FAILED = "failed"  # the deletion failed


S, E = VfolderStatus, VfolderEvent

# Transitions that are not listed are illegal. A folder cannot be restored after its deletion has
# begun.
TRANSITIONS: Mapping[tuple[VfolderStatus, VfolderEvent], VfolderStatus] = {
    (S.CLONING, E.COPIED): S.READY,
    (S.CLONING, E.BROKEN): S.ERROR,
    (S.READY, E.HANDED_OVER): S.PERFORMING,
    (S.PERFORMING, E.ARRIVED): S.READY,
    (S.PERFORMING, E.BROKEN): S.READY,  # the owner stays the same
    (S.READY, E.TRASHED): S.DELETE_PENDING,
    (S.ERROR, E.TRASHED): S.DELETE_PENDING,
    (S.DELETE_PENDING, E.RESTORED): S.READY,
    (S.DELETE_PENDING, E.RESTORED_INCOMPLETE): S.ERROR,
    (S.DELETE_PENDING, E.PURGED): S.DELETE_ONGOING,
    (S.DELETE_ONGOING, E.EMPTIED): S.DELETE_COMPLETE,
    (S.DELETE_ONGOING, E.FAILED): S.DELETE_ERROR,
    (S.DELETE_ERROR, E.PURGED): S.DELETE_ONGOING,
}

_ADVICE = {
    S.CLONING: "its files are still being copied; wait until it is ready",
    S.READY: "it is not in the trash; put it there first",
    S.PERFORMING: "it is being transferred to another owner; wait until it is ready",
    S.ERROR: "its files could not be copied completely; put it in the trash",
    S.DELETE_PENDING: "it is in the trash; restore it first",
    S.DELETE_ONGOING: "its files are being deleted",
    S.DELETE_COMPLETE: "its files are gone",
    S.DELETE_ERROR: "deleting its files failed; purge it again",
}


def next_status(status: VfolderStatus, event: VfolderEvent) -> VfolderStatus:
    """Return the status after ``event``.

    Raises
    ------
    InvalidTransition
        If the event is not valid in that status.
    """
    try:
        return TRANSITIONS[status, event]
    except KeyError:
        raise InvalidTransition(
            f"a folder that is {status} cannot be {event}: {_ADVICE[status]}",
            status=status,
            event=event,
        ) from None


def valid_statuses(event: VfolderEvent) -> frozenset[VfolderStatus]:
    """Return the statuses in which ``event`` is valid."""
    return frozenset(status for status, known in TRANSITIONS if known is event)


# Statuses in which a folder's name must be unique in its scope.
NAME_RESERVING = frozenset({S.CLONING, S.READY, S.PERFORMING, S.ERROR})


class UsageMode(StrEnum):
    """Purpose of a folder."""

    GENERAL = "general"
    MODEL = "model"
    DATA = "data"


def is_auto_mounted(name: str) -> bool:
    """Return whether folders with this name are mounted into every session of their owner."""
    return name.startswith(".")


class InvitationStatus(StrEnum):
    PENDING = "pending"
    CANCELED = "canceled"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


def not_ready(name: str, vfolder_id: str, status: VfolderStatus) -> Conflict:
    """Return the error for a folder that is not ready, for example because it is in the trash."""
    return Conflict(
        f"folder {name} is {status}, not ready; a folder in the trash can be restored",
        vfolder=vfolder_id,
        status=status,
    )


def check_name(name: str) -> str:
    """Return ``name`` if it is a valid name of a folder.

    A valid name has 1 to 64 ASCII letters, digits and ``. _ -``. It begins with a letter, a digit
    or a dot, and contains at least one character other than a dot. Names of files that sessions
    create are not valid.

    Raises
    ------
    InvalidRequest
        If the name is not valid.
    """
    if len(name) > MAX_NAME or _NAME.fullmatch(name) is None or not name.strip("."):
        shown = name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…"
        raise InvalidRequest(
            f"{shown!r} cannot be the name of a folder: use 1 to {MAX_NAME} letters of a-z and "
            "A-Z, digits, . _ and -, and begin with a letter, a digit or a dot",
            field="name",
        )
    if is_reserved(name):
        raise InvalidRequest(
            f"{name!r} cannot be the name of a folder: it would hide a file that sessions create "
            "in their home; choose another name",
            field="name",
        )
    return name


def is_reserved(name: str) -> bool:
    """Return whether sessions create a file of this name in their home."""
    return name in RESERVED_NAMES or any(p.fullmatch(name) for p in _RESERVED_PATTERNS)


@dataclass(frozen=True, slots=True)
class Precondition:
    """Precondition for writing a file.

    ``etag``: the file must still have this ETag. ``is_new``: the file must not exist.
    """

    etag: str | None = None
    is_new: bool = False


NO_PRECONDITION = Precondition()
