"""Compute the totals of each hour from records and samples, and delete old statistics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from bai_services.core.sessions.usage_history import COARSE, Sample
from bai_services.core.usage.model import HOUR, HourTotals
from bai_services.core.usage.periods import KEPT_FOR, full_hour
from bai_services.db.scheduling.lease import StaleLease
from bai_services.db.sessions.usage_samples import UsageSampleStore
from bai_services.db.usage.aggregates import UsageAggregateStore
from bai_services.db.usage.prices import UsagePriceStore
from bai_services.db.usage.record_writes import time_of

from ..clock import Clock
from ..loop import Loop
from ..scheduling.lease import Lease

TICK_SECONDS = 60.0
# Maximum time from the end of an hour until its last samples are stored and downsampled.
DELAY = timedelta(seconds=COARSE.interval_seconds + 120)
# Number of kernels per query of samples.
_KERNELS = 50
# After it acquires the lease, a manager checks the records again, from this many seconds before
# the end of the last computed hour.
_CHECKED = 24 * HOUR
# Maximum number of hours that one step computes.
_HOURS_PER_STEP = 500


class UsageAggregation:
    """Writes the totals of ended hours while this manager holds the lease."""

    def __init__(
        self,
        store: UsageAggregateStore,
        samples: UsageSampleStore,
        prices: UsagePriceStore,
        lease: Lease,
        clock: Clock,
    ) -> None:
        self._store = store
        self._samples = samples
        self._prices = prices
        self._lease = lease
        self._clock = clock
        self._is_checked = False
        self._loop = Loop("usage statistics", self.step, TICK_SECONDS)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        await self._loop.stop()

    async def step(self) -> None:
        """Compute the missing totals of ended hours, at most ``_HOURS_PER_STEP``."""
        token = await self._lease.hold()
        if token is None:
            self._is_checked = False
            return
        try:
            await self._compute(token)
        except StaleLease:
            self._lease.lost()
            self._is_checked = False

    async def _compute(self, token: int | None) -> None:
        now = self._clock()
        last = full_hour((now - DELAY).timestamp())
        oldest = full_hour((now - KEPT_FOR).timestamp())
        done = await self._store.done_until()
        if not self._is_checked:
            since = oldest if done is None else max(oldest, done - _CHECKED)
            await self._store.rebuild(token, since)
            self._is_checked = True
            done = await self._store.done_until()
        if done is None:
            first = await self._store.first_record()
            done = last - HOUR if first is None else max(full_hour(first), oldest)
        if done >= last:
            return
        for hour in range(done, min(last, done + _HOURS_PER_STEP * HOUR), HOUR):
            await self.compute_hour(hour, token)
        await self._store.delete_before(oldest)

    async def compute_hour(self, hour: int, token: int | None) -> None:
        """Compute and write the totals of an hour."""
        totals = HourTotals(hour, await self._prices.read())
        records = await self._store.records_between(hour, hour + HOUR)
        by_kernel = defaultdict(list)
        for record in records:
            by_kernel[record.kernel_id].append(record)
        for record in by_kernel.pop("", ()):
            totals.add(record)
        kernel_ids = sorted(by_kernel)
        for start in range(0, len(kernel_ids), _KERNELS):
            part = kernel_ids[start : start + _KERNELS]
            samples = await self._samples_of(part, hour)
            for kernel_id in part:
                for record in by_kernel[kernel_id]:
                    totals.add(record, samples[kernel_id])
        if not self._has_samples(hour):
            totals.keep_measured(await self._store.facts(hour))
        await self._store.write_hour(hour, totals.facts, totals.totals(), token)

    def _has_samples(self, hour: int) -> bool:
        """Return whether the samples of an hour are still kept."""
        return time_of(hour) >= self._clock() - COARSE.kept_for

    async def _samples_of(self, kernel_ids: Sequence[str], hour: int) -> dict[str, list[Sample]]:
        """Return the samples of an hour; empty if they have been deleted."""
        by_kernel: dict[str, list[Sample]] = defaultdict(list)
        if self._has_samples(hour):
            start = time_of(hour)
            end = start + timedelta(seconds=HOUR)
            for sample in await self._samples.between(kernel_ids, COARSE, start, end):
                by_kernel[sample.kernel_id].append(sample)
        return by_kernel
