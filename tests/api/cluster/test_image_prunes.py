"""Removal of unused images from agents over REST."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from tests.api.cluster.test_image_pulls import docker_agent
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

DAY = 24 * 3600
OLD, USED, PINNED = (f"registry.example.org/team/{name}:1" for name in ("old", "used", "pinned"))


async def answer(agent: FakeAgent, *images: dict[str, Any], state: str = "done") -> dict[str, Any]:
    """As an agent, receive a request to prune images and report images; return the request."""
    (item,) = [each for each in await agent.work(20) if each["kind"] == "prune"]
    body = {"work_id": item["id"], "kind": "prune", "state": state, "pruned": list(images)}
    await agent.client.post(f"/agents/{agent.id}/reports", body)
    return item


@pytest.mark.both_databases
async def test_unused_images_are_listed_and_removed(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    for name in (USED, PINNED):
        await admin.post("/images", {"name": name, "labels": {}})
    agent = await docker_agent(api, "d1", **dict.fromkeys((OLD, USED, PINNED), "sha256:a"))
    await FakeAgent(api.agent, "p1").beat()  # must not be asked
    await user.post("/sessions", {"name": "waits", "image": USED})
    await admin.post("/image-aliases", {"alias": "pinned", "image": PINNED})

    spec: dict[str, Any] = {"resource_group": "default", "unused_seconds": 30 * DAY}
    unused = {"image": OLD, "size_bytes": 7, "last_used": 1_700_000_000.5}
    for is_dry_run in (True, False):
        report, item = await asyncio.gather(
            admin.post("/image-prunes", {**spec, "is_dry_run": is_dry_run}),
            answer(agent, {**unused, "is_removed": not is_dry_run}),
        )
        assert item["keep"] == [PINNED, USED]
        assert (item["unused_seconds"], item["is_dry_run"]) == (30 * DAY, is_dry_run)
        (image,) = report["images"]
        assert (image["agent_id"], image["image"], image["size_bytes"]) == ("d1", OLD, 7)
        assert image["last_used_at"].startswith("2023-11-14T22:13:20")
        assert image["is_removed"] is not is_dry_run
        assert (report["is_dry_run"], report["silent_agents"]) == (is_dry_run, [])
        assert await agent.work() == []
    entries = (await admin.get("/audit-log", action="image.prune"))["items"]
    assert {entry["details"]["is_dry_run"] for entry in entries} == {True, False}


async def test_agents_without_a_report_are_named(api: Api) -> None:
    admin = await api.client("admin")
    api.world.manager.cluster.image_prunes.report_seconds = 0.1
    failing = await docker_agent(api, "d1", **{OLD: ""})
    silent = await docker_agent(api, "d2", **{OLD: ""})
    spec = {"resource_group": "default", "unused_seconds": DAY}
    report, _ = await asyncio.gather(
        admin.post("/image-prunes", spec), answer(failing, state="failed")
    )
    assert report == {"is_dry_run": True, "images": [], "silent_agents": ["d1", "d2"]}
    # The request has failed, because the agent did not receive it in time. The agent still gets it.
    assert [item["kind"] for item in await silent.work()] == ["prune"]


async def test_only_superadmins_remove_images_and_the_time_is_bounded(api: Api) -> None:
    admin, user = await api.client("admin"), await api.client("user")
    spec = {"resource_group": "default", "unused_seconds": DAY}
    with pytest.raises(Forbidden):
        await user.post("/image-prunes", spec)
    with pytest.raises(NotFound):
        await admin.post("/image-prunes", {**spec, "resource_group": "nothing"})
    with pytest.raises(InvalidRequest):
        await admin.post("/image-prunes", {**spec, "unused_seconds": 60})
