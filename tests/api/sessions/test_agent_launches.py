"""Orders to agents to start and stop batch sessions without a Hub server, and their reports."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import InvalidRequest, NotFound
from tests.api.sessions.test_sessions import wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

BATCH = {"type": "batch", "startup_command": "true", "resources": {"cpu": "1", "mem": "1g"}}
EXIT = {"exit_code": 0, "reason_code": "exited", "reason": "exited"}

Item = dict[str, Any]


async def prepared(agent: FakeAgent, user: Client, **fields: Any) -> Item:
    """Create a batch session, prepare it, and return the order to launch it."""
    await user.post("/sessions", {"name": "train", **BATCH, **fields})
    (item,) = await wait_until_async(lambda: agent.work(5), 60, "the preparation")
    await agent.report(item, injection={}, can_launch=True, attempt=item["attempt"])
    return await order(agent)


async def order(agent: FakeAgent) -> Item:
    (item,) = await wait_until_async(lambda: agent.work(5), 30, "an order")
    return dict(item)


async def report(agent: FakeAgent, item: Item, state: str = "done", **facts: Any) -> bool:
    body = {name: item[name] for name in ("kind", "session_id", "kernel_id", "attempt")}
    answer = await agent.client.post(
        f"/agents/{agent.id}/reports", {**body, "work_id": item["id"], "state": state, **facts}
    )
    return bool(answer["is_removable"])


def folder_of(item: Item) -> dict[str, Any]:
    """Return the entry of a heartbeat for a kernel of which only the folder exists."""
    return FakeAgent.running(item, is_running=False, container_id="")


async def test_agent_launches_the_session_with_its_plan(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    launch = await prepared(agent, user, environ={"A": "1"})
    assert (launch["kind"], launch["attempt"]) == ("launch", 0)
    plan = launch["plan"]
    assert plan["command"][-1] == "bai_labext.batch"
    assert (plan["environ"]["BAI_STARTUP_COMMAND"], plan["environ"]["A"]) == ("true", "1")
    assert not await report(agent, launch, container_id="c1")
    running = await wait_for_status(user, "train", "RUNNING")
    assert running["started_by"] == "agent"
    where = {"user": running["hub_user"], "server": running["hub_server"]}
    attached = await api.hub.post(f"/sessions/{running['id']}/launch", where)
    assert (attached["is_attached"], attached["command"]) == (True, None)
    other = {**where, "user": "user2"}
    with pytest.raises(NotFound):
        await api.hub.post(f"/sessions/{running['id']}/launch", other)

    end = {**launch, "kind": "exit"}
    assert await report(agent, end, end={**EXIT, "exit_code": 3}, log="out\n")
    done = await wait_for_status(user, "train", "TERMINATED")
    assert (done["result"], done["exit_code"]) == ("failure", 3)
    assert (await user.get(f"/sessions/{done['id']}/logs"))["log"] == "out\n"
    # A repeated report changes nothing.
    assert await report(agent, end, end={**EXIT, "exit_code": 4}, log="other")
    assert (await user.get(f"/sessions/{done['id']}"))["exit_code"] == 3
    assert await api.world.manager.sessions.records.check_consistency() == []


async def test_order_is_repeated_until_it_is_reported(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    launch = await prepared(agent, user)
    assert await agent.work() == []
    api.world.clock.advance(seconds=6)
    assert await order(agent) == launch
    await report(agent, launch, container_id="c1")
    await wait_for_status(user, "train", "RUNNING")
    api.world.clock.advance(seconds=6)
    assert await agent.work() == []


async def test_agent_that_does_not_offer_it_leaves_the_start_to_the_manager(
    agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "train", **BATCH})
    await agent.prepare()
    session = await wait_for_status(user, "train", "PREPARED")
    assert session["started_by"] == "manager"
    assert await agent.work() == []


async def test_interactive_session_remains_a_server_of_the_hub(
    agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "lab1", "resources": BATCH["resources"]})
    (item,) = await wait_until_async(lambda: agent.work(5), 60, "the preparation")
    await agent.report(item, injection={}, can_launch=True)
    session = await wait_for_status(user, "lab1", "PREPARED")
    assert session["started_by"] == "manager"
    assert await agent.work() == []


async def test_failed_start_ends_the_session(agent: FakeAgent, user: Client) -> None:
    launch = await prepared(agent, user)
    error = {"code": "storage-full", "message": "the disk is full"}
    await report(agent, launch, "failed", error=error)
    session = await wait_for_status(user, "train", "ERROR")
    assert session["status_info"] == "storage-full: the disk is full"


async def test_resources_of_a_stopping_session_are_kept_until_the_agent_reports_the_stop(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    launch = await prepared(agent, user)
    await user.delete("/sessions/train")
    stop = await order(agent)
    assert (stop["kind"], stop["attempt"]) == ("terminate", 0)
    # The session must not end yet: even if the heartbeats list no process, the agent may still
    # execute the order to launch.
    for _ in range(5):
        api.world.clock.advance(seconds=20)
        await agent.beat([folder_of(launch)])
    assert (await user.get("/sessions/train"))["status"] == "TERMINATING"
    # The late report of the start does not make the session run.
    await report(agent, launch, container_id="c1")
    assert (await user.get("/sessions/train"))["status"] == "TERMINATING"
    assert await report(agent, stop, end={**EXIT, "reason_code": "stopped", "exit_code": None})
    await wait_for_status(user, "train", "CANCELLED")


async def test_stopping_session_ends_when_its_folder_is_gone(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    launch = await prepared(agent, user)
    await report(agent, launch, container_id="c1")
    await wait_for_status(user, "train", "RUNNING")
    await user.delete("/sessions/train")
    # The session must not end after one heartbeat without the folder.
    api.world.clock.advance(seconds=16)
    await agent.beat([])
    assert (await user.get("/sessions/train"))["status"] == "TERMINATING"

    async def has_ended() -> bool:
        api.world.clock.advance(seconds=16)
        await agent.beat([])
        return (await user.get("/sessions/train"))["status"] == "TERMINATED"

    await wait_until_async(has_ended, 10, "the end of the session")
    ended = await user.get("/sessions/train")
    assert (ended["exit_code"], ended["result"]) == (None, "undefined")
    assert await api.world.manager.sessions.records.check_consistency() == []


async def test_end_in_a_heartbeat_ends_a_session_whose_report_was_lost(
    agent: FakeAgent, user: Client
) -> None:
    launch = await prepared(agent, user)
    await report(agent, launch, container_id="c1")
    await wait_for_status(user, "train", "RUNNING")
    await agent.beat([FakeAgent.running(launch, is_running=False, exit_code=5)])
    stop = await order(agent)
    await report(agent, stop, end={**EXIT, "exit_code": 5}, log="out\n")
    done = await wait_for_status(user, "train", "TERMINATED")
    assert (done["result"], done["exit_code"]) == ("failure", 5)
    assert done["status_info"] == "the command exited with code 5"


async def test_reports_of_other_attempts_and_agents_are_ignored(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    launch = await prepared(agent, user)
    assert not await report(agent, {**launch, "attempt": 1}, container_id="c1")
    other = FakeAgent(api.agent, "a2")
    await other.beat()
    assert not await report(other, launch, container_id="c1")
    assert not await report(other, {**launch, "kind": "exit"}, end=EXIT)
    assert (await user.get("/sessions/train"))["status"] == "PREPARED"
    with pytest.raises(InvalidRequest):
        await report(agent, {**launch, "attempt": 2**31}, container_id="c1")


async def test_reports_in_one_request_are_processed_in_order_and_fail_alone(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    for name in ("train-a", "train-b", "train-c"):
        await user.post("/sessions", {"name": name, **BATCH})

    async def orders(count: int) -> list[Item]:
        items: list[Item] = []

        async def have_all() -> bool:
            items.extend(await agent.work(5))
            return len(items) >= count

        await wait_until_async(have_all, 60, "the orders")
        return items

    async def send(*reports: Item) -> list[Item]:
        body = {"reports": list(reports)}
        answer = await agent.client.post(f"/agents/{agent.id}/bulk-reports", body)
        return list(answer["results"])

    def done(item: Item, **facts: Any) -> Item:
        names = ("kind", "session_id", "kernel_id", "attempt")
        return {**{name: item[name] for name in names}, "state": "done", **facts}

    accepted = {"is_removable": False, "error": None}
    first, second, third = await orders(3)
    unknown = {**first, "session_id": str(uuid.uuid4())}
    ready = {"injection": {}, "can_launch": True}
    failed = {**done(third), "state": "failed", "error": {"message": "no such image"}}
    *results, rejected = await send(
        done(first, **ready), done(second, **ready), failed, done(unknown, **ready)
    )
    assert results == [accepted] * 3
    assert rejected["error"]["error"] == "not-found"
    assert (await wait_for_status(user, "train-c", "ERROR"))["status_info"] == "no such image"

    # The end of the first session follows its start, in the same request.
    launched = {item["session_id"]: item for item in await orders(2)}
    first, second = (launched[item["session_id"]] for item in (first, second))
    started = [done(item, container_id="c") for item in (first, second)]
    end = done({**first, "kind": "exit"}, end={**EXIT, "exit_code": 3}, log="out\n")
    # A repeated report of the start changes nothing.
    results = await send(*started, started[0], end, started[0])
    assert [result["is_removable"] for result in results] == [False, False, False, True, False]
    session = await wait_for_status(user, "train-a", "TERMINATED")
    assert (session["result"], session["exit_code"]) == ("failure", 3)
    history = (await user.get(f"/sessions/{session['id']}/history"))["items"]
    statuses = [one["to_status"] for one in history]
    assert (statuses[-2:], statuses.count("RUNNING")) == (["RUNNING", "TERMINATED"], 1)
    assert (await user.get(f"/sessions/{session['id']}/logs"))["log"] == "out\n"
    assert (await user.get("/sessions/train-b"))["status"] == "RUNNING"
    assert await api.world.manager.sessions.records.check_consistency() == []


async def test_session_of_a_lost_agent_ends_after_an_hour_and_its_kernel_is_removed(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    launch = await prepared(agent, user)
    await report(agent, launch, container_id="c1")
    await wait_for_status(user, "train", "RUNNING")
    for seconds, status in ((20, "RUNNING"), (60, "RUNNING"), (3400, "RUNNING"), (250, "ERROR")):
        api.world.clock.advance(seconds=seconds)
        await api.world.manager.cluster.agents.check_deadlines()
        await api.world.manager.servers.lost_agents.step()
        assert (await user.get("/sessions/train"))["status"] == status

    async def is_removed() -> bool:
        await agent.beat([FakeAgent.running(launch)])
        return "remove" in [item["kind"] for item in await agent.work()]

    await wait_until_async(is_removed, 10, "the order to remove the kernel")
