"""Store usage samples, which are means of the readings in heartbeats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from bai_services.core.sessions.usage_history import (
    COARSE,
    FINE,
    Reading,
    Resolution,
    Sample,
    Sampler,
    downsampled,
)
from bai_services.db.sessions.usage_samples import UsageSampleStore

from ...clock import Clock, monotonic_of
from ...loop import Loop
from ...scheduling.lease import Lease

# Time between the end of a coarse interval and its downsampling. During this time, other managers
# may still store fine samples of the interval.
_DOWNSAMPLE_DELAY = timedelta(seconds=2 * FINE.interval_seconds)


class UsageSampling:
    """Records samples. A killed manager loses at most the readings of the last 30 seconds."""

    def __init__(
        self,
        store: UsageSampleStore,
        lease: Lease,
        clock: Clock,
        monotonic: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._lease = lease
        self._clock = clock
        self._monotonic = monotonic or monotonic_of(clock)
        self._sampler = Sampler(FINE)
        self._next_coarse: datetime | None = None
        self._loop = Loop("usage samples", self.step, FINE.interval_seconds)

    def start(self) -> None:
        self._loop.start()

    async def stop(self) -> None:
        """Stop the loop and store the samples of the current interval."""
        await self._loop.stop()
        await self._store.add(self._sampler.all(), FINE)

    def add(self, kernel_id: str, usage: Mapping[str, Any]) -> None:
        """Add the usage of a kernel from a heartbeat."""
        self._sampler.add(kernel_id, Reading.of(usage, self._clock(), self._monotonic()))

    async def samples(
        self, kernel_ids: Sequence[str], resolution: Resolution, start: datetime, end: datetime
    ) -> list[Sample]:
        """Return the samples of a period, including those of unfinished intervals."""
        stored = await self._store.between(kernel_ids, resolution, start, end)
        if resolution is FINE:
            recent = self._sampler.unfinished(frozenset(kernel_ids))
        else:
            # The last complete interval may not be downsampled yet.
            length = timedelta(seconds=resolution.interval_seconds)
            first = max(start, resolution.start_of(self._clock()) - length)
            recent = downsampled(await self.samples(kernel_ids, FINE, first, end), resolution)
        newer = {(sample.kernel_id, sample.at) for sample in recent}
        return [s for s in stored if (s.kernel_id, s.at) not in newer] + recent

    async def step(self) -> None:
        """Store the samples of ended intervals.

        The holder of the lease also downsamples fine samples and deletes old samples.
        """
        now = self._clock()
        await self._store.add(self._sampler.ended(now), FINE)
        self._sampler.drop_silent(now)
        if self._lease.is_held:
            await self._downsample(now)
        else:
            self._next_coarse = None

    async def _downsample(self, now: datetime) -> None:
        length = timedelta(seconds=COARSE.interval_seconds)
        if self._next_coarse is None or self._next_coarse > now:  # the clock was set back
            # Downsample the newest interval again: a killed manager may have downsampled only
            # some kernels.
            last = await self._store.last(COARSE, now)
            oldest = COARSE.start_of(now - FINE.kept_for)
            self._next_coarse = oldest if last is None else max(oldest, last)
        if self._next_coarse + length + _DOWNSAMPLE_DELAY > now:
            return
        while self._next_coarse + length + _DOWNSAMPLE_DELAY <= now:
            await self._store.downsample(self._next_coarse)
            self._next_coarse += length
        for resolution in (FINE, COARSE):
            # A fine sample is kept until its coarse interval has been downsampled.
            oldest = now - resolution.kept_for - length - _DOWNSAMPLE_DELAY
            await self._store.delete_before(resolution, oldest)
