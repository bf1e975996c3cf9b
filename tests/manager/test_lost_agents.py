"""Batch sessions of a lost agent start elsewhere; other sessions wait for the agent."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.core.listing import ListQuery
from bai_services.core.sessions.end_reason import EndReason, SessionEnd
from bai_services.core.sessions.lifecycle import Event, SessionType, Status
from bai_services.core.sessions.lost_agents import MAX_LOST_AGENTS
from bai_services.core.sessions.records import Session
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import HUB, SUPERADMIN
from tests.testbed.wait import wait_until_async

from .test_hub_servers import Cluster, cluster, key_of

__all__ = ["cluster"]

BATCH = {"type": SessionType.BATCH, "startup_command": "true"}
REQUEUED = {"action": "session.requeue"}
HUB_STARTS, AGENT_STARTS = False, True
Item = dict[str, Any]


async def prepared(agent: FakeAgent, can_launch: bool, **facts: Any) -> Item:
    """Prepare the session that is placed on an agent, and return the work item."""
    (item,) = await wait_until_async(lambda: agent.work(5), 60, "the preparation")
    assert item["kind"] == "prepare"
    fence = {"fence_seconds": item["fence_seconds"]} if "fence_seconds" in item else {}
    facts = {**fence, "attempt": item["attempt"], **facts}
    await agent.report(item, injection={}, can_launch=can_launch, **facts)
    return dict(item)


async def batch_session(
    cluster: Cluster, name: str, can_launch: bool, **facts: Any
) -> tuple[Session, Item]:
    """Start a batch session on the agent a1."""
    cluster.hub.start_statuses = [] if can_launch else [202] * 2
    session = await cluster.create(name, **BATCH)
    item = await prepared(cluster.agent, can_launch, **facts)
    await started(cluster, cluster.agent, session, item, can_launch)
    return session, item


async def started(
    cluster: Cluster, agent: FakeAgent, session: Session, item: Item, can_launch: bool
) -> None:
    if can_launch:
        (order,) = await wait_until_async(lambda: agent.work(5), 30, "the order")
        assert order["kind"] == "launch"
        await agent.report(order, attempt=item["attempt"], container_id="c1")
    else:
        starts = cluster.hub.start_requests
        await wait_until_async(lambda: starts, 10, "the start at the Hub")
        starts.clear()
        await cluster.launch(session)
        await cluster.manager.sessions.launch.started(HUB, session.id, {"main1": "c1"})
        cluster.hub.mark_ready(key_of(session))
    await cluster.until(session.id, Status.RUNNING)


async def lose(cluster: Cluster, seconds: int, *alive: FakeAgent) -> None:
    """Let ``seconds`` pass; only the agents in ``alive`` send heartbeats."""
    cluster.clock.advance(seconds=seconds)
    for agent in alive:
        await agent.beat()
    await cluster.manager.cluster.agents.check_deadlines()
    await cluster.manager.servers.lost_agents.step()


async def events_of(cluster: Cluster, session: Session) -> list[Event]:
    return [Event(change.event) for change in await cluster.store.history(session.id)]


@pytest.mark.parametrize(
    "can_launch",
    [pytest.param(HUB_STARTS, id="Hub server"), pytest.param(AGENT_STARTS, id="by its agent")],
)
async def test_batch_session_of_a_lost_agent_starts_elsewhere(
    cluster: Cluster, can_launch: bool
) -> None:
    session, item = await batch_session(cluster, "train", can_launch)
    assert item["fence_seconds"] == 585
    other = FakeAgent(cluster.agent.client, "a2")
    await other.beat()
    await lose(cluster, 41, other)
    row = await cluster.store.find(session.id)
    assert row.status is Status.RUNNING
    assert "its agent a1 has not responded" in row.status_info
    assert "starts again on another agent" in row.status_info
    # The manager requeues the session after 600 s: the agent stops the kernel after 585 s, and the
    # manager waits another 15 s.
    await lose(cluster, 558, other)
    assert (await cluster.store.find(session.id)).status is Status.RUNNING
    await lose(cluster, 2, other)
    again = await prepared(other, can_launch)
    assert (again["session_id"], again["attempt"]) == (session.id, 1)
    await started(cluster, other, session, again, can_launch)
    row = await cluster.store.find(session.id)
    assert (row.restart_count, row.status_info) == (1, "")
    agents = [kernel.agent_id for kernel in (await cluster.store.view(session.id)).kernels]
    assert agents == ["a2"]
    events = await events_of(cluster, session)
    assert events[-6:-4] == [Event.AGENT_LOST, Event.REQUEUED]
    entries = await cluster.manager.audit.page(SUPERADMIN, ListQuery(filters=REQUEUED))
    assert [(one.entity_id, one.details["lost_agents"]) for one in entries.items] == [
        (session.id, "a1")
    ]
    assert (key_of(session) in cluster.hub.servers) is (not can_launch)
    # The agent returns, and removes the remains of the old kernel.
    await cluster.agent.beat([FakeAgent.running(item)])
    cluster.clock.advance(seconds=21)
    await cluster.agent.beat([FakeAgent.running(item, is_running=False, fenced_attempt=0)])
    (removal,) = await cluster.agent.work()
    assert removal["kind"] == "remove"
    # The output of the first attempt was on the lost machine.
    (first,) = await cluster.store.earlier_logs(session.id)
    assert (first.attempt, first.log) == (0, "")
    assert "a1" in first.reason
    await other.report(removal, earlier_log={"attempt": 0, "log": "forged\n"})
    await cluster.agent.report(removal, earlier_log={"attempt": 0, "log": "epoch 1\n"})
    await cluster.agent.report(removal, earlier_log={"attempt": 0, "log": "again\n"})
    (first,) = await cluster.store.earlier_logs(session.id)
    assert first.log == "epoch 1\n"
    assert (await cluster.store.find(session.id)).status is Status.RUNNING


async def test_session_continues_if_its_agent_returns_in_time(cluster: Cluster) -> None:
    session, item = await batch_session(cluster, "train", AGENT_STARTS)
    await lose(cluster, 60)
    assert (await cluster.store.find(session.id)).status_info
    await cluster.agent.beat([FakeAgent.running(item)])
    await cluster.manager.servers.lost_agents.step()
    row = await cluster.store.find(session.id)
    assert (row.status, row.status_info, row.restart_count) == (Status.RUNNING, "", 0)


async def test_kernel_that_its_agent_has_stopped_is_requeued_when_the_agent_returns(
    cluster: Cluster,
) -> None:
    session, item = await batch_session(cluster, "train", AGENT_STARTS)
    await lose(cluster, 590)
    assert (await cluster.store.find(session.id)).status is Status.RUNNING
    fenced = FakeAgent.running(item, is_running=False, container_id="", exit_code=143)
    await cluster.agent.beat([{**fenced, "fenced_attempt": 0}])
    await cluster.until(session.id, Status.TERMINATING)
    (order,) = await wait_until_async(lambda: cluster.agent.work(5), 30, "the order")
    assert order["kind"] == "terminate"
    end = {"exit_code": None, "reason_code": "stopped", "reason": "stopped"}
    output = {"attempt": 0, "log": "epoch 1\n"}
    await cluster.agent.report(order, attempt=0, end=end, earlier_log=output)
    again = await prepared(cluster.agent, AGENT_STARTS)
    (first,) = await cluster.store.earlier_logs(session.id)
    assert first.log == "epoch 1\n"
    # A late heartbeat about the first attempt does not stop the second one.
    await cluster.agent.beat([{**fenced, "fenced_attempt": 0}])
    await started(cluster, cluster.agent, session, again, AGENT_STARTS)
    await cluster.agent.beat([{**fenced, "fenced_attempt": 0, "exit_code": None}])
    assert (await cluster.store.find(session.id)).status is Status.RUNNING
    assert (await cluster.store.find(session.id)).restart_count == 1


async def test_end_that_the_hub_finds_before_the_agent_returns_is_not_a_failure(
    cluster: Cluster,
) -> None:
    session, _ = await batch_session(cluster, "train", HUB_STARTS)
    cluster.clock.advance(seconds=586)
    end = SessionEnd(None, EndReason.INTERRUPTED, "was removed by something other than the Hub")
    row = await cluster.manager.sessions.launch.exited(HUB, session.id, end)
    assert (row.status, row.restart_count) == (Status.PENDING, 1)


async def test_failure_of_a_command_before_the_end_of_the_lease_is_a_failure(
    cluster: Cluster,
) -> None:
    session, _ = await batch_session(cluster, "train", HUB_STARTS)
    cluster.clock.advance(seconds=100)
    row = await cluster.manager.sessions.launch.exited(
        HUB, session.id, SessionEnd(3, EndReason.EXITED, "exited")
    )
    assert (row.status, row.exit_code) == (Status.TERMINATED, 3)


async def test_agent_that_does_not_stop_kernels_keeps_its_sessions(cluster: Cluster) -> None:
    session, _ = await batch_session(cluster, "train", AGENT_STARTS, fence_seconds=None)
    await lose(cluster, 3500)
    row = await cluster.store.find(session.id)
    assert row.status is Status.RUNNING
    assert "continues if the agent returns by" in row.status_info


async def test_agent_that_has_signed_off_keeps_its_sessions(cluster: Cluster) -> None:
    session, item = await batch_session(cluster, "train", AGENT_STARTS)
    await cluster.agent.beat([FakeAgent.running(item)], is_leaving=True)
    await lose(cluster, 3500)
    row = await cluster.store.find(session.id)
    assert (row.status, row.status_info) == (Status.RUNNING, "")


async def test_session_that_has_lost_too_many_agents_ends(cluster: Cluster) -> None:
    session, _ = await batch_session(cluster, "train", AGENT_STARTS)
    for attempt in range(1, MAX_LOST_AGENTS + 1):
        await lose(cluster, 601)
        await cluster.agent.beat([])
        item = await prepared(cluster.agent, AGENT_STARTS)
        assert item["attempt"] == attempt
        await started(cluster, cluster.agent, session, item, AGENT_STARTS)
    await lose(cluster, 601)
    row = await cluster.until(session.id, Status.TERMINATED)
    assert (row.result, row.restart_count) == ("failure", MAX_LOST_AGENTS)
    assert row.status_info == "it has lost its agent 6 times, the maximum; the last was a1"


async def test_session_that_its_user_stops_ends_when_its_kernel_cannot_run_any_more(
    cluster: Cluster,
) -> None:
    session, _ = await batch_session(cluster, "train", AGENT_STARTS)
    assert cluster.user is not None
    await lose(cluster, 60)
    await cluster.manager.sessions.sessions.stop(cluster.user, session.id)
    assert (await cluster.store.find(session.id)).status is Status.TERMINATING
    await lose(cluster, 541)
    row = await cluster.until(session.id, Status.TERMINATED)
    assert (row.result, row.restart_count) == ("undefined", 0)


async def test_resource_group_sets_the_times_for_lost_agents(cluster: Cluster) -> None:
    admin = await cluster.world.caller("admin")
    groups = cluster.manager.cluster.resource_groups
    options = {"lost_agents": {"requeue_after": "45s", "wait": "2min"}}
    await groups.update(admin, "default", {"scheduler_opts": options})
    session, item = await batch_session(cluster, "train", AGENT_STARTS)
    assert item["fence_seconds"] == 30
    interactive, _ = await cluster.running("lab1")
    # A change of the setting applies only to sessions that are created later.
    await groups.update(
        admin,
        "default",
        {"scheduler_opts": {"lost_agents": {"requeue_after": 0, "wait": "2min"}}},
    )
    await lose(cluster, 44)
    assert (await cluster.store.find(session.id)).status is Status.RUNNING
    await lose(cluster, 2)
    await cluster.until(session.id, Status.PENDING)
    assert (await cluster.store.find(interactive.id)).status is Status.RUNNING
    await lose(cluster, 120)
    row = await cluster.until(interactive.id, Status.ERROR)
    assert row.status_info == "its agent has been lost for more than 2 minutes"
    later = await cluster.create("later", **BATCH)
    await cluster.agent.beat([])
    items = await wait_until_async(lambda: cluster.agent.work(5), 60, "the preparations")
    assert not any("fence_seconds" in item for item in items if item["session_id"] == later.id)
