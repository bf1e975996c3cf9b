"""Model cards and imports as shown to callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..imports.lifecycle import ImportStatus
from .imports import SourceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCard:
    """A model of a project of the type model-store; ``id`` is the id of its folder.

    ``is_latest``: the model has the highest version among the models of its project with the same
    name. ``size_bytes``: None before the first count. ``problem``: why the definition is not valid,
    "" for a valid one. ``is_fitting``: the caller's quotas and the largest agent permit a replica;
    None if the caller can create no session.
    """

    id: str
    created_at: datetime
    refreshed_at: datetime
    folder: str
    host: str
    domain: str
    project: str
    project_id: str
    name: str
    title: str
    version: str
    is_latest: bool
    author: str
    description: str
    task: str
    category: str
    architecture: str
    license: str
    created: str
    last_modified: str
    frameworks: Sequence[str]
    labels: Sequence[str]
    min_resources: Mapping[str, str]
    has_command: bool
    cloneable: bool
    size_bytes: int | None
    problem: str
    problem_line: int | None
    is_fitting: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReadme:
    """The text of a README.md without its YAML block; "" if the folder has no README.md."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelImport:
    """An import of a model into a new folder of a project.

    ``source``: name of the model at the hub, or the URL of a file. ``revision``: as requested;
    ``commit_id``: commit of the revision when the import began. ``folder_id``: None until the
    import is approved, and after its folder was deleted. ``problem``: why the import has failed, ""
    if it has not failed; ``problem_coded``: the same text as a code with values, None for a text
    without a code. ``kept_until``: until this time, a retry continues with the first incomplete
    file; None if no files are kept.
    """

    id: str
    created_at: datetime
    changed_at: datetime
    kind: SourceKind
    source: str
    revision: str
    commit_id: str
    patterns: Sequence[str]
    folder: str
    folder_id: str | None
    domain: str
    project: str
    project_id: str
    owner: str
    owner_id: str
    status: ImportStatus
    files: int
    total_files: int
    bytes: int
    total_bytes: int
    problem: str
    problem_coded: Mapping[str, Any] | None
    kept_until: datetime | None
