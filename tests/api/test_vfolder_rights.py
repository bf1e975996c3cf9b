"""What each grant lets people do with a folder, over every route that takes one."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from bai_services.api.routes import ROUTES
from bai_services.client import Client
from bai_services.core.errors import Forbidden
from bai_services.core.folders.storage_hosts import PERMISSIONS
from tests.testbed.manager import Api

from .test_permissions import METHODS

# Who somebody is to the folder: nobody, a guest by each grant, a member of its project by what
# the folder gives, a member with less than that, its owner.
STANDINGS = ("stranger", "ro", "rw", "wd", "member-ro", "member-rw", "member-less", "owner")
READS = "nil ok ok ok ok ok ok ok"
WRITES = "nil no ok ok no ok no ok"
MANAGES = "nil no no no no no no ok"
LOOKS = "nil ok ok ok ok ok ok ok"

# By method and path below the folder: outcomes in the order of STANDINGS, and what is sent.
TABLE: list[tuple[str, str, dict[str, Any]]] = [
    ("GET ", LOOKS, {}),
    ("PATCH ", MANAGES, {"json": {"permission": "rw"}}),
    ("GET /usage", READS, {}),
    ("GET /files", READS, {}),
    ("GET /content?path=f", READS, {}),
    ("PUT /content?path=g", WRITES, {"content": b"x"}),
    ("DELETE /content?path=gone", WRITES, {}),
    ("POST /directories", WRITES, {"json": {"paths": ["d"], "exists_ok": True}}),
    ("POST /move", WRITES, {"json": {"source": "f", "target": "f2"}}),
    ("POST /copy", WRITES, {"json": {"source": "f", "target": "f3"}}),
    ("GET /archive", READS, {}),
    ("PUT /archive", WRITES, {"content": b"\0" * 1024}),
    ("POST /uploads", WRITES, {"headers": {"Upload-Length": "9", "Upload-Metadata": "path aA=="}}),
    ("GET /grants", LOOKS, {}),
    ("PUT /grants/monitor", MANAGES, {"json": {"permission": "ro"}}),
    ("DELETE /grants/monitor", MANAGES, {}),
    ("GET /grants/monitor", MANAGES, {}),
    ("GET /invitations", LOOKS, {}),
    ("POST /invitations", MANAGES, {"json": {"user": "monitor"}}),
    ("POST /clone", READS, {"json": {"name": "copy"}}),
    ("PUT /owner", "no no no no no no no no", {"json": {"user": "monitor"}}),
    ("DELETE ", MANAGES, {}),
    ("POST /restore", MANAGES, {}),
    ("POST /purge", MANAGES, {}),
]
# Only who began an upload knows of it, which tests of their own show.
ELSEWHERE = {"HEAD /uploads/{upload}", "PATCH /uploads/{upload}", "DELETE /uploads/{upload}"}


def test_every_route_of_a_folder_is_in_the_table() -> None:
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


async def folder_for(api: Api, standing: str) -> tuple[Client, str]:
    """Make a folder with the file ``f``; return who stands so to it, and its id."""
    is_project = standing.startswith("member")
    owner = await api.client("domain-admin" if is_project else "user")
    spec: dict[str, Any] = {"name": f"of-{standing}", "cloneable": True}
    if is_project:
        spec |= {"project": "default", "permission": "ro" if standing == "member-ro" else "rw"}
    made = await owner.post("/vfolders", spec)
    key = str(made["id"])
    for name in ("f", "gone"):
        query = {"path": name}
        await owner.call("PUT", f"/vfolders/{key}/content", query=query, content=b"x")
    if standing in ("ro", "rw", "wd"):
        await api.lend("user", key, "user2", standing)
    elif standing == "member-less":
        await owner.put(f"/vfolders/{key}/grants/user2", {"permission": "ro"})
    if standing == "owner":
        return owner, key
    return await api.client("user2"), key


async def outcome(http: httpx.AsyncClient, key: str, call: str, options: Any) -> str:
    method, _, below = call.partition(" ")
    async with http.stream(method, f"/vfolders/{key}{below}", **options) as answer:
        if not answer.is_error:
            return "ok"
        await answer.aread()
    code = str(answer.json()["error"])
    return {"forbidden": "no", "not-found": "nil"}.get(code, code)


@pytest.mark.parametrize("standing", STANDINGS)
async def test_what_a_grant_allows(api: Api, standing: str) -> None:
    column, differs = STANDINGS.index(standing), []
    client, key = await folder_for(api, standing)
    for call, outcomes, options in TABLE:
        expected = outcomes.split()[column]
        found = await outcome(client.http, key, call, options)
        # Somebody may do it, and there is nothing to do it to: it was let through.
        if expected == "ok" and found in ("nil", "invalid-request", "invalid-transition"):
            found = "ok"
        if found != expected:
            differs.append(f"{call}: {found}, not {expected}")
    assert not differs, "\n".join(differs)


async def test_one_is_invited_by_e_mail(api: Api) -> None:
    user, guest = await api.client("user"), await api.client("user2")
    await user.post("/vfolders", {"name": "data"})
    address = (await guest.get("/me"))["email"]
    spec = {"user": address.upper(), "permission": "rw"}
    made = await user.post("/vfolders/data/invitations", spec)
    assert made["invitee"] == "user2"
    await guest.post(f"/vfolder-invitations/{made['id']}/accept")
    assert (await guest.get("/vfolders/data"))["permission"] == "rw"
    with pytest.raises(Exception, match="nobody@example.com"):
        await user.post("/vfolders/data/invitations", {"user": "nobody@example.com"})


@pytest.mark.parametrize("grants", ["domains", "projects", "keypair-policies"])
async def test_a_members_permission_is_set_by_whom_any_grant_lets(api: Api, grants: str) -> None:
    """The host permission of it is the union of what domain, project and keypair grant."""
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
