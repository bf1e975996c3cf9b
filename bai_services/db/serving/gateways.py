"""Store of routing data for gateways, and of their reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.serving.latency import merged
from bai_services.core.serving.records import GATEWAY_TIMEOUT
from bai_services.core.serving.rollout import Phase

from ..database import Database
from ..records import records
from ..tables.accounts import domains, user_policies, users
from ..tables.base import UtcDateTime
from ..tables.serving import (
    endpoint_replicas,
    endpoint_revisions,
    endpoint_tokens,
    endpoints,
    gateway_loads,
    gateways,
)
from .chat_tokens import MAY_USE_CHAT_TOKEN
from .routes_version import read_routes_version
from .rows import IS_OWNER_ACTIVE
from .usage import TokenCounts, count_usage


@dataclass(frozen=True, slots=True)
class RoutingRows:
    """The rows of a routing table; ``version`` is their version, or an earlier version."""

    version: int
    endpoints: Sequence[Mapping[str, Any]]
    replicas: Sequence[Mapping[str, Any]]
    tokens: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class EndpointCounts:
    """Requests since the last report of a gateway."""

    id: str
    requests: int
    errors: int


@dataclass(frozen=True, slots=True)
class RevisionCounts:
    id: str
    requests: int
    errors: int
    latency_ms: Mapping[str, int]


# Only the required settings, because the others can be large.
_HEALTH_PATH = endpoint_revisions.c.settings["health", "path"].as_string()

# Revisions from versions without gRPC have no protocol in their settings; they use HTTP.
_PROTOCOL = sa.func.coalesce(endpoint_revisions.c.settings["protocol"].as_string(), "http")


def reports_at(now: datetime) -> sa.ColumnElement[bool]:
    """Return the condition for live gateways. A report in the future is from a gateway that stopped
    before the clock was set back.
    """
    return gateways.c.reported_at.between(now - GATEWAY_TIMEOUT, now + GATEWAY_TIMEOUT)


_MAY_BE_USED = endpoint_tokens.c.user_id.is_(None) | MAY_USE_CHAT_TOKEN


class GatewayStore:
    """Reads routing data and stores reports of gateways. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def routes_version(self) -> int:
        async with self._db.read() as tx:
            return await read_routes_version(tx)

    async def routes(self, now: datetime) -> RoutingRows:
        """Return the endpoints of active owners; ``is_public`` is false if the owner's policy no
        longer permits public endpoints.
        """
        is_public = endpoints.c.is_public & user_policies.c.allows_public_endpoints
        rows = (
            sa.select(
                *(column for column in endpoints.columns if column.name != "is_public"),
                is_public.label("is_public"),
                _HEALTH_PATH.label("health_path"),
                _PROTOCOL.label("protocol"),
            )
            .join_from(
                endpoints,
                endpoint_revisions,
                endpoint_revisions.c.id
                == sa.func.coalesce(endpoints.c.active_revision_id, endpoints.c.target_revision_id),
            )
            .join(users, endpoints.c.owner_id == users.c.id)
            .join(domains, users.c.domain == domains.c.name)
            .join(user_policies, users.c.resource_policy == user_policies.c.name)
            .where(~endpoints.c.is_deleting, IS_OWNER_ACTIVE)
            .order_by(endpoints.c.name)
        )
        replicas = (
            sa.select(
                endpoint_replicas,
                _HEALTH_PATH.label("health_path"),
                _PROTOCOL.label("protocol"),
                endpoint_revisions.c.settings["health", "expected_status"]
                .as_integer()
                .label("health_status"),
                endpoint_revisions.c.settings["health", "timeout_seconds"]
                .as_float()
                .label("health_seconds"),
            )
            .outerjoin_from(
                endpoint_replicas,
                endpoint_revisions,
                endpoint_replicas.c.revision_id == endpoint_revisions.c.id,
            )
            .where(
                endpoint_replicas.c.phase.in_([Phase.READY, Phase.DRAINING]),
                endpoint_replicas.c.url != "",
            )
            .order_by(endpoint_replicas.c.created_at, endpoint_replicas.c.id)
        )
        expires_at = endpoint_tokens.c.expires_at
        tokens = (
            sa.select(endpoint_tokens)
            .where(expires_at.is_(None) | (expires_at > now), _MAY_BE_USED)
            .order_by(endpoint_tokens.c.id)
        )
        async with self._db.read() as tx:
            # Read the version first, so that a change in between is read again later.
            version = await read_routes_version(tx)
            return RoutingRows(
                version,
                records(dict, await tx.execute(rows)),
                records(dict, await tx.execute(replicas)),
                records(dict, await tx.execute(tokens)),
            )

    async def count(
        self,
        gateway_id: str,
        report_id: str,
        now: datetime,
        counts: Sequence[EndpointCounts],
        tokens: Sequence[TokenCounts],
        drained: Sequence[str],
        loads: Mapping[str, int],
        revisions: Sequence[RevisionCounts],
    ) -> bool:
        """Add the counts of a report; return False if this report was added before.

        ``loads`` are the requests in flight and queued by endpoint; loads of other endpoints are
        unchanged.
        """
        async with self._db.write() as tx:
            if not await _is_new(tx, gateway_id, report_id, now):
                return False
            if counts:
                await tx.execute(
                    sa.update(endpoints)
                    .where(endpoints.c.id == sa.bindparam("key"))
                    .values(
                        requests=endpoints.c.requests + sa.bindparam("more"),
                        errors=endpoints.c.errors + sa.bindparam("failed"),
                    ),
                    [
                        {"key": each.id, "more": each.requests, "failed": each.errors}
                        # Sorted, so that two gateways do not wait for each other's rows.
                        for each in sorted(counts, key=lambda each: each.id)
                    ],
                )
            if tokens:
                await tx.execute(
                    sa.update(endpoint_tokens)
                    .where(endpoint_tokens.c.id == sa.bindparam("key"))
                    .values(
                        requests=endpoint_tokens.c.requests + sa.bindparam("more"),
                        input_tokens=endpoint_tokens.c.input_tokens + sa.bindparam("read"),
                        output_tokens=endpoint_tokens.c.output_tokens + sa.bindparam("written"),
                        last_used_at=now,
                    ),
                    [
                        {
                            "key": each.id,
                            "more": each.requests,
                            "read": each.input_tokens,
                            "written": each.output_tokens,
                        }
                        for each in sorted(tokens, key=lambda each: each.id)
                    ],
                )
                await count_usage(tx, tokens, now)
            await _mark_drained(tx, gateway_id, drained)
            await _store_loads(tx, gateway_id, loads)
            await _count_rollouts(tx, revisions, now)
            return True


