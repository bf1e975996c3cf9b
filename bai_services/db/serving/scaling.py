"""Store of the loads that gateways report, and of the decisions of scaling rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from bai_services.core.listing import ListQuery, Page
from bai_services.core.resources import ResourceSlots
from bai_services.core.serving.records import SCALINGS_KEPT, LoadPoint, Scaling

from ..database import Database
from ..listing import Listing
from ..records import records
from ..tables.serving import (
    endpoint_loads,
    endpoint_scalings,
    endpoints,
    gateway_loads,
    gateways,
)
from ..tables.sessions import kernels, sessions
from .gateways import reports_at

_LISTING = Listing(
    columns={
        name: endpoint_scalings.c[name] for name in ("id", "created_at", "former", "replicas")
    },
    default_sort=("-created_at", "id"),
)


@dataclass(frozen=True, slots=True)
class NewScaling:
    """A change of ``former`` to ``replicas`` replicas, if the endpoint still has ``version``."""

    id: str
    endpoint_id: str
    version: int
    former: int
    replicas: int
    reason: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewLoad:
    """A load sample of an endpoint with a scaling rule; ``load`` is None while it is unknown."""

    endpoint_id: str
    load: float | None
    replicas: int
    ready: int


@dataclass(frozen=True, slots=True)
class ReplicaKernel:
    """The kernel of a replica, with the resources that it requested."""

    kernel_id: str
    session_id: str
    requested_slots: ResourceSlots


class ScalingStore:
    """Reads and writes loads and scaling decisions. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def loads(self, now: datetime) -> dict[str, int]:
        """Return the loads from live gateways by endpoint, without loads of 0."""
        rows = (
            sa.select(gateway_loads.c.endpoint_id, sa.func.sum(gateway_loads.c.load).label("load"))
            .join_from(gateway_loads, gateways, gateway_loads.c.gateway_id == gateways.c.id)
            .where(reports_at(now))
            .group_by(gateway_loads.c.endpoint_id)
        )
        async with self._db.read() as tx:
            return {row.endpoint_id: int(row.load) for row in await tx.execute(rows)}

    async def set(self, changes: Sequence[NewScaling], now: datetime) -> set[str]:
        """Set the numbers of replicas and their reasons; return the ids of the endpoints.

        An endpoint that has changed since it was read is omitted.
        """
        found = (
            sa.select(endpoints.c.id, endpoints.c.version)
            .where(endpoints.c.id.in_(sorted(each.endpoint_id for each in changes)))
            # Use the same lock order as reports of gateways.
            .order_by(endpoints.c.id)
            .with_for_update()
        )
        async with self._db.write() as tx:
            versions = {row.id: row.version for row in await tx.execute(found)}
            valid = [each for each in changes if versions.get(each.endpoint_id) == each.version]
            if not valid:
                return set()
            await tx.execute(
                sa.update(endpoints)
                .where(endpoints.c.id == sa.bindparam("key"))
                .values(replicas=sa.bindparam("count"), scaling_reason=sa.bindparam("why")),
                [
                    {"key": each.endpoint_id, "count": each.replicas, "why": each.reason}
                    for each in valid
                ],
            )
            history = [
                {
                    "id": each.id,
                    "created_at": now,
                    "endpoint_id": each.endpoint_id,
                    "former": each.former,
                    "replicas": each.replicas,
                    "reason": each.reason,
                }
                for each in valid
                if each.replicas != each.former
            ]
            if history:
                await tx.execute(endpoint_scalings.insert(), history)
            return {each.endpoint_id for each in valid}

    async def page(
        self, endpoint_id: str, query: ListQuery, make: Callable[..., Scaling]
    ) -> Page[Scaling]:
        shown = [column for column in endpoint_scalings.columns if column.name != "endpoint_id"]
        rows = sa.select(*shown).where(endpoint_scalings.c.endpoint_id == endpoint_id)
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, make)

    async def add_loads(self, samples: Sequence[NewLoad], at: datetime, before: datetime) -> None:
        """Store load samples, and delete samples from before ``before``.

        A sample that another manager stores concurrently is kept.
        """
        ids = sorted(each.endpoint_id for each in samples)
        existing = sa.select(endpoints.c.id).where(endpoints.c.id.in_(ids)).with_for_update()
        stored = sa.select(endpoint_loads.c.endpoint_id).where(endpoint_loads.c.at == at)
        async with self._db.write() as tx:
            left = set(await tx.scalars(existing.order_by(endpoints.c.id)))
            left -= set(await tx.scalars(stored))
            new = [
                {
                    "endpoint_id": each.endpoint_id,
                    "at": at,
                    "load": each.load,
                    "replicas": each.replicas,
                    "ready": each.ready,
                }
                for each in samples
                if each.endpoint_id in left
            ]
            if new:
                await tx.execute(endpoint_loads.insert(), new)
            await tx.execute(sa.delete(endpoint_loads).where(endpoint_loads.c.at < before))

    async def load_points(self, endpoint_id: str, since: datetime) -> list[LoadPoint]:
        """Return the load samples of an endpoint from ``since`` on, oldest first."""
        shown = [column for column in endpoint_loads.columns if column.name != "endpoint_id"]
        rows = (
            sa.select(*shown)
            .where(endpoint_loads.c.endpoint_id == endpoint_id, endpoint_loads.c.at >= since)
            .order_by(endpoint_loads.c.at)
        )
        async with self._db.read() as tx:
            return records(LoadPoint, await tx.execute(rows))

    async def kernels_of(self, session_ids: Collection[str]) -> list[ReplicaKernel]:
        """Return the kernels of replicas."""
        rows = (
            sa.select(
                kernels.c.id.label("kernel_id"), kernels.c.session_id, sessions.c.requested_slots
            )
            .join_from(kernels, sessions, kernels.c.session_id == sessions.c.id)
            .where(kernels.c.session_id.in_(sorted(session_ids)))
        )
        async with self._db.read() as tx:
            return records(ReplicaKernel, await tx.execute(rows))

    async def clean_up(self, kept: int = SCALINGS_KEPT) -> None:
        """Delete all but the last ``kept`` changes of each endpoint."""
        numbered = sa.select(
            endpoint_scalings.c.id,
            sa.func.row_number()
            .over(
                partition_by=endpoint_scalings.c.endpoint_id,
                order_by=endpoint_scalings.c.created_at.desc(),
            )
            .label("number"),
        ).subquery()
        old = sa.select(numbered.c.id).where(numbered.c.number > kept)
        async with self._db.write() as tx:
            await tx.execute(sa.delete(endpoint_scalings).where(endpoint_scalings.c.id.in_(old)))
