"""What the code that touches the bytes of folders speaks of."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from bai_services.core.errors import Conflict


class FileType(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"  # sockets, pipes, devices: listed, never opened


class Capability(StrEnum):
    """What a storage host can do beyond keeping files."""

    QUOTA = "quota"  # its file system refuses what is over a scope's quota, for sessions too
    FAST_USAGE = "fast-usage"  # it counts what a scope holds, so nobody has to walk it
    FAST_CLONE = "fast-clone"  # copies share their blocks until one of them changes


class HostStatus(StrEnum):
    READY = "ready"
    FULL = "full"
    READ_ONLY = "read-only"
    SLOW = "slow"
    GONE = "gone"  # not mounted, broken, or it does not answer within its time


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose bytes count together against one quota: ``kind`` is ``user`` or ``project``."""

    kind: str
    id: str

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Read the form of the database: ``user:ID``."""
        kind, _, key = text.partition(":")
        return cls(kind, key)

    def __str__(self) -> str:
        return f"{self.kind}:{self.id}"

    @property
    def parts(self) -> tuple[str, str]:
        """Return its place below a host's root: by ids only, never by names that people give."""
        if self.kind not in ("user", "project"):
            raise ValueError(f"{self.kind!r} is no kind of quota scope")
        return self.kind, str(uuid.UUID(self.id))


@dataclass(frozen=True, slots=True)
class Location:
    """Where a folder's bytes lie.

    ``unmanaged_path`` is the absolute path of a directory that was there before
    us: used as it is, without a quota, and never deleted.
    """

    scope: Scope
    vfolder_id: str
    unmanaged_path: str | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in a directory; ``size`` in bytes, 0 for what is no file.

    ``etag`` changes whenever the content of a file may have changed.
    """

    name: str
    type: FileType
    size: int
    modified_at: datetime
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Entries:
    """A page of a directory, and how many entries it holds in all."""

    items: list[Entry]
    total: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What a folder holds: files and directories below it, and the bytes of its files.

    ``bytes`` is the size that files show, holes included; ``disk_bytes`` what they take on disk.
    """

    files: int
    bytes: int
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Health:
    """How a host was when it was last looked at."""

    status: HostStatus
    message: str
    total_bytes: int
    free_bytes: int
    checked_at: datetime


class Copying:
    """How far a copy is; read by one thread while another writes it."""

    def __init__(self) -> None:
        self.files = 0
        self.bytes = 0
        self.total_files = 0
        self.total_bytes = 0
        self.is_cancelled = False

    def check(self) -> None:
        """Raise ``Conflict`` once the copy was cancelled."""
        if self.is_cancelled:
            raise Conflict("the copy was cancelled")
