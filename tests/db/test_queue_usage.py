"""Daily usage buckets, and run times of ended sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from bai_services.core.scheduling.caps import Scope, ScopeKind
from bai_services.core.sessions.lifecycle import Event
from bai_services.db.scheduling.usage_buckets import UsageBucketStore, day_of

from .world import NOW, World, make_world

USER = Scope(ScopeKind.USER, "u1")


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    made = await make_world(database_url)
    yield made
    await made.close()


async def test_usage_is_split_between_days_at_midnight(world: World) -> None:
    """Two cores are used from 09:00 to 06:00 of the next day: 15 h on one day, 6 h on the other."""
    store, day = UsageBucketStore(world.database), day_of(NOW)
    row, _ = await world.sessions.enqueue(world.new_session("lab", {"cpu": "2", "mem": "1g"}), NOW)
    await world.run_pass()
    end = NOW + timedelta(hours=21)
    await world.sessions.move(row.id, Event.STOP_REQUESTED, end)
    assert await store.first_day() == day
    for _ in range(2):  # The second run must change nothing.
        await store.recompute(day, end, token=None)
        await store.recompute(day + 1, end, token=None)
    history = (await store.history(day))["main"]
    assert [(b.day, b.slots["cpu"]) for b in history[USER]] == [
        (day, 2000 * 15 * 3600),
        (day + 1, 2000 * 6 * 3600),
    ]
    assert {scope.kind for scope in history} == {"domain", "project", "user"}
    assert await store.last_day() == day + 1
    assert [b.day for b in (await store.history(day + 1))["main"][USER]] == [day + 1]


async def test_snapshot_reads_run_times_by_type_and_image(world: World) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    await world.run_pass()
    for event in (Event.DISPATCHED, Event.PREPARED, Event.STARTED):
        await world.sessions.move(row.id, event, NOW)
    await world.sessions.move(row.id, Event.EXITED, NOW + timedelta(seconds=90))
    snapshot = await world.queue.snapshot(NOW)
    assert dict(snapshot.durations) == {"interactive:python": [90]}
