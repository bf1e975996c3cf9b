"""`bai session commit` and `bai custom-image`: make, list, share, publish and delete images."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bai_services.manager.manager import Manager
from tests.api.cluster.test_custom_images import finish, start
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, manager_on

from .conftest import Bai


@pytest.fixture
async def manager(database_url: str, tmp_path: Path, clock: MovableClock) -> AsyncIterator[Manager]:
    options = {"builds_recipes": True}
    async with manager_on(database_url, tmp_path, clock, is_migrated=True, **options) as made:
        yield made


async def test_a_commit_is_listed_shared_published_and_deleted(bai: Bai, api: Api) -> None:
    agent = FakeAgent(api.agent)
    await agent.beat()
    await start(api, agent, "my-lab")
    begun = await bai("session", "commit", "my-lab", "tools", by="user")
    assert "the commit of my-lab has begun" in begun.stdout + begun.stderr
    (item,) = await agent.work()
    await finish(agent, item["id"])

    listed = (await bai("custom-image", "list", "--json", by="user")).document
    (made,) = listed["items"]
    assert (made["name"], made["status"], made["visibility"]) == ("tools", "done", "private")
    nothing = await bai("custom-image", "list", by="user2")
    assert "no custom images" in nothing.stdout + nothing.stderr

    key = made["id"]
    options = ("--name", "our-tools", "--visibility", "project", "--json")
    changed = (await bai("custom-image", "update", key, *options, by="user")).document
    assert (changed["name"], changed["visibility"]) == ("our-tools", "project")
    (shared,) = (await bai("custom-image", "list", "--json", by="user2")).document["items"]
    assert shared["id"] == key

    refused = await bai("custom-image", "update", key, "--visibility", "public", by="user")
    assert refused.code != 0
    assert "publish" in refused.stderr
    requested = await bai("custom-image", "request-publication", key, "--json", by="user")
    assert requested.document["is_publish_requested"] is True
    published = await bai("custom-image", "update", key, "--visibility", "public", "--json")
    assert published.document["visibility"] == "public"

    foreign = await bai("custom-image", "delete", key, by="user2")
    assert foreign.code != 0
    await bai("custom-image", "delete", key, "--json", by="user")
    assert (await bai("custom-image", "list", "--json", by="user")).document["items"] == []


async def test_a_commit_is_cancelled(bai: Bai, api: Api) -> None:
    agent = FakeAgent(api.agent)
    await agent.beat()
    await start(api, agent, "my-lab")
    begun = await bai("session", "commit", "my-lab", "tools", "--json", by="user")
    cancelled = await bai("custom-image", "cancel", begun.document["id"], "--json", by="user")
    assert cancelled.document["status"] == "cancelled"
    assert await agent.work() == []
    again = await bai("custom-image", "cancel", begun.document["id"], by="user")
    assert again.code != 0


async def test_a_recipe_is_built_from_a_directory(bai: Bai, api: Api, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "other.txt").write_text("not sent")
    empty = await bai("custom-image", "build", "tools", str(recipe), by="user")
    assert empty.code != 0 and "has none of the files" in empty.stderr
    (recipe / "Dockerfile").write_text("ADD http://10.0.0.1/ /x\n")
    hostile = await bai("custom-image", "build", "tools", str(recipe), by="user")
    assert hostile.code != 0 and "Dockerfile, line 1: ADD is not allowed" in hostile.stderr
    (recipe / "Dockerfile").write_text("RUN true\n")
    options = ("-r", "cpu=1", "-r", "mem=1g", "--json")
    made = (await bai("custom-image", "build", "tools", str(recipe), *options, by="user")).document
    assert (made["status"], made["is_built"]) == ("pending", True)
    assert (await bai("session", "info", made["session_id"], "--json", by="user")).document["type"]
    log = await bai("custom-image", "log", made["id"], "--json", by="user")
    assert log.document == {"log": ""}
    cancelled = await bai("custom-image", "cancel", made["id"], "--json", by="user")
    assert cancelled.document["status"] == "cancelled"
