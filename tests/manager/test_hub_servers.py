"""The starter and the reconciler of sessions' servers, with a fake Hub."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bai_services.core.accounts.roles import Caller
from bai_services.core.listing import ListQuery
from bai_services.core.sessions.end_reason import SessionEnd
from bai_services.core.sessions.lifecycle import Status
from bai_services.core.sessions.records import Session
from bai_services.core.sessions.spec import SessionSpec
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.store import SessionStore
from bai_services.manager.hub.starter import MAX_FAILURES
from bai_services.manager.manager import Manager
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.fake_hub import FakeHub, Key, manager_with_hub
from tests.testbed.manager import (
    HUB,
    Api,
    MovableClock,
    World,
    known_world,
    serving,
)
from tests.testbed.wait import wait_until_async


class Cluster:
    """A manager, one agent and a fake Hub."""

    def __init__(self, api: Api, hub: FakeHub, clock: MovableClock) -> None:
        self.manager: Manager = api.world.manager
        self.world: World = api.world
        self.hub = hub
        self.clock = clock
        self.agent = FakeAgent(api.agent)
        self.store = SessionStore(self.manager.database)
        self.user: Caller | None = None

    async def create(self, name: str, **facts: Any) -> Session:
        assert self.user is not None
        row, _ = await self.manager.sessions.sessions.create(
            self.user, SessionSpec(name=name, **facts)
        )
        return row

    async def until(self, session_id: str, *statuses: Status) -> SessionRow:
        async def session_in_status() -> SessionRow | None:
            row = await self.store.find(session_id)
            return row if row.status in statuses else None

        session: SessionRow = await wait_until_async(
            session_in_status, 15, f"{statuses} of {session_id}"
        )
        return session

    async def running(self, name: str) -> tuple[Session, dict[str, Any]]:
        """Start a session; return the session, and its kernel in the form of an agent's report."""
        session = await self.create(name)
        item = await self.agent.prepare()
        await self.until(session.id, Status.RUNNING)
        await self.launch(session)
        return session, self.agent.running(item)

    async def launch(self, session: Session) -> dict[str, Any]:
        plan: dict[str, Any] = await self.manager.sessions.launch.launch(
            HUB, session.id, session.hub_user, session.hub_server
        )
        return plan


def key_of(session: Session) -> Key:
    return session.hub_user, session.hub_server


@pytest.fixture
async def cluster(
    demo_database_url: str, tmp_path: Path, clock: MovableClock
) -> AsyncIterator[Cluster]:
    async with (
        manager_with_hub(demo_database_url, tmp_path, clock) as (hub, manager),
        serving(await known_world(manager, clock)) as api,
    ):
        cluster = Cluster(api, hub, clock)
        cluster.user = await api.world.caller("user")
        await cluster.agent.beat()
        manager.start_session_loops()
        yield cluster
        await manager.stop_session_loops()
        assert await manager.sessions.records.check_consistency() == []


async def test_hub_server_is_created_early_and_started_when_prepared(cluster: Cluster) -> None:
    session = await cluster.create("lab1")
    key = key_of(session)
    await wait_until_async(lambda: key in cluster.hub.servers, 10, "the Hub's server")
    assert cluster.hub.servers[key]["user_options"] == {"bai_session_id": session.id}
    assert cluster.hub.start_requests == []
    await cluster.agent.prepare()
    await cluster.until(session.id, Status.RUNNING)
    assert cluster.hub.start_requests == [key]


async def test_session_is_running_only_after_the_hub_reports_ready(cluster: Cluster) -> None:
    cluster.hub.start_statuses = [202]
    session = await cluster.create("lab1")
    await cluster.agent.prepare()
    await wait_until_async(lambda: cluster.hub.start_requests, 10, "the start request at the Hub")
    await cluster.launch(session)
    await cluster.manager.sessions.launch.started(HUB, session.id, {"main1": "c1"})
    assert (await cluster.store.find(session.id)).status is Status.PREPARED
    cluster.hub.mark_ready(key_of(session))
    await cluster.until(session.id, Status.RUNNING)


async def test_start_is_retried_while_the_hub_is_busy(cluster: Cluster) -> None:
    cluster.hub.start_statuses = [429, 429, 429, 429, 201]
    session = await cluster.create("lab1")
    await cluster.agent.prepare()
    await cluster.until(session.id, Status.RUNNING)
    assert len(cluster.hub.start_requests) == 5


async def test_session_fails_if_the_hub_rejects_every_start(cluster: Cluster) -> None:
    cluster.hub.start_statuses = [400] * MAX_FAILURES
    session = await cluster.create("lab1")
    await cluster.agent.prepare()
    row = await cluster.until(session.id, Status.ERROR)
    assert "error set by the test: 400" in row.status_info
    assert len(cluster.hub.start_requests) == MAX_FAILURES


async def test_manager_does_not_start_a_server_that_the_hub_is_starting(cluster: Cluster) -> None:
    request = SessionSpec(name="default", owner="user", hub_server="")
    session, _ = await cluster.manager.sessions.sessions.create(HUB, request)
    cluster.hub.add("user", "", {}, pending="spawn")
    await cluster.agent.prepare()
    await cluster.launch(session)
    await cluster.manager.sessions.launch.started(HUB, session.id, {"main1": "c1"})
    cluster.hub.mark_ready(("user", ""))
    await cluster.until(session.id, Status.RUNNING)
    assert cluster.hub.start_requests == []


async def test_manager_takes_over_a_start_that_no_spawner_continues(cluster: Cluster) -> None:
    request = SessionSpec(name="lab1", owner="user", hub_server="srv")
    session, _ = await cluster.manager.sessions.sessions.create(HUB, request)
    await cluster.agent.prepare()
    await cluster.until(session.id, Status.PREPARED)
    await cluster.manager.servers.starter.step()
    assert cluster.hub.start_requests == []
    cluster.clock.advance(seconds=61)
    await cluster.manager.servers.starter.step()
    row = await cluster.until(session.id, Status.RUNNING)
    assert row.started_by == "manager"


