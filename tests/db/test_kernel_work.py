"""Work of an agent: kernels to prepare, and orders of sessions without a Hub server."""

from __future__ import annotations

import pytest

from bai_services.core.sessions.agent_launch import BY_AGENT
from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.db.sessions.kernels import KernelStore
from bai_services.db.sessions.transitions import TransitionValues
from tests.db.world import NOW, make_world

pytestmark = pytest.mark.both_databases


async def test_orders_are_for_sessions_that_the_agent_starts(database_url: str) -> None:
    world = await make_world(database_url)
    store, ids = KernelStore(world.database), []
    for name in ("mine", "hubs", "stopped"):
        session = world.new_session(name)
        ids.append(session.id)
        await world.sessions.enqueue(session, NOW)
    await world.run_pass()
    assert {one.status for one in await store.work_of("a1")} == {Status.SCHEDULED}
    for session_id, started_by in zip(ids, (BY_AGENT, None, BY_AGENT), strict=True):
        await world.sessions.move(session_id, Event.DISPATCHED, NOW)
        facts = TransitionValues(injection={}, started_by=started_by)
        await world.sessions.move(session_id, Event.PREPARED, NOW, facts)
    mine, _, stopped = ids
    await world.sessions.move(stopped, Event.STOP_REQUESTED, NOW)
    work = {one.session_id: one for one in await store.work_of("a1")}
    assert {key: one.status for key, one in work.items()} == {
        mine: Status.PREPARED,
        stopped: Status.TERMINATING,
    }
    assert await store.mark_all_launched(ids, NOW) == {ids[0], ids[1]}
    (view,) = await store.views([mine])
    assert (view.kernels[0].launched_at, view.row.started_by) == (NOW, BY_AGENT)
    assert (await store.launch_facts([mine]))[mine].agent_id == "a1"
    await world.close()


async def test_kernels_of_several_agents_are_compared_in_one_transaction(
    database_url: str,
) -> None:
    world = await make_world(database_url)
    store, kernel_of = KernelStore(world.database), {}
    await world.add_agent("a2")
    for number in range(2):
        # Two such sessions do not fit on one agent.
        session = world.new_session(f"s{number}", {"cpu": "6", "mem": "1g"})
        await world.sessions.enqueue(session, NOW)
    await world.run_pass()
    for agent_id in ("a1", "a2"):
        (one,) = await store.work_of(agent_id)
        kernel_of[agent_id] = one.kernel_id
    usage = {"mem_bytes": 5}
    # a2 reports its own kernel, the kernel of a1, and a kernel that does not exist. a1 reports
    # none.
    reported = {kernel_of["a2"]: usage, kernel_of["a1"]: None, "no-such-kernel": usage}
    states = await store.observe({"a1": {}, "a2": reported}, NOW)
    assert [state.kernel_id for state in states["a1"]] == [kernel_of["a1"]]
    assert {state.kernel_id: state.agent_id for state in states["a2"]} == {
        kernel_of["a1"]: "a1",
        kernel_of["a2"]: "a2",
    }
    assert await store.observe({}, NOW) == {}
    await world.close()
