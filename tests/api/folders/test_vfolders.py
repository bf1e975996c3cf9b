"""Folders over REST: creation, names, sharing, trash, purge and mounts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import (
    AlreadyExists,
    BaiError,
    Conflict,
    Forbidden,
    InvalidRequest,
    InvalidTransition,
    NotFound,
    QuotaExceeded,
)
from bai_services.core.folders.mounts import MountRequest
from bai_services.core.folders.vfolders import Permission
from bai_services.db.tables import accounts
from tests.testbed.manager import HUB, SUPERADMIN, Api


@pytest.fixture
async def api(api: Api) -> Api:
    await api.world.manager.folders.vfolders.start()
    return api


def folders_on_disk(api: Api) -> list[str]:
    root = api.world.manager.settings.storage_root
    return sorted(str(path) for path in [*root.glob("user/*/[!.]*"), *root.glob("project/*/[!.]*")])


def write_file(folder: str) -> None:
    Path(folder, "file").write_bytes(b"x")


async def create_folder(client: Client, name: str = "data", **spec: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await client.post("/vfolders", {"name": name, **spec})
    return answer


async def names(client: Client, **query: Any) -> list[str]:
    return [item["name"] for item in (await client.get("/vfolders", **query))["items"]]


async def test_folder_is_created_read_and_renamed(api: Api) -> None:
    user = await api.client("user")
    folder = await create_folder(user)
    assert {key: folder[key] for key in ("name", "host", "owner", "project", "permission")} == {
        "name": "data",
        "host": "local",
        "owner": "user",
        "project": None,
        "permission": "wd",
    }
    assert (folder["is_owner"], folder["is_mounted"], folder["status"]) == (True, False, "ready")
    assert await user.get("/vfolders/data") == folder == await user.get(f"/vfolders/{folder['id']}")
    assert await names(user) == ["data"]
    with pytest.raises(AlreadyExists):
        await create_folder(user)
    renamed = await user.patch("/vfolders/data", {"name": "other", "permission": "ro"})
    assert (renamed["name"], renamed["mount_permission"]) == ("other", "ro")
    with pytest.raises(NotFound):
        await user.get("/vfolders/data")


@pytest.mark.parametrize(
    "spec, error",
    [
        pytest.param({"name": "a/b"}, InvalidRequest, id="invalid characters in the name"),
        pytest.param({"name": ".ssh"}, InvalidRequest, id="reserved name"),
        pytest.param({"name": "x" * 65}, InvalidRequest, id="name too long"),
        pytest.param(
            {"name": "a", "permission": "wd"},
            InvalidRequest,
            id="invalid permission wd",
        ),
        pytest.param({"name": "a", "host": "nfs"}, NotFound, id="unknown host"),
        pytest.param({"name": "a", "project": "none"}, NotFound, id="unknown project"),
        pytest.param(
            {"name": "a", "project": "default"}, Forbidden, id="project folder created by a member"
        ),
        pytest.param(
            {"name": "a", "project": "acme/default"},
            NotFound,
            id="folder of another domain's project",
        ),
    ],
)
async def test_invalid_folder_is_rejected(api: Api, spec: Any, error: type[BaiError]) -> None:
    user = await api.client("user")
    with pytest.raises(error):
        await user.post("/vfolders", spec)
    assert await names(user) == []
    assert folders_on_disk(api) == []


async def test_rejected_create_leaves_no_directory(api: Api) -> None:
    user = await api.client("user")
    async with api.world.manager.database.write() as tx:
        await tx.execute(sa.update(accounts.user_policies).values(max_vfolder_count=1))
    await create_folder(user, "one")
    with pytest.raises(QuotaExceeded, match="allows 1 folder,") as refused:
        await create_folder(user, "two")
    assert refused.value.details == {"scope": "user", "limit": 1, "used": 1}
    assert len(folders_on_disk(api)) == 1
    # The maximum number of folders applies to each user separately.
    await create_folder(await api.client("user2"), "one")


async def test_project_folder_is_accessible_to_all_members(api: Api) -> None:
    admin, user = await api.client("domain-admin"), await api.client("user")
    folder = await create_folder(admin, "shared", project="default", permission="ro")
    assert (folder["owner"], folder["project"], folder["is_owner"]) == (None, "default", False)
    seen = await user.get("/vfolders/shared")
    assert (seen["permission"], seen["is_owner"]) == ("ro", False)
    with pytest.raises(Forbidden, match="administrator"):
        await user.patch("/vfolders/shared", {"name": "mine"})
    with pytest.raises(Forbidden):
        await user.delete("/vfolders/shared")
    with pytest.raises(NotFound):
        await (await api.client("acme-user")).get(f"/vfolders/{folder['id']}")
    # A grant can give one member a higher permission than the other members have.
    await admin.put("/vfolders/shared/grants/user", {"permission": "rw"})
    assert (await user.get("/vfolders/shared"))["permission"] == "rw"
    assert (await (await api.client("user2")).get("/vfolders/shared"))["permission"] == "ro"


async def test_grant_is_given_by_email_address_changed_and_revoked(api: Api) -> None:
    user, guest = await api.client("user"), await api.client("user2")
    folder = await create_folder(user)
    path = f"/vfolders/{folder['id']}"
    with pytest.raises(NotFound):
        await guest.get(path)
    grant = await user.put("/vfolders/data/grants/user2@example.com", {"permission": "ro"})
    assert (grant["user"], grant["permission"], grant["granted_by"]) == ("user2", "ro", "user")
    assert grant["is_pending"]
    await guest.post(f"/vfolder-invitations/{grant['invitation_id']}/accept")
    seen = await guest.get("/vfolders/data")
    assert (seen["id"], seen["permission"], seen["is_owner"]) == (folder["id"], "ro", False)
    changed = await user.put("/vfolders/data/grants/user2", {"permission": "rw"})
    assert (changed["permission"], changed["is_pending"]) == ("rw", False)
    assert (await guest.get("/vfolders/data"))["permission"] == "rw"
    assert (await user.get("/vfolders/data/grants"))["total"] == 1
    # A grantee may not share, rename or delete the folder.
    for call in (
        guest.put(f"{path}/grants/domain-admin", {"permission": "ro"}),
        guest.patch(path, {"name": "x"}),
        guest.delete(path),
    ):
        with pytest.raises(Forbidden):
            await call
    await user.delete("/vfolders/data/grants/user2")
    with pytest.raises(NotFound):
        await guest.get(path)
    with pytest.raises(NotFound):
        await user.delete("/vfolders/data/grants/user2")


async def test_grantee_sees_only_their_own_grant_and_may_delete_it(api: Api) -> None:
    user, guest = await api.client("user"), await api.client("user2")
    folder = await create_folder(user)
    for name in ("user2", "monitor"):
        await api.share_folder("user", "data", name)
    path = f"/vfolders/{folder['id']}/grants"
    assert [g["user"] for g in (await guest.get(path))["items"]] == ["user2"]
    assert (await guest.get(f"{path}/user2"))["permission"] == "ro"
    with pytest.raises(Forbidden):
        await guest.get(f"{path}/monitor")
    with pytest.raises(Forbidden):
        await guest.delete(f"{path}/monitor")
    await guest.delete(f"{path}/user2")
    assert await names(guest) == []


@pytest.mark.parametrize(
    "whom, error",
    [
        pytest.param("nobody", NotFound, id="unknown user"),
        pytest.param("acme-user", NotFound, id="user of another domain"),
        pytest.param("user", InvalidRequest, id="the owner of the folder"),
    ],
)
async def test_share_with_invalid_user_is_rejected(
    api: Api, whom: str, error: type[BaiError]
) -> None:
    user = await api.client("user")
    await create_folder(user)
    with pytest.raises(error):
        await user.put(f"/vfolders/data/grants/{whom}", {"permission": "ro"})


async def test_name_refers_to_the_callers_folder_or_to_the_only_visible_folder(api: Api) -> None:
    user, user2 = await api.client("user"), await api.client("user2")
    admin = await api.client("domain-admin")
    theirs = await create_folder(user2)
    await api.share_folder("user2", "data", "user")
    assert (await user.get("/vfolders/data"))["id"] == theirs["id"]
    third = await create_folder(admin)
    await api.share_folder("domain-admin", third["id"], "user")
    with pytest.raises(Conflict, match="use the id") as refused:
        await user.get("/vfolders/data")
    assert {c["id"] for c in refused.value.details["candidates"]} == {theirs["id"], third["id"]}
    assert (await user.get(f"/vfolders/{third['id']}"))["owner"] == "domain-admin"
    own = await create_folder(user)
    assert (await user.get("/vfolders/data"))["id"] == own["id"]
    # The domain admin can see all three folders. The name refers to the domain admin's own folder.
    assert (await admin.get("/vfolders/data"))["id"] == third["id"]


async def test_trashed_folder_is_hidden_until_it_is_restored(api: Api) -> None:
    user, guest = await api.client("user"), await api.client("user2")
    folder = await create_folder(user)
    await api.share_folder("user", "data", "user2", "rw")
    await user.delete("/vfolders/data")
    assert await names(user, status="ready") == []
    assert await names(user, status="delete-pending") == ["data"]
    assert await names(guest) == []
    with pytest.raises(NotFound):
        await user.get("/vfolders/data")
    with pytest.raises(InvalidTransition, match="in the trash"):
        await user.delete(f"/vfolders/{folder['id']}")
    back = await user.post("/vfolders/data/restore")
    assert (back["id"], back["status"]) == (folder["id"], "ready")
    assert (await guest.get("/vfolders/data"))["permission"] == "rw"
    with pytest.raises(NotFound, match="in the trash"):
        await user.post("/vfolders/data/restore")


async def test_restore_with_a_taken_name_is_a_conflict(api: Api) -> None:
    user = await api.client("user")
    old = await create_folder(user)
    await user.delete("/vfolders/data")
    await create_folder(user)
    with pytest.raises(AlreadyExists, match="another folder is now named"):
        await user.post(f"/vfolders/{old['id']}/restore")
    await user.patch("/vfolders/data", {"name": "new"})
    assert (await user.post("/vfolders/data/restore"))["id"] == old["id"]


async def test_purge_deletes_only_the_files_of_trashed_folders(api: Api) -> None:
    user, manager = await api.client("user"), api.world.manager
    folder = await create_folder(user)
    (source,) = await manager.folders.mounts.sources(
        await api.world.user_id("user"),
        [{"vfolder_id": folder["id"], "vfolder": "data", "path": "/x", "permission": "rw"}],
    )
    write_file(source.source)
    with pytest.raises(NotFound):
        await user.post("/vfolders/data/purge")
    with pytest.raises(InvalidTransition, match="not in the trash"):
        await user.post(f"/vfolders/{folder['id']}/purge")
    await user.delete("/vfolders/data")
    answer = await user.post("/vfolders/data/purge")
    assert answer["status"] in ("delete-ongoing", "delete-complete")
    await manager.folders.vfolders.wait_for_tasks()
    assert folders_on_disk(api) == []
    assert (await user.get(f"/vfolders/{folder['id']}"))["status"] == "delete-complete"
    assert await names(user) == []
    assert await names(user, status="delete-complete") == ["data"]
    with pytest.raises(InvalidTransition):
        await user.post(f"/vfolders/{folder['id']}/restore")


async def test_interrupted_purge_resumes_at_the_next_start(api: Api) -> None:
    from bai_services.core.folders.vfolders import VfolderEvent
    from bai_services.db.folders.vfolders import VfolderStore

    user, manager = await api.client("user"), api.world.manager
    folder = await create_folder(user)
    await user.delete("/vfolders/data")
    store = VfolderStore(manager.database)
    await store.apply_event(folder["id"], VfolderEvent.PURGED, api.world.clock())
    await manager.folders.vfolders.stop()
    await manager.folders.vfolders.start()
    await manager.folders.vfolders.wait_for_tasks()
    assert (await user.get(f"/vfolders/{folder['id']}"))["status"] == "delete-complete"


async def test_list_is_sorted_filtered_and_paged(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("domain-admin")
    for name in ("b", "a", "c"):
        await create_folder(user, name)
    await create_folder(admin, "team", project="default")
    await create_folder(await api.client("acme-user"), "foreign")
    assert await names(user) == ["a", "b", "c", "team"]
    assert await names(user, sort="-name", limit=2, offset=1) == ["c", "b"]
    assert await names(user, name__contains="A") == ["a", "team"]
    assert await names(user, project="default") == ["team"]
    assert await names(user, is_mounted="false", owner="user") == ["a", "b", "c"]
    await user.post("/vfolders", {"name": "m", "usage_mode": "model", "permission": "ro"})
    assert await names(user, usage_mode="model", host="local", status="ready") == ["m"]
    await user.delete("/vfolders/m")
    assert await names(user, status="delete-pending") == ["m"]
    await user.post("/vfolders/m/purge")
    await api.world.manager.folders.vfolders.wait_for_tasks()
    assert await names(admin) == ["a", "b", "c", "team"]
    assert await names(await api.client("monitor")) == ["a", "b", "c", "foreign", "team"]
    with pytest.raises(InvalidRequest, match="has no field"):
        await names(user, sort="secret")


async def test_roles_have_the_expected_access_to_folders_of_other_users(api: Api) -> None:
    folder = await create_folder(await api.client("user"))
    path = f"/vfolders/{folder['id']}"
    assert (await (await api.client("domain-admin")).get(path))["permission"] == "wd"
    assert (await (await api.client("admin")).get(path))["permission"] == "wd"
    monitor = await api.client("monitor")
    assert (await monitor.get(path))["permission"] is None
    with pytest.raises(Forbidden, match="but not read its files"):
        await monitor.get(f"{path}/files")
    for other_user in (await api.client("user2"), await api.client("acme-user")):
        with pytest.raises(NotFound):
            await other_user.get(path)
    for service in (api.hub, api.agent):
        with pytest.raises(Forbidden):
            await service.get(path)


async def resolve_mounts(api: Api, username: str, *mounts: MountRequest) -> list[dict[str, Any]]:
    world = api.world
    resolved = await world.manager.folders.mounts.resolve_mounts(
        HUB, await world.user_id(username), await world.project_id(), mounts
    )
    return [mount.as_row() for mount in resolved]


async def test_own_shared_and_project_folders_can_be_mounted(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("domain-admin")
    own = await create_folder(user)
    lent = await create_folder(await api.client("user2"), "lent")
    await api.share_folder("user2", "lent", "user")
    team = await create_folder(admin, "team", project="default")
    rows = await resolve_mounts(
        api,
        "user",
        MountRequest("data"),
        MountRequest(lent["id"], "in/lent"),
        MountRequest("team", permission=Permission.RO),
    )
    assert rows == [
        {"vfolder_id": own["id"], "vfolder": "data", "host": "local"}
        | {"path": "/home/work/data", "permission": "rw"},
        {"vfolder_id": lent["id"], "vfolder": "lent", "host": "local"}
        | {"path": "/home/work/in/lent", "permission": "ro"},
        {"vfolder_id": team["id"], "vfolder": "team", "host": "local"}
        | {"path": "/home/work/team", "permission": "ro"},
    ]
    sources = await api.world.manager.folders.mounts.sources(await api.world.user_id("user"), rows)
    assert [(s.target, s.read_only, s.is_own) for s in sources] == [
        ("/home/work/data", False, True),
        ("/home/work/in/lent", True, False),
        ("/home/work/team", True, False),
    ]
    assert sorted(s.source for s in sources) == folders_on_disk(api)
    offered = await api.world.manager.folders.mounts.mountable(
        HUB, await api.world.user_id("user"), await api.world.project_id()
    )
    assert [(o.name, o.owner, o.permission) for o in offered] == [
        ("data", "user", "rw"),
        ("lent", "user2", "ro"),
        ("team", "project default", "rw"),
    ]


async def test_dot_folders_of_the_owner_are_mounted_automatically(api: Api) -> None:
    user = await api.client("user")
    await create_folder(user)
    owner, project = await api.world.user_id("user"), await api.world.project_id()
    mounts = api.world.manager.folders.mounts
    await create_folder(user, ".local")
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


async def test_mount_with_a_subpath_has_the_whole_folder_as_source(api: Api) -> None:
    own = await create_folder(await api.client("user"))
    rows = await resolve_mounts(
        api,
        "user",
        MountRequest("data", "in", subpath="raw//2024/"),
        MountRequest("data", "out", Permission.RO, "raw"),
    )
    assert [(row["vfolder_id"], row["subpath"], row["permission"]) for row in rows] == [
        (own["id"], "raw/2024", "rw"),
        (own["id"], "raw", "ro"),
    ]
    sources = await api.world.manager.folders.mounts.sources(await api.world.user_id("user"), rows)
    assert [(s.subpath, s.target, s.read_only) for s in sources] == [
        ("raw/2024", "/home/work/in", False),
        ("raw", "/home/work/out", True),
    ]
    assert {s.source for s in sources} == set(folders_on_disk(api))


async def test_invalid_mount_is_rejected(api: Api) -> None:
    user = await api.client("user")
    await create_folder(user)
    await create_folder(user, "other")
    foreign = await create_folder(await api.client("user2"), "foreign")
    lent = await create_folder(await api.client("user2"), "lent")
    await api.share_folder("user2", "lent", "user")
    await api.world.manager.folders.vfolders.create(
        SUPERADMIN, {"name": "research-only", "project": "default/research"}
    )
    dead = await create_folder(user, "dead")
    await user.delete("/vfolders/dead")
    cases: list[tuple[type[BaiError], str, list[MountRequest]]] = [
        (NotFound, "none", [MountRequest("none")]),
        (NotFound, "foreign", [MountRequest("foreign")]),
        (NotFound, "may mount", [MountRequest(foreign["id"])]),
        (NotFound, "of this project", [MountRequest("research-only")]),
        (Conflict, "delete-pending", [MountRequest("dead")]),
        (Conflict, "delete-pending", [MountRequest(dead["id"])]),
        (Forbidden, "not as rw", [MountRequest("lent", permission=Permission.RW)]),
        (
            InvalidRequest,
            "both be mounted at",
            [MountRequest("data", "x"), MountRequest("other", "x")],
        ),
        (InvalidRequest, "inside folder", [MountRequest("data"), MountRequest("other", "data/x")]),
        (InvalidRequest, "'..'", [MountRequest("data", "../x")]),
        (InvalidRequest, "'..'", [MountRequest("data", subpath="a/../..")]),
        (
            InvalidRequest,
            "both be mounted at",
            [MountRequest("data"), MountRequest("data", subpath="a")],
        ),
        (InvalidRequest, "NUL", [MountRequest("da\0ta")]),
        (InvalidRequest, "33 mounts", [MountRequest("data")] * 33),
    ]
    for error, text, mounts in cases:
        with pytest.raises(error, match=text):
            await resolve_mounts(api, "user", *mounts)
    # If a grant is revoked between the creation and the start of a session, the start fails.
    rows = await resolve_mounts(api, "user", MountRequest("lent"))
    await (await api.client("user2")).delete(f"/vfolders/{lent['id']}/grants/user")
    with pytest.raises(Forbidden, match="no longer shared"):
        await api.world.manager.folders.mounts.sources(await api.world.user_id("user"), rows)


async def test_folder_operations_are_in_the_audit_log(api: Api) -> None:
    user = await api.client("user")
    await create_folder(user)
    await user.put("/vfolders/data/grants/user2", {"permission": "ro"})
    await user.delete("/vfolders/data")
    await user.post("/vfolders/data/purge")
    log = await (await api.client("admin")).get("/audit-log", actor="user", sort="id")
    assert [item["action"] for item in log["items"]] == [
        "vfolder.create",
        "vfolder.share",
        "vfolder.trash",
        "vfolder.purge",
    ]
    assert [item["entity_name"] for item in log["items"]] == ["data"] * 4


async def test_relation_distinguishes_own_shared_and_project_folders(api: Api) -> None:
    owner, guest = await api.client("user"), await api.client("user2")
    shared = await create_folder(owner, "shared")
    await create_folder(guest, ".own")
    grant = await owner.put(f"/vfolders/{shared['id']}/grants/user2", {"permission": "ro"})
    await guest.post(f"/vfolder-invitations/{grant['invitation_id']}/accept")

    assert await names(guest, relation="own") == [".own"]
    assert await names(guest, relation="shared") == ["shared"]
    assert await names(guest, relation="project") == []
    assert await names(guest, is_auto_mounted="true") == [".own"]
    seen = (await guest.get("/vfolders", name="shared"))["items"][0]
    assert seen["relation"] == "shared"
    assert (await owner.get(f"/vfolders/{shared['id']}"))["relation"] == "own"
