"""Store of imports of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.imports.lifecycle import ImportStatus
from bai_services.core.models.imports import SourceKind

from ..accounts.visibility import visible_rows
from ..database import Database
from ..imports.store import ImportStore
from ..listing import Listing
from ..records import records
from ..tables.accounts import project_policies, projects, users
from ..tables.models import model_imports


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportRow:
    """An import with its project and the user who has requested it."""

    id: str
    created_at: datetime
    changed_at: datetime
    project_id: str
    owner_id: str
    vfolder_id: str | None
    folder: str
    kind: SourceKind
    source: str
    revision: str
    commit_id: str
    patterns: Sequence[str]
    sha256: str
    status: ImportStatus
    files: int
    total_files: int
    bytes: int
    total_bytes: int
    problem: str
    problem_coded: Mapping[str, Any] | None
    kept_until: datetime | None
    owner: str
    owner_role: Role
    domain: str
    project: str


def _row(*, kind: str, status: str, owner_role: str, **columns: Any) -> ImportRow:
    return ImportRow(
        kind=SourceKind(kind), status=ImportStatus(status), owner_role=Role(owner_role), **columns
    )


_ROWS = (
    sa.select(
        *model_imports.columns,
        users.c.username.label("owner"),
        users.c.role.label("owner_role"),
        projects.c.domain,
        projects.c.name.label("project"),
    )
    .join_from(model_imports, users, model_imports.c.owner_id == users.c.id)
    .join(projects, model_imports.c.project_id == projects.c.id)
)
_LISTING = Listing(
    columns={
        **{
            name: model_imports.c[name]
            for name in (
                "id", "created_at", "changed_at", "project_id", "owner_id", "folder", "kind",
                "source", "status",
            )
        },
        "owner": users.c.username,
        "domain": projects.c.domain,
        "project": projects.c.name,
    },
    default_sort=("-created_at", "id"),
)  # fmt: skip


def _visible(visible: Visibility) -> sa.Select[Any]:
    return _ROWS.where(
        *visible_rows(visible, domain=projects.c.domain, owner_id=model_imports.c.owner_id)
    )


class ModelImportStore(ImportStore[ImportRow]):
    """Reads and writes imports of models. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        super().__init__(
            database, model_imports, rows=_ROWS, make_row=_row, listing=_LISTING, visible=_visible
        )

    async def abandoned(self, now: datetime) -> list[ImportRow]:
        """Return the failed and cancelled imports whose folder must be deleted."""
        ended = sorted((ImportStatus.FAILED, ImportStatus.CANCELLED))
        kept_until = model_imports.c.kept_until
        rows = _ROWS.where(
            model_imports.c.status.in_(ended),
            model_imports.c.vfolder_id.is_not(None),
            kept_until.is_(None) | (kept_until <= now),
        )
        async with self._db.read() as tx:
            return records(_row, await tx.execute(rows.order_by(model_imports.c.created_at)))

    async def folder_deleted(self, import_id: str, vfolder_id: str) -> None:
        """Remove the reference of an import to its deleted folder."""
        one = (model_imports.c.id == import_id) & (model_imports.c.vfolder_id == vfolder_id)
        async with self._db.write() as tx:
            await tx.execute(model_imports.update().where(one).values(vfolder_id=None))

    async def allows_member_imports(self, project_id: str) -> bool:
        """Return whether the policy of a store permits imports of members without an approval."""
        allowed = (
            sa.select(project_policies.c.allows_member_imports)
            .join_from(
                projects, project_policies, projects.c.resource_policy == project_policies.c.name
            )
            .where(projects.c.id == project_id)
        )
        async with self._db.read() as tx:
            return bool(await tx.scalar(allowed))
