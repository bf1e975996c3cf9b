"""Outcome of the folder operations for each relation of the caller to the folder."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from bai_services.api.routes import ROUTES
from bai_services.client import Client
from bai_services.core.errors import Forbidden, NotFound
from bai_services.core.folders.storage_hosts import PERMISSIONS
from tests.testbed.manager import Api

from ..test_permissions import METHODS

# Relations of the caller to the folder. ro, rw, wd: the caller has a grant with this permission.
# member-ro, member-rw: the caller is a member of the folder's project, and the folder has this
# permission. member-less: the folder has the permission rw, but the member has a grant with ro.
RELATIONS = ("none", "ro", "rw", "wd", "member-ro", "member-rw", "member-less", "owner")
READS = "404 ok ok ok ok ok ok ok"
WRITES = "404 403 ok ok 403 ok 403 ok"
MANAGES = "404 403 403 403 403 403 403 ok"

# Each row contains the method and the path relative to the folder, the outcomes in the order of
# RELATIONS, and the options of the request. The test sends the requests in the order of the rows,
# because some requests need the result of an earlier request.
TABLE: list[tuple[str, str, dict[str, Any]]] = [
    ("GET ", READS, {}),
    ("PATCH ", MANAGES, {"json": {"permission": "rw"}}),
    ("GET /usage", READS, {}),
    ("GET /files", READS, {}),
    ("GET /content?path=f", READS, {}),
    ("PUT /content?path=g", WRITES, {"content": b"x"}),
    ("DELETE /content?path=gone", WRITES, {}),
    ("POST /directories", WRITES, {"json": {"paths": ["d"], "exists_ok": True}}),
    ("POST /move", WRITES, {"json": {"source": "f", "target": "f2"}}),
    ("POST /copy", WRITES, {"json": {"source": "f2", "target": "f3"}}),
    ("GET /archive", READS, {}),
    ("PUT /archive", WRITES, {"content": b"\0" * 1024}),
    ("POST /uploads", WRITES, {"headers": {"Upload-Length": "9", "Upload-Metadata": "path aA=="}}),
    ("GET /grants", READS, {}),
    ("PUT /grants/monitor", MANAGES, {"json": {"permission": "ro"}}),
    ("GET /grants/monitor", MANAGES, {}),
    ("DELETE /grants/monitor", MANAGES, {}),
    ("GET /invitations", READS, {}),
    ("POST /invitations", MANAGES, {"json": {"user": "monitor"}}),
    ("POST /clone", READS, {"json": {"name": "copy"}}),
    ("PUT /owner", "403 403 403 403 403 403 403 403", {"json": {"user": "monitor"}}),
    ("DELETE ", MANAGES, {}),
    ("POST /restore", MANAGES, {}),
    ("DELETE ", MANAGES, {}),
    ("POST /purge", MANAGES, {}),
]
# Only the user who started an upload has access to it; see test_uploads.py.
ELSEWHERE = {"HEAD /uploads/{upload}", "PATCH /uploads/{upload}", "DELETE /uploads/{upload}"}


def test_table_lists_all_folder_operations_except_those_on_a_started_upload() -> None:
    known = {re.sub(r"/monitor$", "/{user}", call.partition("?")[0]) for call, _, _ in TABLE}
    found = set()
    for pattern, handler in ROUTES:
        if not pattern.startswith("/vfolders/(?P<key>"):
            continue
        below = re.sub(r"\(\?P<(\w+)>[^)]*\)", r"{\1}", pattern).removeprefix("/vfolders/{key}")
        for method in METHODS:
            if hasattr(getattr(handler, method), "operation"):
                found.add(f"{method.upper()} {below}")
    assert found - ELSEWHERE == known


@pytest.fixture
async def api(api: Api) -> Api:
    await api.world.manager.folders.vfolders.start()
    return api


async def folder_for(api: Api, relation: str) -> tuple[Client, str]:
    """Create a folder with files.

    Return the client of a user with this relation to the folder, and the folder's id.
    """
    is_project = relation.startswith("member")
    owner = await api.client("domain-admin" if is_project else "user")
    spec: dict[str, Any] = {"name": f"of-{relation}", "cloneable": True}
    if is_project:
        spec |= {"project": "default", "permission": "ro" if relation == "member-ro" else "rw"}
    made = await owner.post("/vfolders", spec)
    key = str(made["id"])
    for name in ("f", "gone"):
        query = {"path": name}
        await owner.call("PUT", f"/vfolders/{key}/content", query=query, content=b"x")
    if relation in ("ro", "rw", "wd"):
        await api.share_folder("user", key, "user2", relation)
    elif relation == "member-less":
        await owner.put(f"/vfolders/{key}/grants/user2", {"permission": "ro"})
    if relation == "owner":
        return owner, key
    return await api.client("user2"), key


async def outcome_of(http: httpx.AsyncClient, key: str, call: str, options: Any) -> str:
    method, _, below = call.partition(" ")
    async with http.stream(method, f"/vfolders/{key}{below}", **options) as answer:
        if not answer.is_error:
            return "ok"
        await answer.aread()
    code = str(answer.json()["error"])
    return {"forbidden": "403", "not-found": "404"}.get(code, code)


@pytest.mark.parametrize("relation", RELATIONS)
async def test_folder_operations_have_the_expected_outcomes(api: Api, relation: str) -> None:
    column, errors = RELATIONS.index(relation), []
    client, key = await folder_for(api, relation)
    if relation != "none":
        is_managed = (await client.get(f"/vfolders/{key}"))["is_managed"]
        assert is_managed == (MANAGES.split()[column] == "ok")
    for call, outcomes, options in TABLE:
        expected = outcomes.split()[column]
        outcome = await outcome_of(client.http, key, call, options)
        if outcome != expected:
            errors.append(f"{call}: {outcome}, expected {expected}")
    assert not errors, "\n".join(errors)


async def test_grantee_with_the_highest_permission_sees_only_their_own_grant(api: Api) -> None:
    client, key = await folder_for(api, "wd")
    await api.share_folder("user", key, "monitor")
    await (await api.client("user")).put(f"/vfolders/{key}/grants/domain-admin", {})
    assert [grant["user"] for grant in (await client.get(f"/vfolders/{key}/grants"))["items"]] == [
        "user2"
    ]
    invitations = (await client.get(f"/vfolders/{key}/invitations"))["items"]
    assert [invitation["invitee"] for invitation in invitations] == ["user2"]


async def test_user_is_invited_by_email_address_in_any_case(api: Api) -> None:
    user, guest = await api.client("user"), await api.client("user2")
    await user.post("/vfolders", {"name": "data"})
    address = (await guest.get("/me"))["email"]
    spec = {"user": address.upper(), "permission": "rw"}
    made = await user.post("/vfolders/data/invitations", spec)
    assert made["invitee"] == "user2"
    await guest.post(f"/vfolder-invitations/{made['id']}/accept")
    assert (await guest.get("/vfolders/data"))["permission"] == "rw"
    with pytest.raises(NotFound, match="nobody@example.com"):
        await user.post("/vfolders/data/invitations", {"user": "nobody@example.com"})


@pytest.mark.checklist("SHARE-07")
@pytest.mark.parametrize("grants", ["domains", "projects", "keypair-policies"])
async def test_host_permission_of_one_scope_permits_setting_a_members_permission(
    api: Api, grants: str
) -> None:
    """It is enough if the domain, the project or the keypair policy grants a host permission."""
    admin, owner = await api.client("admin"), await api.client("domain-admin")
    team = await admin.post("/vfolders", {"name": "team", "project": "default/default"})
    wanted = "set-user-specific-permission"
    others = {"local": [name for name in PERMISSIONS if name != wanted]}
    for kind in ("domains", "keypair-policies", "projects"):
        for item in (await admin.get(f"/{kind}"))["items"]:
            await admin.patch(f"/{kind}/{item['id'] if kind == 'projects' else item['name']}",
                              {"allowed_vfolder_hosts": others})  # fmt: skip
    path = f"/vfolders/{team['id']}/grants/user2"
    with pytest.raises(Forbidden, match=wanted):
        await owner.put(path, {"permission": "ro"})
    key = {
        "domains": "default",
        "projects": str(team["project_id"]),
        "keypair-policies": (await admin.get("/keypairs", user="domain-admin"))["items"][0][
            "resource_policy"
        ],
    }[grants]
    await admin.patch(f"/{grants}/{key}", {"allowed_vfolder_hosts": {"local": [wanted]}})
    assert (await owner.put(path, {"permission": "ro"}))["permission"] == "ro"
