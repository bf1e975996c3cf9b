"""Folders: names, permissions and the table of their lifecycle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from ..errors import InvalidRequest, InvalidTransition

MAX_NAME = 64

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9._-]*")
# Files of the home folder that a session's own set-up creates; a folder must not cover them.
RESERVED_NAMES = frozenset({".terminfo", ".jupyter", ".tmux.conf", ".ssh"})
_RESERVED_PATTERNS = (re.compile(r"\.[a-z0-9]+rc"), re.compile(r"\.[a-z0-9]+_profile"))


class Permission(StrEnum):
    """A user's permission on a folder; each includes the ones before it."""

    RO = "ro"
    RW = "rw"
    WD = "wd"  # as rw, and managing the folder itself: rename, share, delete

    @property
    def is_writable(self) -> bool:
        return self is not Permission.RO

    def allows(self, asked: Permission) -> bool:
        return _ORDER[asked] <= _ORDER[self]


_ORDER = {permission: rank for rank, permission in enumerate(Permission)}


def effective(granted: Permission, asked: Permission | None) -> Permission:
    """Return the lower of the two permissions; without ``asked`` the granted one."""
    if asked is None or asked.allows(granted):
        return granted
    return asked


class VfolderStatus(StrEnum):
    """Stored status of a folder. A ready folder in use by a live session is also *mounted*."""

    CLONING = "cloning"  # its files are still being copied from another folder
    READY = "ready"
    PERFORMING = "performing"  # being transferred to another owner
    ERROR = "error"  # cloning or transfer failed; status_info says why
    DELETE_PENDING = "delete-pending"  # in the trash
    DELETE_ONGOING = "delete-ongoing"
    DELETE_COMPLETE = "delete-complete"  # only the row is left
    DELETE_ERROR = "delete-error"


class VfolderEvent(StrEnum):
    COPIED = "copied"  # all files of a clone are complete
    HANDED_OVER = "handed-over"  # its files are to be moved to another owner
    ARRIVED = "arrived"
    BROKEN = "broken"  # cloning or transfer failed
    TRASHED = "trashed"
    RESTORED = "restored"
    PURGED = "purged"  # the bytes are to be deleted
    EMPTIED = "emptied"  # the bytes are deleted
    FAILED = "failed"


S, E = VfolderStatus, VfolderEvent

# A pair that is missing here is illegal. There is no way back once deletion of the bytes has begun.
TRANSITIONS: Mapping[tuple[VfolderStatus, VfolderEvent], VfolderStatus] = {
    (S.CLONING, E.COPIED): S.READY,
    (S.CLONING, E.BROKEN): S.ERROR,
    (S.READY, E.HANDED_OVER): S.PERFORMING,
    (S.PERFORMING, E.ARRIVED): S.READY,
    (S.PERFORMING, E.BROKEN): S.READY,  # with its old owner
    (S.READY, E.TRASHED): S.DELETE_PENDING,
    (S.ERROR, E.TRASHED): S.DELETE_PENDING,
    (S.DELETE_PENDING, E.RESTORED): S.READY,
    (S.DELETE_PENDING, E.PURGED): S.DELETE_ONGOING,
    (S.DELETE_ONGOING, E.EMPTIED): S.DELETE_COMPLETE,
    (S.DELETE_ONGOING, E.FAILED): S.DELETE_ERROR,
    (S.DELETE_ERROR, E.PURGED): S.DELETE_ONGOING,
}

_ADVICE = {
    S.CLONING: "its files are still being copied; wait until it is ready",
    S.READY: "it is not in the trash; put it there first",
    S.PERFORMING: "it is being transferred to another owner; wait until it is ready",
    S.ERROR: "it could not be completed; put it in the trash",
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


def origins(event: VfolderEvent) -> frozenset[VfolderStatus]:
    """Return the statuses in which ``event`` is valid."""
    return frozenset(status for status, known in TRANSITIONS if known is event)


# A name is taken in its scope while a folder has one of these.
NAMED = frozenset({S.CLONING, S.READY, S.PERFORMING, S.ERROR})


class UsageMode(StrEnum):
    """Purpose of a folder; folders whose names begin with a dot are mounted into every session."""

    GENERAL = "general"
    MODEL = "model"
    DATA = "data"


def is_auto_mounted(name: str) -> bool:
    """Return whether a folder of that name is mounted into every session of its owner."""
    return name.startswith(".")


class InvitationStatus(StrEnum):
    PENDING = "pending"
    CANCELED = "canceled"
    ACCEPTED = "accepted"
    REJECTED = "rejected"


def check_name(name: str) -> str:
    """Return ``name`` if it is valid for a folder.

    1 to 64 ASCII letters, digits and ``. _ -``, beginning with a letter, a digit or a dot; not only
    dots, and not the name of a file that sessions create.

    Raises
    ------
    InvalidRequest
        If it is anything else.
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
            f"{name!r} cannot be the name of a folder: it would cover a file that sessions bring "
            "with them at that place; take another name",
            field="name",
        )
    return name


def is_reserved(name: str) -> bool:
    """Return whether a session's home folder already contains this name."""
    return name in RESERVED_NAMES or any(p.fullmatch(name) for p in _RESERVED_PATTERNS)


@dataclass(frozen=True, slots=True)
class Expected:
    """Precondition for replacing a file.

    ``etag`` must still be the current one; ``is_new`` requires that the file does not exist.
    """

    etag: str | None = None
    is_new: bool = False


ANYTHING = Expected()
