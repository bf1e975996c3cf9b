"""Store of the triggers of pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.pipelines.triggers import MAX_TRIGGERS_PER_PIPELINE

from ..audit import record
from ..database import Database
from ..records import first_record
from ..tables.pipelines import pipeline_triggers
from .attached import insert_with_limit, listing_with_pipeline, select_with_pipeline
from .definitions import visible_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTriggerRow:
    """A trigger with its pipeline and owner."""

    id: str
    created_at: datetime
    pipeline_id: str
    name: str
    secret_encrypted: str = field(repr=False)
    is_enabled: bool
    last_call_at: datetime | None
    last_run_id: str | None
    last_message: str
    pipeline: str
    project_id: str
    project: str
    domain: str
    owner_id: str
    owner: str
    owner_role: Role


_ROWS = select_with_pipeline(pipeline_triggers)
_LISTING = listing_with_pipeline(
    pipeline_triggers,
    (
        "id", "created_at", "pipeline_id", "name", "is_enabled", "last_call_at",
        "last_run_id", "last_message",
    ),
)  # fmt: skip


class PipelineTriggerStore:
    """Reads and writes triggers of pipelines. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, visible: Visibility) -> Page[PipelineTriggerRow]:
        async with self._db.read() as tx:
            rows = _ROWS.where(visible_rows(visible, pipeline_triggers.c.owner_id))
            return await _LISTING.page(tx, rows, query, _row)

    async def find(self, key: str, visible: Visibility) -> PipelineTriggerRow:
        """Return a visible trigger.

        Raises
        ------
        NotFound
            If no visible trigger has that id.
        """
        is_visible = visible_rows(visible, pipeline_triggers.c.owner_id)
        rows = _ROWS.where(is_visible, pipeline_triggers.c.id == key)
        async with self._db.read() as tx:
            found = first_record(_row, await tx.execute(rows))
        if found is None:
            raise NotFound(f"there is no trigger {key!r}, or you may not see it", trigger=key)
        return found

    async def create(self, pipeline: str, values: Mapping[str, Any], audit: AuditEntry) -> None:
        """Insert a trigger of the pipeline named ``pipeline``.

        Raises
        ------
        AlreadyExists
            If the pipeline has a trigger with that name.
        QuotaExceeded
            If the pipeline has too many triggers.
        NotFound
            If the pipeline no longer exists.
        """
        async with self._db.write() as tx:
            await insert_with_limit(
                tx,
                pipeline_triggers,
                pipeline,
                values,
                kind="trigger",
                limit=MAX_TRIGGERS_PER_PIPELINE,
            )
            await record(tx, audit)

    async def update(self, key: str, changes: Mapping[str, Any], audit: AuditEntry | None) -> None:
        """Change a trigger; changes by a call have no ``audit`` entry."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(pipeline_triggers).where(pipeline_triggers.c.id == key).values(**changes)
            )
            if audit is not None:
                await record(tx, audit)

    async def delete(self, key: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await tx.execute(sa.delete(pipeline_triggers).where(pipeline_triggers.c.id == key))
            await record(tx, audit)


def _row(*, owner_role: str, **columns: Any) -> PipelineTriggerRow:
    return PipelineTriggerRow(owner_role=Role(owner_role), **columns)
