"""Pipelines that belong to a project: administrators define them, members run them."""

from __future__ import annotations

from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import AlreadyExists, BaiError, Forbidden, NotFound
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .test_pipelines import APPROVAL, text_of, wait_for_session, wait_for_tasks


@pytest.fixture
async def admin(api: Api, agent: FakeAgent) -> Client:
    """A superadmin and the project ``vision``, with ``user`` as its only member."""
    admin = await api.client("admin")
    await admin.post("/projects", {"name": "vision", "domain": "default"})
    await admin.put("/projects/vision/members/user", {})
    return admin


def body_of(name: str, tasks: str = APPROVAL) -> dict[str, Any]:
    return {"definition": text_of(name, tasks), "project": "vision", "is_project_owned": True}


@pytest.mark.checklist("PIP-05")
@pytest.mark.both_databases
async def test_members_run_and_administrators_define(api: Api, admin: Client, user: Client) -> None:
    with pytest.raises(Forbidden):
        await user.post("/pipelines", body_of("shared"))
    made = await admin.post("/pipelines", body_of("shared"))
    assert (made["owner"], made["owner_id"], made["project"]) == (None, None, "vision")
    assert made["can_write"]
    with pytest.raises(AlreadyExists, match="the project has a pipeline 'shared'"):
        await admin.post("/pipelines", body_of("shared"))
    # The folder belongs to the project.
    folder = await user.get(f"/vfolders/{made['folder']}")
    assert (folder["project"], folder["owner"]) == ("vision", None)
    # A member finds the pipeline by name and runs it, but does not change it.
    found = await user.get("/pipelines/shared")
    assert (found["id"], found["can_write"]) == (made["id"], False)
    assert [each["id"] for each in (await user.get("/pipelines"))["items"]] == [made["id"]]
    with pytest.raises(Forbidden):
        await user.patch("/pipelines/shared", {"definition": text_of("shared", APPROVAL)})
    with pytest.raises(Forbidden):
        await user.delete("/pipelines/shared")
    run = await user.post("/pipelines/shared/runs", {})
    assert run["owner"] == "user"
    await wait_for_tasks(user, run["id"], check="awaiting-approval")
    await user.post(f"/pipeline-runs/{run['id']}/tasks/check/approval", {"is_approved": True})
    await wait_for_tasks(user, run["id"], check="succeeded")
    # A user who is no longer a member of the project does not find its pipelines.
    await admin.delete("/projects/vision/members/user")
    for path in ("/pipelines/shared", f"/pipelines/{made['id']}"):
        with pytest.raises(NotFound):
            await user.get(path)
    # But the user still sees the run.
    await user.get(f"/pipeline-runs/{run['id']}")


async def test_own_pipeline_comes_before_that_of_a_project(admin: Client, user: Client) -> None:
    await admin.post("/pipelines", body_of("same"))
    own = await user.post(
        "/pipelines", {"definition": text_of("same", APPROVAL), "project": "vision"}
    )
    assert (await user.get("/pipelines/same"))["id"] == own["id"]


async def test_members_see_the_runs_of_others_but_do_not_change_them(
    api: Api, admin: Client, user: Client
) -> None:
    await admin.put("/projects/vision/members/user2", {})
    other = await api.client("user2")
    await admin.post("/pipelines", body_of("shared"))
    run = await user.post("/pipelines/shared/runs", {})
    detail = await other.get(f"/pipeline-runs/{run['id']}")
    assert detail["run"]["owner"] == "user"
    with pytest.raises(Forbidden, match="user has started this run"):
        await other.delete(f"/pipeline-runs/{run['id']}")
    # Each user sees only their own schedules, because a schedule creates runs of its owner.
    spec = {"pipeline": "shared", "name": "nightly", "start": "daily 02:00"}
    schedule = await other.post("/pipeline-schedules", spec)
    assert schedule["owner"] == "user2"
    with pytest.raises(NotFound):
        await user.get(f"/pipeline-schedules/{schedule['id']}")


