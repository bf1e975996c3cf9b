"""A drained manager neither schedules nor starts sessions; running sessions continue."""

from __future__ import annotations

import asyncio

import pytest

from bai_services.core.errors import Forbidden
from bai_services.core.sessions.lifecycle import Status
from tests.manager.test_hub_servers import Cluster, cluster
from tests.testbed.manager import HUB

__all__ = ["cluster"]


async def test_drained_manager_schedules_no_pending_session(cluster: Cluster) -> None:
    running, _ = await cluster.running("first")
    waiting = await cluster.create("second")
    await cluster.manager.drain.begin(HUB)
    await cluster.manager.scheduling.scheduler.run_pass()
    assert (await cluster.store.find(waiting.id)).status is Status.PENDING
    assert (await cluster.store.find(running.id)).status is Status.RUNNING


async def test_drained_manager_starts_no_prepared_session(cluster: Cluster) -> None:
    session = await cluster.create("first")
    await cluster.manager.scheduling.scheduler.run_pass()
    await cluster.manager.drain.begin(HUB)
    await cluster.agent.prepare()
    await cluster.until(session.id, Status.PREPARED)
    await cluster.manager.servers.starter.step()
    # A start is a task, which sends its first request later.
    tasks = {task.get_name() for task in asyncio.all_tasks()}
    assert f"start-{session.id}" not in tasks
    assert cluster.hub.start_requests == []


async def test_superadmin_may_not_drain_the_manager(cluster: Cluster) -> None:
    with pytest.raises(Forbidden):
        await cluster.manager.drain.begin(await cluster.world.caller("admin"))
