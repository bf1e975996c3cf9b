"""Resizes of running sessions: ledger, counters and usage records change together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.errors import Conflict, InsufficientResources, InvalidRequest, QuotaExceeded
from bai_services.core.resources import Caps, ResourceSlots
from bai_services.core.scheduling.caps import Scope
from bai_services.core.scheduling.reservation_states import ReservationState
from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.core.sessions.resizing import Elasticity, ResizeState
from bai_services.db.scheduling.record import RecordStore
from bai_services.db.sessions.elastic import ElasticStore
from bai_services.db.sessions.resize_rows import insert_elastic
from bai_services.db.sessions.resizes import ResizeStore
from bai_services.db.sessions.transitions import TransitionValues
from bai_services.db.tables.accounts import projects
from bai_services.db.tables.advance_reservations import advance_reservations
from bai_services.db.tables.budgets import project_budgets
from bai_services.db.tables.cluster import images
from bai_services.db.tables.sessions import kernels, sessions
from bai_services.db.tables.usage import usage_records
from bai_services.db.usage.aggregates import UsageAggregateStore

from .test_usage_records import records
from .world import GIB, NOW, World, make_world

USER = Scope("user", "u1")


@pytest.fixture
async def world(database_url: str) -> AsyncIterator[World]:
    made = await make_world(database_url)
    yield made
    await made.close()


async def running(world: World, name: str = "lab", **facts: Any) -> str:
    """Create a session and start it; return its id."""
    row, _ = await world.sessions.enqueue(world.new_session(name, **facts), world.now)
    await world.run_pass()
    for event in (Event.DISPATCHED, Event.PREPARED, Event.STARTED):
        await world.sessions.move(row.id, event, world.now)
    return row.id


async def size_of(world: World, session_id: str) -> dict[str, str]:
    return (await world.sessions.view(session_id)).row.requested_slots.format()


async def test_growth_is_allocated_before_and_shrinking_released_after(world: World) -> None:
    store, key = ResizeStore(world.database), await running(world)
    changes = {"cpu": 3000, "mem": GIB // 2, "cuda.shares": 500}
    requested = await store.request(key, changes, "ann", world.advance(10))
    assert requested.number == 1
    assert await world.usage(USER) == {
        "cpu": 3000, "mem": GIB, "cuda.shares": 500, "sessions": 1
    }  # fmt: skip
    pending = (await store.pending_on("a1"))[0]
    assert dict(pending.size) == changes
    assert {(a.device_id, a.slot): a.amount for a in pending.amounts} == {
        (None, "cpu"): 3000, (None, "mem"): GIB // 2, ("a1-g0", "cuda.shares"): 500
    }  # fmt: skip
    row = await store.finish(key, 1, world.advance(5))
    assert row is not None
    assert dict(row.requested_slots) == changes
    assert await world.usage(USER) == {**changes, "sessions": 1}
    assert await world.allocations.audit() == []
    assert await store.pending_on("a1") == []
    # A repeated report has no effect.
    assert await store.finish(key, 1, world.advance(5)) is None


async def test_failed_resize_restores_the_former_size(world: World) -> None:
    store, key = ResizeStore(world.database), await running(world)
    before, size = await world.usage(USER), await size_of(world, key)
    await store.request(key, {"cpu": 4000}, "ann", world.advance(10))
    await store.finish(key, 1, world.advance(5), error="no")
    assert (await world.usage(USER), await size_of(world, key)) == (before, size)
    resize, _ = await store.get(key)
    assert resize is not None
    assert (resize.state, resize.message) == (ResizeState.FAILED, "no")
    assert await world.allocations.audit() == []


async def test_resize_splits_usage_records_and_a_rebuild_restores_them(world: World) -> None:
    store, key = ResizeStore(world.database), await running(world)
    await store.request(key, {"cpu": 2000}, "ann", world.advance(10))
    await store.finish(key, 1, world.advance(5))
    await store.request(key, {"cpu": 1000}, "", world.advance(5))
    await store.finish(key, 2, world.advance(10))
    await world.sessions.move(key, Event.EXITED, world.advance(20))
    found = await records(world)
    assert [(r[4], *r[5:]) for r in found if r[1] == "cpu"] == [
        (1000, 0, 10), (2000, 10, 30), (1000, 30, 50)
    ]  # fmt: skip
    assert [r[5:] for r in found if r[1] == "sessions"] == [(0, 10), (10, 30), (30, 50)]
    async with world.database.write() as tx:
        await tx.execute(sa.delete(usage_records))
    await UsageAggregateStore(world.database).rebuild(None)
    assert await records(world) == found
    record = await RecordStore(world.database).read("main", NOW, world.advance(10))
    assert [(s.placed_at, s.placement_count) for s in record.sessions] == [(NOW, 1)]


async def test_growth_beyond_free_resources_or_a_quota_is_rejected(world: World) -> None:
    store, key = ResizeStore(world.database), await running(world)
    with pytest.raises(InsufficientResources, match="only 7 is free on agent a1"):
        await store.request(key, {"cpu": 9000}, "ann", world.now)
    await world.set_caps("user", {"cpu": "2"})
    with pytest.raises(QuotaExceeded, match="cpu=2 requested"):
        await store.request(key, {"cpu": 3000}, "ann", world.now)
    with pytest.raises(Conflict, match="second device"):
        await store.request(key, {"cuda.shares": 1500}, "ann", world.now)
    await store.request(key, {"cpu": 2000}, "ann", world.now)
    with pytest.raises(Conflict, match="is being resized"):
        await store.request(key, {"cpu": 1000}, "ann", world.now)
    assert await world.allocations.audit() == []


async def test_session_does_not_grow_while_another_waits_for_capacity(world: World) -> None:
    store, key = ResizeStore(world.database), await running(world)
    await world.sessions.enqueue(world.new_session("big", {"cpu": "8", "mem": "1g"}), world.now)
    await world.run_pass()
    with pytest.raises(Conflict, match="1 session waits for resources"):
        await store.request(key, {"cpu": 2000}, "ann", world.now)
    await store.request(key, {"mem": GIB // 2}, "ann", world.now)


async def test_resize_below_used_memory_or_of_enforced_shares_is_rejected(world: World) -> None:
    store, key = ResizeStore(world.database), await running(world)
    await world.write(
        sa.update(kernels).values(
            usage={"mem_bytes": 700 * 2**20}, injection={"enforcement": {"cuda": "process"}}
        )
    )
    with pytest.raises(Conflict, match="uses 700m of memory"):
        await store.request(key, {"mem": GIB // 2}, "ann", world.now)
    with pytest.raises(Conflict, match="enforced"):
        await store.request(key, {"cuda.shares": 500}, "ann", world.now)


async def test_session_that_ends_during_a_resize_releases_all_resources(world: World) -> None:
    store, key = ResizeStore(world.database), await running(world)
    await store.request(key, {"cpu": 4000}, "ann", world.advance(10))
    await world.sessions.move(key, Event.EXITED, world.advance(5))
    assert await store.pending_on("a1") == []
    assert await store.fail_ended(world.now) == 1
    assert await world.usage(USER) == {"cpu": 0, "mem": 0, "cuda.shares": 0, "sessions": 0}
    assert await world.allocations.audit() == []


async def reserve(world: World, start: float, end: float) -> None:
    """Reserve the agent for another project, from and until a number of hours from now."""
    await world.write(
        sa.insert(projects).values(
            id="p2",
            created_at=NOW,
            domain="d",
            name="other",
            total_resource_slots=Caps({}),
            resource_policy="default",
            allowed_vfolder_hosts={},
        ),
        sa.insert(advance_reservations).values(
            id="r1",
            created_at=NOW,
            name="course",
            project_id="p2",
            resource_group="main",
            nodes=1,
            resources=ResourceSlots({"cpu": 1000}),
            agents=["a1"],
            user_ids=[],
            starts_at=world.now + timedelta(hours=start),
            ends_at=world.now + timedelta(hours=end),
            grace_seconds=600,
            state=ReservationState.APPROVED,
            note="",
            author_id="u2",
            author="bob",
        ),
    )


async def test_session_does_not_grow_on_an_agent_reserved_for_others(world: World) -> None:
    store, key = ResizeStore(world.database), await running(world)
    elasticity = Elasticity(ResourceSlots({"cpu": 1000}), ResourceSlots({"cpu": 4000}))
    elastic = await running(world, "elastic", slots={"cpu": "1", "mem": "1g"})
    async with world.database.write() as tx:
        await insert_elastic(tx, {elastic: elasticity})
    await reserve(world, 1, 2)
    # The session has no maximum run time, so it may run into the reserved period.
    with pytest.raises(Conflict, match="reserved for project other"):
        await store.request(key, {"cpu": 2000}, "ann", world.now)
    (group,) = await ElasticStore(world.database).groups(world.now)
    assert [one.may_grow for one in group.sessions] == [False]
    await store.request(key, {"mem": GIB // 2}, "ann", world.now)
    world.advance(2 * 3600)
    await store.finish(key, 1, world.now)
    await store.request(key, {"cpu": 2000}, "ann", world.now)
    (group,) = await ElasticStore(world.database).groups(world.now)
    assert [one.may_grow for one in group.sessions] == [True]


async def test_reserved_agent_is_not_offered_to_waiting_sessions_of_others(world: World) -> None:
    key = await running(world, slots={"cpu": "8", "mem": "1g"})
    elasticity = Elasticity(ResourceSlots({"cpu": 1000}), ResourceSlots({"cpu": 8000}))
    async with world.database.write() as tx:
        await insert_elastic(tx, {key: elasticity})
    await world.sessions.enqueue(world.new_session("next"), world.now)
    await world.run_pass()
    (group,) = await ElasticStore(world.database).groups(world.now)
    assert [sorted(one.agents) for one in group.waiting] == [["a1"]]
    await reserve(world, -1, 2)
    (group,) = await ElasticStore(world.database).groups(world.now)
    assert [sorted(one.agents) for one in group.waiting] == [[]]


async def test_session_does_not_grow_when_the_budget_is_spent(world: World) -> None:
    store, key = ResizeStore(world.database), await running(world)
    await world.write(
        sa.insert(project_budgets).values(
            project_id="p1",
            created_at=NOW,
            amount=1.0,
            mode="block",
            warn_percents=[],
            period="month",
            time_zone="UTC",
            blocked_at=NOW,
        )
    )
    with pytest.raises(Conflict, match="budget of project p is spent"):
        await store.request(key, {"cpu": 2000}, "ann", world.now)
    await store.request(key, {"mem": GIB // 2}, "ann", world.now)


async def requeue(world: World, session_id: str) -> None:
    facts = TransitionValues(is_requeued_at_end=True)
    await world.sessions.move(session_id, Event.PREEMPTED, world.advance(5), facts)
    await world.sessions.move(session_id, Event.EXITED, world.advance(5))


async def test_preempted_session_starts_again_with_its_size_before_the_resize(
    world: World,
) -> None:
    store, key = ResizeStore(world.database), await running(world)
    size = await size_of(world, key)
    await store.request(key, {"cpu": 4000}, "ann", world.advance(10))
    await requeue(world, key)
    row = (await world.sessions.view(key)).row
    assert (row.status, row.requested_slots.format()) == (Status.PENDING, size)
    resize, _ = await store.get(key)
    assert resize is not None
    assert resize.state is ResizeState.FAILED
    assert await world.run_pass() == [key]
    assert (await world.usage(USER))["cpu"] == 1000
    assert await world.allocations.audit() == []


async def test_preempted_elastic_session_waits_only_for_its_minimum(world: World) -> None:
    store, key = ResizeStore(world.database), await running(world)
    minimum = (await world.sessions.view(key)).row.requested_slots
    preferred = ResourceSlots({**minimum, "cpu": 8000})
    async with world.database.write() as tx:
        await insert_elastic(tx, {key: Elasticity(minimum, preferred)})
    await store.request(key, {"cpu": 8000}, "", world.advance(10))
    await store.finish(key, 1, world.advance(5))
    await requeue(world, key)
    assert (await world.sessions.view(key)).row.requested_slots == minimum
    assert await world.run_pass() == [key]


async def test_limits_of_the_image_and_shared_memory_apply(world: World) -> None:
    store, key = ResizeStore(world.database), await running(world)
    await world.write(
        sa.insert(images).values(
            id="i1",
            created_at=NOW,
            name="python",
            architecture="x86_64",
            labels={},
            min_slots=ResourceSlots({"mem": GIB // 4, "cuda.shares": 500}),
            max_slots=ResourceSlots({"cpu": 2000}),
        )
    )
    for changes, why in (
        ({"cpu": 3000}, "at most 2"),
        ({"mem": GIB // 8}, "at least 256m"),
        ({"cuda.shares": 300}, "at least 0.5"),
    ):
        with pytest.raises(InvalidRequest, match=why):
            await store.request(key, changes, "ann", world.now)
    await world.write(sa.update(sessions).values(shared_memory_bytes=GIB // 2))
    with pytest.raises(InvalidRequest, match="shared memory"):
        await store.request(key, {"mem": GIB // 2}, "ann", world.now)
    await store.request(key, {"cpu": 2000}, "ann", world.now)
