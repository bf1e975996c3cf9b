"""Quotas and usage of quota scopes, and usage of folders."""

from __future__ import annotations

import shutil

import pytest

from bai_services.client import Client
from bai_services.core.errors import Forbidden, QuotaExceeded
from tests.testbed.manager import Api

from .folder_requests import put

KIB = 2**10


@pytest.fixture
async def api(api: Api) -> Api:
    await api.world.manager.folders.vfolders.start()
    return api


@pytest.fixture
async def user(api: Api) -> Client:
    client = await api.client("user")
    await client.post("/vfolders", {"name": "data"})
    return client


async def test_quota_without_file_system_support_limits_uploads(api: Api, user: Client) -> None:
    admin = await api.client("admin")
    scope = f"user:{await api.world.user_id('user')}"
    path = f"/quota-scopes/local/{scope}"
    with pytest.raises(Forbidden):
        await user.put(path, {"limit_bytes": -1})
    done = await admin.put(path, {"limit_bytes": 100 * KIB})
    assert (done["limit_bytes"], done["is_enforced"]) == (100 * KIB, False)
    await put(user, "first", b"x" * 60 * KIB)
    with pytest.raises(QuotaExceeded, match="102400 bytes"):
        await put(user, "second", b"x" * 60 * KIB)
    with pytest.raises(QuotaExceeded):
        await user.send("POST", "/vfolders/data/uploads", query={"path": "u"},
                        headers={"Upload-Length": str(60 * KIB)})  # fmt: skip
    assert [i["name"] for i in (await user.get("/vfolders/data/files"))["items"]] == ["first"]
    # A file that a session writes counts towards the quota, but the write is not rejected.
    (root,) = api.world.manager.settings.storage_root.glob("user/*/[!.]*")
    shutil.copy(root / "first", root / "by-hand")
    assert (await user.get("/vfolders/data/usage"))["bytes"] == 120 * KIB
    shown = await user.get(path)
    assert (shown["used_bytes"], shown["source"]) == (120 * KIB, "scan")
    with pytest.raises(QuotaExceeded):
        await put(user, "tiny", b"x")
    assert (await admin.put(path, {"limit_bytes": None}))["limit_bytes"] is None
    await put(user, "second", b"x" * 60 * KIB)


async def test_uploaded_bytes_count_after_a_scan_of_another_folder(api: Api, user: Client) -> None:
    admin = await api.client("admin")
    await user.post("/vfolders", {"name": "other"})
    path = f"/quota-scopes/local/user:{await api.world.user_id('user')}"
    await admin.put(path, {"limit_bytes": 100 * KIB})
    for name in ("data", "other"):
        await user.get(f"/vfolders/{name}/usage", fresh="true")
    await put(user, "first", b"x" * 60 * KIB)
    # The scan of another folder does not find the uploaded bytes, which must still count.
    await user.get("/vfolders/other/usage", fresh="true")
    with pytest.raises(QuotaExceeded):
        await put(user, "second", b"x" * 60 * KIB)
    # The bytes of a deleted folder no longer count.
    await user.delete("/vfolders/data")
    await user.post("/vfolders/data/purge")
    await api.world.manager.folders.vfolders.wait_for_tasks()
    await put(user, "second", b"x" * 60 * KIB, key="other")


async def test_usage_of_a_scope_without_folders_is_zero(api: Api, user: Client) -> None:
    admin, other = await api.client("admin"), await api.client("user2")
    paths = [
        f"/quota-scopes/local/user:{await api.world.user_id(name)}" for name in ("user", "user2")
    ]

    async def used() -> list[int]:
        return [(await admin.get(path))["used_bytes"] for path in paths]

    await other.post("/vfolders", {"name": "second"})
    await put(user, "f", b"x" * 1000)
    await user.get("/vfolders/data/usage", fresh="true")
    folder = await user.get("/vfolders/data")
    await admin.put(f"/vfolders/{folder['id']}/owner", {"user": "user2"})
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert await used() == [0, 1000]
    await other.delete("/vfolders/data")
    await other.post("/vfolders/data/purge")
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert await used() == [0, 0]


async def test_quota_of_a_user_comes_from_the_policy(api: Api, user: Client) -> None:
    admin = await api.client("admin")
    policy = (await admin.get("/users/user"))["resource_policy"]
    await admin.patch(f"/user-policies/{policy}", {"max_quota_scope_bytes": 1000})
    with pytest.raises(QuotaExceeded):
        await put(user, "f", b"x" * 1001)
    scope = f"user:{await api.world.user_id('user')}"
    assert (await user.get(f"/quota-scopes/local/{scope}"))["policy_bytes"] == 1000


async def test_quota_of_a_project_comes_from_its_policy(api: Api, user: Client) -> None:
    admin = await api.client("admin")
    team = await admin.post("/vfolders", {"name": "team", "project": "default/default",
                                          "permission": "rw"})  # fmt: skip
    project = await api.world.project_id()
    policy = (await admin.get(f"/projects/{project}"))["resource_policy"]
    await admin.patch(f"/project-policies/{policy}", {"max_quota_scope_bytes": 1000})
    query = {"path": "f"}
    with pytest.raises(QuotaExceeded):
        await user.call("PUT", f"/vfolders/{team['id']}/content", query=query, content=b"x" * 1001)
    await put(user, "f", b"x" * 1001)  # The user has a separate quota.
    scope = f"project:{project}"
    assert (await admin.get(f"/quota-scopes/local/{scope}"))["policy_bytes"] == 1000
    await admin.put(f"/quota-scopes/local/{scope}", {"limit_bytes": 2000})
    await user.call("PUT", f"/vfolders/{team['id']}/content", query=query, content=b"x" * 1001)


async def test_folder_usage_is_counted_in_the_background(api: Api, user: Client) -> None:
    await put(user, "a/f", b"x" * 10)
    await api.world.manager.folders.quotas.step()
    folder = await user.get("/vfolders/data")
    assert (folder["used_files"], folder["used_bytes"]) == (2, 10)
    assert folder["counted_at"] is not None
