"""Store of imports into folders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.imports.lifecycle import ImportStatus
from bai_services.core.imports.sources import SourceKind

from ..accounts.visibility import visible_rows
from ..database import Database
from ..listing import Listing
from ..tables.accounts import users
from ..tables.imports import folder_imports
from .store import ImportStore


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderImportRow:
    """An import, with the user who has requested it. ``token`` is encrypted; it is "" if there is
    none.
    """

    id: str
    created_at: datetime
    changed_at: datetime
    owner_id: str
    vfolder_id: str | None
    folder: str
    is_new_folder: bool
    directory: str
    kind: SourceKind
    source: str
    branch: str
    commit_id: str
    open_path: str
    token: str = field(repr=False)
    status: ImportStatus
    files: int
    total_files: int
    bytes: int
    total_bytes: int
    skipped: Mapping[str, int]
    problem: str
    problem_coded: Mapping[str, Any] | None
    owner: str
    owner_role: Role
    domain: str


def _row(*, kind: str, status: str, owner_role: str, **columns: Any) -> FolderImportRow:
    return FolderImportRow(
        kind=SourceKind(kind), status=ImportStatus(status), owner_role=Role(owner_role), **columns
    )


_ROWS = sa.select(
    *folder_imports.columns,
    users.c.username.label("owner"),
    users.c.role.label("owner_role"),
    users.c.domain,
).join_from(folder_imports, users, folder_imports.c.owner_id == users.c.id)
_LISTING = Listing(
    columns={
        **{
            name: folder_imports.c[name]
            for name in (
                "id", "created_at", "changed_at", "owner_id", "folder", "kind", "source", "status",
            )
        },
        "owner": users.c.username,
        "domain": users.c.domain,
    },
    default_sort=("-created_at", "id"),
)  # fmt: skip


def _visible(visible: Visibility) -> sa.Select[Any]:
    return _ROWS.where(
        *visible_rows(visible, domain=users.c.domain, owner_id=folder_imports.c.owner_id)
    )


class FolderImportStore(ImportStore[FolderImportRow]):
    """Reads and writes imports into folders. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        super().__init__(
            database,
            folder_imports,
            rows=_ROWS,
            make_row=_row,
            listing=_LISTING,
            visible=_visible,
        )