async def _is_new(tx: AsyncConnection, gateway_id: str, report_id: str, now: datetime) -> bool:
    found = await tx.scalar(
        sa.select(gateways.c.last_report_id).where(gateways.c.id == gateway_id).with_for_update()
    )
    if found is None:
        await tx.execute(
            gateways.insert().values(id=gateway_id, last_report_id=report_id, reported_at=now)
        )
        return True
    await tx.execute(
        sa.update(gateways)
        .where(gateways.c.id == gateway_id)
        .values(last_report_id=report_id, reported_at=now)
    )
    return bool(found != report_id)


async def _count_rollouts(
    tx: AsyncConnection, counts: Sequence[RevisionCounts], now: datetime
) -> None:
    """Add the requests of revisions in a rollout."""
    if not counts:
        return
    in_rollout = sa.select(endpoints.c.target_revision_id).where(
        endpoints.c.active_revision_id != endpoints.c.target_revision_id
    )
    reported = {each.id: each for each in counts}
    targets = {key for key in await tx.scalars(in_rollout) if key in reported}
    if not targets:
        return
    found = (
        sa.select(endpoint_revisions.c.id, endpoint_revisions.c.latency_ms)
        .where(endpoint_revisions.c.id.in_(sorted(targets)))
        # Sorted, so that two gateways do not wait for each other's rows.
        .order_by(endpoint_revisions.c.id)
        .with_for_update()
    )
    new = [
        {
            "key": row.id,
            "more": reported[row.id].requests,
            "failed": reported[row.id].errors,
            "latencies": merged(row.latency_ms or {}, reported[row.id].latency_ms),
        }
        for row in await tx.execute(found)
    ]
    if new:
        await tx.execute(
            sa.update(endpoint_revisions)
            .where(endpoint_revisions.c.id == sa.bindparam("key"))
            .values(
                requests=endpoint_revisions.c.requests + sa.bindparam("more"),
                errors=endpoint_revisions.c.errors + sa.bindparam("failed"),
                latency_ms=sa.bindparam("latencies"),
                observed_at=sa.func.coalesce(
                    endpoint_revisions.c.observed_at, sa.literal(now, UtcDateTime())
                ),
            ),
            new,
        )


async def _store_loads(tx: AsyncConnection, gateway_id: str, loads: Mapping[str, int]) -> None:
    """Store the loads of endpoints with a scaling rule, except loads of 0."""
    stored = sa.select(gateway_loads.c.endpoint_id, gateway_loads.c.load).where(
        gateway_loads.c.gateway_id == gateway_id
    )
    before = {row.endpoint_id: row.load for row in await tx.execute(stored)}
    after: dict[str, int] = {}
    if any(loads.values()):
        scaled = await tx.scalars(sa.select(endpoints.c.id).where(endpoints.c.scaling.is_not(None)))
        after = {key: loads[key] for key in scaled if loads.get(key)}
    changed = {key for key in loads if before.get(key) != after.get(key)}
    if old := sorted(changed & before.keys()):
        await tx.execute(
            sa.delete(gateway_loads).where(
                gateway_loads.c.gateway_id == gateway_id, gateway_loads.c.endpoint_id.in_(old)
            )
        )
    if new := sorted(changed & after.keys()):
        await tx.execute(
            gateway_loads.insert(),
            [{"gateway_id": gateway_id, "endpoint_id": key, "load": after[key]} for key in new],
        )


async def _mark_drained(tx: AsyncConnection, gateway_id: str, drained: Sequence[str]) -> None:
    if not drained:
        return
    rows = await tx.execute(
        sa.select(endpoint_replicas.c.id, endpoint_replicas.c.drained_by)
        .where(
            endpoint_replicas.c.id.in_(sorted(set(drained))),
            endpoint_replicas.c.phase == Phase.DRAINING,
        )
        .with_for_update()
    )
    changed = [
        {"key": row.id, "gateways": [*row.drained_by, gateway_id]}
        for row in rows
        if gateway_id not in row.drained_by
    ]
    if changed:
        await tx.execute(
            sa.update(endpoint_replicas)
            .where(endpoint_replicas.c.id == sa.bindparam("key"))
            .values(drained_by=sa.bindparam("gateways")),
            changed,
        )
