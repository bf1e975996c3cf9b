"""Imports into folders as shown to callers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from .lifecycle import ImportStatus
from .sources import SourceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderImport:
    """An import of a repository, archive or file into a folder.

    ``source``: the URL; ``commit_id``: the commit that was fetched. ``directory``: directory of the
    folder that contains the imported files, "" for the top. ``open_path``: path of the files below
    the URL of a session that mounts the folder. ``skipped``: see ``FetchedFiles``. ``problem``: why
    the import has failed, "" if it has not failed; ``problem_coded``: the same text as a code with
    values, None for a text without a code.
    """

    id: str
    created_at: datetime
    changed_at: datetime
    kind: SourceKind
    source: str
    branch: str
    commit_id: str
    folder: str
    folder_id: str | None
    directory: str
    open_path: str
    domain: str
    owner: str
    owner_id: str
    status: ImportStatus
    files: int
    total_files: int
    bytes: int
    total_bytes: int
    skipped: Mapping[str, int]
    problem: str
    problem_coded: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportPreview:
    """The source of an import before it starts; ``folder``: default name of the folder."""

    kind: SourceKind
    source: str
    host: str
    branch: str
    path: str
    folder: str
    max_bytes: int
