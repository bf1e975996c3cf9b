"""Pulls of images to agents over REST."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, make_world, manager_on, serving

NAME = "registry.example.org/team/py:1"


async def docker_agent(api: Api, agent_id: str = "d1", **images: str) -> FakeAgent:
    agent = FakeAgent(api.agent, agent_id, engine="docker", endpoint="unix:///x")
    await report_images(agent, images)
    return agent


async def report_images(agent: FakeAgent, images: dict[str, str]) -> None:
    await agent.beat(images=list(images), facts={"image_digests": images})


async def register(api: Api, **fields: Any) -> Client:
    admin = await api.client("admin")
    await admin.post("/images", {"name": NAME, "labels": {}, **fields})
    return admin


async def pulls(admin: Client) -> list[tuple[str, str, Any, str]]:
    items = (await admin.get("/image-pulls", sort="agent_id"))["items"]
    return [(i["agent_id"], i["status"], i["percent"], i["message"]) for i in items]


@pytest.mark.both_databases
async def test_many_pulls_are_created_with_few_statements(api: Api) -> None:
    """Pulls are stored with few statements; with one per pull, other changes would wait."""
    admin = await register(api)
    agents = [await docker_agent(api, f"d{number}") for number in range(8)]
    request = {"images": [NAME], "resource_group": "default"}
    statements: list[str] = []

    def count(_connection: Any, _cursor: Any, statement: str, *_args: Any) -> None:
        if "image_pulls" in statement:
            statements.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    try:
        assert await admin.post("/image-pulls", request) == {"count": 8}
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", count)
    assert len(statements) < 8
    (item,) = await agents[3].work()
    body = {"work_id": item["id"], "kind": "pull", "state": "failed", "error": {}}
    await agents[3].client.post("/agents/d3/reports", body)
    await admin.post("/image-pulls", request)
    found = await pulls(admin)
    assert [each[:2] for each in found] == [(f"d{number}", "pending") for number in range(8)]


@pytest.mark.checklist("IMG-03")
async def test_agents_that_lack_an_image_pull_it_and_report_progress(api: Api) -> None:
    admin = await register(api)
    agent, other = (
        await docker_agent(api, "d1"),
        await docker_agent(api, "d2", **{NAME: "sha256:a"}),
    )
    assert await admin.post("/image-pulls", {"images": [NAME], "resource_group": "default"}) == {
        "count": 1
    }
    assert await other.work() == []
    (item,) = await agent.work()
    assert (item["kind"], item["image"], item["digest"]) == ("pull", NAME, "")
    body = {"work_id": item["id"], "kind": "pull"}
    report = f"/agents/{agent.id}/reports"
    await agent.client.post(report, {**body, "state": "progress", "progress": {"percent": 40}})
    assert await pulls(admin) == [("d1", "pulling", 40, "")]
    image = {"digest": "sha256:a", "registry_digest": "sha256:a", "size_bytes": 7}
    await agent.client.post(report, {**body, "state": "done", "image": image})
    assert await pulls(admin) == [("d1", "done", 100, "")]
    assert await agent.work() == []
    # The digest of the first pull becomes the registered version.
    stored = await admin.get(f"/images/{NAME.replace('/', '%2F')}")
    assert (stored["digest"], stored["registry_digest"], stored["size_bytes"]) == (
        "sha256:a",
        "sha256:a",
        7,
    )
    await report_images(agent, {NAME: "sha256:a"})
    again = await admin.post("/image-pulls", {"images": [NAME], "resource_group": "default"})
    assert again == {"count": 0}


async def test_a_changed_tag_is_noticed_and_pulled_only_after_its_digest_is_registered(
    api: Api,
) -> None:
    admin = await register(api, digest="sha256:a")
    agent = await docker_agent(api)
    request = {"images": [NAME], "resource_group": "default"}
    await admin.post("/image-pulls", request)
    (item,) = await agent.work()
    assert item["digest"] == "sha256:a"
    image = {"digest": "sha256:a", "registry_digest": "sha256:b", "size_bytes": 1}
    body = {"work_id": item["id"], "kind": "pull", "state": "done", "image": image}
    await agent.client.post(f"/agents/{agent.id}/reports", body)
    await report_images(agent, {NAME: "sha256:a"})
    path = f"/images/{NAME.replace('/', '%2F')}"
    stored = await admin.get(path)
    assert (stored["digest"], stored["registry_digest"]) == ("sha256:a", "sha256:b")
    await admin.patch(path, {"digest": "sha256:b"})
    (found,) = (await admin.get(f"{path}/agents"))["items"]
    assert (found["agent_id"], found["digest"], found["is_current"]) == ("d1", "sha256:a", False)
    assert await admin.post("/image-pulls", request) == {"count": 1}


async def test_a_cancelled_pull_is_rejected_at_its_next_report(api: Api) -> None:
    admin = await register(api)
    agent = await docker_agent(api)
    await admin.post("/image-pulls", {"images": [NAME], "resource_group": "default"})
    (item,) = await agent.work()
    await admin.delete(f"/image-pulls/{item['id'].removeprefix('pull-')}")
    body = {"work_id": item["id"], "kind": "pull", "state": "progress"}
    with pytest.raises(errors.NotFound):
        await agent.client.post(f"/agents/{agent.id}/reports", body)
    assert await pulls(admin) == [("d1", "cancelled", None, "")]
    assert await agent.work() == []


async def test_a_failed_pull_has_a_reason_and_can_be_repeated(api: Api) -> None:
    admin = await register(api)
    agent = await docker_agent(api)
    request = {"images": [NAME], "resource_group": "default"}
    await admin.post("/image-pulls", request)
    (item,) = await agent.work()
    error = {"code": "not-found", "message": "cannot be pulled: denied"}
    body = {"work_id": item["id"], "kind": "pull", "state": "failed", "error": error}
    await agent.client.post(f"/agents/{agent.id}/reports", body)
    assert await pulls(admin) == [("d1", "failed", None, "cannot be pulled: denied")]
    assert await admin.post("/image-pulls", request) == {"count": 1}
    assert await pulls(admin) == [("d1", "pending", None, "")]


async def test_a_group_without_a_suitable_agent_is_rejected(api: Api, agent: FakeAgent) -> None:
    admin = await register(api)
    with pytest.raises(errors.InvalidRequest, match="no Docker agent"):
        await admin.post("/image-pulls", {"images": [NAME], "resource_group": "default"})


@pytest.mark.checklist("IMG-06", "LCH-09")
async def test_the_installation_decides_whether_absent_images_are_offered(tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/bai.sqlite"
    clock = MovableClock()
    async with (
        manager_on(url, tmp_path, clock, shows_absent_images=False) as manager,
        serving(await make_world(manager, clock)) as api,
    ):
        admin, user = await register(api), await api.client("user")
        await admin.patch("/resource-groups/default", {"engine": "docker"})
        agent = await docker_agent(api)

        async def offered() -> list[str]:
            options = await user.get("/sessions/options", resource_group="default")
            return [image["name"] for image in options["images"]]

        assert NAME not in await offered()
        await report_images(agent, {NAME: ""})
        assert await offered() == [NAME]
