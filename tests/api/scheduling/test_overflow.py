"""Overflow rules: pending sessions of a project move to another resource group."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import (
    AlreadyExists,
    Conflict,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
)
from bai_services.core.scheduling.overflow import MAX_RULES
from tests.api.sessions.test_sessions import wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

SIX = {"cpu": "6", "mem": "1g"}
RULE = {"project": "default/default", "from_group": "default", "to_group": "cloud"}


async def with_cloud(api: Api, **rule: Any) -> dict[str, Any]:
    """Create the resource group ``cloud`` with an agent, and a rule for it."""
    admin = await api.client("admin")
    await admin.post("/resource-groups", {"name": "cloud"})
    await FakeAgent(api.agent, "a2", "cloud").beat()
    made: dict[str, Any] = await admin.post("/overflow-rules", {**RULE, **rule})
    return made


async def fill(user: Client) -> None:
    """Start a session that leaves no room for another one in the group ``default``."""
    await user.post("/sessions", {"name": "first", "resources": SIX})
    await wait_for_status(user, "first", "SCHEDULED")


async def step(api: Api) -> None:
    """Run a scheduling pass and then a step of the overflow loop."""
    await api.world.manager.scheduling.scheduler.run_pass()
    await api.world.manager.sessions.overflow.step()


@pytest.mark.both_databases
async def test_session_moves_after_the_wait_and_starts(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    rule = await with_cloud(api, after_seconds=30)
    await fill(user)
    waiting = await user.post("/sessions", {"name": "second", "resources": SIX})
    why = await user.get("/sessions/second/why")
    moves_at = datetime.fromisoformat(waiting["created_at"]) + timedelta(seconds=30)
    (target,) = why["overflow"]
    assert (target["resource_group"], target["after_seconds"]) == ("cloud", 30)
    assert datetime.fromisoformat(target["moves_at"]) == moves_at
    api.world.clock.advance(seconds=29)
    await step(api)
    assert (await user.get("/sessions/second"))["resource_group"] == "default"
    api.world.clock.advance(seconds=1)
    await step(api)
    moved = await wait_for_status(user, "second", "SCHEDULED")
    assert moved["resource_group"] == "cloud"
    (entry,) = [
        one
        for one in (await user.get("/sessions/second/history"))["items"]
        if one["event"] == "moved"
    ]
    assert entry["reason"] == (
        "moved from resource group default to cloud after a wait of 30s; overflow rule of "
        "project default"
    )
    admin = await api.client("admin")
    (audit,) = (await admin.get("/audit-log", action="session.move"))["items"]
    assert audit["details"]["to_group"] == "cloud"
    assert rule["project"] == "default"


@pytest.mark.both_databases
async def test_concurrent_steps_move_a_session_once(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await with_cloud(api, after_seconds=0)
    await fill(user)
    await user.post("/sessions", {"name": "second", "resources": SIX})
    overflow = api.world.manager.sessions.overflow
    await asyncio.gather(*(overflow.step() for _ in range(4)))
    await wait_for_status(user, "second", "SCHEDULED")
    events = [one["event"] for one in (await user.get("/sessions/second/history"))["items"]]
    assert events == ["moved", "placed"]


async def test_session_stays_if_it_would_not_start(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await with_cloud(api, after_seconds=0)
    await fill(user)
    for name in ("second", "third"):
        await user.post("/sessions", {"name": name, "resources": SIX})
    await step(api)
    # The group `cloud` has capacity for one of the sessions.
    await wait_for_status(user, "second", "SCHEDULED")
    third = await user.get("/sessions/third")
    assert (third["status"], third["resource_group"]) == ("PENDING", "default")


async def test_only_sessions_of_the_project_whose_owner_may_use_the_group_move(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await with_cloud(api, after_seconds=0)
    admin = await api.client("admin")
    await admin.patch("/resource-groups/cloud", {"is_public": False})
    await fill(user)
    await user.post("/sessions", {"name": "second", "resources": SIX})
    assert (await user.get("/sessions/second/why"))["overflow"] == []
    await step(api)
    assert (await user.get("/sessions/second"))["resource_group"] == "default"
    await admin.put("/resource-groups/cloud/links/user/user", {})
    await step(api)
    assert (await wait_for_status(user, "second", "SCHEDULED"))["resource_group"] == "cloud"


async def test_rule_ends_when_the_engines_differ(api: Api, agent: FakeAgent, user: Client) -> None:
    admin = await api.client("admin")
    for name in ("cloud", "empty"):
        await admin.post("/resource-groups", {"name": name})
        await admin.post("/overflow-rules", {**RULE, "to_group": name, "after_seconds": 0})
    # The rule can be created while the group has no agents.
    await admin.patch("/resource-groups/cloud", {"engine": "docker"})
    await FakeAgent(api.agent, "a2", "cloud", engine="docker").beat()
    await fill(user)
    await user.post("/sessions", {"name": "second", "resources": SIX})
    targets = (await user.get("/sessions/second/why"))["overflow"]
    assert [each["resource_group"] for each in targets] == ["empty"]
    await step(api)
    assert (await user.get("/sessions/second"))["resource_group"] == "default"


async def test_session_with_designated_agents_stays(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await with_cloud(api, after_seconds=0)
    await fill(user)
    admin = await api.client("admin")
    request = {"name": "pinned", "resources": SIX, "agent_list": ["a1"], "owner": "user"}
    await admin.post("/sessions", request)
    assert (await user.get("/sessions/pinned/why"))["overflow"] == []
    await step(api)
    assert (await user.get("/sessions/pinned"))["resource_group"] == "default"


async def test_preview_names_the_targets(api: Api, agent: FakeAgent, user: Client) -> None:
    await with_cloud(api, after_seconds=120)
    await fill(user)
    preview = await user.post("/sessions/preview", {"name": "next", "resources": SIX})
    assert preview["overflow"] == [
        {"resource_group": "cloud", "after_seconds": 120, "moves_at": None}
    ]


async def test_rules_are_checked(api: Api) -> None:
    made = await with_cloud(api)
    admin = await api.client("admin")
    with pytest.raises(AlreadyExists):
        await admin.post("/overflow-rules", RULE)
    with pytest.raises(InvalidRequest, match="must differ"):
        await admin.post("/overflow-rules", {**RULE, "to_group": "default"})
    with pytest.raises(NotFound):
        await admin.post("/overflow-rules", {**RULE, "to_group": "nowhere"})
    await admin.post("/resource-groups", {"name": "docker", "engine": "docker"})
    with pytest.raises(InvalidRequest, match="both must have the same engine"):
        await admin.post("/overflow-rules", {**RULE, "to_group": "docker"})
    path = f"/overflow-rules/{made['id']}"
    changed = await admin.patch(path, {"after_seconds": 5, "version": made["version"]})
    assert (changed["after_seconds"], changed["position"]) == (5, 0)
    with pytest.raises(Conflict):
        await admin.patch(path, {"after_seconds": 6, "version": made["version"]})
    for number in range(1, MAX_RULES):
        await admin.post("/resource-groups", {"name": f"g{number}"})
        await admin.post("/overflow-rules", {**RULE, "to_group": f"g{number}"})
    await admin.post("/resource-groups", {"name": "last"})
    with pytest.raises(QuotaExceeded, match=f"at most {MAX_RULES} overflow rules"):
        await admin.post("/overflow-rules", {**RULE, "to_group": "last"})
    # The rule ends with its resource group.
    await admin.delete("/resource-groups/g1")
    listed = await admin.get("/overflow-rules", to_group="g1")
    assert listed["items"] == []
