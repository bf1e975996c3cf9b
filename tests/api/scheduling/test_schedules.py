"""`/resource-groups/{key}/schedule`: running and pending sessions, with agents and times."""

from __future__ import annotations

from typing import Any

from bai_services.client import Client
from tests.api.sessions.test_sessions import wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

SIX = {"cpu": "6", "mem": "1g"}
PATH = "/resource-groups/default/schedule"


async def test_schedule_lists_running_and_pending_sessions_of_the_group(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "runs", "resources": SIX})
    await wait_for_status(user, "runs", "SCHEDULED")
    for name in ("first", "second"):
        await user.post("/sessions", {"name": name, "resources": SIX})
    admin = await api.client("domain-admin")

    async def schedule_with_two_waiting() -> dict[str, Any] | None:
        schedule = dict(await admin.get(PATH))
        return schedule if schedule["waiting_count"] == 2 else None

    schedule = await wait_until_async(schedule_with_two_waiting, 10, "two pending sessions")
    assert (schedule["order"], schedule["running_count"]) == ("fifo", 1)
    agents = {lane["agent_id"] for lane in schedule["lanes"]}
    (running,) = schedule["running"]
    assert (running["session"]["name"], running["session"]["owner"]) == ("runs", "user")
    (kernel,) = running["kernels"]
    assert kernel["agent_id"] in agents
    assert kernel["slots"] == SIX
    first, second = schedule["waiting"]
    assert [(w["position"], w["session"]["name"]) for w in (first, second)] == [
        (1, "first"),
        (2, "second"),
    ]
    assert first["reason"]
    # The first pending session has a reservation on the same agent as the running session.
    assert [k["agent_id"] for k in first["kernels"]] == [kernel["agent_id"]]
    assert second["kernels"] == []


async def test_sessions_of_other_domains_are_anonymous_for_domain_admins(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    foreign = await api.client("acme-user")
    await foreign.post("/sessions", {"name": "secret-plan", "resources": SIX})
    await wait_for_status(foreign, "secret-plan", "SCHEDULED")
    await foreign.post("/sessions", {"name": "secret-next", "resources": SIX})
    seen = {}
    for role in ("domain-admin", "admin"):
        client = await api.client(role)

        async def schedule_with_a_waiting_session(client: Client = client) -> dict[str, Any] | None:
            schedule = dict(await client.get(PATH))
            return schedule if schedule["waiting_count"] else None

        seen[role] = await wait_until_async(
            schedule_with_a_waiting_session, 10, "the pending session"
        )
    hidden, shown = seen["domain-admin"], seen["admin"]
    assert [part["session"] for part in (*hidden["running"], *hidden["waiting"])] == [None, None]
    assert hidden["waiting"][0]["reason"] == ""
    assert "secret" not in str(hidden)
    assert shown["running"][0]["session"]["name"] == "secret-plan"
    assert shown["waiting"][0]["session"]["name"] == "secret-next"


async def test_schedule_without_a_queue_is_empty(api: Api) -> None:
    schedule = await (await api.client("admin")).get(PATH)
    assert (schedule["is_complete"], schedule["order"]) == (False, "fifo")
    assert schedule["running"] == schedule["waiting"] == schedule["lanes"] == []
