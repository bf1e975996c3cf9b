"""Daily usage of each domain, project and user, for fair share.

The usage is computed from the ledger, which is the table of allocations.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.scheduling.caps import Scope, ScopeKind
from bai_services.core.scheduling.queue import DailyUsage

from ..database import Database
from ..tables.scheduling import usage_buckets
from ..tables.sessions import allocations, sessions
from . import lease

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE = 500

History = Mapping[str, Mapping[Scope, Sequence[DailyUsage]]]


def day_of(at: datetime) -> int:
    """Return the day (UTC) of a time as the number of days since 1970-01-01."""
    return (at - _EPOCH).days


class UsageBucketStore:
    """Writes and reads the buckets.

    Each public method is one transaction, except ``recompute``, which reads in one transaction and
    writes in another.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    async def recompute(self, day: int, now: datetime, token: int | None) -> None:
        """Recompute the buckets of a day from the ledger; idempotent.

        Raises
        ------
        StaleLease
            If ``token`` is not the current lease token. With the token None, no lease is needed.
        """
        start = _EPOCH + timedelta(days=day)
        end = min(start + timedelta(days=1), now)
        async with self._db.read() as tx:
            used = await _sum(tx, start, end) if end > start else Counter()
        async with self._db.write() as tx:
            if token is not None:
                await lease.require(tx, token)
            await tx.execute(sa.delete(usage_buckets).where(usage_buckets.c.day == day))
            if used:
                names = ("resource_group", "scope", "scope_id", "slot")
                await tx.execute(
                    sa.insert(usage_buckets),
                    [
                        {**dict(zip(names, key, strict=True)), "day": day, "amount_seconds": amount}
                        for key, amount in sorted(used.items())
                    ],
                )

    async def last_day(self) -> int | None:
        """Return the newest day with buckets; None without buckets."""
        async with self._db.read() as tx:
            newest: int | None = await tx.scalar(sa.select(sa.func.max(usage_buckets.c.day)))
            return newest

    async def first_day(self) -> int | None:
        """Return the day of the first allocation in the ledger; None if the ledger is empty."""
        async with self._db.read() as tx:
            at = await tx.scalar(sa.select(sa.func.min(allocations.c.allocated_at)))
            return None if at is None else day_of(at)

    async def history(self, since: int) -> History:
        """Return the buckets from the day ``since`` on, by resource group and scope."""
        by_group: dict[str, dict[Scope, dict[int, dict[str, int]]]] = defaultdict(dict)
        async with self._db.read() as tx:
            rows = await tx.execute(sa.select(usage_buckets).where(usage_buckets.c.day >= since))
            for row in rows:
                days = by_group[row.resource_group].setdefault(Scope(row.scope, row.scope_id), {})
                days.setdefault(row.day, {})[row.slot] = int(row.amount_seconds)
        return {
            group: {
                scope: tuple(DailyUsage(day, slots) for day, slots in sorted(days.items()))
                for scope, days in scopes.items()
            }
            for group, scopes in by_group.items()
        }


async def _sum(
    tx: AsyncConnection, start: datetime, end: datetime
) -> Counter[tuple[str, str, str, str]]:
    """Return the sums of amount times seconds of the allocations between two times.

    The keys are (resource group, scope kind, scope id, slot).
    """
    select: sa.Select[Any] = (
        sa.select(
            allocations.c.id,
            allocations.c.slot,
            allocations.c.amount,
            allocations.c.allocated_at,
            allocations.c.freed_at,
            sessions.c.resource_group,
            sessions.c.domain,
            sessions.c.project_id,
            sessions.c.owner_id,
        )
        .join_from(allocations, sessions, allocations.c.session_id == sessions.c.id)
        .where(
            allocations.c.allocated_at < end,
            sa.or_(allocations.c.freed_at.is_(None), allocations.c.freed_at > start),
        )
        .order_by(allocations.c.id)
    )
    used: Counter[tuple[str, str, str, str]] = Counter()
    last = 0
    while True:
        rows = (await tx.execute(select.where(allocations.c.id > last).limit(_PAGE))).all()
        for row in rows:
            until = min(row.freed_at or end, end)
            seconds = (until - max(row.allocated_at, start)).total_seconds()
            for kind, key in (
                (ScopeKind.DOMAIN, row.domain),
                (ScopeKind.PROJECT, row.project_id),
                (ScopeKind.USER, row.owner_id),
            ):
                used[row.resource_group, kind, key, row.slot] += row.amount * seconds
        if len(rows) < _PAGE:
            return used
        last = rows[-1].id
