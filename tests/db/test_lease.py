"""The lease for writing to the queue: one holder at a time; a previous holder cannot write."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import sqlalchemy as sa

from bai_services.core.scheduling.queue import Decision, run_pass
from bai_services.core.sessions.lifecycle import Status
from bai_services.db.scheduling.lease import LeaseRow, LeaseStore, StaleLease
from bai_services.db.scheduling.queue import WaitState
from bai_services.db.tables import cluster
from bai_services.manager.scheduling.lease import Lease, holder_has_ended, own_identity

from .world import NOW, World, make_world


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    made = await make_world(database_url)
    yield made
    await made.close()


@pytest.fixture
def store(world: World) -> LeaseStore:
    return LeaseStore(world.database)


async def create_decisions(world: World) -> tuple[Decision, ...]:
    return run_pass(await world.queue.snapshot(NOW)).decisions


async def test_held_lease_is_not_acquired_by_another_manager(store: LeaseStore) -> None:
    assert await store.read() is None
    assert await store.acquire("a", None, NOW) == 1
    assert await store.acquire("b", None, NOW) is None
    assert await store.read() == LeaseRow("a", 1, 0, NOW)


async def test_new_holder_gets_a_higher_token(store: LeaseStore) -> None:
    await store.acquire("a", None, NOW)
    seen = await store.read()
    assert await store.acquire("b", seen, NOW) == 2
    assert not await store.renew(1)
    assert await store.renew(2)


async def test_lease_renewed_since_the_last_read_is_not_acquired(store: LeaseStore) -> None:
    await store.acquire("a", None, NOW)
    seen = await store.read()
    await store.renew(1)
    assert await store.acquire("b", seen, NOW) is None


async def test_holder_of_a_stale_token_cannot_write(world: World, store: LeaseStore) -> None:
    row, _ = await world.sessions.enqueue(world.new_session("lab"), NOW)
    stale = await store.acquire("a", None, NOW)
    decisions = await create_decisions(world)
    newest = await store.acquire("b", await store.read(), NOW)
    with pytest.raises(StaleLease):
        await world.queue.commit(decisions, NOW, stale)
    states = {row.id: WaitState(({"check": "order", "message": "no"},), 7)}
    with pytest.raises(StaleLease):
        await world.queue.write_states(states, stale)
    session = await world.sessions.find(row.id)
    assert (session.status, session.reasons) == (Status.PENDING, [])
    assert (await world.queue.commit(decisions, NOW, newest)).placed == (row.id,)
    assert await world.allocations.audit() == []


async def test_commit_rejects_only_the_decisions_that_lost_a_race(
    world: World, store: LeaseStore
) -> None:
    """After eight decisions, a device fails, and there is CPU left for only three sessions."""
    rows = [(await world.sessions.enqueue(world.new_session(f"lab{n}"), NOW))[0] for n in range(8)]
    token = await store.acquire("a", None, NOW)
    decisions = await create_decisions(world)
    assert len(decisions) == 8
    failed = decisions[0].placement.devices[0].device_id
    await world.write(
        sa.update(cluster.devices).where(cluster.devices.c.id == failed).values(is_healthy=False)
    )
    await world.write(
        sa.update(cluster.agent_slots)
        .where(cluster.agent_slots.c.slot == "cpu")
        .values(capacity=3000)
    )
    committed = await world.queue.commit(decisions, NOW, token)
    assert len(committed.placed) == 3
    assert set(committed.placed) | set(committed.lost) == {row.id for row in rows}
    used = {d.placement.devices[0].device_id for d in decisions if d.session_id in committed.placed}
    assert failed not in used
    scheduled = await world.sessions.in_status(Status.SCHEDULED)
    assert {row.id for row in scheduled} == set(committed.placed)
    await world.write(sa.update(cluster.devices).values(is_healthy=True))
    assert await world.allocations.audit() == []


class MovableMonotonicClock:
    """A monotonic clock controlled by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_lease_is_acquired_after_holder_stops_renewing(store: LeaseStore) -> None:
    watch = MovableMonotonicClock()
    first, second = (Lease(store, lambda: NOW, 15, watch) for _ in range(2))
    assert await first.hold() == 1
    assert await second.hold() is None
    assert "process" in second.other and not first.other
    for _ in range(10):
        watch.now += 5
        assert await first.hold() == 1
        assert await second.hold() is None
    watch.now += 16
    assert await second.hold() == 2
    assert await first.hold() is None
    assert not first.is_held


async def test_released_lease_is_acquired_at_once(store: LeaseStore) -> None:
    first, second = (Lease(store, lambda: NOW, 15, MovableMonotonicClock()) for _ in range(2))
    await first.hold()
    await first.stop()
    assert await second.hold() == 2


async def test_lease_of_dead_process_is_acquired_at_once(store: LeaseStore) -> None:
    gone = own_identity().replace('"started": "', '"started": "9')
    assert holder_has_ended(gone) and not holder_has_ended(own_identity())
    await store.acquire(gone, None, NOW)
    assert await Lease(store, lambda: NOW, 15, MovableMonotonicClock()).hold() == 2
