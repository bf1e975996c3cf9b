"""Custom images over REST: commits, quotas, visibility and permissions."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    InUse,
    InvalidRequest,
    InvalidTransition,
    NotFound,
    QuotaExceeded,
)
from bai_services.db.cluster.custom_images import CustomImageStore
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

pytestmark = pytest.mark.both_databases


async def start(api: Api, agent: FakeAgent, name: str, user: str = "user") -> dict[str, Any]:
    """Create a session and bring it to RUNNING; return it."""
    client = await api.client(user)
    await client.post("/sessions", {"name": name, "resources": {"cpu": "1", "mem": "1g"}})
    await api.world.manager.scheduling.scheduler.run_pass()
    item = await agent.prepare()
    session = await client.get(
        f"/sessions/{name}", wait="PREPARED", timeout="60", timeout_seconds=70
    )
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    await api.hub.post(f"/sessions/{session['id']}/launch", where)
    await api.hub.post(f"/sessions/{session['id']}/started", {"container_id": "c1"})
    await agent.beat([agent.running(item)])
    running: dict[str, Any] = await client.get(
        f"/sessions/{name}", wait="RUNNING", timeout="60", timeout_seconds=70
    )
    return running


async def finish(agent: FakeAgent, work_id: str) -> None:
    """Report a commit as done."""
    body = {"work_id": work_id, "kind": "commit", "state": "done"}
    image = {"digest": "sha256:a", "size_bytes": 7}
    await agent.client.post(f"/agents/{agent.id}/reports", {**body, "image": image})


async def commit(
    api: Api, agent: FakeAgent, name: str, user: str = "user", session: str = "my-lab", **spec: Any
) -> dict[str, Any]:
    """Commit a session completely; return the custom image."""
    client = await api.client(user)
    made = await client.post(f"/sessions/{session}/commit", {"name": name, **spec})
    (item,) = await agent.work(10)
    await finish(agent, item["id"])
    done: dict[str, Any] = await client.get(f"/custom-images/{made['id']}")
    assert done["status"] == "done"
    return done


@pytest.fixture
async def agent(api: Api) -> FakeAgent:
    made = FakeAgent(api.agent)
    await made.beat()
    return made


@pytest.mark.checklist("COM-03")
async def test_a_running_session_becomes_an_image_of_its_owner(api: Api, agent: FakeAgent) -> None:
    session = await start(api, agent, "my-lab")
    user, admin = await api.client("user"), await api.client("admin")
    made = await user.post("/sessions/my-lab/commit", {"name": "My-tools", "labels": {"team": "a"}})
    assert (made["status"], made["owner"], made["visibility"]) == ("pending", "user", "private")
    assert made["image"] == f"localhost/custom/user/my-tools:{made['id'][:8]}"
    (item,) = await agent.work()
    assert (item["session_id"], item["image"]) == (session["id"], made["image"])
    assert (item["is_pushed"], item["max_bytes"]) == (False, 20 * 2**30)
    assert item["labels"]["ai.backend.customized-image.owner"] == "user"
    report = {"work_id": item["id"], "kind": "commit", "state": "progress"}
    for stage, status in (("commit", "committing"), ("push", "pushing")):
        body = {**report, "progress": {"stage": stage, "percent": 40}}
        await agent.client.post(f"/agents/{agent.id}/reports", body)
        shown = await user.get(f"/custom-images/{made['id']}")
        assert (shown["status"], shown["percent"]) == (status, 40)
    await finish(agent, item["id"])
    assert await agent.work() == []
    done = await user.get(f"/custom-images/{made['id']}")
    assert (done["status"], done["size_bytes"], done["digest"]) == ("done", 7, "sha256:a")
    image = await user.get(f"/images/{done['image_id']}")
    assert (image["name"], image["labels"]["team"]) == (made["image"], "a")
    (entry,) = (await admin.get("/audit-log", action="session.commit"))["items"]
    assert entry["details"]["image"] == made["image"]
    again = {"name": "again", "image": made["image"], "resources": {"cpu": "1", "mem": "1g"}}
    assert (await user.post("/sessions", again))["image"] == made["image"]
    with pytest.raises(InUse):
        await user.delete(f"/custom-images/{made['id']}")


async def test_a_failure_is_shown_and_the_name_can_be_used_again(
    api: Api, agent: FakeAgent
) -> None:
    await start(api, agent, "my-lab")
    user = await api.client("user")
    made = await user.post("/sessions/my-lab/commit", {"name": "tools"})
    (item,) = await agent.work()
    body = {"work_id": item["id"], "kind": "commit", "state": "failed"}
    error = {"code": "conflict", "message": "too large"}
    await agent.client.post(f"/agents/{agent.id}/reports", {**body, "error": error})
    shown = await user.get(f"/custom-images/{made['id']}")
    assert (shown["status"], shown["message"], shown["image_id"]) == ("failed", "too large", None)
    assert (await commit(api, agent, "tools"))["name"] == "tools"
    assert len((await user.get("/custom-images"))["items"]) == 2


async def test_reports_of_a_cancelled_commit_are_rejected(api: Api, agent: FakeAgent) -> None:
    await start(api, agent, "my-lab")
    user = await api.client("user")
    made = await user.post("/sessions/my-lab/commit", {"name": "tools"})
    (item,) = await agent.work()
    with pytest.raises(Conflict, match="already"):
        await user.post("/sessions/my-lab/commit", {"name": "other"})
    with pytest.raises(Conflict, match="being committed"):
        await user.delete(f"/custom-images/{made['id']}")
    await user.post(f"/custom-images/{made['id']}/cancel")
    body = {"work_id": item["id"], "kind": "commit", "state": "progress"}
    with pytest.raises(NotFound):
        await agent.client.post(f"/agents/{agent.id}/reports", body)
    with pytest.raises(InvalidTransition):
        await user.post(f"/custom-images/{made['id']}/cancel")


async def test_agents_remove_images_of_deleted_custom_images_and_cancelled_commits(
    api: Api, agent: FakeAgent
) -> None:
    service = api.world.manager.cluster.custom_images
    service.discard_seconds = 0.0
    await start(api, agent, "my-lab")
    user = await api.client("user")
    left = await commit(api, agent, "left")
    cancelled = await user.post("/sessions/my-lab/commit", {"name": "stopped"})
    done = await commit_next(api, agent, "tools", cancelled)
    # An image of a commit that is not in the database must remain: after the restoration of a
    # backup, the database may lack a commit.
    unknown = f"{done['image'].partition(':')[0]}:0123abcd"
    await agent.beat(images=[left["image"], cancelled["image"], done["image"], unknown])
    await user.delete(f"/custom-images/{left['id']}")
    items = await agent.work()
    assert {(item["kind"], item["image"]) for item in items} == {
        ("discard", left["image"]),
        ("discard", cancelled["image"]),
    }
    await agent.beat(images=[done["image"], unknown])
    assert await agent.work() == []
    # When an administrator deletes the registered image, the agent must remove it.
    await (await api.client("admin")).delete(f"/images/{done['image_id']}")
    assert [item["image"] for item in await agent.work()] == [done["image"]]


async def commit_next(
    api: Api, agent: FakeAgent, name: str, former: dict[str, Any]
) -> dict[str, Any]:
    """Cancel a commit whose agent has made the image, and commit the session again."""
    client = await api.client("user")
    (item,) = await agent.work(10)
    await client.post(f"/custom-images/{former['id']}/cancel")
    with pytest.raises(NotFound):
        await finish(agent, item["id"])
    return await commit(api, agent, name)


@pytest.mark.checklist("COM-02")
async def test_a_session_that_is_committed_is_stopped_only_by_force(
    api: Api, agent: FakeAgent
) -> None:
    await start(api, agent, "my-lab")
    user = await api.client("user")
    await user.post("/sessions/my-lab/commit", {"name": "tools"})
    with pytest.raises(Conflict, match="being committed"):
        await user.delete("/sessions/my-lab")
    assert (await user.delete("/sessions/my-lab", force="true"))["status"] == "TERMINATING"


@pytest.mark.checklist("COM-03")
async def test_policies_limit_the_number_of_custom_images(api: Api, agent: FakeAgent) -> None:
    await start(api, agent, "my-lab")
    admin, user = await api.client("admin"), await api.client("user")
    await admin.patch("/user-policies/default", {"max_custom_images": 1})
    first = await commit(api, agent, "first")
    with pytest.raises(QuotaExceeded, match="you may have at most 1 custom image"):
        await user.post("/sessions/my-lab/commit", {"name": "second"})
    await admin.patch("/user-policies/default", {"max_custom_images": None})
    await admin.patch("/project-policies/default", {"max_custom_images": 1})
    with pytest.raises(QuotaExceeded, match="the project may have at most 1"):
        await user.post("/sessions/my-lab/commit", {"name": "second"})
    await user.delete(f"/custom-images/{first['id']}")
    assert (await commit(api, agent, "second"))["name"] == "second"


@pytest.mark.parametrize("spec", [{"name": "abc"}, {"name": "a" * 33}, {"name": "a b c d"}])
async def test_invalid_names_are_rejected(api: Api, agent: FakeAgent, spec: Any) -> None:
    await start(api, agent, "my-lab")
    with pytest.raises(InvalidRequest, match="name"):
        await (await api.client("user")).post("/sessions/my-lab/commit", spec)


async def test_labels_of_the_platform_are_rejected(api: Api, agent: FakeAgent) -> None:
    await start(api, agent, "my-lab")
    body = {"name": "tools", "labels": {"ai.backend.role": "SYSTEM"}}
    with pytest.raises(InvalidRequest, match="belong to the platform"):
        await (await api.client("user")).post("/sessions/my-lab/commit", body)


async def sees(client: Client, made: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Return whether a user finds a custom image in the three lists and can start it."""
    listed = {each["id"] for each in (await client.get("/custom-images"))["items"]}
    images = {each["name"] for each in (await client.get("/images", limit="500"))["items"]}
    body = {"name": "try-it", "image": made["image"], "resources": {"cpu": "1", "mem": "1g"}}
    try:
        await client.post("/sessions", body)
        can_start = True
        await client.delete("/sessions/try-it")
    except (InvalidRequest, NotFound):
        can_start = False
    return made["id"] in listed, made["image"] in images, can_start


