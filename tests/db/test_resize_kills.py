"""If the manager is killed during a resize, either all of its changes are stored or none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.core.sessions.resizing import ResizeState
from bai_services.db.sessions.resizes import ResizeStore
from bai_services.db.tables.accounts import audit_log
from bai_services.db.tables.resizes import session_resizes
from bai_services.db.tables.sessions import allocations, counters
from bai_services.db.tables.usage import usage_records
from bai_services.db.usage.aggregates import UsageAggregateStore
from tests.testbed.kills import kill_everywhere, until_killed

from .test_resizes import running
from .test_usage_records import records
from .world import GIB, NOW, World, make_world

LARGE = {"cpu": 3000, "mem": GIB // 2}
SMALL = {"cpu": 1000, "mem": GIB}


def entry(requested: Any) -> AuditEntry:
    return AuditEntry(
        at=NOW, actor="ann", action="session.resize", entity="session", entity_id="s", details={}
    )


async def request(world: World, key: str, changes: Mapping[str, int]) -> None:
    await ResizeStore(world.database).request(key, changes, "ann", world.now, entry)


async def finish(world: World, key: str, number: int, error: str = "") -> None:
    await ResizeStore(world.database).finish(key, number, world.now, error=error)


async def end(world: World, key: str) -> None:
    await world.sessions.move(key, Event.EXITED, world.now)


async def fail_ended(world: World, key: str) -> None:
    await ResizeStore(world.database).fail_ended(world.now)


JOBS: Mapping[str, Callable[..., Awaitable[None]]] = {
    job.__name__: job for job in (request, finish, end, fail_ended)
}


async def run(url: str, name: str, seconds: float, *arguments: Any) -> None:
    world = World(url)
    world.advance(seconds)
    await until_killed(lambda: JOBS[name](world, *arguments))


async def stored(url: str) -> list[Any]:
    """Return all rows that a resize changes."""
    world = World(url)
    assert await world.allocations.audit() == []
    tables = (session_resizes, allocations, counters, usage_records, audit_log)
    async with world.database.read() as tx:
        rows = [(await tx.execute(sa.select(t).order_by(*t.primary_key))).all() for t in tables]
        size = (await world.sessions.in_status(*Status))[0].requested_slots
    await world.close()
    return [*rows, size]


async def request_again(url: str, key: str, seconds: float) -> None:
    world = World(url)
    world.advance(seconds)
    await request(world, key, SMALL)
    await world.close()


def test_resize_is_stored_completely_or_not_at_all(database_url: str) -> None:
    url = database_url

    async def prepare() -> str:
        world = await make_world(url)
        key = await running(world)
        await world.close()
        return key

    async def state(key: str) -> tuple[ResizeState, dict[str, int]]:
        world = World(url)
        resize, _ = await ResizeStore(world.database).get(key)
        slots = (await world.sessions.find(key)).requested_slots
        await world.close()
        assert resize is not None
        return resize.state, {slot: slots[slot] for slot in LARGE}

    def kill(*job: Any) -> tuple[ResizeState, dict[str, int]]:
        before = asyncio.run(stored(url))

        def check_unchanged() -> None:
            assert asyncio.run(stored(url)) == before

        assert kill_everywhere(run, url, *job, check=check_unchanged) > 1
        assert asyncio.run(stored(url)) != before
        return asyncio.run(state(job[2]))

    async def check_records(key: str) -> None:
        world = World(url)
        world.now = NOW + timedelta(seconds=60)
        found = await records(world)
        await world.write(sa.delete(usage_records))
        await UsageAggregateStore(world.database).rebuild(None)
        assert await records(world) == found
        await world.close()

    key = asyncio.run(prepare())
    held = {"cpu": 3000, "mem": GIB}
    assert kill("request", 10, key, LARGE) == (ResizeState.PENDING, held)
    assert kill("finish", 20, key, 1) == (ResizeState.APPLIED, LARGE)
    asyncio.run(request_again(url, key, 30))
    assert kill("finish", 40, key, 2, "no") == (ResizeState.FAILED, LARGE)
    asyncio.run(request_again(url, key, 45))
    assert kill("end", 50, key)[0] is ResizeState.PENDING
    assert kill("fail_ended", 60, key)[0] is ResizeState.FAILED
    asyncio.run(check_records(key))
