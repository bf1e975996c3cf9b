"""Background tasks of folders: clones, transfers and the deletion of old trash."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

import pytest

from bai_services.client import Client
from bai_services.core.errors import AlreadyExists, Forbidden, NotFound
from tests.testbed.manager import Api

from .folder_requests import content_of, put


@pytest.fixture
async def api(api: Api) -> Api:
    await api.world.manager.folders.vfolders.start()
    return api


@pytest.fixture
async def user(api: Api) -> Client:
    client = await api.client("user")
    await client.post("/vfolders", {"name": "data"})
    return client


async def test_clone_is_created_in_the_background(api: Api, user: Client) -> None:
    await put(user, "a/b", b"content")
    with pytest.raises(Forbidden, match="is not cloneable"):
        await user.post("/vfolders/data/clone", {"name": "copy"})
    assert (await user.patch("/vfolders/data", {"cloneable": True}))["cloneable"]
    guest = await api.client("user2")
    await api.share_folder("user", "data", "user2")
    made = await guest.post("/vfolders/data/clone", {"name": "copy"})
    assert made["status"] in ("cloning", "ready") and made["owner"] == "user2"
    await api.world.manager.folders.vfolders.wait_for_tasks()
    done = await guest.get("/vfolders/copy")
    assert (done["status"], done["task"], done["permission"]) == ("ready", None, "wd")
    assert await content_of(guest, "a/b", "copy") == b"content"
    await put(guest, "a/b", b"other", "copy")
    assert await content_of(user, "a/b") == b"content"
    with pytest.raises(AlreadyExists):
        await guest.post("/vfolders/data/clone", {"name": "copy"})


async def test_failed_clone_shows_the_reason_and_can_be_deleted(api: Api, user: Client) -> None:
    await user.patch("/vfolders/data", {"cloneable": True})
    (root,) = api.world.manager.settings.storage_root.glob("user/*/[!.]*")
    os.rename(root, f"{root}-away")
    await user.post("/vfolders/data/clone", {"name": "copy"})
    await api.world.manager.folders.vfolders.wait_for_tasks()
    row = next(i for i in (await user.get("/vfolders"))["items"] if i["name"] == "copy")
    assert row["status"] == "error" and row["status_info"]
    with pytest.raises(NotFound):
        await user.get("/vfolders/copy/files")
    await user.delete(f"/vfolders/{row['id']}")
    # A restore from the trash does not restore the files that are already deleted.
    assert (await user.post(f"/vfolders/{row['id']}/restore"))["status"] == "error"
    await user.delete(f"/vfolders/{row['id']}")
    await user.post(f"/vfolders/{row['id']}/purge")
    await api.world.manager.folders.vfolders.wait_for_tasks()
    os.rename(f"{root}-away", root)


async def test_transfer_moves_the_folder_with_its_files(api: Api, user: Client) -> None:
    await put(user, "f", b"mine")
    admin, heir = await api.client("admin"), await api.client("user2")
    folder = (await user.get("/vfolders/data"))["id"]
    with pytest.raises(Forbidden):
        await user.put("/vfolders/data/owner", {"user": "user2"})
    await admin.put(f"/vfolders/{folder}/owner", {"user": "user2"})
    await api.world.manager.folders.vfolders.wait_for_tasks()
    found = await heir.get(f"/vfolders/{folder}")
    assert (found["owner"], found["status"], found["is_owner"]) == ("user2", "ready", True)
    assert await content_of(heir, "f", folder) == b"mine"
    with pytest.raises(NotFound):
        await user.get(f"/vfolders/{folder}")
    # A transfer fails if the new owner has a folder of that name. A transfer to a user of another
    # domain is permitted.
    stranger = await api.client("acme-user")
    own = await stranger.post("/vfolders", {"name": "data"})
    with pytest.raises(AlreadyExists):
        await admin.put(f"/vfolders/{folder}/owner", {"user": "acme-user"})
    assert (await heir.get(f"/vfolders/{folder}"))["status"] == "ready"
    await stranger.delete(f"/vfolders/{own['id']}")
    await admin.put(f"/vfolders/{folder}/owner", {"user": "acme-user"})
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert (await stranger.get(f"/vfolders/{folder}"))["is_owner"]
    assert await content_of(stranger, "f", folder) == b"mine"


async def test_trashed_folders_are_deleted_after_the_retention_time(api: Api, user: Client) -> None:
    ready = await user.get("/vfolders/data")
    assert ready["purge_at"] is None
    folder = ready["id"]
    await user.delete("/vfolders/data")
    trashed = await user.get(f"/vfolders/{folder}")
    changed, purged = (
        datetime.fromisoformat(trashed[field]) for field in ("status_changed_at", "purge_at")
    )
    assert purged - changed == timedelta(days=30)
    tasks = api.world.manager.folders.tasks
    await tasks.empty_trash()
    assert (await user.get(f"/vfolders/{folder}"))["status"] == "delete-pending"
    api.world.clock.advance(days=31)
    await tasks.empty_trash()
    await tasks.wait()
    api.world.clock.advance(days=-31)
    assert (await user.get(f"/vfolders/{folder}"))["status"] == "delete-complete"
    assert not list(api.world.manager.settings.storage_root.glob("user/*/[!.]*"))
