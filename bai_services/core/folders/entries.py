"""Entries of directories, and results of unpacking archives."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class FileType(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    LINK = "link"
    OTHER = "other"  # sockets, pipes, devices: listed, never opened


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a directory. ``size`` is in bytes; 0 for everything except files.

    ``etag`` changes whenever the content of a file may have changed.
    """

    name: str
    type: FileType
    size: int
    modified_at: datetime
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Unpacked:
    """Result of unpacking an archive."""

    files: int
    bytes: int
