"""Store of replicas, for the loop that creates and ends them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.notifications.events import rollout_failed
from bai_services.core.serving.records import GATEWAYS_KEPT_FOR, REPLICA_CHANGES_KEPT
from bai_services.core.serving.rollout import LIVE_PHASES, Outcome, Phase
from bai_services.core.sessions.lifecycle import OCCUPYING, Status

from ..database import Database
from ..notifications.events import raise_events
from ..records import records
from ..tables.serving import (
    endpoint_replica_changes,
    endpoint_replicas,
    endpoint_revisions,
    endpoints,
    gateways,
)
from ..tables.sessions import kernels, sessions
from .gateways import reports_at
from .names import release_names
from .routes_version import bump_routes
from .rows import ROWS, EndpointRow, endpoint_row


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRow:
    """A replica that has not ended; ``status`` is the session's, None without a session."""

    id: str
    created_at: datetime
    endpoint_id: str
    revision_id: str
    phase: Phase
    url: str
    changed_at: datetime
    drained_by: Sequence[str]
    # Why the replica is ending, or must pass its health check again.
    reason: Mapping[str, Any] | None
    status: Status | None
    started_at: datetime | None
    status_info: str
    # Whether the session is being preempted and will return to the queue.
    is_requeued_at_end: bool

    @property
    def is_unhealthy(self) -> bool:
        """Whether the replica was ready until a gateway could not use it."""
        return (
            self.reason is not None and self.reason["code"] == TextTemplate.REPLICA_UNHEALTHY.code
        )

    def is_drained(self, gateways: set[str]) -> bool:
        """Return whether the replica has no requests in any of the gateways."""
        return bool(gateways) and gateways <= set(self.drained_by)


@dataclass(frozen=True, slots=True)
class ServingReplica:
    """A replica that receives requests; ``settings`` are those of its revision."""

    id: str
    url: str
    revision_id: str
    owner_id: str
    settings: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class EndpointState:
    """An endpoint with its replicas that have not ended."""

    row: EndpointRow
    replicas: Sequence[ReplicaRow]


@dataclass(frozen=True, slots=True)
class NewReplica:
    id: str
    endpoint_id: str
    revision_id: str


_NOT_ENDED = endpoint_replicas.c.phase != Phase.ENDED


