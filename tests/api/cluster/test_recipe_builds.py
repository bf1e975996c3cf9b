"""Builds of recipes over REST: the session that reserves resources, results and permissions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bai_services.core.errors import (
    AlreadyExists,
    Forbidden,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
)
from bai_services.manager.manager import Manager
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock, manager_on
from tests.testbed.wait import wait_until_async

pytestmark = pytest.mark.both_databases

RECIPE = {"requirements.txt": "six==1.16.0\n"}
SPEC: dict[str, Any] = {
    "name": "my-tools",
    "recipe": RECIPE,
    "resources": {"cpu": "1", "mem": "1g"},
}


@pytest.fixture
def builds_recipes() -> bool:
    """Whether the manager builds recipes; tests override it with ``parametrize``."""
    return True


@pytest.fixture
async def manager(
    database_url: str, tmp_path: Path, clock: MovableClock, builds_recipes: bool
) -> AsyncIterator[Manager]:
    settings = {"builds_recipes": builds_recipes}
    async with manager_on(database_url, tmp_path, clock, is_migrated=True, **settings) as made:
        yield made


async def run(api: Api, agent: FakeAgent) -> dict[str, Any]:
    """Start the session of the only build; return the work item of the build."""
    await agent.beat()
    await api.world.manager.scheduling.scheduler.run_pass()
    item = await agent.prepare()
    client = await api.client("user")
    key = item["session_id"]
    session = await client.get(
        f"/sessions/{key}", wait="PREPARED", timeout="60", timeout_seconds=70
    )
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    await api.hub.post(f"/sessions/{key}/launch", where)
    await api.hub.post(f"/sessions/{key}/started", {"container_id": "c1"})
    await agent.beat([agent.running(item)])
    await client.get(f"/sessions/{key}", wait="RUNNING", timeout="60", timeout_seconds=70)
    (build,) = await wait_until_async(lambda: agent.work(5), 60, "the build")
    assert build["kind"] == "commit"
    return build


async def report(agent: FakeAgent, item: dict[str, Any], state: str, **facts: Any) -> None:
    body = {"work_id": item["id"], "kind": "commit", "state": state, **facts}
    await agent.client.post(f"/agents/{agent.id}/reports", body)


async def test_a_recipe_is_built_in_a_batch_session(api: Api) -> None:
    user, agent = await api.client("user"), FakeAgent(api.agent)
    made = await user.post("/custom-images", SPEC)
    assert (made["status"], made["is_built"], made["agent_id"]) == ("pending", True, "")
    session = await user.get(f"/sessions/{made['session_id']}")
    assert (session["type"], session["status"], session["mounts"]) == ("batch", "PENDING", [])
    item = await run(api, agent)
    assert (item["recipe"], item["session_id"]) == (RECIPE, session["id"])

    progress = {"stage": "build", "percent": 30}
    await report(agent, item, "progress", progress=progress, log="Step 1/3\n")
    shown = await user.get(f"/custom-images/{made['id']}")
    assert (shown["status"], shown["percent"]) == ("building", 30)
    assert await user.get(f"/custom-images/{made['id']}/log") == {"log": "Step 1/3\n"}
    facts = {"digest": "", "size_bytes": 7}
    await report(agent, item, "done", image=facts, log="Step 1/3\nStep 2/3\n")
    done = await user.get(f"/custom-images/{made['id']}")
    assert (done["status"], done["architecture"]) == ("done", "x86_64")
    assert (await user.get(f"/custom-images/{made['id']}/log"))["log"].endswith("2/3\n")
    session = await user.get(f"/sessions/{made['session_id']}")
    assert session["status"] == "TERMINATING"
    history = await user.get(f"/sessions/{made['session_id']}/history")
    assert history["items"][-1]["reason"] == "the build of custom image my-tools has ended"
    image = await user.get(f"/images/{done['image_id']}")
    assert image["name"] == made["image"]


async def test_a_failed_build_shows_the_reason_and_ends_its_session(api: Api) -> None:
    user, agent = await api.client("user"), FakeAgent(api.agent)
    made = await user.post("/custom-images", SPEC)
    item = await run(api, agent)
    error = {"code": "conflict", "message": "the build failed: exit code 1"}
    await report(agent, item, "failed", error=error, log="no such package\n")
    failed = await user.get(f"/custom-images/{made['id']}")
    assert (failed["status"], failed["message"]) == ("failed", "the build failed: exit code 1")
    assert (await user.get(f"/custom-images/{made['id']}/log"))["log"] == "no such package\n"
    assert (await user.get(f"/sessions/{made['session_id']}"))["status"] == "TERMINATING"
    # The name can be used again.
    await user.delete(f"/custom-images/{made['id']}")
    await user.post("/custom-images", SPEC)


async def test_a_stopped_session_fails_its_build(api: Api) -> None:
    user, agent = await api.client("user"), FakeAgent(api.agent)
    await agent.beat()
    made = await user.post("/custom-images", SPEC)
    await user.delete(f"/sessions/{made['session_id']}")
    assert await agent.work() == []
    failed = await user.get(f"/custom-images/{made['id']}")
    assert failed["status"] == "failed"
    assert failed["message"] == "the session of the build ended before the image was complete"


async def test_a_cancelled_build_ends_its_session(api: Api) -> None:
    user = await api.client("user")
    made = await user.post("/custom-images", SPEC)
    cancelled = await user.post(f"/custom-images/{made['id']}/cancel")
    assert cancelled["status"] == "cancelled"
    assert (await user.get(f"/sessions/{made['session_id']}"))["status"] == "CANCELLED"


async def test_refused_builds_leave_no_session(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await user.post("/custom-images", SPEC)
    sessions = (await user.get("/sessions"))["total"]
    with pytest.raises(AlreadyExists):
        await user.post("/custom-images", SPEC)
    with pytest.raises(Forbidden):
        await user.post("/custom-images", {**SPEC, "name": "public", "visibility": "public"})
    for recipe in ({"Dockerfile": "ADD http://10.0.0.1/ /x"}, {"setup.py": ""}):
        with pytest.raises(InvalidRequest):
            await user.post("/custom-images", {**SPEC, "name": "other", "recipe": recipe})
    await admin.patch("/user-policies/default", {"max_custom_images": 1})
    with pytest.raises(QuotaExceeded, match="you may have at most 1 custom image"):
        await user.post("/custom-images", {**SPEC, "name": "other"})
    live = await user.get("/sessions", status__in="PENDING,SCHEDULED,PREPARING,RUNNING")
    assert live["total"] == sessions == 1


async def test_outputs_of_others_are_not_shown(api: Api) -> None:
    made = await (await api.client("user")).post("/custom-images", SPEC)
    other = await api.client("user2")
    with pytest.raises(NotFound):
        await other.get(f"/custom-images/{made['id']}/log")


@pytest.mark.parametrize("builds_recipes", [False])
async def test_recipes_are_built_only_where_the_installation_allows_it(api: Api) -> None:
    user = await api.client("user")
    with pytest.raises(Forbidden, match="does not build images from recipes"):
        await user.post("/custom-images", SPEC)
    assert (await user.get("/sessions"))["total"] == 0
