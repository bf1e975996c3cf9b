"""`POST /users/{key}/purge`: what is removed, what remains, and when a purge is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import Conflict, Forbidden, InUse, NotFound
from bai_services.db.accounts.users import UserStore
from bai_services.db.schema import metadata
from bai_services.db.tables.accounts import users
from bai_services.db.tables.folders import vfolders
from bai_services.db.tables.notifications import webhooks
from bai_services.db.tables.operations import setting_overrides
from bai_services.db.tables.schedules import session_schedules
from bai_services.db.tables.sessions import kernels
from bai_services.db.tables.setups import session_secrets, setups
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

SMALL = {"cpu": "1", "mem": "1g"}


@pytest.fixture(autouse=True)
async def started(api: Api) -> None:
    """Start the storage hosts."""
    await api.world.manager.folders.vfolders.start()


async def deactivate(api: Api, name: str = "user") -> Client:
    """Deactivate a user, complete the sign-out, and return the superadmin's client."""
    admin = await api.client("admin")
    await admin.patch(f"/users/{name}", {"status": "inactive"})
    await sign_out(api)
    return admin


async def sign_out(api: Api) -> None:
    """Process the pending token revocations and sign-outs, as the manager's loops do."""
    await api.world.manager.accounts.token_revocations.process_pending()
    await api.world.manager.sign_outs.process_pending()


async def purge(admin: Client, **options: str) -> Mapping[str, Any]:
    result: Mapping[str, Any] = await admin.post("/users/user/purge", options)
    return result


async def texts_of_all_tables(api: Api, *, without: set[str]) -> str:
    """Return the content of all tables except ``without``. Tests search it for data of a user."""
    rows = []
    async with api.world.manager.database.read() as tx:
        for table in metadata.sorted_tables:
            if table.name not in without:
                rows += [repr(row) for row in await tx.execute(sa.select(table))]
    return "\n".join(rows)


@pytest.mark.both_databases
async def test_only_an_anonymous_row_and_ended_sessions_remain(api: Api, agent: FakeAgent) -> None:
    user = await api.client("user")
    user_id = await api.world.user_id("user")
    await user.patch("/users/user", {"full_name": "Ursula Marker"})
    secret = {"environ": {"A": "environ-marker"}, "callback_url": "https://example.org/marker"}
    session = await user.post("/sessions", {"name": "lab1", "resources": SMALL, **secret})
    await user.delete(f"/sessions/{session['id']}?force=true")
    await user.post("/session-templates", {"name": "marker", "request": {}})
    async with api.world.manager.database.write() as tx:
        await tx.execute(kernels.update().values(log="log-marker"))
    admin = await deactivate(api)
    result = await purge(admin)
    assert (result["id"], result["username"][:7]) == (user_id, "purged-")

    with pytest.raises(NotFound):
        await admin.get("/users/user")
    with pytest.raises(NotFound):
        await admin.get(f"/users/{user_id}")
    with pytest.raises(NotFound):
        await purge(admin)
    # The audit log keeps names until its entries are removed because of their age.
    rest = await texts_of_all_tables(api, without={"audit_log", "usage_prices"})
    for gone in ("marker", "Marker", "'user@example", "hub/user/"):
        assert gone not in rest, gone
    ended = await admin.get(f"/sessions/{session['id']}")
    assert (ended["owner"], ended["environ"]) == (result["username"], {})
    entry = (await admin.get("/audit-log", action="user.purge"))["items"][0]
    assert (entry["actor"], entry["entity_id"]) == ("admin", user_id)
    # A new account can use the user name and the e-mail address again.
    again = await admin.post(
        "/users", {"username": "user", "email": "user@example.com", "domain": "default"}
    )
    assert again["id"] != user_id
    assert (await admin.get("/sessions", owner=result["username"]))["total"] == 1
    assert (await admin.get("/sessions", owner="user"))["total"] == 0


@pytest.mark.both_databases
async def test_setups_schedules_and_notifications_are_removed(api: Api, agent: FakeAgent) -> None:
    user, database = await api.client("user"), api.world.manager.database
    session = await user.post("/sessions", {"name": "lab1", "resources": SMALL})
    await user.put("/me/environ/TOKEN", {"value": "environ-marker"})
    await user.put("/me/dotfiles/.marker", {"content": "file-marker"})
    await user.put("/me/bootstrap", {"script": "script-marker"})
    schedule = {"start": "daily 10:00", "time_zone": "UTC"}
    request = {"environ": {"A": "schedule-marker"}, "resources": SMALL}
    await user.post("/schedules", {"name": "marker", "request": request, **schedule})
    await user.post("/webhooks", {"url": "https://example.org/hook", "name": "marker-hook"})
    user_id = await api.world.user_id("user")
    async with database.write() as tx:
        secrets = {"session_id": session["id"], "encrypted": "secret-marker"}
        await tx.execute(session_secrets.insert().values(secrets))
    await user.delete(f"/sessions/{session['id']}?force=true")
    assert "by user" in await texts_of_all_tables(api, without=set())
    now = api.world.clock()
    named = {"variable": "BAI_TRASH_DAYS", "value": "7", "changed_at": now, "changed_by": "user"}
    async with database.write() as tx:
        await tx.execute(setting_overrides.insert().values(named))
    await purge(await deactivate(api))
    async with database.read() as tx:
        changed_by = await tx.scalar(sa.select(setting_overrides.c.changed_by))
    assert str(changed_by).startswith("purged-")
    rest = await texts_of_all_tables(api, without={"audit_log"})
    for gone in ("marker", "example.org", "by user"):
        assert gone not in rest, gone
    for column in (setups.c.user_id, webhooks.c.owner_id, session_schedules.c.owner_id):
        async with database.read() as tx:
            assert await tx.scalar(sa.select(column).where(column == user_id)) is None


