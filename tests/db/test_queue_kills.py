"""Atomicity of transactions.

A SIGKILL before the first statement or before the commit leaves no partial write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bai_services.core.scheduling.queue import Decision, run_pass
from bai_services.core.sessions.lifecycle import OCCUPYING, Event, Status
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.scheduling.queue import WaitState
from tests.testbed.kills import kill_everywhere, until_killed

from .usage_oracle import check_usage
from .world import NOW, World, make_world

TOKEN = 1
SESSIONS = 5


async def commit(url: str, decisions: Sequence[Decision]) -> None:
    world = World(url)
    await until_killed(lambda: world.queue.commit(decisions, NOW, TOKEN))


async def write_states(url: str, decisions: Sequence[Decision]) -> None:
    world = World(url)
    pending = await world.sessions.in_status(Status.PENDING)
    states = {row.id: WaitState(({"check": "order", "message": "no"},), 1) for row in pending}
    await until_killed(lambda: world.queue.write_states(states, TOKEN))


async def end(url: str, decisions: Sequence[Decision]) -> None:
    world = World(url)
    row = (await world.sessions.in_status(Status.SCHEDULED))[0]
    await until_killed(lambda: world.sessions.move(row.id, Event.STOP_REQUESTED, NOW))


def test_transactions_are_atomic_if_the_process_is_killed(
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

    async def check(pending: int, position: int | None, occupying: int) -> None:
        world = World(database_url)
        assert await world.allocations.audit() == []
        positions = [row.position for row in await world.sessions.in_status(Status.PENDING)]
        assert positions == [position] * pending
        held = await world.sessions.in_status(*OCCUPYING)
        assert len(held) == occupying
        for row in held:
            assert [step.event for step in await world.sessions.history(row.id)] == ["placed"]
        await check_usage(world)
        await world.close()

    decisions = asyncio.run(prepare())
    # For each job: number and stored position of the pending sessions, and number of sessions that
    # occupy resources, before and after the job.
    for job, before, after in (
        (write_states, (SESSIONS, None, 0), (SESSIONS, 1, 0)),
        (commit, (SESSIONS, 1, 0), (0, None, SESSIONS)),
        (end, (0, None, SESSIONS), (0, None, SESSIONS - 1)),
    ):

        def check_unchanged(state: tuple[int, int | None, int] = before) -> None:
            asyncio.run(check(*state))

        count = kill_everywhere(job, database_url, decisions, check=check_unchanged)
        assert count > 1
        asyncio.run(check(*after))
