"""Store of imports of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import NotFound, QuotaExceeded
from bai_services.core.listing import ListQuery, Page
from bai_services.core.models.imports import (
    ENDED,
    ImportEvent,
    ImportStatus,
    SourceKind,
    next_status,
)
from bai_services.core.models.records import MAX_OPEN_IMPORTS_PER_USER

from ..accounts.owner_visibility import is_owner_visible
from ..accounts.user_domains import lock_active
from ..audit import record
from ..database import Database
from ..listing import Listing
from ..records import first_record, records
from ..tables.accounts import project_policies, projects, users
from ..tables.models import model_imports

_OPEN = sorted(set(ImportStatus) - ENDED)


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
    rows = _ROWS
    if visible.domain is not None:
        rows = rows.where(projects.c.domain == visible.domain)
    if visible.owner_id is not None:
        rows = rows.where(model_imports.c.owner_id == visible.owner_id)
    if visible.hidden_roles:
        rows = rows.where(is_owner_visible(model_imports.c.owner_id, visible.hidden_roles))
    return rows


class ImportStore:
    """Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, visible: Visibility) -> Page[ImportRow]:
        async with self._db.read() as tx:
            return await _LISTING.page(tx, _visible(visible), query, _row)

    async def find(self, key: str, visible: Visibility) -> ImportRow:
        """Return a visible import.

        Raises
        ------
        NotFound
            If no visible import has that id.
        """
        async with self._db.read() as tx:
            rows = await tx.execute(_visible(visible).where(model_imports.c.id == key))
            found = first_record(_row, rows)
        if found is None:
            raise NotFound(f"there is no import {key!r}, or you may not see it")
        return found

    async def check_count(self, owner_id: str) -> None:
        """Raise ``QuotaExceeded`` if the user has too many imports that have not ended."""
        async with self._db.read() as tx:
            await _check_count(tx, owner_id)

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> None:
        """Insert an import.

        Raises
        ------
        QuotaExceeded
            If the user has too many imports that have not ended.
        Conflict
            If the user is no longer active.
        """
        async with self._db.write() as tx:
            await lock_active(tx, values["owner_id"])
            await _check_count(tx, values["owner_id"])
            await tx.execute(model_imports.insert().values(**values))
            await record(tx, audit)

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

    async def open(self) -> list[ImportRow]:
        """Return the imports of active users that are to be run, the oldest first."""
        runs = sorted((ImportStatus.QUEUED, ImportStatus.RUNNING))
        rows = _ROWS.where(model_imports.c.status.in_(runs), users.c.status == "active")
        async with self._db.read() as tx:
            return records(_row, await tx.execute(rows.order_by(model_imports.c.created_at)))

    async def apply(
        self,
        import_id: str,
        event: ImportEvent,
        now: datetime,
        changes: Mapping[str, Any] | None = None,
        audit: AuditEntry | None = None,
    ) -> ImportStatus:
        """Apply an event to an import, and write other ``changes``; return the new status.

        Raises
        ------
        InvalidTransition
            If the event is not valid in the status of the import.
        NotFound
            If the import no longer exists.
        """
        async with self._db.write() as tx:
            after = await _apply(tx, import_id, event, now, changes or {})
            if audit is not None:
                await record(tx, audit)
            return after

    async def retry(self, import_id: str, owner_id: str, now: datetime, audit: AuditEntry) -> None:
        """Queue a failed import again.

        Raises
        ------
        InvalidTransition
            If the import has not failed.
        QuotaExceeded
            If its owner has too many imports that have not ended.
        Conflict
            If its owner is no longer active.
        """
        changes = {"problem": "", "files": 0, "bytes": 0}
        async with self._db.write() as tx:
            await lock_active(tx, owner_id)
            await _check_count(tx, owner_id)
            await _apply(tx, import_id, ImportEvent.RETRIED, now, changes)
            await record(tx, audit)

    async def progress(self, import_id: str, changes: Mapping[str, Any]) -> bool:
        """Write the progress of a running import; return False if it no longer runs."""
        async with self._db.write() as tx:
            changed = await tx.execute(
                model_imports.update()
                .where(
                    model_imports.c.id == import_id, model_imports.c.status == ImportStatus.RUNNING
                )
                .values(changes)
            )
            return bool(changed.rowcount)

    async def clean_up(self, before: datetime) -> None:
        """Delete the imports that ended before a time."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(model_imports).where(
                    model_imports.c.status.in_(sorted(ENDED)), model_imports.c.changed_at < before
                )
            )


async def _check_count(tx: AsyncConnection, owner_id: str) -> None:
    own = sa.select(sa.func.count()).where(
        model_imports.c.owner_id == owner_id, model_imports.c.status.in_(_OPEN)
    )
    if int(await tx.scalar(own) or 0) >= MAX_OPEN_IMPORTS_PER_USER:
        raise QuotaExceeded(
            f"the user has {MAX_OPEN_IMPORTS_PER_USER} imports that have not ended; wait for them "
            "or cancel some",
            limit=MAX_OPEN_IMPORTS_PER_USER,
        )


async def _apply(
    tx: AsyncConnection,
    import_id: str,
    event: ImportEvent,
    now: datetime,
    changes: Mapping[str, Any],
) -> ImportStatus:
    after = next_status(await _locked_status(tx, import_id), event)
    await tx.execute(
        model_imports.update()
        .where(model_imports.c.id == import_id)
        .values(status=after, changed_at=now, **changes)
    )
    return after


async def _locked_status(tx: AsyncConnection, import_id: str) -> ImportStatus:
    status = await tx.scalar(
        sa.select(model_imports.c.status).where(model_imports.c.id == import_id).with_for_update()
    )
    if status is None:
        raise NotFound("the import no longer exists")
    return ImportStatus(status)
