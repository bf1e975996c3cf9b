"""Folders: invitations, clones, transfer, host permissions, quotas and automatic deletion."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from bai_services.client import Client
from bai_services.core.errors import (
    AlreadyExists,
    Changed,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
)
from bai_services.core.folders.mounts import MountRequest
from bai_services.core.folders.storage_hosts import PERMISSIONS
from tests.testbed.manager import SUPERADMIN, Api

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


async def put(client: Client, path: str, content: bytes, key: str = "data") -> Any:
    where = f"/vfolders/{key}/content"
    return await client.call("PUT", where, query={"path": path}, content=content)


async def content_of(client: Client, path: str, key: str = "data") -> bytes:
    answer = await client.send("GET", f"/vfolders/{key}/content", query={"path": path})
    return answer.content


async def invite(client: Client, user: str, permission: str = "ro") -> dict[str, Any]:
    spec = {"user": user, "permission": permission}
    made: dict[str, Any] = await client.post("/vfolders/data/invitations", spec)
    return made


async def test_only_the_invitee_may_accept_an_invitation(api: Api, user: Client) -> None:
    guest = await api.client("user2")
    made = await invite(user, "user2", "rw")
    assert (made["status"], made["inviter"], made["owner"]) == ("pending", "user", "user")
    with pytest.raises(NotFound):
        await guest.get("/vfolders/data")
    with pytest.raises(AlreadyExists):
        await invite(user, "user2")
    received = await guest.get("/vfolder-invitations", status="pending")
    assert [item["vfolder"] for item in received["items"]] == ["data"]
    with pytest.raises(Forbidden):
        await user.post(f"/vfolder-invitations/{made['id']}/accept")
    changed = await user.patch(f"/vfolder-invitations/{made['id']}", {"permission": "ro"})
    assert changed["permission"] == "ro"
    done = await guest.post(f"/vfolder-invitations/{made['id']}/accept")
    assert done["status"] == "accepted"
    assert (await guest.get("/vfolders/data"))["permission"] == "ro"
    with pytest.raises(Conflict, match="already accepted"):
        await guest.post(f"/vfolder-invitations/{made['id']}/decline")
    with pytest.raises(AlreadyExists, match="already has access"):
        await invite(user, "user2")
    # A grantee may delete their own grant and may then be invited again.
    await guest.delete("/vfolders/data/grants/user2")
    with pytest.raises(NotFound):
        await guest.get("/vfolders/data")
    again = await invite(user, "user2")
    await guest.post(f"/vfolder-invitations/{again['id']}/decline")
    third = await invite(user, "user2")
    await user.delete(f"/vfolder-invitations/{third['id']}")
    listed = await user.get("/vfolders/data/invitations", sort="created_at")
    assert sorted(item["status"] for item in listed["items"]) == [
        "accepted", "canceled", "rejected",
    ]  # fmt: skip
    log = await (await api.client("admin")).get("/audit-log", entity="vfolder", limit=100)
    actions = {item["action"] for item in log["items"]}
    assert {"vfolder.invite", "vfolder.accept-invitation", "vfolder.decline-invitation",
            "vfolder.withdraw-invitation", "vfolder.unshare"} <= actions  # fmt: skip


async def test_invitation_of_invalid_user_is_rejected(api: Api, user: Client) -> None:
    for name, error in (("user", InvalidRequest), ("nobody", NotFound), ("acme-user", NotFound)):
        with pytest.raises(error):
            await invite(user, name)
    admin = await api.client("domain-admin")
    team = await admin.post("/vfolders", {"name": "team", "project": "default"})
    with pytest.raises(InvalidRequest, match="without an invitation"):
        await admin.post(f"/vfolders/{team['id']}/invitations", {"user": "user"})


@pytest.mark.checklist("SHARE-04")
async def test_user_with_a_folder_of_the_same_name_cannot_be_invited(
    api: Api, user: Client
) -> None:
    guest = await api.client("user2")
    own = await guest.post("/vfolders", {"name": "data"})
    for shares in (
        lambda: invite(user, "user2"),
        lambda: user.put("/vfolders/data/grants/user2", {"permission": "ro"}),
    ):
        with pytest.raises(AlreadyExists, match="already has a folder named data"):
            await shares()
    assert (await guest.get("/vfolder-invitations"))["items"] == []
    # The name of a folder in the trash is free.
    await guest.delete(f"/vfolders/{own['id']}")
    assert (await invite(user, "user2"))["status"] == "pending"


@pytest.mark.checklist("SHARE-06")
async def test_grant_lowers_the_permission_of_a_project_member(api: Api) -> None:
    admin, member = await api.client("domain-admin"), await api.client("user")
    team = await admin.post("/vfolders", {"name": "team", "project": "default"})
    assert (await member.get(f"/vfolders/{team['id']}"))["permission"] == "rw"
    await admin.put(f"/vfolders/{team['id']}/grants/user", {"permission": "ro"})
    assert (await member.get(f"/vfolders/{team['id']}"))["permission"] == "ro"
    with pytest.raises(Forbidden):
        await put(member, "f", b"x", team["id"])


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
    # If the folder is restored from the trash, its files are still missing.
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


async def test_unmanaged_folder_uses_an_existing_directory_and_never_deletes_it(
    api: Api, tmp_path: Path
) -> None:
    place = tmp_path / "shared" / "sets"
    place.mkdir(parents=True)
    (place / "f").write_bytes(b"old")
    spec = {"name": "sets", "unmanaged_path": str(place)}
    with pytest.raises(Forbidden):
        await (await api.client("domain-admin")).post("/vfolders", spec)
    admin = await api.client("admin")
    for odd in ("/", "/etc", "relative", f"{place}/../sets", f"{place}/none",
                str(api.world.manager.settings.storage_root)):  # fmt: skip
        with pytest.raises(InvalidRequest):
            await admin.post("/vfolders", {"name": "odd", "unmanaged_path": odd})
    made = await admin.post("/vfolders", spec)
    assert made["unmanaged_path"] == str(place)
    assert await content_of(admin, "f", "sets") == b"old"
    await put(admin, "new", b"x", "sets")
    await admin.delete("/vfolders/sets")
    await admin.post("/vfolders/sets/purge")
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert (place / "f").read_bytes() == b"old"


@pytest.mark.checklist("SHARE-07")
@pytest.mark.parametrize("permission", PERMISSIONS)
async def test_folder_operation_requires_its_host_permission(api: Api, permission: str) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    domain_admin = await api.client("domain-admin")
    await user.post("/vfolders", {"name": "data", "cloneable": True})
    await put(user, "f", b"x")
    team = await admin.post("/vfolders", {"name": "team", "project": "default/default"})
    await _grant_all_but(api, permission)
    owner, project = await api.world.user_id("user"), await api.world.project_id()
    mounts = api.world.manager.folders.mounts
    calls = {
        "create-vfolder": lambda: user.post("/vfolders", {"name": "other"}),
        "modify-vfolder": lambda: user.patch("/vfolders/data", {"name": "renamed"}),
        "delete-vfolder": lambda: user.delete("/vfolders/data"),
        "mount-in-session": lambda: mounts.resolve_mounts(
            SUPERADMIN, owner, project, [MountRequest("data")]
        ),
        "upload-file": lambda: put(user, "g", b"x"),
        "download-file": lambda: content_of(user, "f"),
        "invite-others": lambda: invite(user, "user2"),
        "set-user-specific-permission": lambda: domain_admin.put(
            f"/vfolders/{team['id']}/grants/user2", {"permission": "ro"}
        ),
    }
    with pytest.raises(Forbidden, match=permission):
        await calls[permission]()
    # The host permissions of all scopes are merged: the project grants the missing permission.
    await admin.patch(f"/projects/{project}", {"allowed_vfolder_hosts": {"local": [permission]}})
    await calls[permission]()


async def _grant_all_but(api: Api, permission: str) -> None:
    admin = await api.client("admin")
    some = {"local": [name for name in PERMISSIONS if name != permission]}
    for domain in (await admin.get("/domains"))["items"]:
        await admin.patch(f"/domains/{domain['name']}", {"allowed_vfolder_hosts": some})
    for policy in (await admin.get("/keypair-policies"))["items"]:
        await admin.patch(f"/keypair-policies/{policy['name']}", {"allowed_vfolder_hosts": some})


async def test_host_list_shows_the_callers_permissions(api: Api, user: Client) -> None:
    (host,) = (await user.get("/storage-hosts"))["items"]
    assert (host["name"], host["backend"], host["status"]) == ("local", "local", "ready")
    assert host["permissions"] == list(PERMISSIONS) and host["path"] is None
    assert host["free_bytes"] > 0
    (seen,) = (await (await api.client("admin")).get("/storage-hosts"))["items"]
    assert seen["path"]


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


async def test_trashed_folders_are_deleted_after_the_retention_time(api: Api, user: Client) -> None:
    folder = (await user.get("/vfolders/data"))["id"]
    await user.delete("/vfolders/data")
    tasks = api.world.manager.folders.tasks
    await tasks.empty_trash()
    assert (await user.get(f"/vfolders/{folder}"))["status"] == "delete-pending"
    api.world.clock.advance(days=31)
    await tasks.empty_trash()
    await tasks.wait()
    api.world.clock.advance(days=-31)
    assert (await user.get(f"/vfolders/{folder}"))["status"] == "delete-complete"
    assert not list(api.world.manager.settings.storage_root.glob("user/*/[!.]*"))


async def test_concurrent_edit_is_detected_by_etag(user: Client) -> None:
    first = await put(user, "notes", b"one")
    where, path = "/vfolders/data/content", {"path": "notes"}
    read = await user.send("GET", where, query=path)
    assert read.headers["ETag"] == f'"{first["etag"]}"'
    mine = {"If-Match": read.headers["ETag"]}
    await user.send("PUT", where, query=path, content=b"two", headers=mine)
    with pytest.raises(Changed, match="has changed"):
        await user.send("PUT", where, query=path, content=b"three", headers=mine)
    assert await content_of(user, "notes") == b"two"
    with pytest.raises(Changed, match="already exists"):
        await user.send("PUT", where, query=path, content=b"x", headers={"If-None-Match": "*"})


async def test_dot_folders_of_the_owner_are_mounted_into_every_session(
    api: Api, user: Client
) -> None:
    owner, project = await api.world.user_id("user"), await api.world.project_id()
    mounts = api.world.manager.folders.mounts
    await user.post("/vfolders", {"name": ".local"})
    await api.share_folder("user", ".local", "user2", "rw")
    found = await mounts.resolve_mounts(SUPERADMIN, owner, project, [MountRequest("data")])
    assert [(m.path, m.is_auto) for m in found] == [
        ("/home/work/data", False), ("/home/work/.local", True),
    ]  # fmt: skip
    # A shared dot folder is not mounted automatically. A requested mount at the same path replaces
    # the automatic mount.
    guest = await api.world.user_id("user2")
    assert await mounts.resolve_mounts(SUPERADMIN, guest, project, []) == []
    asked = [MountRequest("data", ".local")]
    found = await mounts.resolve_mounts(SUPERADMIN, owner, project, asked)
    assert [m.vfolder for m in found] == ["data"]
    # If the dot folder is missing, the session starts with a notice.
    rows = [m.as_row() for m in await mounts.resolve_mounts(SUPERADMIN, owner, project, [])]
    (root,) = [p for p in api.world.manager.settings.storage_root.glob("user/*/[!.]*")
               if p.name == rows[0]["vfolder_id"]]  # fmt: skip
    root.rmdir()
    assert await mounts.sources(owner, rows) == []
    (notice,) = await mounts.notices(owner, rows)
    assert "folder .local" in notice


async def test_reads_and_writes_are_in_the_audit_log(api: Api, user: Client) -> None:
    await put(user, "f", b"x")
    await content_of(user, "f")
    await user.post("/vfolders/data/move", {"source": "f", "target": "g"})
    await user.delete("/vfolders/data/content", path="g")
    log = await (await api.client("admin")).get("/audit-log", entity="vfolder", limit=100)
    seen = {(item["action"], item["actor"], item["details"].get("path")) for item in log["items"]}
    assert {
        ("vfolder.upload", "user", "f"),
        ("vfolder.download", "user", "f"),
        ("vfolder.move-file", "user", "f"),
        ("vfolder.remove-file", "user", "g"),
    } <= seen


async def test_a_move_of_a_missing_file_creates_no_directory(api: Api, user: Client) -> None:
    with pytest.raises(NotFound):
        await user.post("/vfolders/data/move", {"source": "missing", "target": "new/dir/file"})
    assert (await user.get("/vfolders/data/files"))["items"] == []
