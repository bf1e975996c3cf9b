"""`bai session commit` and `bai custom-image`: make, list, share, publish and delete images."""

from __future__ import annotations

from tests.api.cluster.test_custom_images import finish, start
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai


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
