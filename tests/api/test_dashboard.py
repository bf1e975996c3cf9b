"""The dashboard: one response with everything that the cards of the web UI show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.api.sessions.test_sessions import wait_for_status
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

SMALL = {"cpu": "1", "mem": "1g"}


@pytest.fixture
async def user(api: Api) -> Client:
    return await api.client("user")


async def create_later(client: Client, name: str) -> None:
    """Create a session that is pending until tomorrow."""
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    body = {"name": name, "type": "batch", "startup_command": "true", "starts_at": tomorrow}
    await client.post("/sessions", {**body, "resources": SMALL})


async def test_dashboard_contains_the_responses_of_the_separate_requests(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.post("/sessions", {"name": "lab1", "resources": SMALL})
    await wait_for_status(user, "lab1", "SCHEDULED")
    # The recent sessions are ordered by creation time, so the times must differ.
    api.world.clock.advance(seconds=1)
    await create_later(user, "later")
    await create_later(await api.client("user2"), "of-other-user")
    found = await user.get("/dashboard")
    assert found["is_of_all"] is False
    assert found["counts"] == {"interactive": 0, "batch": 0, "starting": 0, "pending": 2}
    assert [one["name"] for one in found["recent"]] == ["later", "lab1"]
    assert [one["name"] for one in found["queued"]] == ["later"]
    assert found["running"] == []
    assert found["quotas"] == await user.get("/sessions/quotas")
    assert found["storage"] == (await user.get("/quota-scopes", mine="true"))["items"]
    assert (found["agent_totals"], found["agents"]) == (None, None)


async def test_superadmins_and_monitors_see_all_sessions_and_agents(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await create_later(user, "later")
    for name in ("admin", "monitor"):
        client = await api.client(name)
        found = await client.get("/dashboard")
        assert found["is_of_all"] is True
        assert [one["name"] for one in found["recent"]] == ["later"]
        assert found["queued"] == []
        assert found["agent_totals"] == await client.get("/agent-totals")
        assert found["agents"] == (await client.get("/agents"))["items"]
        # Monitors may not create sessions.
        assert (found["quotas"] is None) == (name == "monitor")


async def test_domain_admins_see_only_their_own_sessions(api: Api, user: Client) -> None:
    await create_later(user, "later")
    found = await (await api.client("domain-admin")).get("/dashboard")
    assert (found["is_of_all"], found["recent"], found["agents"]) == (False, [], None)


async def test_project_selects_recent_sessions_and_quotas(api: Api, user: Client) -> None:
    await create_later(user, "later")
    found = await user.get("/dashboard", project="default")
    assert [one["name"] for one in found["recent"]] == ["later"]
    assert found["quotas"]["project"] == "default"
    with pytest.raises(errors.BaiError):
        await user.get("/dashboard", project="no-such-project")


async def test_project_may_be_an_id(api: Api, user: Client) -> None:
    await create_later(user, "later")
    found = await user.get("/dashboard", project=await api.world.project_id())
    assert [one["name"] for one in found["recent"]] == ["later"]
    assert found["quotas"]["project"] == "default"


async def test_project_of_another_domain_with_the_same_name_is_not_selected(api: Api) -> None:
    await create_later(await api.client("acme-user"), "of-other-domain")
    admin = await api.client("admin")
    assert [one["name"] for one in (await admin.get("/dashboard"))["recent"]] == ["of-other-domain"]
    assert (await admin.get("/dashboard", project="default"))["recent"] == []
