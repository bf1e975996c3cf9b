"""Downsampling of usage samples after an interrupted run, and after the clock was set back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest

from bai_services.core.sessions.usage_history import COARSE, FINE, Resolution, Sample
from bai_services.db.database import Database
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.sessions.usage_samples import UsageSampleStore
from bai_services.manager.scheduling.lease import Lease
from bai_services.manager.sessions.usage.sampling import UsageSampling
from tests.testbed.manager import MovableClock

START = datetime(2030, 1, 1, tzinfo=UTC)


class World:
    """The lease and the samples of a database, and a clock that starts at ``START``."""

    def __init__(self, database: Database) -> None:
        self.clock = MovableClock()
        self.clock.now = START
        self.store = UsageSampleStore(database)
        self.lease = Lease(LeaseStore(database), self.clock, 60)

    def new_sampling(self) -> UsageSampling:
        """Return the sampling of a manager that has just started."""
        return UsageSampling(self.store, self.lease, self.clock)

    async def downsampled(self, kernel: str) -> list[datetime]:
        """Return the start times of the coarse samples of a kernel."""
        first, last = START - timedelta(days=1), START + timedelta(days=1)
        return [s.at for s in await self.store.between([kernel], COARSE, first, last)]


@pytest.fixture
async def world(migrated_database_url: str) -> AsyncIterator[World]:
    database = Database(migrated_database_url)
    found = World(database)
    assert await found.lease.hold() is not None
    yield found
    await database.close()


async def test_manager_that_was_killed_while_it_downsampled_leaves_no_kernel_out(
    world: World,
) -> None:
    samples = [Sample(name, START, {"cpu_cores": 1.0}) for name in ("k1", "k2")]
    await world.store.add(samples, FINE)
    # Each kernel may be downsampled in another transaction; only that of "k1" was committed.
    await world.store.add(samples[:1], COARSE)
    world.clock.advance(minutes=6)
    await world.new_sampling().step()
    assert await world.downsampled("k2") == [START]


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_samples_are_downsampled_after_the_clock_was_set_back(
    world: World, is_restarted: bool
) -> None:
    sampling = world.new_sampling()
    world.clock.advance(hours=3)
    sampling.add("k1", {"cpu_cores": 1})
    world.clock.advance(minutes=6)
    await sampling.step()
    world.clock.now = START
    if is_restarted:
        sampling = world.new_sampling()
    await sampling.step()
    sampling.add("k1", {"cpu_cores": 1})
    world.clock.advance(minutes=6)
    await sampling.step()
    assert START in await world.downsampled("k1")


async def test_newest_measurement_counts_after_the_clock_was_set_back(world: World) -> None:
    sampling = world.new_sampling()

    async def shown(resolution: Resolution) -> list[float]:
        end = START + timedelta(minutes=5)
        samples = await sampling.samples(["k1"], resolution, START, end)
        return [sample.metrics["cpu_cores"] for sample in samples]

    sampling.add("k1", {"cpu_cores": 1})
    world.clock.advance(minutes=6)
    await sampling.step()
    assert await world.downsampled("k1") == [START]
    world.clock.now = START
    await sampling.step()
    sampling.add("k1", {"cpu_cores": 3})
    assert [await shown(FINE), await shown(COARSE)] == [[3], [3]]  # not stored yet
    world.clock.advance(minutes=6)
    await sampling.step()
    world.clock.advance(minutes=30)
    assert [await shown(FINE), await shown(COARSE)] == [[3], [3]]


async def test_measurements_of_a_later_time_are_stored_when_the_clock_was_set_back(
    world: World,
) -> None:
    sampling = world.new_sampling()
    world.clock.advance(hours=3)
    later = FINE.start_of(world.clock.now)
    sampling.add("k1", {"cpu_cores": 1})
    world.clock.now = START
    await sampling.step()
    sampling.add("k1", {"cpu_cores": 3})
    world.clock.advance(hours=3)
    # The earlier measurement does not count in the mean of the new ones.
    sampling.add("k1", {"cpu_cores": 5})
    samples = await sampling.samples(["k1"], FINE, later, later + timedelta(seconds=15))
    assert [s.metrics["cpu_cores"] for s in samples if s.at == later] == [5]
