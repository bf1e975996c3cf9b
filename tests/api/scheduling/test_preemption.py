"""Preemption from the request to the restart, with the reports of a fake agent."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import InvalidRequest
from tests.api.sessions.test_sessions import bring_to_running, wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

ALL_CPU = {"cpu": "8", "mem": "1g"}
# The spawner's report of a server that the Hub has stopped.
END = {"reason": "stopped", "reason_code": "stopped", "exit_code": 143}


@pytest.fixture
async def admin(api: Api) -> Client:
    """A superadmin who has enabled preemption with a grace of 5 s."""
    client = await api.client("admin")
    options = {"preemption": {"enabled": True, "grace": "5s"}}
    await client.patch("/resource-groups/default", {"scheduler_opts": options})
    return client


async def preempted_by(user: Client, name: str, **fields: Any) -> dict[str, Any]:
    """Create a session that preempts ``low1``; return ``low1`` when its preemption is announced."""
    await user.post("/sessions", {"name": name, "resources": ALL_CPU, "priority": 50, **fields})

    async def announced() -> dict[str, Any] | None:
        session = await user.get("/sessions/low1")
        return dict(session) if session["preemption"] else None

    return dict(await wait_until_async(announced, 60, "the announcement"))


async def with_reasons(user: Client, name: str) -> dict[str, Any]:
    """Return a session once the reasons why it is pending are stored."""

    async def found() -> dict[str, Any] | None:
        session = await user.get(f"/sessions/{name}")
        return dict(session) if session["reasons"] else None

    return dict(await wait_until_async(found, 30, "the reasons"))


async def test_preempted_session_returns_to_the_queue_and_starts_again(
    api: Api, agent: FakeAgent, user: Client, admin: Client
) -> None:
    world = api.world
    low = await user.post("/sessions", {"name": "low1", "resources": ALL_CPU, "priority": 1})
    await bring_to_running(api, agent, low["id"])
    warned = await preempted_by(user, "high")
    # The victim shows when and why it is stopped, but not for which user.
    assert warned["preemption"]["mode"] == "reschedule"
    assert warned["end_rule"]["ends_at"] == warned["preemption"]["stops_at"]
    assert "priority above 1" in warned["preemption"]["reason"]
    high = await with_reasons(user, "high")
    assert high["reasons"][0]["check"] == "preemption"
    assert high["reasons"][0]["starts_at"]
    # Nothing happens before the end of the grace period.
    await world.manager.scheduling.preemptions.step()
    assert (await user.get("/sessions/low1"))["status"] == "RUNNING"
    world.clock.advance(seconds=6)
    await world.manager.scheduling.preemptions.step()
    assert (await user.get("/sessions/low1"))["status"] == "TERMINATING"
    await api.hub.post(f"/sessions/{low['id']}/exited", END)
    await agent.beat([])
    back = await user.get("/sessions/low1")
    assert (back["status"], back["restart_count"], back["id"]) == ("PENDING", 1, low["id"])
    # A second report of the same end changes nothing.
    await api.hub.post(f"/sessions/{low['id']}/exited", END)
    assert (await user.get("/sessions/low1"))["status"] == "PENDING"
    await bring_to_running(api, agent, high["id"])
    # The freed resources went to the waiting session; the victim starts after it.
    await user.delete(f"/sessions/{high['id']}")
    await api.hub.post(f"/sessions/{high['id']}/exited", END)
    await agent.beat([])
    await wait_for_status(user, low["id"], "SCHEDULED")
    await agent.prepare()
    where = {"user": back["hub_user"], "server": back["hub_server"]}
    await wait_for_status(user, low["id"], "PREPARED")
    plan = await api.hub.post(f"/sessions/{low['id']}/launch", where)
    assert plan["environ"]["BAI_RESTART_COUNT"] == "1"
    history = (await user.get(f"/sessions/{low['id']}/history"))["items"]
    events = [change["event"] for change in history]
    assert events[events.index("preempted") :][:2] == ["preempted", "requeued"]
    (listed,) = (await admin.get("/preemptions"))["items"]
    assert (listed["session"], listed["outcome"]) == ("high", "started")
    assert [victim["session"] for victim in listed["victims"]] == ["low1"]
    actions = [e["action"] for e in (await admin.get("/audit-log"))["items"]]
    assert {"session.plan-preemption", "session.preempt"} <= set(actions)


@pytest.mark.both_databases
async def test_log_has_the_output_of_all_attempts(
    api: Api, agent: FakeAgent, user: Client, admin: Client
) -> None:
    low = await user.post("/sessions", {"name": "low1", "resources": ALL_CPU, "priority": 1})
    await bring_to_running(api, agent, low["id"])
    await preempted_by(user, "high")
    api.world.clock.advance(seconds=6)
    await api.world.manager.scheduling.preemptions.step()
    await api.hub.post(f"/sessions/{low['id']}/exited", {**END, "log": "epoch 1\n"})
    waiting = (await user.get("/sessions/low1/logs"))["log"]
    output, separator = waiting.splitlines()
    assert output == "epoch 1"
    assert separator.startswith("----- attempt 1 ended at ")
    assert "priority above 1" in separator
    # A repeated report does not change the stored output.
    await api.hub.post(f"/sessions/{low['id']}/exited", {**END, "log": "other\n"})
    assert (await user.get("/sessions/low1/logs"))["log"] == waiting
    await user.delete("/sessions/high")
    await bring_to_running(api, agent, low["id"])
    await user.delete("/sessions/low1")
    await api.hub.post(f"/sessions/{low['id']}/exited", {**END, "log": "epoch 2\n"})
    ended = await user.get(f"/sessions/{low['id']}/logs")
    assert ended["log"] == f"{waiting}epoch 2\n"
    (hit,) = (await user.get("/session-logs", search="EPOCH"))["items"]
    assert [match["number"] for match in hit["matches"]] == [1, 3]
    # All attempts are removed after the retention period.
    api.world.clock.advance(days=400)
    await api.world.manager.sessions.stored_logs.remove_old()
    assert (await user.get(f"/sessions/{low['id']}/logs"))["log"] == ""


async def is_preparing(api: Api, session_id: str) -> bool:
    return not await api.world.manager.sessions.suspensions.prepared(session_id)


async def test_plan_is_dropped_if_the_waiting_session_is_cancelled(
    api: Api, agent: FakeAgent, user: Client, admin: Client
) -> None:
    low = await user.post("/sessions", {"name": "low1", "resources": ALL_CPU, "priority": 1})
    await bring_to_running(api, agent, low["id"])
    await preempted_by(user, "high")
    preemptions, suspensions = (
        api.world.manager.scheduling.preemptions,
        api.world.manager.sessions.suspensions,
    )
    # The session is being prepared (JupyterLab saves everything) when the waiting session is
    # cancelled.
    await preemptions.step()
    await wait_until_async(lambda: is_preparing(api, low["id"]), 10, "the preparation")
    await user.delete("/sessions/high")
    api.world.clock.advance(seconds=6)
    await preemptions.step()
    # The session can be prepared again.
    assert await suspensions.prepared(low["id"])
    session = await user.get("/sessions/low1")
    assert (session["status"], session["preemption"]) == ("RUNNING", None)
    assert (await admin.get("/preemptions"))["items"][0]["outcome"] == "dropped"
    await api.world.manager.notifications.outbox.step()
    texts = [each["text"] for each in (await user.get("/notifications"))["items"]]
    assert "session low1 continues to run: its preemption was cancelled" in texts


async def test_victim_continues_if_the_waiting_session_starts_elsewhere(
    api: Api, agent: FakeAgent, user: Client, admin: Client
) -> None:
    half = {"cpu": "4", "mem": "1g"}
    low = await user.post("/sessions", {"name": "low1", "resources": half, "priority": 1})
    await bring_to_running(api, agent, low["id"])
    other = await user.post(
        "/sessions", {"name": "other", "resources": half, "is_preemptible": False}
    )
    await bring_to_running(api, agent, other["id"])
    await preempted_by(user, "high", resources=half)
    await user.delete("/sessions/other")
    await api.hub.post(f"/sessions/{other['id']}/exited", END)
    await agent.beat([])
    await wait_for_status(user, (await user.get("/sessions/high"))["id"], "SCHEDULED")
    await api.world.manager.scheduling.preemptions.step()
    session = await user.get("/sessions/low1")
    assert (session["status"], session["preemption"]) == ("RUNNING", None)
    (listed,) = (await admin.get("/preemptions"))["items"]
    assert listed["outcome"] == "started"
    assert [victim["stopped_at"] for victim in listed["victims"]] == [None]
    await api.world.manager.notifications.outbox.step()
    texts = [each["text"] for each in (await user.get("/notifications"))["items"]]
    assert texts.count("session low1 continues to run: its preemption was cancelled") == 1


@pytest.mark.parametrize(
    ("allows_exclusion", "is_planned"),
    [
        pytest.param(False, False, id="enforced end"),
        pytest.param(True, True, id="users may exclude the session"),
    ],
)
async def test_no_session_is_stopped_if_a_lifetime_checker_ends_another_in_time(
    api: Api,
    agent: FakeAgent,
    user: Client,
    admin: Client,
    allows_exclusion: bool,
    is_planned: bool,
) -> None:
    half, manager = {"cpu": "4", "mem": "1g"}, api.world.manager
    options = {"preemption": {"enabled": True, "grace": "1m"}}
    await admin.patch("/resource-groups/default", {"scheduler_opts": options})
    lifetime = {"name": "life", "type": "session-lifetime", "max_seconds": 300}
    fields = {"warnings_seconds": [20], "allows_exclusion": allows_exclusion}
    await admin.post("/idle-checkers", {**lifetime, **fields})
    binding = {"checker": "life", "scope": "domain", "scope_key": "default"}
    other = await user.post(
        "/sessions", {"name": "other", "resources": half, "is_preemptible": False}
    )
    await bring_to_running(api, agent, other["id"])
    api.world.clock.advance(seconds=260)
    low = await user.post("/sessions", {"name": "low1", "resources": half, "priority": 1})
    await bring_to_running(api, agent, low["id"])
    await admin.post("/idle-checker-bindings", binding)
    # The end is announced after the scheduler has read the session.
    await manager.scheduling.scheduler.run_pass()
    await manager.sessions.idle_judging.step()
    await user.post("/sessions", {"name": "high", "resources": half, "priority": 50})
    # This step reads only changes, so the judging must have notified the scheduler of the new end.
    await manager.scheduling.scheduler.step()
    await manager.scheduling.scheduler.write_due_states()
    await with_reasons(user, "high")
    assert bool((await user.get("/sessions/low1"))["preemption"]) is is_planned


async def test_plan_is_dropped_if_the_waiting_session_may_no_longer_start(
    api: Api, agent: FakeAgent, user: Client, admin: Client
) -> None:
    low = await user.post("/sessions", {"name": "low1", "resources": ALL_CPU, "priority": 1})
    await api.world.manager.scheduling.scheduler.run_pass()
    await bring_to_running(api, agent, low["id"])
    await user.post("/sessions", {"name": "high", "resources": ALL_CPU, "priority": 50})
    await api.world.manager.scheduling.scheduler.run_pass()
    assert (await user.get("/sessions/low1"))["preemption"]
    await admin.patch("/resource-groups/default", {"is_active": False})
    api.world.clock.advance(seconds=6)
    await api.world.manager.scheduling.preemptions.step()
    session = await user.get("/sessions/low1")
    assert (session["status"], session["preemption"]) == ("RUNNING", None)
    assert (await admin.get("/preemptions"))["items"][0]["outcome"] == "dropped"


async def test_stop_of_a_preempted_session_ends_it(
    api: Api, agent: FakeAgent, user: Client, admin: Client
) -> None:
    low = await user.post("/sessions", {"name": "low1", "resources": ALL_CPU, "priority": 1})
    await bring_to_running(api, agent, low["id"])
    await preempted_by(user, "high")
    api.world.clock.advance(seconds=6)
    await api.world.manager.scheduling.preemptions.step()
    await user.delete("/sessions/low1")
    await api.hub.post(f"/sessions/{low['id']}/exited", END)
    await agent.beat([])
    assert (await user.get(f"/sessions/{low['id']}"))["status"] == "TERMINATED"


@pytest.mark.parametrize(
    "preemption",
    [
        {"enabled": "yes"},
        {"preemptible_priority": 101},
        {"grace": "2h"},
        {"order": "random"},
        {"other": 1},
        [],
    ],
)
async def test_invalid_options_are_rejected(admin: Client, preemption: Any) -> None:
    with pytest.raises(InvalidRequest):
        await admin.patch(
            "/resource-groups/default", {"scheduler_opts": {"preemption": preemption}}
        )