async def test_stop_deletes_the_hub_server(cluster: Cluster) -> None:
    session, _ = await cluster.running("lab1")
    assert cluster.user is not None
    await cluster.manager.sessions.sessions.stop(cluster.user, session.id)
    await wait_until_async(
        lambda: cluster.hub.deleted_servers == [key_of(session)],
        10,
        "the deletion of the Hub's server",
    )
    await cluster.manager.sessions.launch.exited(HUB, session.id, SessionEnd(0, text="stopped"))
    await cluster.until(session.id, Status.TERMINATED)


async def test_unreported_stop_ends_when_heartbeats_omit_the_kernel(cluster: Cluster) -> None:
    session, kernel = await cluster.running("lab1")
    assert cluster.user is not None
    await cluster.manager.sessions.sessions.stop(cluster.user, session.id)
    cluster.clock.advance(seconds=20)
    await cluster.agent.beat([kernel])
    cluster.clock.advance(seconds=20)
    await cluster.agent.beat([kernel])
    assert [i["kind"] for i in await cluster.agent.work(5)] == ["remove"]
    assert (await cluster.store.find(session.id)).status is Status.TERMINATING
    for _ in range(2):
        await cluster.agent.beat([])
    await cluster.until(session.id, Status.TERMINATED)


async def test_forced_stop_removes_the_kernel_at_once(cluster: Cluster) -> None:
    session, kernel = await cluster.running("lab1")
    await cluster.agent.beat([kernel])
    assert cluster.user is not None
    await cluster.manager.sessions.sessions.stop(cluster.user, session.id, force=True)
    assert [i["kind"] for i in await cluster.agent.work(5)] == ["remove"]


async def test_server_that_is_missing_at_the_hub_is_started_again(cluster: Cluster) -> None:
    session, kernel = await cluster.running("lab1")
    cluster.hub.servers.clear()
    cluster.clock.advance(seconds=60)
    for _ in range(4):
        await cluster.agent.beat([kernel])
        await cluster.manager.servers.reconciler.step()
    await wait_until_async(lambda: len(cluster.hub.start_requests) == 2, 10, "the second start")
    assert (await cluster.store.find(session.id)).status is Status.RUNNING


async def test_hub_servers_of_ended_sessions_are_deleted(cluster: Cluster) -> None:
    session = await cluster.create("lab1")
    await cluster.agent.prepare()
    await cluster.until(session.id, Status.RUNNING)
    key = key_of(session)
    await cluster.manager.sessions.launch.exited(HUB, session.id, SessionEnd(1, text="died"))
    await wait_until_async(lambda: cluster.hub.deleted_servers == [key], 10, "the deletion")
    # A Hub that has crashed may not remember the deletion: it lists the server, stopped or running.
    for facts in ({}, {"ready": True}):
        cluster.hub.add(*key, {"bai_session_id": session.id}, **facts)

        async def is_deleted() -> bool:
            await cluster.manager.servers.reconciler.step()
            return key not in cluster.hub.servers

        await wait_until_async(is_deleted, 10, "the deletion by the reconciler")
    # No other server was deleted. This one was deleted at the session's end, and twice by the
    # reconciler.
    assert set(cluster.hub.deleted_servers) == {key} and len(cluster.hub.deleted_servers) >= 3


async def test_server_of_a_newer_session_is_not_deleted(cluster: Cluster) -> None:
    request = SessionSpec(name="default", owner="user", hub_server="")
    first, _ = await cluster.manager.sessions.sessions.create(HUB, request)
    assert cluster.user is not None
    await cluster.manager.sessions.sessions.stop(cluster.user, first.id)
    second, _ = await cluster.manager.sessions.sessions.create(HUB, request)
    cluster.hub.add("user", "", {"bai_session_id": second.id}, ready=True)
    for _ in range(3):
        await cluster.manager.servers.reconciler.step()
    assert ("user", "") in cluster.hub.servers


async def test_session_that_is_stuck_in_preparation_fails(cluster: Cluster) -> None:
    session = await cluster.create("lab1")
    await cluster.until(session.id, Status.SCHEDULED)
    assert (await cluster.agent.work(5))[0]["kind"] == "prepare"
    cluster.clock.advance(minutes=16)
    await cluster.manager.servers.reconciler.step()
    row = await cluster.store.find(session.id)
    assert (row.status, row.result) == (Status.ERROR, "failure")
    assert "PREPARING for more than 15 minutes" in row.status_info


async def test_scheduled_sessions_of_a_lost_agent_are_requeued(cluster: Cluster) -> None:
    running, _ = await cluster.running("lab1")
    waiting = await cluster.create("lab2")
    await cluster.until(waiting.id, Status.SCHEDULED)
    cluster.clock.advance(seconds=41)
    await cluster.manager.cluster.agents.check_deadlines()
    cluster.clock.advance(seconds=1)
    await cluster.manager.servers.lost_agents.step()
    row = await cluster.until(waiting.id, Status.PENDING)
    assert (await cluster.store.view(row.id)).kernels[0].agent_id is None
    assert (await cluster.store.find(running.id)).status is Status.RUNNING
    cluster.clock.advance(minutes=61)
    await cluster.manager.servers.lost_agents.step()
    assert (await cluster.store.find(running.id)).status is Status.ERROR
    await cluster.agent.beat([])
    await cluster.until(waiting.id, Status.SCHEDULED)
    page = await cluster.manager.sessions.sessions.page(HUB, ListQuery())
    assert page.total == 2
