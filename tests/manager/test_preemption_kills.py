"""If the manager is killed during a preemption, no step is lost or repeated."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.accounts.roles import Visibility
from bai_services.core.listing import ListQuery
from bai_services.core.scheduling.preemption.options import PreemptionOptions
from bai_services.core.scheduling.preemption.plan import Preemption
from bai_services.core.scheduling.preemption.records import ListedPreemption
from bai_services.core.scheduling.queue import Queue
from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.scheduling.preemption import PreemptionStore
from bai_services.db.scheduling.preemption_stops import VictimStops
from bai_services.db.sessions.store import SessionStore
from bai_services.db.tables.accounts import audit_log
from bai_services.db.tables.cluster import resource_groups
from bai_services.db.tables.notifications import notification_events
from bai_services.manager.audit import Audit
from bai_services.manager.events import Events
from bai_services.manager.preemption.preemptions import Preemptions
from bai_services.manager.scheduling.lease import Lease
from bai_services.manager.sessions.lifecycle import Lifecycle
from tests.db.usage_oracle import check_usage
from tests.db.world import NOW, World, make_world
from tests.testbed.kills import Job, kill_everywhere, until_killed

pytestmark = pytest.mark.both_databases

GRACE_SECONDS = 5
GROUP_OPTIONS = {"preemption": {"enabled": True, "grace": f"{GRACE_SECONDS}s"}}
VICTIMS = ("low1", "low2")
HALF = {"cpu": "4", "mem": "1g"}
WHOLE = {"cpu": "8", "mem": "1g"}


def preemptions_of(world: World) -> Preemptions:
    """Return the preemptions of a manager that has just started."""

    def now() -> Any:
        return world.now

    return Preemptions(
        PreemptionStore(world.database),
        VictimStops(world.database),
        SessionStore(world.database),
        Lifecycle(SessionStore(world.database), Events(), now),
        Lease(LeaseStore(world.database), now, seconds=600),
        Audit(world.database, now),
        now,
    )


async def prepare(url: str) -> None:
    """Start sessions that use all CPUs, and create a session that preempts them."""
    world = await make_world(url)
    await world.write(sa.update(resource_groups).values(scheduler_opts=GROUP_OPTIONS))
    for name in VICTIMS:
        row, _ = await world.sessions.enqueue(
            world.new_session(name, HALF, priority=1), world.advance(1)
        )
        await world.run_pass()
        for event in (Event.DISPATCHED, Event.PREPARED, Event.STARTED):
            await world.sessions.move(row.id, event, world.now)
    await world.sessions.enqueue(
        world.new_session("high", WHOLE, priority=50, user=2), world.advance(1)
    )
    await world.close()


def later(url: str) -> World:
    """Return the world after the end of the grace period."""
    world = World(url)
    world.now = NOW + timedelta(seconds=10 + GRACE_SECONDS)
    return world


async def announce(url: str, preemption: Preemption, options: PreemptionOptions) -> None:
    world = World(url)
    world.advance(3)
    await until_killed(lambda: preemptions_of(world).announce(preemption, options, token=None))


async def stop_victims(url: str) -> None:
    world = later(url)
    await until_killed(preemptions_of(world).step)


async def end_victim(url: str, victim: str) -> None:
    world = later(url)
    await until_killed(lambda: world.sessions.move(victim, Event.EXITED, world.now))


async def end_plan(url: str) -> None:
    world = later(url)
    await until_killed(preemptions_of(world).step)


async def planned(url: str) -> tuple[Preemption, PreemptionOptions]:
    """Return the plan of a pass, which is not written."""
    world = World(url)
    queue = Queue(await world.queue.snapshot(world.advance(3)))
    (preemption,) = queue.run(world.now).preemptions
    await world.close()
    return preemption, queue.group_queue(preemption.group).state.preemption


async def check(url: str) -> ListedPreemption | None:
    """Check that all records of the preemption agree; return the plan, if it is stored."""
    world = World(url)
    rows = {row.name: row for row in await world.sessions.in_status(*Status)}
    assert await world.allocations.audit() == []
    plans = (await PreemptionStore(world.database).page(ListQuery(), Visibility())).items
    async with world.database.read() as tx:
        logged = Counter((e.action, e.entity_id) for e in await tx.execute(sa.select(audit_log)))
        of_preemption = notification_events.c.name == "session-preempted"
        warned = Counter(
            await tx.scalars(
                sa.select(notification_events.c.link).where(
                    notification_events.c.name == "session-stops-now"
                )
            )
        )
        links = Counter(
            await tx.scalars(sa.select(notification_events.c.link).where(of_preemption))
        )
    stopped = []
    for plan in plans:
        assert {victim.session for victim in plan.victims} == {*VICTIMS}
        for victim in plan.victims:
            history = await world.sessions.history(victim.session_id)
            events = Counter(change.event for change in history)
            stopped += [victim.session_id] * events[Event.PREEMPTED]
            assert events[Event.PREEMPTED] == (victim.stopped_at is not None)
            is_requeued = rows[victim.session].status is Status.PENDING
            assert events[Event.REQUEUED] == is_requeued
        # Either no victim is stopped or all are: the beneficiary needs the resources of all
        # victims.
        assert len(stopped) in (0, len(plan.victims))
    actions = [("session.plan-preemption", rows["high"].id)] * len(plans)
    assert logged == Counter([*actions, *(("session.preempt", key) for key in stopped)])
    assert links == Counter(f"sessions/{key}" for key in stopped)
    # The warning is stored with the plan.
    victims = [victim.session_id for plan in plans for victim in plan.victims]
    assert warned == Counter(f"sessions/{key}" for key in victims)
    await world.close()
    return plans[0] if plans else None


def test_killed_manager_stops_each_victim_once_and_starts_the_session_that_waits(
    database_url: str,
) -> None:
    url = database_url
    asyncio.run(prepare(url))

    def kill(job: Job, *arguments: Any) -> ListedPreemption:
        """Kill the job at each point, then run it to its end; return the plan."""
        assert kill_everywhere(job, url, *arguments, check=lambda: asyncio.run(check(url))) > 1
        plan = asyncio.run(check(url))
        assert plan is not None
        return plan

    async def start() -> None:
        """End the other victim and run a pass; other tests kill managers during passes."""
        world = later(url)
        await world.sessions.move(victims[1], Event.EXITED, world.now)
        assert await world.run_pass() == [preemption.session_id]
        await world.close()

    async def finish() -> None:
        world = later(url)
        await check_usage(world)
        statuses = {row.name: row.status for row in await world.sessions.in_status(*Status)}
        assert statuses == {"low1": "PENDING", "low2": "PENDING", "high": "SCHEDULED"}
        await world.close()

    preemption, options = asyncio.run(planned(url))
    victims = preemption.plan.victim_ids
    assert kill(announce, preemption, options).outcome == ""
    stopped = kill(stop_victims).victims
    assert len(stopped) == len(victims) > 0
    assert all(victim.stopped_at for victim in stopped)
    kill(end_victim, victims[0])
    asyncio.run(start())
    assert kill(end_plan).outcome == "started"
    asyncio.run(finish())
