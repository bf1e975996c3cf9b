"""Store of endpoints and their revisions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.errors import AlreadyExists, Conflict, NotFound, QuotaExceeded
from bai_services.core.listing import ListQuery, Page
from bai_services.core.serving.records import (
    MAX_ENDPOINTS_PER_USER,
    REVISIONS_KEPT,
    Replica,
    ReplicaChange,
)
from bai_services.core.serving.rollout import Outcome

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation, update_version
from ..listing import Listing
from ..records import first_record, records
from ..tables.accounts import projects, user_policies, users
from ..tables.serving import (
    endpoint_replica_changes,
    endpoint_replicas,
    endpoint_revisions,
    endpoints,
)
from ..tables.sessions import kernels, sessions
from .names import take_name
from .routes_version import bump_routes
from .rows import EndpointRow, endpoint_row, no_endpoint, visible_endpoints


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionRow:
    id: str
    created_at: datetime
    endpoint_id: str
    number: int
    settings: Mapping[str, Any]
    outcome: str | None
    reason: Mapping[str, Any] | None
    requests: int
    errors: int
    latency_ms: Mapping[str, int] | None
    observed_at: datetime | None


_LISTING = Listing(
    columns={
        **{
            name: endpoints.c[name]
            for name in ("id", "created_at", "name", "owner_id", "project_id", "is_public")
        },
        **{
            name: endpoints.c[name]
            for name in ("is_paused", "replicas", "requests", "errors", "tags")
        },
        "owner": users.c.username,
        "project": projects.c.name,
        "domain": projects.c.domain,
    },
    default_sort=("name", "id"),
)
_REVISION_LISTING = Listing(
    columns={
        name: endpoint_revisions.c[name] for name in ("id", "created_at", "number", "outcome")
    },
    default_sort=("-number",),
)
_REPLICA_LISTING = Listing(
    columns={
        "id": endpoint_replicas.c.id,
        "created_at": endpoint_replicas.c.created_at,
        "phase": endpoint_replicas.c.phase,
        "changed_at": endpoint_replicas.c.changed_at,
        "revision": endpoint_revisions.c.number,
    },
    default_sort=("-created_at", "id"),
)

_CHANGE_LISTING = Listing(
    columns={name: endpoint_replica_changes.c[name] for name in ("id", "at", "phase")},
    default_sort=("-id",),
)


class EndpointStore:
    """Reads and writes endpoints and revisions. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(self, query: ListQuery, visible: Visibility) -> Page[EndpointRow]:
        async with self._db.read() as tx:
            return await _LISTING.page(tx, visible_endpoints(visible), query, endpoint_row)

    async def find(self, key: str, visible: Visibility) -> EndpointRow:
        """Return the visible endpoint with the id or the name ``key``.

        Raises
        ------
        NotFound
            If no visible endpoint matches.
        """
        matching = visible_endpoints(visible).where(
            (endpoints.c.id == key) | (endpoints.c.name == key)
        )
        async with self._db.read() as tx:
            # Prefer the endpoint with this id: the name of another endpoint can look like an id.
            first = matching.order_by(endpoints.c.id != key).limit(1)
            found = records(endpoint_row, await tx.execute(first))
        if not found:
            raise no_endpoint(key)
        return found[0]

    async def allows_public(self, owner_id: str) -> bool:
        """Return whether the policy of a user permits public endpoints."""
        allowed = (
            sa.select(user_policies.c.allows_public_endpoints)
            .join_from(users, user_policies, users.c.resource_policy == user_policies.c.name)
            .where(users.c.id == owner_id)
        )
        async with self._db.read() as tx:
            return bool(await tx.scalar(allowed))

    async def create(
        self, values: Mapping[str, Any], revision: Mapping[str, Any], audit: AuditEntry
    ) -> EndpointRow:
        """Insert an endpoint with its first revision.

        Raises
        ------
        AlreadyExists
            If an endpoint has that name, or the name is reserved for another owner.
        QuotaExceeded
            If the owner has too many endpoints.
        """
        async with self._db.write() as tx:
            await _check_count(tx, values["owner_id"])
            with raise_on_violation(
                AlreadyExists(
                    f"the name {values['name']} is in use; names of endpoints are unique",
                    name=values["name"],
                )
            ):
                await tx.execute(endpoints.insert().values(values))
            await take_name(
                tx,
                values["name"],
                owner_id=values["owner_id"],
                project_id=values["project_id"],
                now=values["created_at"],
            )
            await tx.execute(endpoint_revisions.insert().values({**revision, "number": 1}))
            await bump_routes(tx)
            await record(tx, audit)
            return await _one(tx, values["id"])

    async def update(
        self, key: str, version: int, changes: Mapping[str, Any], audit: AuditEntry
    ) -> EndpointRow:
        """Change an endpoint that has ``version``.

        Raises
        ------
        Conflict
            If the endpoint has another version.
        """
        async with self._db.write() as tx:
            await update_version(tx, endpoints, key, version, changes)
            await bump_routes(tx)
            await record(tx, audit)
            return await _one(tx, key)

    async def last_number(self, endpoint_id: str) -> int:
        """Return the number of the last revision of an endpoint."""
        rows = sa.select(sa.func.max(endpoint_revisions.c.number)).where(
            endpoint_revisions.c.endpoint_id == endpoint_id
        )
        async with self._db.read() as tx:
            return int(await tx.scalar(rows) or 0)

    async def add_revision(
        self,
        endpoint: EndpointRow,
        revision: Mapping[str, Any],
        audit: AuditEntry,
        *,
        is_applied: bool,
    ) -> EndpointRow:
        """Insert a revision, and begin its rollout if ``is_applied``.

        Raises
        ------
        Conflict
            If the endpoint has changed since it was read.
        """
        changes = _start(revision) if is_applied else {}
        outcome = None if is_applied else Outcome.SAVED
        async with self._db.write() as tx:
            # The version also prevents that two revisions get the same number.
            await update_version(tx, endpoints, endpoint.id, endpoint.version, changes)
            if is_applied:
                await _replace_target(tx, endpoint)
            await tx.execute(endpoint_revisions.insert().values({**revision, "outcome": outcome}))
            await _delete_old_revisions(tx, endpoint.id)
            await record(tx, audit)
            return await _one(tx, endpoint.id)

    async def roll_back(self, endpoint: EndpointRow, number: int, audit: AuditEntry) -> EndpointRow:
        """Begin the rollout of a former or saved revision.

        Raises
        ------
        NotFound
            If the endpoint no longer has a revision with that number.
        Conflict
            If the endpoint has changed since it was read.
        """
        async with self._db.write() as tx:
            found = await tx.scalar(
                sa.select(endpoint_revisions.c.id).where(
                    endpoint_revisions.c.endpoint_id == endpoint.id,
                    endpoint_revisions.c.number == number,
                )
            )
            if found is None:
                raise NotFound(
                    f"endpoint {endpoint.name} has no revision {number} any more", revision=number
                )
            changes = _start({"id": found})
            # A rollback to the active revision is complete at once.
            outcome = Outcome.COMPLETED if found == endpoint.active_revision_id else None
            await update_version(tx, endpoints, endpoint.id, endpoint.version, changes)
            await _replace_target(tx, endpoint)
            await tx.execute(
                sa.update(endpoint_revisions)
                .where(endpoint_revisions.c.id == found)
                .values(
                    outcome=outcome,
                    reason=None,
                    requests=0,
                    errors=0,
                    latency_ms=None,
                    observed_at=None,
                )
            )
            await record(tx, audit)
            return await _one(tx, endpoint.id)

    async def revisions(self, endpoint_id: str, query: ListQuery) -> Page[RevisionRow]:
        rows = sa.select(endpoint_revisions).where(endpoint_revisions.c.endpoint_id == endpoint_id)
        async with self._db.read() as tx:
            return await _REVISION_LISTING.page(tx, rows, query, RevisionRow)

    async def revision(self, revision_id: str) -> RevisionRow:
        rows = sa.select(endpoint_revisions).where(endpoint_revisions.c.id == revision_id)
        async with self._db.read() as tx:
            found = first_record(RevisionRow, await tx.execute(rows))
        if found is None:
            raise Conflict("the revision was deleted; read the endpoint again")
        return found

    async def replicas(
        self, endpoint_id: str, query: ListQuery, make: Callable[..., Replica]
    ) -> Page[Replica]:
        agent = (
            sa.select(sa.func.min(kernels.c.agent_id))
            .where(kernels.c.session_id == endpoint_replicas.c.id)
            .scalar_subquery()
        )
        rows = (
            sa.select(
                *(
                    endpoint_replicas.c[name]
                    for name in ("id", "created_at", "phase", "changed_at", "reason")
                ),
                endpoint_revisions.c.number.label("revision"),
                sessions.c.status.label("session_status"),
                sessions.c.reasons.label("pending_reasons"),
                agent.label("agent"),
            )
            .outerjoin_from(
                endpoint_replicas,
                endpoint_revisions,
                endpoint_replicas.c.revision_id == endpoint_revisions.c.id,
            )
            .outerjoin(sessions, endpoint_replicas.c.id == sessions.c.id)
            .where(endpoint_replicas.c.endpoint_id == endpoint_id)
        )
        async with self._db.read() as tx:
            return await _REPLICA_LISTING.page(tx, rows, query, make)

    async def replica_changes(
        self,
        endpoint_id: str,
        replica_id: str,
        query: ListQuery,
        make: Callable[..., ReplicaChange],
    ) -> Page[ReplicaChange]:
        """Return the phases of a replica.

        Raises
        ------
        NotFound
            If the endpoint has no such replica, or the replica was deleted.
        """
        replica = sa.select(endpoint_replicas.c.id).where(
            endpoint_replicas.c.id == replica_id, endpoint_replicas.c.endpoint_id == endpoint_id
        )
        changes = endpoint_replica_changes
        rows = sa.select(changes.c.id, changes.c.at, changes.c.phase, changes.c.reason).where(
            changes.c.replica_id == replica_id
        )
        async with self._db.read() as tx:
            if await tx.scalar(replica) is None:
                raise NotFound(f"the endpoint has no replica {replica_id!r}", replica=replica_id)
            return await _CHANGE_LISTING.page(tx, rows, query, make)


