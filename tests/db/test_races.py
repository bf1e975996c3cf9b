"""Concurrent placements, ends and creations of sessions keep allocations and caps consistent."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.core.audit import AuditEntry
from bai_services.core.errors import InvalidTransition, QuotaExceeded
from bai_services.core.listing import ListQuery
from bai_services.core.scheduling.queue import run_pass
from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.db.cluster.agents import AgentStore
from bai_services.db.sessions import templates
from bai_services.db.sessions.templates import TemplateStore
from bai_services.db.tables import cluster

from .test_agents import BEAT
from .world import NOW, World, make_world

WRITERS = 8


def in_threads(jobs: list[Callable[[], Coroutine[Any, Any, None]]]) -> None:
    """Run each job in a thread with an event loop; all jobs start at the same time."""
    barrier = threading.Barrier(len(jobs))
    failures: list[BaseException] = []

    def work(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        barrier.wait(30)
        try:
            asyncio.run(job())
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a writer is still running"
    assert not failures, failures


@pytest.mark.parametrize("cap", ["0.5", None], ids=["user's cap", "device capacity"])
def test_concurrent_placements_respect_limits(database_url: str, cap: str | None) -> None:
    async def prepare() -> None:
        world = await make_world(database_url)
        if cap is not None:
            await world.set_caps("user", {"cuda.shares": cap})
        await world.close()

    async def write(number: int) -> None:
        world = World(database_url)
        for i in range(3):
            slots = {"cpu": "0.1", "mem": "64m", "cuda.shares": "0.25"}
            await world.sessions.enqueue(world.new_session(f"lab{number}-{i}", slots), NOW)
            await run_passes_until_stable(world)
        await world.close()

    async def run_passes_until_stable(world: World) -> None:
        # After a lost race, run another pass, as the scheduler does.
        while True:
            snapshot = await world.queue.snapshot(NOW)
            placed = await world.run_pass()
            if not placed and await world.queue.snapshot(NOW) == snapshot:
                return

    async def check() -> None:
        world = World(database_url)
        await run_passes_until_stable(world)
        running = await world.sessions.in_status(Status.SCHEDULED)
        fit = 2 if cap is not None else 8
        assert len(running) == fit
        assert len(await world.sessions.in_status(Status.PENDING)) == 3 * WRITERS - fit
        assert await world.allocations.audit() == []
        await world.close()

    asyncio.run(prepare())
    in_threads([lambda number=n: write(number) for n in range(WRITERS)])  # type: ignore[misc]
    asyncio.run(check())


def test_user_cap_applies_across_resource_groups(database_url: str) -> None:
    """Each of two writers decides for one group. Both snapshots are older than both commits."""
    slots = {"cpu": "0.1", "mem": "64m"}
    both_have_decided = threading.Barrier(2)

    async def prepare() -> None:
        world = await make_world(database_url)
        await world.write(
            sa.insert(cluster.resource_groups).values(
                name="other", created_at=NOW, scheduler_opts={}, allowed_session_types=[]
            )
        )
        await world.add_agent("a2", group="other")
        await world.set_caps("user", {}, max_concurrent_sessions=5)
        for i in range(5):
            for group in ("main", "other"):
                new = world.new_session(f"{group}{i}", slots, resource_group=group)
                await world.sessions.enqueue(new, NOW)
        await world.close()

    async def write(group: str) -> None:
        world = World(database_url)
        snapshot = await world.queue.snapshot(NOW)
        in_group = [
            session for session in snapshot.pending if session.request.resource_group == group
        ]
        decisions = run_pass(replace(snapshot, pending=in_group)).decisions
        assert len(decisions) == 5
        both_have_decided.wait(30)
        await world.queue.commit(decisions, NOW, token=None)
        await world.close()

    async def check() -> None:
        world = World(database_url)
        assert len(await world.sessions.in_status(Status.SCHEDULED)) == 5
        assert await world.allocations.audit() == []
        await world.close()

    asyncio.run(prepare())
    in_threads([lambda: write("main"), lambda: write("other")])
    asyncio.run(check())


def test_concurrent_ends_release_resources_once(database_url: str) -> None:
    async def prepare() -> None:
        world = await make_world(database_url)
        for i in range(6):
            await world.sessions.enqueue(world.new_session(f"lab{i}"), NOW)
        await world.run_pass()
        assert len(await world.sessions.in_status(Status.SCHEDULED)) == 6
        await world.close()

    async def end_all() -> None:
        world = World(database_url)
        for row in await world.sessions.in_status(Status.SCHEDULED):
            for event in (Event.FAILED, Event.STOP_REQUESTED):
                # Another writer may already have ended the session.
                with contextlib.suppress(InvalidTransition):
                    await world.sessions.move(row.id, event, NOW)
        await world.close()

    async def check() -> None:
        world = World(database_url)
        assert await world.sessions.in_status(Status.SCHEDULED) == []
        assert await world.allocations.audit() == []
        await world.close()

    asyncio.run(prepare())
    in_threads([end_all for _ in range(WRITERS)])
    asyncio.run(check())


def test_concurrent_creations_of_one_name_create_one_session(database_url: str) -> None:
    async def prepare() -> None:
        await (await make_world(database_url)).close()

    made: list[bool] = []

    async def create() -> None:
        world = World(database_url)
        _, is_new = await world.sessions.enqueue(world.new_session("lab"), NOW)
        made.append(is_new)
        await world.close()

    asyncio.run(prepare())
    in_threads([create for _ in range(WRITERS)])
    assert sorted(made) == [False] * (WRITERS - 1) + [True]


@pytest.mark.parametrize("scope", ["user:u1", "project:p1", "domain:d"])
def test_concurrent_creations_of_templates_respect_the_limit(
    database_url: str, scope: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(templates, "MAX_TEMPLATES", 2)
    kind, _, key = scope.partition(":")

    async def prepare() -> None:
        await (await make_world(database_url)).close()

    async def create(number: int) -> None:
        world = World(database_url)
        values = {
            "id": f"t{number}",
            "created_at": NOW,
            "changed_at": NOW,
            "name": f"t{number}",
            "scope": scope,
            "owner_id": key if kind == "user" else None,
            "project_id": key if kind == "project" else None,
            "domain": "d",
            "request": {},
        }
        facts = {"action": "template.create", "entity": "template", "entity_id": f"t{number}"}
        entry = AuditEntry(at=NOW, actor="ann", **facts)
        with contextlib.suppress(QuotaExceeded):
            await TemplateStore(world.database).create(values, entry)
        await world.close()

    async def check() -> None:
        world = World(database_url)
        page = await TemplateStore(world.database).page(ListQuery(), None)
        assert page.total == 2
        await world.close()

    asyncio.run(prepare())
    in_threads([lambda n=n: create(n) for n in range(WRITERS)])  # type: ignore[misc]
    asyncio.run(check())


def test_concurrent_first_heartbeats_create_one_agent(database_url: str) -> None:
    async def prepare() -> None:
        await (await make_world(database_url)).close()

    async def write() -> None:
        world = World(database_url)
        agents = AgentStore(world.database)
        for number in range(10):
            await agents.record_heartbeat(f"new-{number}", BEAT, NOW)
        await world.close()

    async def check() -> None:
        world = World(database_url)
        found = await AgentStore(world.database).page(ListQuery())
        assert [one.id for one in found.items] == ["a1", *(f"new-{n}" for n in range(10))]
        assert found.items[1].capacity == BEAT.slots
        await world.close()

    asyncio.run(prepare())
    in_threads([write] * WRITERS)
    asyncio.run(check())