@pytest.mark.checklist("ENV-03")
async def test_others_see_an_image_only_when_it_is_shared(api: Api, agent: FakeAgent) -> None:
    await start(api, agent, "my-lab")
    made = await commit(api, agent, "tools")
    user, other = await api.client("user"), await api.client("user2")
    foreign, admin = await api.client("acme-user"), await api.client("admin")
    path = f"/custom-images/{made['id']}"
    nothing, everything = (False, False, False), (True, True, True)
    assert await sees(user, made) == everything
    assert await sees(other, made) == nothing
    with pytest.raises(NotFound):
        await other.get(path)
    with pytest.raises(NotFound):
        await other.get(f"/images/{made['image_id']}")

    await user.patch(path, {"visibility": "project"})
    assert await sees(other, made) == everything
    assert await sees(foreign, made) == nothing
    for request in (other.patch(path, {"name": "mine"}), other.delete(path)):
        with pytest.raises(NotFound):
            await request
    with pytest.raises(Forbidden, match="publish"):
        await user.patch(path, {"visibility": "public"})

    assert (await user.post(f"{path}/publication-request"))["is_publish_requested"]
    published = await admin.patch(path, {"visibility": "public"})
    assert not published["is_publish_requested"]
    assert await sees(foreign, made) == everything
    await user.patch(path, {"name": "renamed", "description": "for all"})
    assert (await foreign.get(path))["name"] == "renamed"


