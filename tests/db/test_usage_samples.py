"""The store of usage samples, on SQLite and PostgreSQL."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.sessions.usage_history import COARSE, FINE, Sample, downsampled
from bai_services.db.database import Database
from bai_services.db.sessions.usage_samples import UsageSampleStore

START = datetime(2026, 11, 24, tzinfo=UTC)
KERNELS = [f"kernel-{number:02}" for number in range(60)]


def time_at(seconds: int) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[UsageSampleStore]:
    database = Database(database_url)
    yield UsageSampleStore(database)
    await database.close()


async def test_newest_sample_of_an_interval_is_kept(store: UsageSampleStore) -> None:
    older = Sample("k", time_at(0), {"cpu_cores": 1.0}, {"g0": {"memory_bytes": 2.0**40}})
    newest = Sample("k", time_at(0), {"mem_bytes": 9.0})
    await store.add([older, Sample("other", time_at(15), {"cpu_cores": 1.0})], FINE)
    await store.add([newest], FINE)
    await store.add([], FINE)
    assert await store.between(["k"], FINE, time_at(0), time_at(15)) == [newest]
    assert await store.between(["k"], COARSE, time_at(0), time_at(15)) == []
    assert await store.between(["other"], FINE, time_at(0), time_at(15)) == []


async def test_samples_of_many_kernels_are_written_with_one_statement(
    store: UsageSampleStore,
) -> None:
    statements = []

    def record(*arguments: Any) -> None:
        statements.append(arguments[2])

    samples = [Sample(kernel, time_at(0), {"cpu_cores": 1.0}) for kernel in KERNELS]
    sa.event.listen(sa.Engine, "before_cursor_execute", record)
    try:
        await store.add(samples, FINE)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", record)
    assert [statement.split()[:3] for statement in statements if "usage_samples" in statement] == [
        ["INSERT", "INTO", "usage_samples"]
    ]
    assert await store.between(KERNELS, FINE, time_at(0), time_at(15)) == samples


async def test_downsampling_many_kernels_equals_downsampling_in_memory(
    store: UsageSampleStore,
) -> None:
    chance = random.Random(1)
    samples = [
        Sample(kernel, time_at(seconds), {"cpu_cores": chance.random()})
        for kernel in KERNELS
        for seconds in range(0, 600, 15)
        if chance.random() < 0.3
    ]
    await store.add(samples, FINE)
    for start in (0, 300, 300):
        await store.downsample(time_at(start))
    found = await store.between(KERNELS, COARSE, time_at(0), time_at(600))
    assert [(s.at, s.kernel_id) for s in found] == [
        (s.at, s.kernel_id) for s in downsampled(samples, COARSE)
    ]
    for stored, expected in zip(found, downsampled(samples, COARSE), strict=True):
        assert stored.metrics == pytest.approx(expected.metrics)
    assert await store.last(COARSE, time_at(600)) == time_at(300)
    assert await store.last(COARSE, time_at(300)) == time_at(0)
    assert await store.last(COARSE, time_at(0)) is None


async def test_deletion_is_by_resolution_and_age(store: UsageSampleStore) -> None:
    for resolution in (FINE, COARSE):
        await store.add([Sample("k", time_at(s), {"cpu_cores": 1.0}) for s in (0, 300)], resolution)
    await store.delete_before(FINE, time_at(300))
    assert [s.at for s in await store.between(["k"], FINE, time_at(0), time_at(900))] == [
        time_at(300)
    ]
    assert [s.at for s in await store.between(["k"], COARSE, time_at(0), time_at(900))] == [
        time_at(0),
        time_at(300),
    ]