def _start(revision: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of an endpoint that begin the rollout of a revision."""
    return {
        "target_revision_id": revision["id"],
        "is_promoted": False,
        "failures": 0,
        "failed_at": None,
        "problem": None,
    }


async def _replace_target(tx: AsyncConnection, endpoint: EndpointRow) -> None:
    """End the rollout of the target, if it has not ended."""
    await tx.execute(
        sa.update(endpoint_revisions)
        .where(
            endpoint_revisions.c.id == endpoint.target_revision_id,
            endpoint_revisions.c.outcome.is_(None),
        )
        .values(outcome=Outcome.REPLACED)
    )


async def _delete_old_revisions(tx: AsyncConnection, endpoint_id: str) -> None:
    kept = (
        sa.select(endpoint_revisions.c.id)
        .where(endpoint_revisions.c.endpoint_id == endpoint_id)
        .order_by(endpoint_revisions.c.number.desc())
        .limit(REVISIONS_KEPT)
    )
    used = sa.select(endpoints.c.id).where(
        endpoints.c.id == endpoint_id,
        sa.or_(
            endpoints.c.active_revision_id == endpoint_revisions.c.id,
            endpoints.c.target_revision_id == endpoint_revisions.c.id,
        ),
    )
    await tx.execute(
        sa.delete(endpoint_revisions).where(
            endpoint_revisions.c.endpoint_id == endpoint_id,
            endpoint_revisions.c.id.not_in(kept),
            ~used.exists(),
        )
    )


async def _check_count(tx: AsyncConnection, owner_id: str) -> None:
    # Lock the owner: of two concurrent creations, the second must count the endpoint of the first.
    await tx.execute(
        sa.select(users.c.id).where(users.c.id == owner_id).with_for_update(key_share=True)
    )
    count = await tx.scalar(sa.select(sa.func.count()).where(endpoints.c.owner_id == owner_id))
    if (count or 0) >= MAX_ENDPOINTS_PER_USER:
        raise QuotaExceeded(
            f"you may have at most {MAX_ENDPOINTS_PER_USER} endpoints; delete one first",
            limit=MAX_ENDPOINTS_PER_USER,
            used=count,
        )


async def _one(tx: AsyncConnection, key: str) -> EndpointRow:
    rows = visible_endpoints(Visibility()).where(endpoints.c.id == key)
    found = first_record(endpoint_row, await tx.execute(rows))
    if found is None:
        raise no_endpoint(key)
    return found
