"""Two managers on one database: only the one with the lease schedules sessions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from bai_services.core.sessions.lifecycle import Status
from bai_services.db.database import Database
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.tables.cluster import agents
from tests.db.world import World, make_world
from tests.testbed import forked, manager_process
from tests.testbed.wait import wait_until_async

pytestmark = pytest.mark.both_databases

# The lease is long enough for a manager on a busy machine to renew it in time.
LEASE_SECONDS = 6.0


@contextlib.contextmanager
def manager(
    url: str, home: Path, hub_url: str = "", lease_seconds: float = LEASE_SECONDS
) -> Iterator[int]:
    """Run a manager in a separate process; yield its process id."""
    home.mkdir()
    process = forked.start(manager_process.run, url, home, lease_seconds, hub_url, log=home / "log")
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        process.kill()
        process.join(30)


async def stop_between_writes(pid: int, database: Database) -> None:
    """Send SIGSTOP to a manager while it holds no lock of the database."""

    async def write() -> None:
        async with database.write():
            pass

    for _ in range(20):
        os.kill(pid, signal.SIGSTOP)
        writing = asyncio.create_task(write())
        done, _ = await asyncio.wait([writing], timeout=1)
        if done:
            return
        os.kill(pid, signal.SIGCONT)
        await writing
    raise AssertionError("the manager held a lock at every attempt")


async def create_sessions(world: World, *names: str) -> None:
    for name in names:
        new = world.new_session(name, {"cpu": "0.1", "mem": "64m"})
        await world.sessions.enqueue(new, world.advance())


@pytest.fixture
async def shared_world(database_url: str) -> AsyncIterator[World]:
    made = await make_world(database_url)
    yield made
    await made.close()


async def test_suspended_manager_loses_its_lease_and_stops_scheduling(
    database_url: str, shared_world: World, tmp_path: Path
) -> None:
    world = shared_world
    # No agent runs in this test. Heartbeats in the future prevent the status LOST.
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    await world.write(sa.update(agents).values(last_heartbeat_at=tomorrow))
    leases = LeaseStore(world.database)

    async def token() -> int:
        row = await leases.read()
        return 0 if row is None else row.token

    async def no_session_is_pending() -> bool:
        return not await world.sessions.in_status(Status.PENDING)

    async def wait_for_token(number: int) -> None:
        async def has_token() -> bool:
            return await token() == number

        await wait_until_async(has_token, 40, f"the lease to have token {number}")

    def log(name: str) -> str:
        return (tmp_path / name / "log").read_text()

    with manager(database_url, tmp_path / "a") as first:
        await wait_for_token(1)
        with manager(database_url, tmp_path / "b"):

            async def is_on_standby() -> bool:
                return "this manager is on standby" in log("b")

            await wait_until_async(is_on_standby, 40, "the second manager to be on standby")
            await create_sessions(world, "one", "two")
            await wait_until_async(no_session_is_pending, 40, "scheduling by the first manager")
            assert await token() == 1
            await stop_between_writes(first, world.database)
            await create_sessions(world, "three", "four")
            await wait_until_async(no_session_is_pending, 40, "the second manager to take over")
            assert await token() == 2
            os.kill(first, signal.SIGCONT)

            async def loss_is_logged() -> bool:
                return "the lease of the queue was lost" in log("a")

            await wait_until_async(
                loss_is_logged, 40, "the first manager to log the loss of the lease"
            )
            await create_sessions(world, "five")
            await wait_until_async(no_session_is_pending, 40, "scheduling by the second manager")
            assert await token() == 2
    assert await world.allocations.audit() == []
    for row in await world.sessions.in_status(*Status):
        events = [step.event for step in await world.sessions.history(row.id)]
        assert events.count("placed") == 1, (row.name, events)