async def test_folders_are_transferred_or_deleted(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    for name in ("data", "lent", ".local", "old"):
        await user.post("/vfolders", {"name": name})
    await user.delete("/vfolders/old")
    await api.share_folder("user", "lent", "user2")
    await (await api.client("user2")).post("/vfolders", {"name": "data"})
    await deactivate(api)
    result = await purge(admin, new_owner="user2")
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert (result["transferred_folders"], result["deleted_folders"]) == (3, 1)
    owned = (await (await api.client("user2")).get("/vfolders"))["items"]
    names = {folder["name"] for folder in owned if folder["is_owner"]}
    assert names == {"data", "lent", "user-data", "user-local"}


async def test_shared_folders_can_be_treated_differently(api: Api) -> None:
    user = await api.client("user")
    for name in ("data", "lent"):
        await user.post("/vfolders", {"name": name})
    await api.share_folder("user", "lent", "user2")
    admin = await deactivate(api)
    result = await purge(admin, folders="delete", shared_folders="transfer")
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert (result["transferred_folders"], result["deleted_folders"]) == (1, 1)
    folders = (await admin.get("/vfolders", owner="admin"))["items"]
    assert [folder["name"] for folder in folders] == ["lent"]


async def test_active_users_and_users_with_sessions_cannot_be_purged(
    api: Api, agent: FakeAgent
) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    with pytest.raises(Conflict, match="status active"):
        await purge(admin)
    await user.post("/vfolders", {"name": "lent"})
    await api.share_folder("user", "lent", "user2")
    session = await user.post("/sessions", {"name": "lab1", "resources": SMALL})
    await admin.patch("/users/user", {"status": "inactive"})
    with pytest.raises(Conflict, match="not ended|signed out"):
        await purge(admin)
    await admin.delete(f"/sessions/{session['id']}?force=true")
    await sign_out(api)
    # Set the flag directly: the manager's loop could process another deactivation at once.
    async with api.world.manager.database.write() as tx:
        await tx.execute(users.update().values(needs_hub_sign_out=True))
    with pytest.raises(Conflict, match="signed out"):
        await purge(admin)
    await sign_out(api)
    other = await (await api.client("user2")).post(
        "/sessions", {"name": "lab2", "resources": SMALL, "mounts": [{"vfolder": "lent"}]}
    )
    with pytest.raises(InUse):
        await purge(admin)
    with pytest.raises(NotFound):
        await purge(admin, new_owner="nobody")
    assert (await admin.get("/users/user"))["status"] == "inactive"
    await admin.delete(f"/sessions/{other['id']}?force=true")
    # The purge succeeds once the folder is no longer in use.
    assert (await purge(admin))["transferred_folders"] == 1


async def test_a_user_who_is_getting_a_folder_cannot_be_purged(api: Api) -> None:
    """If the transfer succeeded, the folder would belong to an account that no longer exists."""
    await (await api.client("user2")).post("/vfolders", {"name": "data"})
    admin = await deactivate(api)
    getting = {"status": "performing", "next_owner_id": await api.world.user_id("user")}
    async with api.world.manager.database.write() as tx:
        await tx.execute(vfolders.update().values(getting))
    with pytest.raises(Conflict, match="being transferred to the user"):
        await purge(admin)


async def test_only_superadmins_purge(api: Api) -> None:
    await deactivate(api)
    with pytest.raises(Forbidden):
        await purge(await api.client("domain-admin"))
    assert await UserStore(api.world.manager.database).find("user") is not None


@pytest.mark.both_databases
async def test_nothing_but_ended_sessions_belongs_to_a_purged_user(
    api: Api, agent: FakeAgent
) -> None:
    user = await api.client("user")
    user_id = await api.world.user_id("user")
    await user.put("/me/environ/TOKEN", {"value": "a secret value", "is_secret": True})
    await user.post("/webhooks", {"url": "https://hooks.example.org/secret"})
    await user.patch("/notification-settings", {"language": "ko"})
    await user.post("/schedules", {"name": "work", "start": "daily 09:00"})
    session = await user.post("/sessions", {"name": "lab1", "resources": SMALL})
    await user.delete(f"/sessions/{session['id']}?force=true")
    async with api.world.manager.database.write() as tx:
        values = {"session_id": session["id"], "encrypted": "x"}
        await tx.execute(session_secrets.insert().values(values))
    admin = await api.client("admin")
    await admin.post("/projects", {"name": "m", "domain": "default", "type": "model-store"})
    await admin.put("/projects/m/members/user", {})
    await user.post("/model-imports", {"repository": "org/tiny"})
    definition = "version: 1\nname: ask\ntasks:\n- {name: check, kind: approval}\n"
    await user.post("/pipelines", {"definition": definition})
    await user.post("/pipelines/ask/runs", {})
    await purge(await deactivate(api))
    await api.world.manager.folders.vfolders.wait_for_tasks()
    left = {}
    async with api.world.manager.database.read() as tx:
        for column in (c for table in metadata.sorted_tables for c in table.columns):
            if any(key.target_fullname == "users.id" for key in column.foreign_keys):
                rows = sa.select(sa.func.count()).where(column == user_id)
                left[str(column)] = await tx.scalar(rows)
        assert await tx.scalar(sa.select(sa.func.count()).select_from(session_secrets)) == 0
    assert {name for name, count in left.items() if count} == {"sessions.owner_id"}
