"""After SIGKILL before any statement, a transaction is stored completely or not at all."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import sqlalchemy as sa

from bai_services.core.scheduling.queue import Decision, run_pass
from bai_services.core.sessions.lifecycle import OCCUPYING, Event, Status
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.scheduling.queue import WaitState

from .usage_oracle import check_usage
from .world import NOW, World, make_world

TOKEN = 1
SESSIONS = 5
# What the jobs of all tests import, so that a process does not import it again.
PRELOADED = ("pytest", "bai_services.manager.manager")

WriteJob = Callable[[World, Sequence[Decision]], Coroutine[Any, Any, None]]


async def commit(world: World, decisions: Sequence[Decision]) -> None:
    await until_killed(world, lambda: world.queue.commit(decisions, NOW, TOKEN))


async def write_states(world: World, decisions: Sequence[Decision]) -> None:
    pending = await world.sessions.in_status(Status.PENDING)
    states = {row.id: WaitState(({"check": "order", "message": "no"},), 1) for row in pending}
    await until_killed(world, lambda: world.queue.write_states(states, TOKEN))


async def end(world: World, decisions: Sequence[Decision]) -> None:
    row = (await world.sessions.in_status(Status.SCHEDULED))[0]
    await until_killed(world, lambda: world.sessions.move(row.id, Event.STOP_REQUESTED, NOW))


async def until_killed(world: World, job: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Run the job, but kill this process with SIGKILL before a statement.

    The environment variable ``KILL_AT`` is the number of the statement; the first statement is 1.
    A commit counts as a statement.
    """
    left = int(os.environ["KILL_AT"])

    @sa.event.listens_for(sa.Engine, "before_cursor_execute")
    def count(*args: object) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    @sa.event.listens_for(sa.Engine, "commit")
    def count_commit(connection: object) -> None:
        count()

    await job()
    os._exit(0)


def _run(job: WriteJob, url: str, decisions: Sequence[Decision], kill_at: int) -> None:
    os.environ["KILL_AT"] = str(kill_at)
    asyncio.run(job(World(url), decisions))


def kill_everywhere(
    url: str, job: WriteJob, decisions: Sequence[Decision], check_unchanged: Callable[[], None]
) -> int:
    """Run the job until a run completes; kill run number n before statement n.

    ``check_unchanged`` is called after each kill. Return the number of statements, including
    commits.
    """
    # A fork server imports the modules only once. A new interpreter per run would take seconds.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, *PRELOADED])
    for kill_at in range(1, 100):
        process = context.Process(target=_run, args=(job, url, decisions, kill_at))
        process.start()
        process.join(60)
        if process.exitcode == 0:
            return kill_at - 1
        assert process.exitcode == -signal.SIGKILL, f"{job.__name__}: {process.exitcode}"
        check_unchanged()
    raise AssertionError("the job never finished")


def test_transactions_are_atomic_if_the_process_is_killed_before_any_statement(
    database_url: str,
) -> None:
    async def prepare() -> Sequence[Decision]:
        world = await make_world(database_url)
        for n in range(SESSIONS):
            await world.sessions.enqueue(world.new_session(f"lab{n}"), NOW)
        await LeaseStore(world.database).acquire("test", None, NOW)
        decisions = run_pass(await world.queue.snapshot(NOW)).decisions
        await world.close()
        return decisions

    async def check(pending: int, position: int | None) -> None:
        world = World(database_url)
        assert await world.allocations.audit() == []
        positions = [row.position for row in await world.sessions.in_status(Status.PENDING)]
        assert positions == [position] * pending
        held = await world.sessions.in_status(*OCCUPYING)
        for row in held:
            assert [step.event for step in await world.sessions.history(row.id)] == ["placed"]
        await check_usage(world)
        await world.close()

    decisions = asyncio.run(prepare())
    # For each job: number and stored position of the pending sessions, before and after the job.
    for job, before, after in (
        (write_states, (SESSIONS, None), (SESSIONS, 1)),
        (commit, (SESSIONS, 1), (0, None)),
        (end, (0, None), (0, None)),
    ):

        def check_unchanged(state: tuple[int, int | None] = before) -> None:
            asyncio.run(check(*state))

        count = kill_everywhere(database_url, job, decisions, check_unchanged)
        assert count > 3
        asyncio.run(check(*after))
