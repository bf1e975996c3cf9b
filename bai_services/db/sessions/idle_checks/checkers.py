"""Store of idle checkers, their bindings and their decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import CodedText
from bai_services.core.errors import AlreadyExists, NotFound
from bai_services.core.listing import ListQuery, Page
from bai_services.core.sessions.idle_checks.checkers import BindingScope
from bai_services.core.sessions.idle_checks.records import IdleCheckerBinding, IdleDecision

from ...audit import record
from ...database import Database
from ...integrity import raise_on_violation, update_version
from ...listing import Listing
from ...records import first_record
from ...tables.accounts import domains, keypair_policies, projects, users
from ...tables.cluster import resource_groups
from ...tables.idle_checks import idle_checker_bindings as bindings
from ...tables.idle_checks import idle_checkers as checkers
from ...tables.idle_checks import idle_decisions as decisions


@dataclass(frozen=True, slots=True)
class CheckerRow:
    """A checker and the number of its bindings."""

    id: str
    created_at: datetime
    version: int
    name: str
    description: str
    type: str
    settings: dict[str, Any]
    bindings: int


_BINDING_COUNT = (
    sa.select(sa.func.count())
    .select_from(bindings)
    .where(bindings.c.checker_id == checkers.c.id)
    .scalar_subquery()
)
_CHECKERS = sa.select(*checkers.columns, _BINDING_COUNT.label("bindings"))
_CHECKER_LISTING = Listing(
    columns={
        name: checkers.c[name] for name in ("id", "name", "type", "created_at", "description")
    },
    default_sort=("name",),
)
_SCOPE_NAME = sa.case(
    (bindings.c.scope == BindingScope.USER, users.c.username),
    (bindings.c.scope == BindingScope.PROJECT, projects.c.domain + "/" + projects.c.name),
    else_=bindings.c.scope_id,
)
_BINDINGS = (
    sa.select(
        *(column for column in bindings.columns if column.name != "effective_at"),
        checkers.c.name.label("checker"),
        sa.func.coalesce(_SCOPE_NAME, bindings.c.scope_id).label("scope_name"),
    )
    .join_from(bindings, checkers, bindings.c.checker_id == checkers.c.id)
    .outerjoin(
        users, sa.and_(bindings.c.scope == BindingScope.USER, users.c.id == bindings.c.scope_id)
    )
    .outerjoin(
        projects,
        sa.and_(bindings.c.scope == BindingScope.PROJECT, projects.c.id == bindings.c.scope_id),
    )
)
_BINDING_LISTING = Listing(
    columns={
        **{name: bindings.c[name] for name in ("id", "created_at", "checker_id", "scope")},
        **{name: bindings.c[name] for name in ("scope_id", "domain", "is_enabled", "is_dry_run")},
        "changed_by_role": bindings.c.changed_by_role,
        "checker": checkers.c.name,
        "scope_name": _SCOPE_NAME,
    },
    default_sort=("checker", "scope", "scope_id", "id"),
)
_DECISION_LISTING = Listing(
    columns={column.name: column for column in decisions.columns if column.name != "rule"},
    default_sort=("-id",),
)


class IdleCheckerStore:
    """Reads and writes idle checkers. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery) -> Page[CheckerRow]:
        async with self._db.read() as tx:
            return await _CHECKER_LISTING.page(tx, _CHECKERS, query, CheckerRow)

    async def named(self, key: str) -> CheckerRow:
        """Return the checker with the id or name ``key``; raise ``NotFound`` if it is missing."""
        async with self._db.read() as tx:
            return await _checker(tx, sa.or_(checkers.c.id == key, checkers.c.name == key), key)

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> CheckerRow:
        """Insert a checker; raise ``AlreadyExists`` if the name is taken."""
        async with self._db.write() as tx:
            with raise_on_violation(_taken(values["name"])):
                await tx.execute(checkers.insert().values(values))
            await record(tx, audit)
            return await _checker(tx, checkers.c.id == values["id"], values["name"])

    async def update(
        self,
        checker_id: str,
        version: int,
        changes: Mapping[str, Any],
        audit: AuditEntry,
        at: datetime,
    ) -> CheckerRow:
        """Change a checker that has ``version``; changed settings take effect at ``at``.

        Raises
        ------
        Conflict
            If the checker has another version.
        AlreadyExists
            If another checker has the new name.
        """
        async with self._db.write() as tx:
            with raise_on_violation(_taken(changes.get("name", ""))):
                await update_version(tx, checkers, checker_id, version, changes)
            if "settings" in changes:
                of_checker = bindings.c.checker_id == checker_id
                await tx.execute(bindings.update().where(of_checker).values(effective_at=at))
            await record(tx, audit)
            return await _checker(tx, checkers.c.id == checker_id, checker_id)

    async def delete(self, checker_id: str, audit: AuditEntry) -> None:
        """Delete a checker with its bindings and results; its decisions are kept."""
        async with self._db.write() as tx:
            await tx.execute(checkers.delete().where(checkers.c.id == checker_id))
            await record(tx, audit)

    async def bindings(
        self, query: ListQuery, domain: str | None = None
    ) -> Page[IdleCheckerBinding]:
        """Return a page of the bindings; with ``domain``, only for scopes in the domain."""
        rows = _BINDINGS if domain is None else _BINDINGS.where(bindings.c.domain == domain)
        async with self._db.read() as tx:
            return await _BINDING_LISTING.page(tx, rows, query, IdleCheckerBinding)

    async def binding(self, binding_id: str) -> IdleCheckerBinding:
        """Return a binding; raise ``NotFound`` if it does not exist."""
        async with self._db.read() as tx:
            return await _binding(tx, binding_id)

    async def bind(self, values: Mapping[str, Any], audit: AuditEntry) -> IdleCheckerBinding:
        """Insert a binding.

        Raises
        ------
        AlreadyExists
            If the checker is bound to the scope.
        NotFound
            If the checker or the scope no longer exists.
        """
        async with self._db.write() as tx:
            await _require_scope(tx, values["scope"], values["scope_id"])
            with raise_on_violation(
                NotFound("the idle checker no longer exists"),
                AlreadyExists("the idle checker is already bound to this scope"),
            ):
                await tx.execute(bindings.insert().values(values))
            await record(tx, audit)
            return await _binding(tx, values["id"])

    async def change_binding(
        self,
        binding_id: str,
        changes: Mapping[str, Any],
        audit: AuditEntry,
        *,
        roles: Collection[str],
    ) -> IdleCheckerBinding:
        """Change a binding; the last author must have one of ``roles``."""
        async with self._db.write() as tx:
            changed = await tx.execute(
                bindings.update()
                .where(bindings.c.id == binding_id, bindings.c.changed_by_role.in_(sorted(roles)))
                .values(changes)
            )
            if not changed.rowcount:
                raise NotFound("the binding no longer exists")
            await record(tx, audit)
            return await _binding(tx, binding_id)

    async def unbind(self, binding_id: str, audit: AuditEntry, *, roles: Collection[str]) -> None:
        """Delete a binding; the last author must have one of ``roles``."""
        async with self._db.write() as tx:
            deleted = await tx.execute(
                bindings.delete().where(
                    bindings.c.id == binding_id, bindings.c.changed_by_role.in_(sorted(roles))
                )
            )
            if not deleted.rowcount:
                raise NotFound("the binding no longer exists")
            await record(tx, audit)

    async def decisions(self, query: ListQuery, domain: str | None = None) -> Page[IdleDecision]:
        """Return a page of the decisions; with ``domain``, only for sessions of the domain."""
        rows = sa.select(decisions)
        if domain is not None:
            rows = rows.where(decisions.c.domain == domain)
        async with self._db.read() as tx:
            return await _DECISION_LISTING.page(tx, rows, query, _decision)


