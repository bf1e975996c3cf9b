"""Store of the resource policies of keypairs, users and projects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.records import (
    KeypairPolicy,
    ProjectPolicy,
    ResourcePolicy,
    UserPolicy,
)
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, NotFound
from bai_services.core.listing import ListQuery, Page

from ..audit import record
from ..database import Database
from ..integrity import delete_unused, raise_on_violation
from ..listing import Listing
from ..records import first_record
from ..serving.routes_version import bump_routes
from ..tables.accounts import (
    keypair_policies,
    keypairs,
    project_policies,
    projects,
    user_policies,
    users,
)


@dataclass(frozen=True, slots=True)
class PolicyKind:
    """A kind of policy.

    ``make`` is the record class. ``reference`` is the column that refers to a policy;
    ``referring_noun`` is a plural noun for the rows with this column.
    """

    name: str
    make: Callable[..., ResourcePolicy]
    table: sa.Table
    referring_noun: str
    reference: sa.Column[Any]


KINDS: Mapping[str, PolicyKind] = {
    "keypair": PolicyKind(
        "keypair", KeypairPolicy, keypair_policies, "keypairs", keypairs.c.resource_policy
    ),
    "user": PolicyKind("user", UserPolicy, user_policies, "users", users.c.resource_policy),
    "project": PolicyKind(
        "project", ProjectPolicy, project_policies, "projects", projects.c.resource_policy
    ),
}


def _has_longer_timeout(policy: str, seconds: int) -> sa.ColumnElement[bool]:
    """Return the condition that a policy has no idle timeout, or one of more than ``seconds``."""
    timeout = keypair_policies.c.idle_timeout_seconds
    return sa.exists().where(
        keypair_policies.c.name == policy, sa.or_(timeout == 0, timeout > seconds)
    )


class PolicyStore:
    """Reads and writes policies of one kind. Each public method is one transaction."""

    def __init__(self, database: Database, kind: str) -> None:
        self._db = database
        self._kind = KINDS[kind]
        self._table = self._kind.table
        self._listing = Listing(
            columns={
                c.name: c
                for c in self._table.columns
                if isinstance(c.type, (sa.String, sa.Integer)) or c.name == "created_at"
            },
            default_sort=("name",),
        )

    async def page(self, query: ListQuery) -> Page[ResourcePolicy]:
        async with self._db.read() as tx:
            return await self._listing.page(tx, sa.select(self._table), query, self._kind.make)

    async def one(self, name: str) -> ResourcePolicy | None:
        async with self._db.read() as tx:
            rows = await tx.execute(sa.select(self._table).where(self._table.c.name == name))
            return first_record(self._kind.make, rows)

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> None:
        already_exists = AlreadyExists(
            f"{self._kind.name} policy {values['name']} already exists", name=values["name"]
        )
        async with self._db.write() as tx:
            with raise_on_violation(already_exists):
                await tx.execute(self._table.insert().values(values))
            await record(tx, audit)

    async def update(
        self, name: str, changes: Mapping[str, Any], audit: AuditEntry, at: datetime
    ) -> ResourcePolicy:
        """Change fields of a policy; ``at`` is the current time."""
        is_policy = self._table.c.name == name
        async with self._db.write() as tx:
            if seconds := changes.get("idle_timeout_seconds"):
                await tx.execute(
                    keypairs.update()
                    .where(keypairs.c.resource_policy == name, _has_longer_timeout(name, seconds))
                    .values(idle_limited_at=at)
                )
            if changes:
                await tx.execute(self._table.update().where(is_policy).values(changes))
            if "allows_public_endpoints" in changes:
                await bump_routes(tx)
            rows = await tx.execute(sa.select(self._table).where(is_policy))
            policy = first_record(self._kind.make, rows)
            if policy is None:
                raise NotFound(f"there is no {self._kind.name} policy {name}")
            await record(tx, audit)
            return policy

    async def delete(self, name: str, audit: AuditEntry) -> None:
        """Delete a policy.

        Raises
        ------
        InUse
            If the policy is still assigned; the message contains the number of referring rows.
        NotFound
            If the policy does not exist.
        """
        what = f"{self._kind.name} policy {name}"
        uses = {self._kind.referring_noun: self._kind.reference == name}
        async with self._db.write() as tx:
            await delete_unused(tx, what, (self._table, self._table.c.name == name), uses)
            await record(tx, audit)