async def test_a_former_member_does_not_share_an_image_with_the_project(
    api: Api, agent: FakeAgent
) -> None:
    await start(api, agent, "my-lab")
    made = await commit(api, agent, "tools")
    user, other, admin = [await api.client(name) for name in ("user", "user2", "domain-admin")]
    path = f"/custom-images/{made['id']}"
    await admin.delete("/projects/default/members/user")
    with pytest.raises(Forbidden, match="not a member"):
        await user.patch(path, {"visibility": "project"})
    with pytest.raises(Forbidden, match="not a member"):
        await user.post("/sessions/my-lab/commit", {"name": "more", "visibility": "project"})
    assert await sees(other, made) == (False, False, False)
    await user.patch(path, {"name": "renamed", "visibility": "private"})
    await admin.patch(path, {"visibility": "project"})
    assert await sees(other, made) == (True, True, True)


async def test_an_owner_does_not_publish_again_what_an_administrator_withdraws(
    api: Api, agent: FakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    await start(api, agent, "my-lab")
    made = await commit(api, agent, "tools")
    user, admin = await api.client("user"), await api.client("admin")
    path = f"/custom-images/{made['id']}"
    await admin.patch(path, {"visibility": "public"})
    update = CustomImageStore.update

    async def withdrawn(*args: Any) -> Any:
        """Withdraw the publication after the owner's request has read the image."""
        monkeypatch.setattr(CustomImageStore, "update", update)
        await admin.patch(path, {"visibility": "private"})
        return await update(*args)

    monkeypatch.setattr(CustomImageStore, "update", withdrawn)
    shown = await user.patch(path, {"visibility": "public"})
    assert shown["visibility"] == "private"


async def test_names_of_a_user_are_unique(api: Api, agent: FakeAgent) -> None:
    await start(api, agent, "my-lab")
    await commit(api, agent, "first")
    second = await commit(api, agent, "second")
    user = await api.client("user")
    with pytest.raises(AlreadyExists):
        await user.post("/sessions/my-lab/commit", {"name": "first"})
    with pytest.raises(AlreadyExists):
        await user.patch(f"/custom-images/{second['id']}", {"name": "first"})


async def test_nobody_commits_or_changes_what_a_higher_role_owns(
    api: Api, agent: FakeAgent
) -> None:
    session = await start(api, agent, "my-lab", user="admin")
    domain_admin = await api.client("domain-admin")
    with pytest.raises(NotFound):
        await domain_admin.post(f"/sessions/{session['id']}/commit", {"name": "tools"})
    made = await commit(api, agent, "tools", user="admin")
    with pytest.raises(NotFound):
        await domain_admin.delete(f"/custom-images/{made['id']}")


async def test_a_commit_of_a_pending_session_is_rejected(api: Api) -> None:
    user = await api.client("user")
    await user.post("/sessions", {"name": "my-lab", "resources": {"cpu": "1", "mem": "1g"}})
    with pytest.raises(Conflict, match="only running sessions"):
        await user.post("/sessions/my-lab/commit", {"name": "tools"})


async def test_a_commit_of_a_lost_session_fails(api: Api, agent: FakeAgent) -> None:
    session = await start(api, agent, "my-lab")
    user, service = await api.client("user"), api.world.manager.cluster.custom_images
    made = await user.post("/sessions/my-lab/commit", {"name": "tools"})
    end = {"exit_code": 0, "reason": "exited"}
    await api.hub.post(f"/sessions/{session['id']}/exited", end)
    assert (await user.get("/sessions/my-lab"))["status"] == "TERMINATED"
    api.world.clock.advance(minutes=11)
    await agent.beat([])
    service.forget()
    await agent.work()
    shown = await user.get(f"/custom-images/{made['id']}")
    assert (shown["status"], "ended before" in shown["message"]) == ("failed", True)


async def test_a_project_with_custom_images_cannot_be_deleted(api: Api, agent: FakeAgent) -> None:
    await start(api, agent, "my-lab")
    made = await commit(api, agent, "tools")
    admin = await api.client("admin")
    with pytest.raises(InUse, match="1 custom image"):
        await admin.delete(f"/projects/{made['project_id']}")
    assert (await admin.get(f"/custom-images/{made['id']}"))["status"] == "done"
