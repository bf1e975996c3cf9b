"""Store of session templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, NotFound, QuotaExceeded
from bai_services.core.listing import ListQuery, Page

from ..accounts.user_domains import lock_domain_of
from ..accounts.visibility import is_owner_visible
from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation
from ..listing import Listing
from ..records import first_record, records
from ..tables.accounts import domains, projects, users
from ..tables.sessions import session_templates

# Maximum number of templates in one scope (a user, project or domain).
MAX_TEMPLATES = 100
# Names of the scopes in messages, by the part of the scope before the colon.
_SCOPE_NAMES = {"user": "you", "project": "the project", "domain": "the domain"}
# Columns with the part of the scope after the colon.
_SCOPE_KEYS = {"user": users.c.id, "project": projects.c.id, "domain": domains.c.name}

_SELECT = (
    sa.select(
        session_templates,
        users.c.username.label("owner"),
        users.c.role.label("owner_role"),
        projects.c.name.label("project"),
    )
    .outerjoin_from(session_templates, users, session_templates.c.owner_id == users.c.id)
    .outerjoin(projects, session_templates.c.project_id == projects.c.id)
)
_LISTING = Listing(
    {
        **{
            name: session_templates.c[name]
            for name in ("id", "name", "description", "domain", "created_at", "changed_at")
        },
        "owner": users.c.username,
        "project": projects.c.name,
    },
    default_sort=("name", "id"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateRow:
    """A template of a user (``owner_id``), of a project (``project_id``), or else of a domain."""

    id: str
    created_at: datetime
    changed_at: datetime
    name: str
    description: str
    scope: str
    owner_id: str | None
    owner: str | None
    owner_role: Role | None
    project_id: str | None
    project: str | None
    domain: str
    request: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TemplateReader:
    """The caller who reads templates, and the templates that the caller may read.

    If ``is_domain_wide`` is true, the caller may read all templates of the domain, except templates
    of owners with a role in ``hidden_roles``.
    """

    user_id: str | None
    domain: str | None
    project_ids: frozenset[str]
    is_domain_wide: bool
    hidden_roles: frozenset[Role]

    def condition(self) -> sa.ColumnElement[bool]:
        table = session_templates.c
        if self.is_domain_wide:
            return sa.and_(
                table.domain == self.domain, is_owner_visible(table.owner_id, self.hidden_roles)
            )
        is_of_domain = table.owner_id.is_(None) & table.project_id.is_(None)
        return sa.or_(
            table.owner_id == self.user_id,
            table.project_id.in_(sorted(self.project_ids)),
            is_of_domain & (table.domain == self.domain),
        )


class TemplateStore:
    """Reads and writes session templates.

    Each public method is one transaction. If ``reader`` is None, all templates are visible.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, reader: TemplateReader | None) -> Page[TemplateRow]:
        async with self._db.read() as tx:
            return await _LISTING.page(tx, _visible_to(reader), query, _template)

    async def named(self, key: str, reader: TemplateReader | None) -> list[TemplateRow]:
        """Return the template with the id ``key``, else all templates named ``key``."""
        has_key = sa.or_(session_templates.c.id == key, session_templates.c.name == key)
        async with self._db.read() as tx:
            rows = records(_template, await tx.execute(_visible_to(reader).where(has_key)))
        return [row for row in rows if row.id == key] or rows

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> TemplateRow:
        """Insert a template and return it; a user's template gets the user's current domain.

        Raises
        ------
        AlreadyExists
            If a template with that name exists in the same scope.
        QuotaExceeded
            If there are already ``MAX_TEMPLATES`` templates in the same scope.
        NotFound
            If the owner no longer exists.
        """
        async with self._db.write() as tx:
            await _lock_scope(tx, values["scope"])
            if values["owner_id"]:
                values = {**values, "domain": await lock_domain_of(tx, values["owner_id"])}
            await _check_count(tx, values["scope"])
            with raise_on_violation(_taken(values["name"])):
                await tx.execute(sa.insert(session_templates).values(values))
            await record(tx, audit)
            return await _one(tx, values["id"])

    async def update(
        self, template_id: str, changes: Mapping[str, Any], audit: AuditEntry
    ) -> TemplateRow:
        """Update a template and return it.

        Raises
        ------
        AlreadyExists
            If another template with the new name exists in the same scope.
        NotFound
            If the template no longer exists.
        """
        async with self._db.write() as tx:
            with raise_on_violation(_taken(str(changes.get("name", "")))):
                await tx.execute(
                    sa.update(session_templates)
                    .where(session_templates.c.id == template_id)
                    .values(changes)
                )
            row = await _one(tx, template_id)
            await record(tx, audit)
            return row

    async def delete(self, template_id: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(session_templates).where(session_templates.c.id == template_id)
            )
            await record(tx, audit)


def _visible_to(reader: TemplateReader | None) -> sa.Select[Any]:
    return _SELECT if reader is None else _SELECT.where(reader.condition())


async def _lock_scope(tx: AsyncConnection, scope: str) -> None:
    """Lock a scope: of two concurrent creations, the second must count the first template."""
    kind, _, key = scope.partition(":")
    column = _SCOPE_KEYS[kind]
    await tx.execute(sa.select(column).where(column == key).with_for_update(key_share=True))


async def _check_count(tx: AsyncConnection, scope: str) -> None:
    count = sa.select(sa.func.count()).where(session_templates.c.scope == scope)
    if (await tx.execute(count)).scalar_one() >= MAX_TEMPLATES:
        raise QuotaExceeded(
            f"{_SCOPE_NAMES[scope.partition(':')[0]]} can have at most {MAX_TEMPLATES} templates; "
            "delete one first",
            limit=MAX_TEMPLATES,
        )


async def _one(tx: AsyncConnection, template_id: str) -> TemplateRow:
    select = _SELECT.where(session_templates.c.id == template_id)
    row = first_record(_template, await tx.execute(select))
    if row is None:
        raise NotFound("the template no longer exists")
    return row


def _template(*, owner_role: str | None, **columns: Any) -> TemplateRow:
    return TemplateRow(owner_role=Role(owner_role) if owner_role else None, **columns)


def _taken(name: str) -> AlreadyExists:
    return AlreadyExists(f"there is already a template {name} with the same audience", name=name)