def _decision(*, rule: dict[str, Any] | None, **values: Any) -> IdleDecision:
    text = "" if rule is None else str(CodedText.from_json(rule))
    return IdleDecision(**values, reason=text, coded=rule)


def _taken(name: str) -> AlreadyExists:
    return AlreadyExists(f"an idle checker {name} already exists", name=name)


async def _checker(tx: AsyncConnection, condition: sa.ColumnElement[bool], key: str) -> CheckerRow:
    found = await tx.execute(_CHECKERS.where(condition).order_by(checkers.c.id != key).limit(1))
    row = first_record(CheckerRow, found)
    if row is None:
        raise NotFound(f"there is no idle checker {key!r}", checker=key)
    return row


async def _binding(tx: AsyncConnection, binding_id: str) -> IdleCheckerBinding:
    found = await tx.execute(_BINDINGS.where(bindings.c.id == binding_id))
    row = first_record(IdleCheckerBinding, found)
    if row is None:
        raise NotFound("there is no such binding, or you may not see it")
    return row


SCOPE_IDS: Mapping[str, sa.Column[Any]] = {
    BindingScope.DOMAIN: domains.c.name,
    BindingScope.PROJECT: projects.c.id,
    BindingScope.USER: users.c.id,
    BindingScope.RESOURCE_GROUP: resource_groups.c.name,
    BindingScope.KEYPAIR_POLICY: keypair_policies.c.name,
}


async def _require_scope(tx: AsyncConnection, scope: str, scope_id: str) -> None:
    column = SCOPE_IDS[scope]
    if not await tx.scalar(sa.select(sa.literal(1)).where(column == scope_id)):
        raise NotFound(f"there is no {scope} {scope_id!r}", scope=scope, scope_id=scope_id)
