"""Session setups over REST, from their definition to the agent's work item and the stored log."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core import errors
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api
from tests.testbed.wait import wait_until_async

SMALL = {"cpu": "1", "mem": "1g"}
SECRET = "s3cret-value"
SETUP_FILE = {"BAI_SETUP_FILE": "/home/config/setup.json"}


async def create(user: Client, **fields: Any) -> dict[str, Any]:
    return dict(await user.post("/sessions", {"name": "lab1", "resources": SMALL, **fields}))


async def work_item(agent: FakeAgent) -> dict[str, Any]:
    (item,) = await wait_until_async(lambda: agent.work(5), 60, "a work item")
    return dict(item)


async def prepare(agent: FakeAgent, environ: dict[str, str]) -> dict[str, Any]:
    item = await work_item(agent)
    await agent.report(item, injection={"environ": environ})
    return item


async def plan_of(api: Api, session: dict[str, Any]) -> dict[str, Any]:
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    return dict(await api.hub.post(f"/sessions/{session['id']}/launch", where))


async def test_a_session_gets_the_setups_of_its_project_and_owner(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    (project,) = (await user.get("/projects"))["items"]
    of_project = f"/projects/{project['id']}"
    await admin.put(f"{of_project}/environ/MIRROR", {"value": "https://mirror"})
    await admin.put(f"{of_project}/environ/TOKEN", {"value": "of-project", "is_secret": True})
    await admin.put(f"{of_project}/dotfiles/.vimrc", {"content": "project"})
    await admin.put(f"{of_project}/bootstrap", {"script": "echo p", "timeout_seconds": 5})
    await user.put("/me/environ/TOKEN", {"value": SECRET, "is_secret": True})
    await user.put("/me/environ/SEED", {"value": "1"})
    await user.put("/me/environ/LEVEL", {"value": "user"})
    await user.put("/me/dotfiles/.config%2Fapp.toml", {"content": "a=1\n", "permission": "600"})
    await user.put("/me/bootstrap", {"script": "echo u"})

    session = await create(
        user,
        environ={"LEVEL": "session", "OWN": "own-secret"},
        secret_environ=["OWN"],
    )
    item = await prepare(agent, SETUP_FILE)

    assert item["setup"] == {
        "variables": {
            "MIRROR": "https://mirror",
            "SEED": "1",
            "TOKEN": SECRET,
            "OWN": "own-secret",
        },
        "secret_names": ["OWN", "TOKEN"],
        "files": [
            {"path": ".config/app.toml", "permission": 0o600, "content": "a=1\n"},
            {"path": ".vimrc", "permission": 0o644, "content": "project"},
        ],
        "scripts": [
            {"origin": "project default", "script": "echo p", "timeout_seconds": 5},
            {"origin": "user", "script": "echo u", "timeout_seconds": 120},
        ],
    }
    # Everyone who may inspect the container can read its environment, so the plan has no secret.
    plan = await plan_of(api, session)
    assert plan["environ"]["LEVEL"] == "session"
    assert SECRET not in json.dumps(plan) and "own-secret" not in json.dumps(plan)


async def test_a_removed_member_does_not_get_the_setup_of_the_project(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    admin = await api.client("admin")
    (project,) = (await user.get("/projects"))["items"]
    of_project = f"/projects/{project['id']}"
    await admin.put(f"{of_project}/environ/TOKEN", {"value": SECRET, "is_secret": True})
    await user.put("/me/environ/SEED", {"value": "1"})
    # The session is created before the removal, and prepared after it.
    await create(user)
    await admin.delete(f"{of_project}/members/user")
    item = await work_item(agent)
    assert item["setup"]["variables"] == {"SEED": "1"}


async def test_no_response_database_row_or_audit_entry_contains_a_secret(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    answer = await user.put("/me/environ/TOKEN", {"value": SECRET, "is_secret": True})
    assert answer["value"] is None
    await create(user)
    await work_item(agent)
    shown = [await user.get("/me/environ"), await user.get("/sessions")]
    async with api.world.manager.database.read() as tx:
        for table in ("setups", "session_secrets", "sessions", "kernels", "audit_log"):
            shown += [str((await tx.exec_driver_sql(f"SELECT * FROM {table}")).all())]
    assert SECRET not in json.dumps(shown)
    assert "set-variable" in shown[-1]


async def test_stored_logs_and_reasons_are_masked_by_the_secrets_that_the_session_got(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.put("/me/environ/TOKEN", {"value": SECRET, "is_secret": True})
    session = await create(user)
    await prepare(agent, SETUP_FILE)
    await plan_of(api, session)
    # The user changes the secret later. The log of the session is still masked by the old value.
    await user.put("/me/environ/TOKEN", {"value": "another-value", "is_secret": True})
    end = {
        "exit_code": 190,
        "reason_code": "bootstrap-failed",
        "reason": f"login {SECRET} denied; the bootstrap script of user failed with exit code 1",
        "log": f"login {SECRET} denied\n",
    }
    await api.hub.post(f"/sessions/{session['id']}/exited", end)
    ended = await user.get(f"/sessions/{session['id']}")
    assert (ended["status"], ended["result"]) == ("ERROR", "failure")
    assert ended["status_info"] == (
        "the bootstrap script failed; its last output: login ******** denied; the bootstrap "
        "script of user failed with exit code 1"
    )
    log = await user.get(f"/sessions/{session['id']}/logs")
    assert log["log"] == "login ******** denied\n"


async def test_an_auto_mounted_folder_hides_a_dotfile_of_the_project(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await api.world.manager.folders.vfolders.start()
    await user.post("/vfolders", {"name": ".config"})
    admin = await api.client("admin")
    (project,) = (await user.get("/projects"))["items"]
    for path in (".config%2Fapp.toml", ".vimrc"):
        await admin.put(f"/projects/{project['id']}/dotfiles/{path}", {"content": "a"})
    await create(user)
    item = await work_item(agent)
    assert [file["path"] for file in item["setup"]["files"]] == [".vimrc"]


async def test_output_that_is_reported_after_the_removal_of_secrets_is_not_stored(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    await user.put("/me/environ/TOKEN", {"value": SECRET, "is_secret": True})
    session = await create(user)
    await prepare(agent, SETUP_FILE)
    await user.delete(f"/sessions/{session['id']}?force=true")
    api.world.clock.advance(days=2)
    await api.world.manager.sessions.stored_logs.remove_old()
    end = {"exit_code": 0, "log": f"login {SECRET}", "reason": SECRET}
    await api.hub.post(f"/sessions/{session['id']}/exited", end)
    async with api.world.manager.database.read() as tx:
        for table in ("kernels", "sessions", "status_history"):
            assert SECRET not in str((await tx.exec_driver_sql(f"SELECT * FROM {table}")).all())


async def test_an_agent_without_support_for_setups_leaves_the_secrets_in_the_plan(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    session = await create(user, environ={"OWN": SECRET}, secret_environ=["OWN"])
    await prepare(agent, {})
    assert (await plan_of(api, session))["environ"]["OWN"] == SECRET


async def test_a_mount_may_not_collide_with_a_dotfile(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    folder = await user.post("/vfolders", {"name": "pack"})
    await user.put("/me/dotfiles/.vim%2Fpack%2Fa.vim", {"content": "x"})
    mount = {"vfolder": folder["id"], "path": ".vim/pack"}
    with pytest.raises(errors.InvalidRequest, match="collides with the dotfile"):
        await user.post("/sessions", {"name": "lab1", "resources": SMALL, "mounts": [mount]})


async def test_values_are_replaced_and_removed(api: Api, user: Client) -> None:
    user2 = await api.client("user2")
    assert await user.get("/me/bootstrap") == {"bootstrap": None}
    await user.put("/me/environ/A", {"value": "1", "is_secret": True})
    await user.put("/me/environ/A", {"value": "2"})
    (variable,) = (await user.get("/me/environ"))["items"]
    assert (variable["name"], variable["value"], variable["role"]) == ("A", "2", "user")
    assert (await user2.get("/me/environ"))["items"] == []
    await user.delete("/me/environ/A")
    await user.put("/me/bootstrap", {"script": "true"})
    await user.delete("/me/bootstrap")
    for path in ("/me/environ/A", "/me/dotfiles/.a", "/me/bootstrap"):
        with pytest.raises(errors.NotFound):
            await user.delete(path)
    for path, body in (
        ("/me/environ/BAI_X", {"value": "1"}),
        ("/me/environ/PATH", {"value": "1"}),
        ("/me/dotfiles/.ssh", {"content": "x"}),
        ("/me/dotfiles/..%2F.x", {"content": "x"}),
        ("/me/bootstrap", {"script": "x", "timeout_seconds": 301}),
    ):
        with pytest.raises(errors.InvalidRequest):
            await user.put(path, body)


@pytest.mark.both_databases
async def test_concurrent_changes_lose_nothing(user: Client) -> None:
    await asyncio.gather(
        *(user.put(f"/me/environ/A{number}", {"value": "x"}) for number in range(8)),
        *(user.put(f"/me/dotfiles/.a{number}", {"content": "x"}) for number in range(8)),
    )
    assert len((await user.get("/me/environ"))["items"]) == 8
    assert len((await user.get("/me/dotfiles"))["items"]) == 8
