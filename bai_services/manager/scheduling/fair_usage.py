"""Daily usage buckets for the fair-share order."""

from __future__ import annotations

from collections.abc import Mapping

from bai_services.core.scheduling.queue import GroupState, Order
from bai_services.db.scheduling.lease import StaleLease
from bai_services.db.scheduling.usage_buckets import History, UsageBucketStore, day_of

from ..clock import Clock
from ..loop import Loop
from .lease import Lease

TICK_SECONDS = 60.0


class FairUsage:
    """Computes the usage buckets of each day, from the last computed day up to today."""

    def __init__(self, store: UsageBucketStore, lease: Lease, clock: Clock) -> None:
        self._store = store
        self._lease = lease
        self._clock = clock
        self._last_day: int | None = None
        self._loop = Loop("fair usage", self.step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Compute the missing buckets up to now."""
        token = await self._lease.hold()
        if token is None:
            self._last_day = None
            return
        now = self._clock()
        today = day_of(now)
        since = self._last_day
        if since is None:
            since = await self._store.last_day()
        if since is None:
            since = await self._store.first_day()
        try:
            for day in range(today if since is None else since, today + 1):
                await self._store.recompute(day, now, token)
        except StaleLease:
            self._lease.lost()
            return
        self._last_day = today

    async def history(self, groups: Mapping[str, GroupState]) -> History:
        """Return the buckets within the longest lookback of the fair-share groups."""
        days = [g.fair_share.lookback_days for g in groups.values() if g.order is Order.FAIR_SHARE]
        if not days:
            return {}
        return await self._store.history(day_of(self._clock()) - max(days))
