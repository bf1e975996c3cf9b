"""Entries of directories, and results of unpacking archives and of fetching repositories."""

from __future__ import annotations

from collections.abc import Mapping
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

    ``etag`` identifies the version of a file by inode number, size and modification time; None for
    everything except files.
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


@dataclass(frozen=True, slots=True)
class FetchedFiles:
    """Result of fetching a commit and writing its files to an archive.

    ``skipped`` counts omitted ``links``, omitted ``submodules``, and ``lfs`` files, for which the
    archive contains only the Git LFS pointer.
    """

    commit: str
    files: int
    bytes: int
    skipped: Mapping[str, int]
