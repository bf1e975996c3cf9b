"""Store of the usage samples of kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Visibility
from bai_services.core.resources import ResourceSlots
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.usage_history import COARSE, FINE, Resolution, Sample, downsampled

from ..database import Database
from ..tables.sessions import kernels, sessions, usage_samples
from .store import visible_to

# Number of kernels to downsample per step, so that a transaction takes only a few milliseconds.
_KERNELS_PER_STEP = 25


@dataclass(frozen=True, slots=True)
class SampledKernel:
    """A kernel, and the resources that its session requested for each kernel."""

    kernel_id: str
    session_id: str
    requested_slots: ResourceSlots


class UsageSampleStore:
    """Writes and reads samples. Each public method is one transaction, except ``downsample``."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def add(self, samples: Sequence[Sample], resolution: Resolution) -> None:
        """Store samples; replace stored samples of the same kernels and intervals.

        Such samples exist, for example, after the clock was set back.
        """
        if samples:
            async with self._db.write() as tx:
                await _insert(tx, samples, resolution)

    async def between(
        self, kernel_ids: Sequence[str], resolution: Resolution, start: datetime, end: datetime
    ) -> list[Sample]:
        """Return the samples of kernels in intervals that start in a period, oldest first."""
        async with self._db.read() as tx:
            return await _select(tx, kernel_ids, resolution, start, end)

    async def last(self, resolution: Resolution, before: datetime) -> datetime | None:
        """Return the start of the newest interval that has samples and starts before ``before``;
        None if there is no such interval.
        """
        async with self._db.read() as tx:
            newest = sa.select(sa.func.max(usage_samples.c.at)).where(
                usage_samples.c.interval_seconds == resolution.interval_seconds,
                usage_samples.c.at < before,
            )
            at: datetime | None = await tx.scalar(newest)
            return at

    async def downsample(self, start: datetime) -> None:
        """Store the coarse samples of the interval that begins at ``start``; idempotent."""
        end = start + timedelta(seconds=COARSE.interval_seconds)
        last = ""
        while True:
            async with self._db.read() as tx:
                fine = usage_samples.c
                kernel_ids = (
                    await tx.scalars(
                        sa.select(fine.kernel_id)
                        .where(
                            fine.interval_seconds == FINE.interval_seconds,
                            fine.at >= start,
                            fine.at < end,
                            fine.kernel_id > last,
                        )
                        .distinct()
                        .order_by(fine.kernel_id)
                        .limit(_KERNELS_PER_STEP)
                    )
                ).all()
                samples = await _select(tx, kernel_ids, FINE, start, end)
            await self.add(downsampled(samples, COARSE), COARSE)
            if len(kernel_ids) < _KERNELS_PER_STEP:
                return
            last = kernel_ids[-1]

    async def delete_before(self, resolution: Resolution, at: datetime) -> None:
        """Delete the samples of intervals that start before ``at``."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(usage_samples).where(
                    usage_samples.c.interval_seconds == resolution.interval_seconds,
                    usage_samples.c.at < at,
                )
            )

    async def delete_from(self, resolution: Resolution, at: datetime) -> None:
        """Delete the samples of intervals that start at ``at`` or later."""
        async with self._db.write() as tx:
            await tx.execute(
                sa.delete(usage_samples).where(
                    usage_samples.c.interval_seconds == resolution.interval_seconds,
                    usage_samples.c.at >= at,
                )
            )

    async def kernels_of(
        self, session_ids: Sequence[str], visible: Visibility
    ) -> list[SampledKernel]:
        """Return the kernels of the visible sessions in ``session_ids``."""
        return await self._kernels(sessions.c.id.in_(sorted(session_ids)), *visible_to(visible))

    async def running_kernels_of(self, owner_id: str, limit: int) -> list[SampledKernel]:
        """Return the kernels of a user's newest running sessions, at most ``limit`` sessions."""
        newest = (
            sa.select(sessions.c.id)
            .where(sessions.c.owner_id == owner_id, sessions.c.status == Status.RUNNING)
            .order_by(sessions.c.created_at.desc())
            .limit(limit)
        )
        return await self._kernels(sessions.c.id.in_(newest))

    async def _kernels(self, *conditions: sa.ColumnElement[bool]) -> list[SampledKernel]:
        async with self._db.read() as tx:
            rows = await tx.execute(
                sa.select(kernels.c.id, sessions.c.id, sessions.c.requested_slots)
                .join_from(kernels, sessions, kernels.c.session_id == sessions.c.id)
                .where(*conditions)
                .order_by(sessions.c.created_at, kernels.c.index)
            )
            return [SampledKernel(*row) for row in rows]


async def _insert(tx: AsyncConnection, samples: Sequence[Sample], resolution: Resolution) -> None:
    insert = (postgresql if tx.dialect.name == "postgresql" else sqlite).insert(usage_samples)
    newest = {name: insert.excluded[name] for name in ("metrics", "devices")}
    await tx.execute(
        insert.on_conflict_do_update(index_elements=usage_samples.primary_key, set_=newest),
        [
            {
                "kernel_id": sample.kernel_id,
                "interval_seconds": resolution.interval_seconds,
                "at": sample.at,
                "metrics": dict(sample.metrics),
                "devices": {key: dict(values) for key, values in sample.devices.items()},
            }
            # Sorted, because managers that lock the rows in different orders could deadlock.
            for sample in sorted(samples, key=lambda sample: (sample.kernel_id, sample.at))
        ],
    )


async def _select(
    tx: AsyncConnection,
    kernel_ids: Sequence[str],
    resolution: Resolution,
    start: datetime,
    end: datetime,
) -> list[Sample]:
    columns = usage_samples.c
    rows = await tx.execute(
        sa.select(columns.kernel_id, columns.at, columns.metrics, columns.devices)
        .where(
            columns.kernel_id.in_(kernel_ids),
            columns.interval_seconds == resolution.interval_seconds,
            columns.at >= start,
            columns.at < end,
        )
        .order_by(columns.at, columns.kernel_id)
    )
    return [Sample(*row) for row in rows]
