"""Queries of the queue do not delay a scheduling pass and do not wait for one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest

from bai_services.core.scheduling.estimates.explainer import Explainer
from bai_services.core.scheduling.queue import Queue, Snapshot
from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.db.scheduling.queue import QueueStore
from bai_services.db.tables import sessions
from bai_services.manager.manager import Manager
from bai_services.manager.scheduling import scheduler as scheduler_module
from bai_services.manager.scheduling import wait_states
from benchmarks.served import Commands
from tests.testbed.manager import MovableClock, make_world, manager_on

CORES = 64
LIMIT_SECONDS = 30


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Manager]:
    """A manager with one full agent and 20 pending sessions; no loops run."""
    url, clock = f"sqlite+aiosqlite:///{tmp_path}/bai.sqlite", MovableClock()
    async with manager_on(url, tmp_path, clock) as made:
        await Commands(await make_world(made, clock)).queue(pending=CORES + 20, agents=1)
        await made.scheduling.scheduler.run_pass()
        yield made


async def in_status(manager: Manager, status: Status) -> list[str]:
    async with manager.database.read() as tx:
        query = sessions.sessions.select().where(sessions.sessions.c.status == status)
        return [row.id for row in await tx.execute(query.order_by(sessions.sessions.c.sequence))]


async def test_pass_does_not_wait_for_a_query(manager: Manager) -> None:
    has_begun, may_continue = threading.Event(), threading.Event()

    def query(explainer: Explainer) -> int:
        has_begun.set()
        assert may_continue.wait(LIMIT_SECONDS)
        return len(explainer.positions("default"))

    result = asyncio.create_task(manager.scheduling.scheduler.query(query))
    assert await asyncio.to_thread(has_begun.wait, LIMIT_SECONDS)
    ended = (await in_status(manager, Status.SCHEDULED))[0]
    await manager.lifecycle.apply(ended, Event.STOP_REQUESTED)
    async with asyncio.timeout(LIMIT_SECONDS):
        await manager.scheduling.scheduler.step()
    assert len(await in_status(manager, Status.PENDING)) == 19
    may_continue.set()
    # The result describes the queue as it was before the pass.
    assert await result == 20


async def test_query_does_not_wait_for_a_long_pass(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_begun, may_continue = threading.Event(), threading.Event()
    run = Queue.run

    def run_blocked(queue: Queue, *args: object, **options: object) -> object:
        has_begun.set()
        assert may_continue.wait(LIMIT_SECONDS)
        return run(queue, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Queue, "run", run_blocked)
    step = asyncio.create_task(manager.scheduling.scheduler.step())
    assert await asyncio.to_thread(has_begun.wait, LIMIT_SECONDS)
    assert await manager.scheduling.scheduler.query(lambda e: len(e.positions("default"))) == 20
    assert not step.done()
    may_continue.set()
    await step


async def test_new_position_is_visible_at_once_and_written_later(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    scheduler, last = manager.scheduling.scheduler, (await in_status(manager, Status.PENDING))[-1]
    monkeypatch.setattr(scheduler.states.store, "batch", 5)

    async def end_a_session() -> None:
        ended = (await in_status(manager, Status.SCHEDULED))[0]
        await manager.lifecycle.apply(ended, Event.STOP_REQUESTED)
        await scheduler.run_pass()

    async def stored_position() -> int | None:
        async with manager.database.read() as tx:
            query = sessions.sessions.select().where(sessions.sessions.c.id == last)
            return int((await tx.execute(query)).one().position)

    # All positions have changed: the first write of more than one batch is immediate.
    await end_a_session()
    assert await stored_position() == 19
    await end_a_session()
    state = scheduler.states.of(last)
    assert state is not None
    assert (state.position, await stored_position()) == (18, 19)
    assert not scheduler.states.is_due()
    monkeypatch.setattr(wait_states, "WRITE_INTERVAL_SECONDS", 0.0)
    assert scheduler.states.is_due()
    await scheduler.write_due_states()
    assert await stored_position() == 18
    scheduler.states.clear()
    assert scheduler.states.of(last) is None


async def test_wait_for_changes_is_not_ended_by_a_pass_that_read_the_queue_before_the_change(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler_module, "CHANGES_TIMEOUT_SECONDS", 30)
    scheduler, (last, *_) = manager.scheduling.scheduler, await in_status(manager, Status.PENDING)
    original, has_read, may_continue = QueueStore.snapshot, asyncio.Event(), asyncio.Event()

    async def snapshot(store: QueueStore, now: datetime) -> Snapshot:
        found = await original(store, now)
        has_read.set()
        await may_continue.wait()
        return found

    monkeypatch.setattr(QueueStore, "snapshot", snapshot)
    early = asyncio.create_task(scheduler.run_pass())
    await has_read.wait()
    await manager.lifecycle.apply(last, Event.STOP_REQUESTED)
    before = asyncio.create_task(scheduler.wait_for_changes())
    may_continue.set()
    await early
    assert not before.done()

    has_read.clear()
    may_continue.clear()
    late = asyncio.create_task(scheduler.run_pass())
    await has_read.wait()
    during = asyncio.create_task(scheduler.wait_for_changes())
    await asyncio.wait([during], timeout=0)
    assert not during.done()
    may_continue.set()
    await asyncio.gather(late, before, during)
    await scheduler.wait_for_changes()
