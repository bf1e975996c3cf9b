"""Types shared by the code that reads and writes folders."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from bai_services.core.errors import Conflict
from bai_services.core.folders.entries import Entry


class Capability(StrEnum):
    """An optional capability of a storage host."""

    QUOTA = "quota"  # the file system enforces quotas, also on writes by sessions
    FAST_USAGE = "fast-usage"  # the file system counts usage, so no tree needs to be walked
    FAST_CLONE = "fast-clone"  # copy-on-write copies that share blocks (reflinks)


class HostStatus(StrEnum):
    READY = "ready"
    FULL = "full"
    READ_ONLY = "read-only"
    SLOW = "slow"
    GONE = "gone"  # not mounted, broken, or not responding in time


@dataclass(frozen=True, slots=True)
class Scope:
    """A user or project whose usage counts against one quota; ``kind`` is ``user`` or
    ``project``.
    """

    kind: str
    id: str

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Return the scope that the database stores as ``text``, for example ``user:ID``."""
        kind, _, key = text.partition(":")
        return cls(kind, key)

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"

    @property
    def parts(self) -> tuple[str, str]:
        """Return the scope's path below a host's root: ids only, never names given by users."""
        if self.kind not in ("user", "project"):
            raise ValueError(f"{self.kind!r} is not a kind of quota scope")
        return self.kind, str(uuid.UUID(self.id))


@dataclass(frozen=True, slots=True)
class Location:
    """Location of a folder's files.

    ``unmanaged_path`` is the absolute path of a directory that existed before the folder was
    registered. Such a directory has no quota and is never deleted.
    """

    scope: Scope
    vfolder_id: str
    unmanaged_path: str | None = None


@dataclass(frozen=True, slots=True)
class Entries:
    """A page of a directory's entries; ``total`` is the number of matching entries on all pages."""

    items: list[Entry]
    total: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Usage of a folder: number of files and directories below it, and bytes of its files.

    ``bytes`` is the apparent size, holes included; ``disk_bytes`` the allocated size.
    """

    files: int
    bytes: int
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Health:
    """Health of a host at the last check."""

    status: HostStatus
    message: str
    total_bytes: int
    free_bytes: int
    checked_at: datetime


class CopyProgress:
    """Progress of a copy, for the thread that copies and the thread that observes or cancels it."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        self.total_files = 0
        self.total_bytes = 0
        self.is_cancelled = False
        # Maximum number of copied bytes; None: no limit.
        self.limit_bytes: int | None = None

    def check(self) -> None:
        """Raise ``Conflict`` if the copy was cancelled."""
        if self.is_cancelled:
            raise Conflict("the copy was cancelled")

    def check_size(self, size_bytes: int) -> None:
        """Raise ``Conflict`` if a file of ``size_bytes`` more would exceed ``limit_bytes``."""
        if self.limit_bytes is not None and self.bytes + size_bytes > self.limit_bytes:
            raise Conflict("the source has grown since the start of the copy; try again")