async def test_sessions_belong_to_the_starter(admin: Client, user: Client) -> None:
    await admin.post(
        "/pipelines",
        body_of("shared", "tasks:\n- {name: one, command: x, image: python}\n"),
    )
    run = await user.post("/pipelines/shared/runs", {})
    shown = await user.get(f"/sessions/{await wait_for_session(user, run['id'], 'one')}")
    assert (shown["owner"], shown["project"]) == ("user", "vision")


async def test_definition_of_a_lower_role_is_not_run(api: Api, admin: Client) -> None:
    await admin.put("/projects/vision/members/admin", {})
    await admin.put("/projects/vision/members/domain-admin", {})
    domain_admin = await api.client("domain-admin")
    await domain_admin.post("/pipelines", body_of("shared"))
    accepting = {"accepts_files": True}
    await domain_admin.post("/pipelines/shared/runs", accepting)
    with pytest.raises(Forbidden, match="was saved by a user with the role admin"):
        await admin.post("/pipelines/shared/runs", accepting)
    await admin.patch("/pipelines/shared", {"definition": text_of("shared", APPROVAL)})
    await admin.post("/pipelines/shared/runs", accepting)


@pytest.mark.both_databases
async def test_administrators_accept_files_that_members_can_change(
    admin: Client, user: Client
) -> None:
    await admin.put("/projects/vision/members/admin", {})
    made = await admin.post("/pipelines", body_of("shared"))
    runs, folder = "/pipelines/shared/runs", f"/vfolders/{made['folder']}"
    schedule = {"pipeline": "shared", "name": "nightly", "start": "daily 02:00"}
    trigger = {"pipeline": "shared", "name": "hook"}
    with pytest.raises(Forbidden, match="the role user can change the files") as refused:
        await admin.post(runs, {})
    assert refused.value.details["action"] == "pipeline.accept-files"
    for path, body in (("/pipeline-schedules", schedule), ("/pipeline-triggers", trigger)):
        with pytest.raises(Forbidden, match="can change the files"):
            await admin.post(path, body)
    run = await admin.post(runs, {"accepts_files": True})
    (entry,) = (await admin.get("/audit-log", action="pipeline.run", entity_id=run["id"]))["items"]
    assert entry["details"]["accepts_files"] is True
    # The files may have changed since the run was created.
    await admin.delete(f"/pipeline-runs/{run['id']}")
    resumption = f"/pipeline-runs/{run['id']}/resumption"
    with pytest.raises(Forbidden, match="can change the files") as refused:
        await admin.post(resumption, {})
    assert refused.value.details["action"] == "pipeline.accept-files"
    await admin.post(resumption, {"accepts_files": True})
    # With this permission, only administrators can change the files, so no acceptance is needed.
    await admin.patch(folder, {"permission": "ro"})
    await admin.post(runs, {})
    await admin.post("/pipeline-schedules", schedule)
    secret = (await admin.post("/pipeline-triggers", trigger))["secret"]
    assert secret
    # A member's grant takes precedence over the permission of all members.
    await admin.put(f"{folder}/grants/user", {"permission": "rw"})
    with pytest.raises(Forbidden, match="can change the files"):
        await admin.post(runs, {})
    await admin.put(f"{folder}/grants/user", {"permission": "ro"})
    await admin.patch(folder, {"permission": "rw"})
    await admin.post(runs, {})
    # Members need not accept the files of others with the same role.
    await admin.delete(f"{folder}/grants/user")
    await user.post(runs, {})


async def test_named_folder_must_belong_to_the_project(admin: Client) -> None:
    await admin.post("/vfolders", {"name": "mine"})
    body = body_of("shared", "folder: mine\n" + APPROVAL)
    with pytest.raises(BaiError, match="does not belong to the project"):
        await admin.post("/pipelines", body)
    with pytest.raises(BaiError, match="requires project"):
        await admin.post("/pipelines", {**body_of("shared"), "project": None})
