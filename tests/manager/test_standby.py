"""A manager without the lease starts no servers, reconciles nothing and enforces no deadlines."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.records import Session
from bai_services.core.sessions.spec import SessionSpec
from bai_services.db.database import Database
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.manager.manager import Manager
from tests.manager.test_hub_servers import Cluster, key_of
from tests.manager.test_scheduler_lease import manager as lone_manager
from tests.manager.test_scheduler_lease import stop_between_writes
from tests.testbed.fake_hub import serve_fake_hub
from tests.testbed.manager import MovableClock, make_world, manager_on, serving, settings
from tests.testbed.wait import wait_until_async

pytestmark = pytest.mark.both_databases

# Lease durations in seconds. LONG is longer than any test; SHORT is so short that a test can wait
# until the lease expires.
LONG, SHORT = 600.0, 3.0
# A standby manager with this lease does not take over from a manager that is merely slow. The
# holder renews the lease every 2 s, so it soon detects a loss.
TOLERANT = 10.0
# A standby manager with this lease also takes over from a manager that is merely slow. Use the
# lease only if no other manager takes over at the same time.
SHORTEST = 1.0


@asynccontextmanager
async def two_managers(
    url: str, home: Path, clock: MovableClock, lease_seconds: float
) -> AsyncIterator[tuple[Cluster, Manager]]:
    """Provide a cluster whose manager has the lease, and a standby manager; no loops run."""
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(serve_fake_hub())
        options = {"hub_api_url": hub.url, "hub_api_token": "t", "lease_seconds": lease_seconds}
        first = await stack.enter_async_context(manager_on(url, home, clock, **options))
        world = await make_world(first, clock)
        cluster = Cluster(await stack.enter_async_context(serving(world)), hub, clock)
        cluster.user = await world.caller("user")
        await cluster.agent.beat()
        second = Manager(settings(url, home, **options), Database(url), clock)
        stack.push_async_callback(second.stop)
        assert await first.scheduling.scheduler.lease.hold() is not None
        yield cluster, second
        await first.stop_session_loops()


async def create_prepared(cluster: Cluster, name: str) -> Session:
    session = await cluster.create(name)
    await cluster.manager.scheduling.scheduler.run_pass()
    await cluster.agent.prepare()
    return session


async def finish_start_tasks() -> None:
    """Wait for the end of all tasks of this process that start servers."""
    await asyncio.gather(*(t for t in asyncio.all_tasks() if t.get_name().startswith("start-")))


async def test_standby_starts_no_servers(
    database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    async with two_managers(database_url, tmp_path, clock, LONG) as (cluster, standby):
        # The Hub accepts the start, but the server is not ready until the test marks it as ready.
        cluster.hub.start_statuses = [202]
        session = await create_prepared(cluster, "lab1")
        expected = [key_of(session)]
        await wait_until_async(
            lambda: cluster.hub.start_requests == expected, 15, "the start request at the Hub"
        )
        await standby.servers.starter.step()
        standby.servers.starter.begin(await cluster.store.find(session.id))
        cluster.hub.mark_ready(expected[0])
        await cluster.until(session.id, Status.RUNNING)
        await finish_start_tasks()
        assert cluster.hub.start_requests == expected


async def test_session_created_by_a_standby_is_scheduled_in_the_next_pass(
    database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    async with two_managers(database_url, tmp_path, clock, LONG) as (cluster, standby):
        await cluster.manager.start()
        assert cluster.user is not None
        # The session of the standby manager does not wake the scheduler of the first manager. The
        # pass for the first manager's own session must also find the other session.
        for number in range(3):
            theirs = SessionSpec(name=f"theirs-{number}", resources={"cpu": "1", "mem": "512m"})
            created, _ = await standby.sessions.sessions.create(cluster.user, theirs)
            own = await cluster.create(f"own-{number}", resources={"cpu": "1", "mem": "512m"})
            await cluster.until(own.id, Status.SCHEDULED)
            await cluster.until(created.id, Status.SCHEDULED)


async def test_standby_does_not_reconcile(
    database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    async with two_managers(database_url, tmp_path, clock, LONG) as (cluster, standby):
        session = await create_prepared(cluster, "lab1")
        await cluster.until(session.id, Status.RUNNING)
        stuck = await cluster.create("lab2")
        await cluster.manager.scheduling.scheduler.run_pass()
        cluster.hub.servers.clear()
        clock.advance(minutes=16)
        await cluster.agent.beat(None)
        for _ in range(4):
            await standby.servers.reconciler.step()
        await finish_start_tasks()
        assert len(cluster.hub.start_requests) == 1
        assert (await cluster.store.find(stuck.id)).status is Status.SCHEDULED
        for _ in range(4):
            await cluster.manager.servers.reconciler.step()
        await wait_until_async(
            lambda: len(cluster.hub.start_requests) == 2, 15, "the second start request at the Hub"
        )
        assert (await cluster.store.find(stuck.id)).status is Status.ERROR


async def test_standby_does_not_enforce_deadlines(
    database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    async with two_managers(database_url, tmp_path, clock, LONG) as (cluster, standby):
        admin = await cluster.world.caller("admin")
        options = {"scheduler_opts": {"pending_timeout": 600}}
        await cluster.manager.cluster.resource_groups.update(admin, "default", options)
        session = await cluster.create("lab1")
        clock.advance(seconds=601)
        await standby.sessions.deadlines.step()
        assert (await cluster.store.find(session.id)).status is Status.PENDING
        await cluster.manager.sessions.deadlines.step()
        assert (await cluster.store.find(session.id)).status is Status.CANCELLED


async def test_new_lease_holder_takes_over_starts(
    database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    async with two_managers(database_url, tmp_path, clock, SHORT) as (cluster, second):
        cluster.hub.start_statuses = [202]
        session = await create_prepared(cluster, "lab1")
        await wait_until_async(
            lambda: len(cluster.hub.start_requests) == 1, 15, "the start request at the Hub"
        )
        # The first manager hangs: its running calls are lost, and nothing renews its lease.
        await cluster.manager.servers.starter.stop()
        await wait_until_async(
            second.scheduling.scheduler.lease.hold, 30, "the second manager to take over"
        )
        second.scheduling.scheduler.lease.start()
        await second.servers.starter.step()
        await cluster.until(session.id, Status.RUNNING)
        # The first manager continues, and has not noticed that it lost the lease.
        cluster.hub.servers.clear()
        clock.advance(minutes=16)
        await cluster.agent.beat(None)
        await cluster.manager.servers.starter.step()
        for _ in range(4):
            await cluster.manager.servers.reconciler.step()
        await finish_start_tasks()
        assert len(cluster.hub.start_requests) == 2


async def test_manager_suspended_during_a_start_does_not_resume_the_start(
    database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    async with (
        serve_fake_hub() as hub,
        manager_on(database_url, tmp_path / "files", clock) as files,
        serving(await make_world(files, clock)) as api,
    ):
        cluster = Cluster(api, hub, clock)
        cluster.user = await api.world.caller("user")
        leases = LeaseStore(files.database)

        async def create_prepared_at_once(name: str) -> Session:
            session = await cluster.create(name)
            await wait_for_status(session, Status.SCHEDULED)
            await cluster.agent.prepare()
            return session

        async def beat(after_seconds: float = 5) -> None:
            if (now := datetime.now(UTC)) - clock.now > timedelta(seconds=after_seconds):
                clock.now = now
                await cluster.agent.beat(None)

        async def wait_for_status(session: Session, status: Status) -> None:
            # JIT-compiling the placement code can take a minute. Without heartbeats in this time,
            # the agent would become LOST.
            async def has_status() -> bool:
                await beat()
                return (await cluster.store.find(session.id)).status is status

            await wait_until_async(has_status, 90, f"{status} of {session.name}")

        async def holds(token: int) -> bool:
            row = await leases.read()
            return row is not None and row.token == token

        async def wait_for_lease(token: int) -> None:
            await wait_until_async(lambda: holds(token), 60, f"the lease to have token {token}")

        def log_of(name: str) -> str:
            return (tmp_path / name / "log").read_text()

        with lone_manager(database_url, tmp_path / "a", hub.url, TOLERANT) as first:
            await wait_for_lease(1)
            # Manager a reads the agents again when it finds a session that another manager created,
            # so the agent must be ALIVE by then.
            await beat(after_seconds=0)
            hub.start_statuses = [202]
            one = await create_prepared_at_once("lab1")
            await wait_until_async(
                lambda: hub.start_tokens == ["a"], 30, "manager a to start the server"
            )
            await stop_between_writes(first, files.database)
            # Manager b starts now: with its short lease, it would take over from a slow manager.
            with lone_manager(database_url, tmp_path / "b", hub.url, SHORTEST):
                await wait_for_lease(2)
                assert "this manager is on standby" in log_of("b")
                await wait_for_status(one, Status.RUNNING)
                assert hub.start_tokens == ["a", "b"]
                os.kill(first, signal.SIGCONT)
                await wait_until_async(
                    lambda: "was lost" in log_of("a"), 60, "manager a to log the loss of the lease"
                )
                await beat(after_seconds=0)
                # Wait for 40 retries of manager b. In this time, manager a would send a start
                # request if it still could.
                hub.start_statuses = [429] * 40
                two = await create_prepared_at_once("lab2")
                await wait_for_status(two, Status.RUNNING)
                assert set(hub.start_tokens[2:]) == {"b"}
        assert await files.sessions.records.check_consistency() == []
