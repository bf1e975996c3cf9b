"""Maintenance over REST: effect on the scheduler, read-only mode and validation."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest

from bai_services.core.errors import InvalidRequest, NotFound, Unavailable
from bai_services.db.scheduling.queue import QueueStore
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import PASSWORD, Api


async def windows(api: Api) -> dict[str, list[tuple[str, Any, bool]]]:
    snapshot = await QueueStore(api.world.manager.database).snapshot(api.world.clock())
    return {
        name: [(w.reason, w.agents, w.looks_ahead) for w in group.maintenance]
        for name, group in snapshot.groups.items()
    }


async def test_scheduler_reads_the_maintenances_of_each_group(api: Api) -> None:
    admin = await api.client("admin")
    await FakeAgent(api.agent, "node1").beat()
    await admin.post("/resource-groups", {"name": "other", "engine": "process"})
    later = (api.world.clock() + timedelta(hours=1)).isoformat()
    plans: list[dict[str, Any]] = [
        {"reason": "all", "mode": "no-starts"},
        {"reason": "group", "scope": "group", "target": "other", "starts_at": later},
        {"reason": "agent", "scope": "agent", "target": "node1", "starts_at": later},
    ]
    made = [await admin.post("/maintenances", plan) for plan in plans]
    found = await windows(api)
    assert found["default"] == [("all", None, False), ("agent", frozenset({"node1"}), True)]
    assert found["other"] == [("all", None, False), ("group", None, True)]
    user = await api.client("user")
    shown = (await user.get("/maintenances/current"))["items"]
    assert {m["reason"]: m["is_active"] for m in shown} == {
        "all": True,
        "group": False,
        "agent": False,
    }
    await admin.delete(f"/maintenances/{made[0]['id']}")
    await admin.patch(f"/maintenances/{made[1]['id']}", {"reason": "disks"})
    assert (await windows(api))["other"] == [("disks", None, True)]
    (entry,) = (await admin.get("/audit-log", action="maintenance.update"))["items"]
    assert entry["details"]["changes"]["reason"] == {"before": "group", "after": "disks"}


async def test_pending_session_names_the_maintenance(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    await FakeAgent(api.agent).beat()
    await admin.post("/maintenances", {"reason": "new disks"})
    await user.post("/sessions", {"name": "my-lab", "resources": {"cpu": 1, "mem": "1g"}})
    await api.world.manager.scheduling.scheduler.run_pass()
    session = await user.get("/sessions/my-lab")
    (reason,) = session["reasons"]
    assert (reason["check"], reason["message"]) == ("maintenance", "maintenance: new disks")
    assert reason["coded"]["values"] == {"reason": "new disks"}


async def test_read_only_maintenance_refuses_sessions_of_users_and_queues_those_of_superadmins(
    api: Api,
) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    await FakeAgent(api.agent).beat()
    later = (api.world.clock() + timedelta(minutes=1)).isoformat()
    read_only = {"mode": "read-only", "reason": "disks", "starts_at": later}
    await admin.post("/maintenances", {**read_only, "ends_at": "2999-01-01T00:00Z"})
    await admin.post("/maintenances", {"mode": "drain", "reason": "drain"})

    async def rejecting(name: str) -> list[str]:
        shown = (await (await api.client(name)).get("/maintenances/current"))["items"]
        return [each["reason"] for each in shown if each["rejects_changes"]]

    assert await rejecting("user") == []
    api.world.clock.advance(minutes=1)
    roles = ("user", "domain-admin", "monitor", "admin")
    assert [await rejecting(name) for name in roles] == [["disks"]] * 3 + [[]]
    request = {"name": "my-lab", "resources": {"cpu": 1, "mem": "1g"}}
    message = "read-only until 2999-01-01T00:00:00.00:00: disks"
    for send in ("/sessions", "/bulk-sessions"):
        body = request if send == "/sessions" else {"sessions": [request]}
        with pytest.raises(Unavailable, match=message):
            await user.post(send, body)
    await admin.post("/sessions", request)
    await api.world.manager.scheduling.scheduler.run_pass()
    (reason,) = (await admin.get("/sessions/my-lab"))["reasons"]
    assert reason["check"] == "maintenance"


async def test_read_only_maintenance_rejects_changes_of_users(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    start = (api.world.clock() + timedelta(minutes=1)).isoformat()
    made = await admin.post(
        "/maintenances", {"reason": "upgrade", "mode": "read-only", "starts_at": start}
    )
    await user.post("/session-templates", {"name": "before", "request": {}})
    api.world.clock.advance(minutes=1)
    with pytest.raises(Unavailable, match="read-only: upgrade"):
        await user.post("/session-templates", {"name": "during", "request": {}})
    await user.get("/session-templates")
    # Idle checkers still stop sessions, so users can still prevent it.
    for path, send in (("keep-alive", user.post), ("exclusion", user.put)):
        with pytest.raises(NotFound, match="there is no session"):
            await send(f"/sessions/lab/idle-checks/{path}", {"is_excluded": True})
    with pytest.raises(NotFound, match="there is no session"):
        await user.post("/sessions/lab/activity", {})
    for name, is_refused in (("user", True), ("admin", False)):
        await api.world.set_password(name)
        change = {"name": name, "old_password": PASSWORD, "new_password": "Another-horse-2"}
        with pytest.raises(Unavailable) if is_refused else nullcontext():
            await api.hub.post("/auth/password", change)
    deletion = {"name": "user", "password": PASSWORD, "client_ip": "192.0.2.1"}
    with pytest.raises(Unavailable):
        await api.hub.post("/auth/account-deletion", deletion)
    await admin.post("/domains", {"name": "lab"})
    await admin.delete(f"/maintenances/{made['id']}")
    await user.post("/session-templates", {"name": "after", "request": {}})


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ({"reason": ""}, InvalidRequest),
        ({"reason": "x", "scope": "group"}, InvalidRequest),
        ({"reason": "x", "target": "default"}, InvalidRequest),
        ({"reason": "x", "scope": "group", "target": "nowhere"}, NotFound),
        (
            {"reason": "x", "scope": "group", "target": "default", "mode": "read-only"},
            InvalidRequest,
        ),
        ({"reason": "x", "ends_at": "2020-01-01T00:00Z"}, InvalidRequest),
    ],
)
async def test_invalid_maintenance_is_rejected(
    api: Api, body: dict[str, str], error: type[Exception]
) -> None:
    admin = await api.client("admin")
    with pytest.raises(error):
        await admin.post("/maintenances", body)
