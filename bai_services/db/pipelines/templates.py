"""Store of templates of pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.roles import Role
from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import refusal
from bai_services.core.errors import AlreadyExists, QuotaExceeded
from bai_services.core.pipelines.records import MAX_TEMPLATES_PER_SCOPE
from bai_services.core.refusal_texts import RefusalText

from ..accounts.user_domains import lock_active
from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..records import records
from ..tables.accounts import projects, users
from ..tables.pipelines import pipeline_templates
from .definitions import PipelineReader, is_visible

# Maximum number of templates that a caller sees.
MAX_SHOWN = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineTemplateRow:
    """A template with its owner; without an owner, it belongs to its project."""

    id: str
    created_at: datetime
    name: str
    description: str
    tasks: int
    owner_id: str | None
    owner: str | None
    owner_role: Role | None
    project_id: str
    project: str
    domain: str


_ROWS = (
    sa.select(
        # Definitions may have 1 MiB each.
        *(
            column
            for column in pipeline_templates.columns
            if column.name not in ("scope", "definition")
        ),
        users.c.username.label("owner"),
        users.c.role.label("owner_role"),
        projects.c.domain,
        projects.c.name.label("project"),
    )
    .outerjoin_from(pipeline_templates, users, pipeline_templates.c.owner_id == users.c.id)
    .join(projects, pipeline_templates.c.project_id == projects.c.id)
)


class PipelineTemplateStore:
    """Reads and writes templates of pipelines. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def visible(self, reader: PipelineReader) -> list[PipelineTemplateRow]:
        """Return the templates that the caller may see, by name."""
        templates = pipeline_templates.c
        in_project = templates.owner_id.is_(None) & templates.project_id.in_(
            sorted(reader.project_ids)
        )
        condition = is_visible(reader.visible, templates.owner_id) | in_project
        rows = _ROWS.where(condition).order_by(templates.name, templates.id).limit(MAX_SHOWN)
        async with self._db.read() as tx:
            return records(_row, await tx.execute(rows))

    async def definition(self, key: str) -> str:
        """Return the definition of a template; "" if it no longer exists."""
        rows = sa.select(pipeline_templates.c.definition).where(pipeline_templates.c.id == key)
        async with self._db.read() as tx:
            return str(await tx.scalar(rows) or "")

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> None:
        """Insert a template.

        Raises
        ------
        AlreadyExists
            If the owner or project has a template with that name.
        QuotaExceeded
            If the owner or project has too many templates.
        """
        templates = pipeline_templates.c
        is_same = templates.scope == values["scope"]
        count = sa.select(sa.func.count()).select_from(pipeline_templates).where(is_same)
        async with self._db.write() as tx:
            if values["owner_id"] is None:
                project = projects.c.id == values["project_id"]
                await tx.execute(sa.select(projects.c.id).where(project).with_for_update())
            else:
                await lock_active(tx, values["owner_id"])
            if int(await tx.scalar(count) or 0) >= MAX_TEMPLATES_PER_SCOPE:
                raise QuotaExceeded(
                    refusal(RefusalText.TOO_MANY_TEMPLATES, limit=MAX_TEMPLATES_PER_SCOPE),
                    limit=MAX_TEMPLATES_PER_SCOPE,
                )
            name = values["name"]
            taken = AlreadyExists(refusal(RefusalText.TEMPLATE_EXISTS, name=name), name=name)
            with raise_on_violation(taken):
                await tx.execute(pipeline_templates.insert().values(values))
            await record(tx, audit)

    async def delete(self, key: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await tx.execute(sa.delete(pipeline_templates).where(pipeline_templates.c.id == key))
            await record(tx, audit)


def _row(*, owner_role: str | None, **columns: Any) -> PipelineTemplateRow:
    role = None if owner_role is None else Role(owner_role)
    return PipelineTemplateRow(owner_role=role, **columns)
