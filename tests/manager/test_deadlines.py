"""Time limits when a step is killed, two managers act at once, or a user stops a session."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa

from bai_services.core.resources import ResourceSlots
from bai_services.core.sessions.lifecycle import Event, SessionType, Status
from bai_services.db.database import Database
from bai_services.db.scheduling.allocations import AllocationStore
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.sessions.deadlines import DeadlineStore, Overdue
from bai_services.db.sessions.dependencies import DependencyStore
from bai_services.db.sessions.store import SessionStore
from bai_services.db.tables import accounts, cluster
from bai_services.manager.audit import Audit
from bai_services.manager.events import Events
from bai_services.manager.scheduling.lease import Lease
from bai_services.manager.sessions.lifecycle import Lifecycle
from bai_services.manager.sessions.planned_stops import PlannedStops
from bai_services.manager.sessions.time_limits.deadlines import Deadlines
from tests.db.world import NOW, World, make_world
from tests.testbed.kills import kill_everywhere, until_killed

pytestmark = pytest.mark.both_databases

LATER = NOW + timedelta(hours=1)
SMALL = ResourceSlots.parse({"cpu": "0.1", "mem": "64m"})
STOPS = (Status.CANCELLED, Status.TERMINATING)


def later() -> datetime:
    return LATER


def deadlines_on(
    database: Database, store: DeadlineStore | None = None, lease: Lease | None = None
) -> Deadlines:
    lifecycle = Lifecycle(SessionStore(database), Events(), later)
    return Deadlines(
        store or DeadlineStore(database),
        DependencyStore(database),
        lifecycle,
        PlannedStops(lifecycle, Audit(database, later)),
        later,
        lease=lease or Lease(LeaseStore(database), later, seconds=600),
    )


async def make_overdue(url: str) -> World:
    """Return a world in which every session except "fails" must be stopped at ``LATER``.

    "waits-1" and "waits-2" exceed the pending timeout of their group, "runs-1" and "runs-2" their
    batch timeout, and "lab" the maximum lifetime of its policy. "failed-dependency" depends on the
    failed session "fails".
    """
    world = await make_world(url)
    batch = {"type": SessionType.BATCH, "startup_command": "true"}
    for name, facts in {
        "runs-1": {**batch, "batch_timeout_seconds": 60},
        "runs-2": {**batch, "batch_timeout_seconds": 60},
        "lab": {},
        "fails": {**batch},
    }.items():
        await world.sessions.enqueue(world.new_session(name, requested_slots=SMALL, **facts), NOW)
    await world.run_pass()
    for row in await world.sessions.in_status(Status.SCHEDULED):
        for event in (Event.DISPATCHED, Event.PREPARED, Event.STARTED):
            await world.sessions.move(row.id, event, NOW)
        if row.name == "fails":
            failed = row.id
    for name in ("waits-1", "waits-2"):
        await world.sessions.enqueue(world.new_session(name, {"cpu": "8", "mem": "1g"}), NOW)
    await world.sessions.enqueue(
        world.new_session("failed-dependency", dependencies=(failed,)), NOW
    )
    await world.sessions.move(failed, Event.FAILED, NOW)
    await world.write(
        sa.update(cluster.resource_groups).values(scheduler_opts={"pending_timeout": 600}),
        sa.update(accounts.keypair_policies).values(max_session_lifetime_seconds=600),
    )
    return world


async def check(world: World, left: Sequence[Status] = ()) -> None:
    """Check that each session except "fails" was stopped once, or has a status in ``left``."""
    assert await AllocationStore(world.database).audit() == []
    for row in await world.sessions.in_status(*Status):
        if row.name == "fails":
            continue
        events = [step.event for step in await world.sessions.history(row.id)]
        assert events.count(Event.STOP_REQUESTED) == (row.status in STOPS), (row.name, events)
        assert row.status in (*STOPS, *left), row.name


async def step(url: str) -> None:
    await until_killed(deadlines_on(World(url).database).step)


def test_killed_step_stops_each_session_at_most_once_and_a_later_step_stops_the_rest(
    database_url: str,
) -> None:
    async def prepare() -> None:
        await (await make_overdue(database_url)).close()

    async def check_again(*left: Status) -> None:
        world = World(database_url)
        await check(world, left)
        await world.close()

    asyncio.run(prepare())
    count = kill_everywhere(
        step,
        database_url,
        check=lambda: asyncio.run(check_again(Status.PENDING, Status.RUNNING)),
    )
    assert count > 3
    asyncio.run(check_again())


@asynccontextmanager
async def overdue(url: str) -> AsyncIterator[tuple[World, Database]]:
    """Yield overdue sessions and a second connection to their database; call `check` at the end."""
    world = await make_overdue(url)
    other = Database(url)
    yield world, other
    await check(world)
    await other.close()
    await world.close()


async def test_two_managers_at_once_stop_each_session_once(database_url: str) -> None:
    # Let both managers act as holder of the lease: while one takes it over, the other may still
    # assume that it holds the lease.
    async with overdue(database_url) as (world, other):
        lease = Lease(LeaseStore(world.database), later, seconds=600)
        await asyncio.gather(
            deadlines_on(world.database, lease=lease).step(),
            deadlines_on(other, lease=lease).step(),
        )


async def test_first_of_two_concurrent_stops_sets_the_reason(database_url: str) -> None:
    async with overdue(database_url) as (world, other):
        users = Lifecycle(SessionStore(other), Events(), later)
        rows = await world.sessions.in_status(Status.PENDING, Status.RUNNING)
        await asyncio.gather(
            deadlines_on(world.database).step(),
            *(users.try_apply(row.id, Event.STOP_REQUESTED, "stopped by ann") for row in rows),
        )
        for row in rows:
            ended = await world.sessions.find(row.id)
            stops = [s for s in await world.sessions.history(row.id) if s.to_status in STOPS]
            # The reason and the result are those of the first stop.
            assert ended.status_info == stops[0].reason
            is_failure = ended.status_info != "stopped by ann" and row.status is Status.RUNNING
            assert ended.result == ("failure" if is_failure else "undefined")


class ScheduledMeanwhile(DeadlineStore):
    """Lets another manager schedule an overdue session before this manager cancels it."""

    def __init__(self, world: World) -> None:
        super().__init__(world.database)
        self._world = world

    async def pending(self, now: datetime) -> list[Overdue]:
        late = await super().pending(now)
        for row in await self._world.sessions.in_status(Status.RUNNING):
            await self._world.sessions.move(row.id, Event.EXITED, now)
        await self._world.run_pass()
        return late


async def test_session_scheduled_at_the_last_moment_is_not_cancelled(database_url: str) -> None:
    world = await make_overdue(database_url)
    await deadlines_on(world.database, ScheduledMeanwhile(world)).step()
    kept = await world.sessions.in_status(Status.SCHEDULED)
    assert [row.name for row in kept] == ["waits-1"]
    cancelled = await world.sessions.in_status(Status.CANCELLED)
    assert [row.name for row in cancelled] == ["waits-2", "failed-dependency"]
    assert await world.allocations.audit() == []
    await world.close()