class ReplicaStore:
    """Reads and writes replicas. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def states(self) -> list[EndpointState]:
        """Return every endpoint, oldest first."""
        live = (
            sa.select(
                *(
                    endpoint_replicas.c[name]
                    for name in ("id", "created_at", "endpoint_id", "revision_id", "phase")
                ),
                endpoint_replicas.c.url,
                endpoint_replicas.c.changed_at,
                endpoint_replicas.c.drained_by,
                endpoint_replicas.c.reason,
                sessions.c.status,
                sessions.c.started_at,
                sessions.c.status_info,
                sessions.c.is_requeued_at_end,
            )
            .outerjoin_from(endpoint_replicas, sessions, endpoint_replicas.c.id == sessions.c.id)
            .where(_NOT_ENDED)
            .order_by(endpoint_replicas.c.created_at, endpoint_replicas.c.id)
        )
        async with self._db.read() as tx:
            rows = records(endpoint_row, await tx.execute(ROWS.order_by(endpoints.c.created_at)))
            if not rows:
                return []
            replicas = defaultdict[str, list[ReplicaRow]](list)
            for replica in records(_replica, await tx.execute(live)):
                replicas[replica.endpoint_id].append(replica)
        return [EndpointState(row, replicas[row.id]) for row in rows]

    async def agent_kernels(self, ids: Collection[str]) -> dict[str, int]:
        """Return the number of kernels on the agent of each replica that has an agent."""
        of_replica = (
            sa.select(kernels.c.session_id, sa.func.min(kernels.c.agent_id).label("agent_id"))
            .where(kernels.c.session_id.in_(sorted(ids)), kernels.c.agent_id.is_not(None))
            .group_by(kernels.c.session_id)
            .subquery()
        )
        rows = (
            sa.select(of_replica.c.session_id, sa.func.count())
            .join_from(of_replica, kernels, kernels.c.agent_id == of_replica.c.agent_id)
            .join(sessions, kernels.c.session_id == sessions.c.id)
            .where(sessions.c.status.in_(sorted(OCCUPYING)))
            .group_by(of_replica.c.session_id)
        )
        async with self._db.read() as tx:
            return {row[0]: row[1] for row in await tx.execute(rows)}

    async def settings(self, revision_id: str) -> Mapping[str, Any] | None:
        """Return the settings of a revision; None if it was deleted."""
        rows = sa.select(endpoint_revisions.c.settings).where(
            endpoint_revisions.c.id == revision_id
        )
        async with self._db.read() as tx:
            found: Mapping[str, Any] | None = await tx.scalar(rows)
            return found

    async def insert(self, new: Sequence[NewReplica], now: datetime) -> None:
        """Insert replicas before their sessions are created."""
        async with self._db.write() as tx:
            await tx.execute(
                endpoint_replicas.insert(),
                [
                    {
                        "id": each.id,
                        "created_at": now,
                        "endpoint_id": each.endpoint_id,
                        "revision_id": each.revision_id,
                        "phase": Phase.STARTING,
                        "url": "",
                        "changed_at": now,
                        "drained_by": [],
                        "reason": None,
                    }
                    for each in new
                ],
            )
            await _record_phases(tx, [each.id for each in new], now)

    async def discard(self, ids: Collection[str]) -> None:
        """Delete replicas for which no session was created."""
        if not ids:
            return
        is_created = sa.select(sessions.c.id).where(sessions.c.id == endpoint_replicas.c.id)
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(endpoint_replicas).where(
                    endpoint_replicas.c.id.in_(sorted(ids)),
                    endpoint_replicas.c.phase == Phase.STARTING,
                    ~is_created.exists(),
                )
            )

    async def move(
        self,
        ids: Collection[str],
        phase: Phase,
        now: datetime,
        reason: Mapping[str, Any] | None = None,
    ) -> None:
        """Set the phase, and the reason if given, of replicas that have not ended."""
        if not ids:
            return
        values: dict[str, Any] = {"phase": phase, "changed_at": now}
        if reason is not None:
            values["reason"] = reason
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(endpoint_replicas)
                .where(endpoint_replicas.c.id.in_(sorted(ids)), _NOT_ENDED)
                .values(values)
            )
            await _record_phases(tx, ids, now)
            await bump_routes(tx)

    async def drain(
        self, replica_id: str, reason: Mapping[str, Any], now: datetime, replaced: Collection[str]
    ) -> bool | None:
        """Drain a replica, so that it ends after its last request; return whether it has changed.

        The reason of a draining replica is replaced if its code is in ``replaced``. Return None if
        the replica is neither ready nor draining.
        """
        this = endpoint_replicas.c.id == replica_id
        rows = sa.select(endpoint_replicas.c.phase, endpoint_replicas.c.reason).where(this)
        async with self._db.write() as tx:
            found = (await tx.execute(rows.with_for_update())).one_or_none()
            if found is None or found.phase not in (Phase.READY, Phase.DRAINING):
                return None
            if found.phase == Phase.DRAINING and (found.reason or {}).get("code") not in replaced:
                return False
            await tx.execute(
                sa.update(endpoint_replicas)
                .where(this)
                .values(phase=Phase.DRAINING, changed_at=now, reason=reason)
            )
            await _record_phases(tx, [replica_id], now)
            await bump_routes(tx)
            return True

    async def mark_ready(self, replica_id: str, url: str, now: datetime) -> None:
        """Record that a replica passed its health check at ``url``, and clear its reason."""
        async with self._db.write() as tx:
            changed = await tx.execute(
                sa.update(endpoint_replicas)
                .where(
                    endpoint_replicas.c.id == replica_id,
                    endpoint_replicas.c.phase == Phase.STARTING,
                    endpoint_replicas.c.url == url,
                )
                .values(phase=Phase.READY, changed_at=now, reason=None)
            )
            if changed.rowcount:
                await _record_phases(tx, [replica_id], now)
                await bump_routes(tx)

    async def serving(self, ids: Collection[str]) -> Sequence[ServingReplica]:
        """Return those replicas in ``ids`` that receive requests."""
        rows = (
            sa.select(
                *(endpoint_replicas.c[name] for name in ("id", "url", "revision_id")),
                endpoints.c.owner_id,
                endpoint_revisions.c.settings,
            )
            .join_from(
                endpoint_replicas,
                endpoint_revisions,
                endpoint_replicas.c.revision_id == endpoint_revisions.c.id,
            )
            .join(endpoints, endpoint_replicas.c.endpoint_id == endpoints.c.id)
            .where(
                endpoint_replicas.c.id.in_(sorted(ids)),
                endpoint_replicas.c.phase == Phase.READY,
                endpoint_replicas.c.url != "",
            )
        )
        async with self._db.read() as tx:
            return records(ServingReplica, await tx.execute(rows))

    async def require_health_check(
        self, ids: Collection[str], now: datetime, reason: Mapping[str, Any] | None = None
    ) -> None:
        """Set ready replicas back to STARTING, so that they must pass their health check again."""
        if not ids:
            return
        async with self._db.write() as tx:
            changed = await tx.execute(
                sa.update(endpoint_replicas)
                .where(
                    endpoint_replicas.c.id.in_(sorted(ids)),
                    endpoint_replicas.c.phase == Phase.READY,
                )
                .values(phase=Phase.STARTING, changed_at=now, reason=reason)
            )
            if changed.rowcount:
                await _record_phases(tx, ids, now)
                await bump_routes(tx)

    async def set_url(self, replica_id: str, url: str, now: datetime) -> None:
        """Store the URL of a replica; a restarted server must pass its health check again."""
        started = (
            endpoint_replicas.c.id == replica_id,
            endpoint_replicas.c.phase.in_(LIVE_PHASES),
            endpoint_replicas.c.url != url,
        )
        was_ready = sa.select(endpoint_replicas.c.id).where(
            *started, endpoint_replicas.c.phase == Phase.READY
        )
        async with self._db.write() as tx:
            is_restart = await tx.scalar(was_ready) is not None
            await tx.execute(
                sa.update(endpoint_replicas)
                .where(*started)
                .values(url=url, phase=Phase.STARTING, changed_at=now, reason=None)
            )
            if is_restart:
                await _record_phases(tx, [replica_id], now)
            await bump_routes(tx)

    async def revision_of(self, replica_id: str) -> tuple[str, Mapping[str, Any]] | None:
        """Return the id and settings of a replica's revision; None if the replica is unknown."""
        rows = (
            sa.select(endpoint_revisions.c.id, endpoint_revisions.c.settings)
            .join_from(
                endpoint_replicas,
                endpoint_revisions,
                endpoint_replicas.c.revision_id == endpoint_revisions.c.id,
            )
            .where(endpoint_replicas.c.id == replica_id)
        )
        async with self._db.read() as tx:
            found = (await tx.execute(rows)).one_or_none()
            return None if found is None else (found.id, found.settings)

    async def advance(
        self,
        row: EndpointRow,
        *,
        weights: Mapping[str, int],
        outcome: Outcome | None,
        now: datetime,
        reason: Mapping[str, Any] | None = None,
    ) -> bool:
        """Store the weights of a rollout, and its outcome if it has ended.

        ``reason``: why the target revision was given up. If the endpoint has changed since it was
        read, store nothing and return False.
        """
        changes: dict[str, Any] = {"weights": dict(weights)}
        if outcome is Outcome.COMPLETED:
            changes |= {"active_revision_id": row.target_revision_id, "is_promoted": False}
        elif outcome is Outcome.ROLLED_BACK:
            changes |= {"target_revision_id": row.active_revision_id, "is_promoted": False}
            changes |= {"failures": 0, "failed_at": None}
        async with self._db.write() as tx:
            changed = await tx.execute(
                sa.update(endpoints)
                .where(endpoints.c.id == row.id, endpoints.c.version == row.version)
                .values(changes)
            )
            if not changed.rowcount:
                return False
            if outcome is not None:
                await tx.execute(
                    sa.update(endpoint_revisions)
                    .where(endpoint_revisions.c.id == row.target_revision_id)
                    .values(outcome=outcome, reason=reason)
                )
            if reason is not None:
                event = rollout_failed(
                    row.target_revision_id,
                    now,
                    row.owner_id,
                    row.domain,
                    row.id,
                    row.name,
                    CodedText.from_json(reason),
                )
                await raise_events(tx, [event])
            await bump_routes(tx)
            return True

    async def fail(
        self, row: EndpointRow, replica: ReplicaRow, problem: Mapping[str, Any], now: datetime
    ) -> None:
        """Stop a failed replica; count the failure if the replica has the target revision."""
        await self._stop(row, replica, problem, now, 1)

    async def postpone(
        self, row: EndpointRow, replica: ReplicaRow, problem: Mapping[str, Any], now: datetime
    ) -> None:
        """Stop a replica that cannot be created now, without counting a failure. Another one is
        created later.
        """
        await self._stop(row, replica, problem, now, 0)

    async def _stop(
        self,
        row: EndpointRow,
        replica: ReplicaRow,
        problem: Mapping[str, Any],
        now: datetime,
        failures: int,
    ) -> None:
        async with self._db.write() as tx:
            changed = await tx.execute(
                sa.update(endpoint_replicas)
                .where(
                    endpoint_replicas.c.id == replica.id,
                    endpoint_replicas.c.phase.in_(LIVE_PHASES),
                )
                .values(phase=Phase.STOPPING, changed_at=now, reason=problem)
            )
            if not changed.rowcount:
                return
            await _record_phases(tx, [replica.id], now)
            await tx.execute(
                sa.update(endpoints)
                .where(
                    endpoints.c.id == row.id,
                    endpoints.c.target_revision_id == replica.revision_id,
                )
                .values(failures=endpoints.c.failures + failures, failed_at=now, problem=problem)
            )
            await bump_routes(tx)

    async def forget_failures(self, ids: Collection[str]) -> None:
        """Reset the failure counts of endpoints whose replicas are all ready."""
        if not ids:
            return
        async with self._db.write() as tx:
            await tx.execute(
                sa.update(endpoints)
                .where(endpoints.c.id.in_(sorted(ids)))
                .values(failures=0, failed_at=None, problem=None)
            )

    async def delete_endpoint(self, endpoint_id: str) -> None:
        """Delete an endpoint in deletion after all its replicas have ended."""
        remaining = sa.select(endpoint_replicas.c.id).where(
            endpoint_replicas.c.endpoint_id == endpoint_id, _NOT_ENDED
        )
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(endpoints).where(
                    endpoints.c.id == endpoint_id, endpoints.c.is_deleting, ~remaining.exists()
                )
            )
            await bump_routes(tx)

    async def live_gateways(self, now: datetime) -> set[str]:
        """Return the live gateways."""
        rows = sa.select(gateways.c.id).where(reports_at(now))
        async with self._db.read() as tx:
            return set(await tx.scalars(rows))

    async def clean_up(self, now: datetime, before: datetime, kept: int) -> None:
        """Delete stopped gateways, old changes of replicas, replicas that ended before ``before``,
        and all but the last ``kept`` ended replicas of each endpoint; update reserved names.
        """
        numbered = (
            sa.select(
                endpoint_replicas.c.id,
                endpoint_replicas.c.changed_at,
                sa.func.row_number()
                .over(
                    partition_by=endpoint_replicas.c.endpoint_id,
                    order_by=endpoint_replicas.c.changed_at.desc(),
                )
                .label("number"),
            )
            .where(endpoint_replicas.c.phase == Phase.ENDED)
            .subquery()
        )
        old = sa.select(numbered.c.id).where(
            (numbered.c.number > kept) | (numbered.c.changed_at < before)
        )
        changes = sa.select(
            endpoint_replica_changes.c.id,
            sa.func.row_number()
            .over(
                partition_by=endpoint_replica_changes.c.replica_id,
                order_by=endpoint_replica_changes.c.id.desc(),
            )
            .label("number"),
        ).subquery()
        is_old = changes.c.number > REPLICA_CHANGES_KEPT
        async with self._db.write() as tx:
            await tx.execute(sa.delete(endpoint_replicas).where(endpoint_replicas.c.id.in_(old)))
            await tx.execute(
                sa.delete(endpoint_replica_changes).where(
                    endpoint_replica_changes.c.id.in_(sa.select(changes.c.id).where(is_old))
                )
            )
            await tx.execute(
                sa.delete(gateways).where(gateways.c.reported_at < now - GATEWAYS_KEPT_FOR)
            )
            await release_names(tx, now)


async def _record_phases(tx: AsyncConnection, ids: Collection[str], now: datetime) -> None:
    """Record the phases of replicas with a phase change at ``now``."""
    replicas, changes = endpoint_replicas, endpoint_replica_changes
    changed = sa.select(replicas.c.id, replicas.c.changed_at, replicas.c.phase, replicas.c.reason)
    changed = changed.where(replicas.c.id.in_(sorted(ids)), replicas.c.changed_at == now)
    names = ["replica_id", "at", "phase", "reason"]
    await tx.execute(changes.insert().from_select(names, changed))


def _replica(
    *,
    phase: str,
    status: str | None,
    status_info: str | None,
    is_requeued_at_end: bool | None,
    **rest: Any,
) -> ReplicaRow:
    return ReplicaRow(
        is_requeued_at_end=bool(is_requeued_at_end),
        phase=Phase(phase),
        status=None if status is None else Status(status),
        status_info=status_info or "",
        **rest,
    )
