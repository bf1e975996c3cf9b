"""Every route, every role: one literal table of how a call ends."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import httpx
import pytest

from bai_services.api.openapi import METHODS
from bai_services.api.routes import ROUTES
from bai_services.client import Client, Token
from bai_services.demo import Keys
from tests.api.things import Things
from tests.testbed.manager import AGENT_TOKEN, HUB_TOKEN, SUPERADMIN, Api

# `user` owns what has an owner, all in domain default; `stranger` and `other-admin` are of acme.
ROLES = (
    "admin",
    "domain-admin",
    "other-admin",
    "user",
    "user2",
    "acme-user",
    "monitor",
    "HUB",
    "AGENT",
)


class Row(NamedTuple):
    """One call and how it ends for each role: ``ok``, ``no`` (forbidden), ``nil`` (not found)
    or the code of an error that comes after the question who may.
    """

    call: str
    outcomes: str
    body: Any = None


#   who is who:  admin d-adm other user user2 acme monit HUB AGENT
TABLE = [
    Row("GET /me", "ok ok ok ok ok ok ok no no"),
    Row("GET /me/ssh-keys", "ok ok ok ok ok ok ok no no"),
    Row("POST /me/ssh-keys", "ok ok ok ok ok ok ok no no", {"name": "{fresh}"}),
    # Each has their own: that of somebody else is none.
    Row("DELETE /me/ssh-keys/nothing", "nil nil nil nil nil nil nil no no"),
    Row("GET /metrics", "ok no no no no no ok no no"),
    Row("GET /counter-audit", "ok no no no no no ok no no"),
    Row("POST /drain", "no no no no no no no ok no"),
    Row(
        "POST /auth/verify",
        "no no no no no no no sign-in-refused no",
        {"name": "x", "password": "x"},
    ),
    Row("GET /auth/accounts/user", "no no no no no no no ok no"),
    # People sign here with a keypair: that there is no token to withdraw comes first.
    Row("DELETE /auth/token", " ".join([*["invalid-request"] * 7, "no no"])),
    Row("GET /domains", "ok ok ok ok ok ok ok no no"),
    Row("POST /domains", "ok no no no no no no no no", {"name": "{fresh}"}),
    Row("GET /domains/default", "ok ok nil ok ok nil ok nil nil"),
    Row("PATCH /domains/default", "ok no nil no no nil no nil nil", {"description": "x"}),
    Row("DELETE /domains/{domain}", "ok nil nil nil nil nil no nil nil"),
    Row("GET /projects", "ok ok ok ok ok ok ok no no"),
    Row("POST /projects", "ok ok ok no no no no no no", {"name": "{fresh}"}),
    Row("GET /projects/{project}", "ok ok nil nil nil nil ok no no"),
    Row("PATCH /projects/{project}", "ok ok nil nil nil nil no no no", {"description": "x"}),
    Row("DELETE /projects/{project}", "ok ok nil nil nil nil no no no"),
    Row("GET /projects/{project}/members", "ok ok nil nil nil nil ok no no"),
    Row("PUT /projects/{project}/members/user2", "ok ok nil nil nil nil no no no"),
    Row("DELETE /projects/{project}/members/user2", "nil nil nil nil nil nil no no no"),
    Row("GET /users", "ok ok ok ok ok ok ok no no"),
    Row(
        "POST /users",
        "ok ok ok no no no no no no",
        {"username": "{fresh}", "email": "{fresh}@example.com"},
    ),
    Row("GET /users/user", "ok ok nil ok nil nil ok no no"),
    Row("PATCH /users/user", "ok ok nil ok nil nil no no no", {"full_name": "x"}),
    Row("PATCH /users/{person}", "ok no nil nil nil nil no no no", {"role": "admin"}),
    Row("DELETE /users/{person}", "ok ok nil nil nil nil no no no"),
    Row("POST /users/user/sign-out", "ok ok nil ok nil nil no no no"),
    Row("POST /users/user/unlock", "ok ok nil no nil nil no no no"),
    Row("GET /keypairs", "ok ok ok ok ok ok ok no no"),
    Row("POST /keypairs", "ok ok nil no no no no no no", {"user": "user"}),
    Row("GET /keypairs/{keypair}", "ok ok nil ok nil nil ok nil nil"),
    Row("GET /keypairs/{keypair}/callback-secret", "no no nil ok nil nil no nil nil"),
    Row("PATCH /keypairs/{keypair}", "ok ok nil ok nil nil no nil nil", {"new_secret": True}),
    Row("PATCH /keypairs/{keypair}", "ok ok nil no nil nil no nil nil", {"rate_limit": 5}),
    Row("DELETE /keypairs/{keypair}", "ok ok nil no nil nil no nil nil"),
    *(
        row
        for kind in ("keypair", "user", "project")
        for row in (
            Row(f"GET /{kind}-policies", "ok ok ok ok ok ok ok no no"),
            Row(f"POST /{kind}-policies", "ok no no no no no no no no", {"name": "{fresh}"}),
            Row(f"GET /{kind}-policies/{{{kind}_policy}}", "ok ok ok ok ok ok ok no no"),
            Row(f"PATCH /{kind}-policies/{{{kind}_policy}}", "ok no no no no no no no no", {}),
            Row(f"DELETE /{kind}-policies/{{{kind}_policy}}", "ok no no no no no no no no"),
        )
    ),
    Row("GET /audit-log", "ok ok ok no no no ok no no"),
    Row("GET /resource-groups", "ok ok ok ok ok ok ok no no"),
    Row("POST /resource-groups", "ok no no no no no no no no", {"name": "{fresh}"}),
    Row("GET /resource-groups/default", "ok ok ok ok ok ok ok no no"),
    Row("PATCH /resource-groups/{group}", "ok no no no no no no no no", {"description": "x"}),
    Row("DELETE /resource-groups/{group}", "ok no no no no no no no no"),
    Row("GET /resource-groups/{linked_group}/links", "ok no no no no no ok no no"),
    Row("PUT /resource-groups/{group}/links/domain/acme", "ok no no no no no no no no"),
    Row(
        "DELETE /resource-groups/{linked_group}/links/domain/default", "ok no no no no no no no no"
    ),
    Row("GET /agents", "ok ok ok no no no ok no no"),
    Row("GET /agents/{node}", "ok ok ok no no no ok no no"),
    Row("PATCH /agents/{node}", "ok no no no no no no no no", {"schedulable": True}),
    Row("DELETE /agents/{node}", "in-use no no no no no no no no"),
    Row(
        "POST /agents/{node}/heartbeat",
        "no no no no no no no no ok",
        {
            "resource_group": "default",
            "engine": "process",
            "architecture": "x86_64",
            "version": "1",
            "slots": {"cpu": "1", "mem": "1g"},
            "kernels": [],
        },
    ),
    Row("GET /agents/{node}/work?wait=0", "no no no no no no no no ok"),
    Row(
        "POST /agents/{node}/reports",
        "no no no no no no no no nil",
        {"work_id": "x", "kind": "prepare", "session_id": "x", "kernel_id": "x", "state": "done"},
    ),
    Row("GET /devices", "ok ok ok no no no ok no no"),
    Row("GET /images", "ok ok ok ok ok ok ok no no"),
    Row("POST /images", "ok no no no no no no no no", {"name": "test/{fresh}:1"}),
    Row("GET /images/{image}", "ok ok ok ok ok ok ok no no"),
    Row("PATCH /images/{image}", "ok no no no no no no no no", {"description": "x"}),
    Row("DELETE /images/{image}", "ok no no no no no no no no"),
    Row("GET /image-aliases", "ok ok ok ok ok ok ok no no"),
    Row(
        "POST /image-aliases",
        "ok no no no no no no no no",
        {"alias": "{fresh}", "image": "{image}"},
    ),
    Row("GET /image-aliases/{alias}", "ok ok ok ok ok ok ok no no"),
    Row("PATCH /image-aliases/{alias}", "ok no no no no no no no no", {"image": "{image}"}),
    Row("DELETE /image-aliases/{alias}", "ok no no no no no no no no"),
    Row("GET /presets", "ok ok ok ok ok ok ok no no"),
    Row(
        "POST /presets",
        "ok no no no no no no no no",
        {"name": "{fresh}", "resource_slots": {"cpu": "1"}},
    ),
    Row("GET /presets/{preset}", "ok ok ok ok ok ok ok no no"),
    Row("PATCH /presets/{preset}", "ok no no no no no no no no", {"shared_memory": "64m"}),
    Row("DELETE /presets/{preset}", "ok no no no no no no no no"),
    Row("GET /vfolders", "ok ok ok ok ok ok ok no no"),
    Row("POST /vfolders", "ok ok ok ok ok ok no no no", {"name": "{fresh}"}),
    Row(
        "POST /vfolders",
        "ok ok nil no no nil no no no",
        {"name": "{fresh}", "project": "default/default"},
    ),
    Row("GET /vfolders/{folder}", "ok ok nil ok nil nil ok no no"),
    Row("PATCH /vfolders/{folder}", "ok ok nil ok nil nil no no no", {"permission": "ro"}),
    Row("DELETE /vfolders/{folder}", "ok ok nil ok nil nil no no no"),
    Row("POST /vfolders/{trashed_folder}/restore", "ok ok nil ok nil nil no no no"),
    Row("POST /vfolders/{trashed_folder}/purge", "ok ok nil ok nil nil no no no"),
    Row("GET /vfolders/{folder}/usage", "ok ok nil ok nil nil no no no"),
    Row("GET /vfolders/{folder}/grants", "ok ok nil ok nil nil ok no no"),
    Row("GET /vfolders/{lent_folder}/grants/monitor", "ok ok nil ok nil nil ok no no"),
    Row(
        "PUT /vfolders/{folder}/grants/user2",
        "ok ok nil ok nil nil no no no",
        {"permission": "ro"},
    ),
    Row("DELETE /vfolders/{lent_folder}/grants/monitor", "ok ok nil ok nil nil ok no no"),
    Row("GET /vfolders/{folder}/files", "ok ok nil ok nil nil no no no"),
    Row("GET /vfolders/{lent_folder}/files", "ok ok nil ok nil nil ok no no"),
    Row("GET /vfolders/{folder_with_file}/content?path=f", "ok ok nil ok nil nil no no no"),
    Row("PUT /vfolders/{folder}/content?path=f", "ok ok nil ok nil nil no no no"),
    Row("PUT /vfolders/{lent_folder}/content?path=f", "ok ok nil ok nil nil no no no"),
    Row("DELETE /vfolders/{folder_with_file}/content?path=f", "ok ok nil ok nil nil no no no"),
    Row(
        "POST /vfolders/{cloneable_folder}/clone",
        "ok ok nil ok nil nil no no no",
        {"name": "{fresh}"},
    ),
    Row("POST /vfolders/{folder}/clone", "no no nil no nil nil no no no", {"name": "{fresh}"}),
    Row("PUT /vfolders/{folder}/owner", "ok no no no no no no no no", {"user": "user2"}),
    Row("POST /vfolders/{folder}/directories", "ok ok nil ok nil nil no no no", {"paths": ["d"]}),
    Row(
        "POST /vfolders/{lent_folder}/directories",
        "ok ok nil ok nil nil no no no",
        {"paths": ["d"]},
    ),
    *(
        Row(
            f"POST /vfolders/{{folder_with_file}}/{verb}",
            "ok ok nil ok nil nil no no no",
            {"source": "f", "target": "g"},
        )
        for verb in ("move", "copy")
    ),
    Row("GET /vfolders/{folder_with_file}/archive", "ok ok nil ok nil nil no no no"),
    Row("GET /vfolders/{lent_folder}/archive", "ok ok nil ok nil nil ok no no"),
    # Nothing is no archive: who may write is told so.
    Row(
        "PUT /vfolders/{folder}/archive",
        "invalid-request invalid-request nil invalid-request nil nil no no no",
    ),
    # No header says how long it is.
    Row(
        "POST /vfolders/{folder}/uploads",
        "invalid-request invalid-request nil invalid-request nil nil no no no",
    ),
    # Only who began it knows of an upload.
    Row("HEAD /vfolders/{upload_folder}/uploads/{upload}", "nil nil nil ok nil nil no no no"),
    Row("PATCH /vfolders/{upload_folder}/uploads/{upload}", "invalid-request " * 9),
    Row("DELETE /vfolders/{upload_folder}/uploads/{upload}", "nil nil nil ok nil nil no no no"),
    Row("GET /vfolders/{folder}/invitations", "ok ok nil ok nil nil ok no no"),
    Row(
        "POST /vfolders/{folder}/invitations",
        "ok ok nil ok nil nil no no no",
        {"user": "user2"},
    ),
    Row("GET /vfolder-invitations", "ok ok ok ok ok ok ok no no"),
    Row("GET /vfolder-invitations/{invitation}", "ok ok nil ok ok nil nil nil nil"),
    Row(
        "PATCH /vfolder-invitations/{invitation}",
        "ok ok nil ok no nil nil nil nil",
        {"permission": "rw"},
    ),
    Row("DELETE /vfolder-invitations/{invitation}", "ok ok nil ok no nil nil nil nil"),
    Row("POST /vfolder-invitations/{invitation}/accept", "no no nil no ok nil nil nil nil"),
    Row("POST /vfolder-invitations/{invitation}/decline", "no no nil no ok nil nil nil nil"),
    Row("GET /storage-hosts", "ok ok ok ok ok ok ok no no"),
    Row("GET /quota-scopes", "ok ok ok ok ok ok ok no no"),
    Row("GET /quota-scopes/local/{user_scope}", "ok ok nil ok nil nil ok no no"),
    Row(
        "PUT /quota-scopes/local/{user_scope}", "ok no no no no no no no no", {"limit_bytes": None}
    ),
    Row("GET /events", "ok ok ok ok ok ok ok ok no"),
    Row("GET /events?session={session}", "ok ok nil ok nil nil ok ok no"),
    Row("GET /kernels", "ok ok ok ok ok ok ok ok no"),
    Row("GET /allocations", "ok ok ok ok ok ok ok no no"),
    Row("GET /session-dependencies", "ok ok ok ok ok ok ok ok no"),
    Row("GET /sessions", "ok ok ok ok ok ok ok ok no"),
    Row("POST /sessions", "ok ok ok ok ok ok no invalid-request no", {"name": "{fresh}"}),
    Row("GET /sessions/options", "ok ok ok ok ok ok no invalid-request no"),
    Row("GET /sessions/{session}", "ok ok nil ok nil nil ok ok no"),
    Row("PATCH /sessions/{session}", "ok ok nil ok nil nil no ok no", {"name": "{fresh}"}),
    Row("DELETE /sessions/{session}", "ok ok nil ok nil nil no ok no"),
    Row(
        "POST /sessions/{session}/lifetime",
        "conflict conflict nil conflict nil nil no conflict no",
        {"seconds": 60},
    ),
    Row(
        "POST /sessions/{session}/activity",
        "conflict conflict nil conflict nil nil no conflict no",
        {},
    ),
    Row("GET /sessions/{session}/logs", "ok ok nil ok nil nil no ok no"),
    Row("GET /sessions/{session}/log-file", "ok ok nil ok nil nil no ok no"),
    Row("GET /sessions/{session}/log-stream", "ok ok nil ok nil nil no ok no"),
    # Whose session it is goes in, nobody else; this one does not run.
    Row("POST /sessions/{session}/token", "no no nil conflict nil nil no no no"),
    Row("GET /app-shares", "ok ok ok ok ok ok ok no no"),
    Row("GET /sessions/{session}/app-shares", "ok ok nil ok nil nil ok ok no"),
    # The demo's policy lets nobody share: that comes after the question who may.
    Row(
        "POST /sessions/{session}/app-shares",
        "no no nil no nil nil no no no",
        {"app": "tensorboard", "user": "user2"},
    ),
    Row("DELETE /sessions/{session}/app-shares/nothing", "nil nil nil nil nil nil no no no"),
    # For the servers of sessions alone.
    Row(
        "POST /app-visits",
        "no no no no no no no no no",
        {"session_id": "{session}", "app": "tensorboard", "client_ip": "127.0.0.1"},
    ),
    Row("GET /sessions/{session}/history", "ok ok nil ok nil nil ok ok no"),
    Row("GET /sessions/{session}/usage", "ok ok nil ok nil nil ok ok no"),
    Row("GET /sessions/{session}/why", "ok ok nil ok nil nil ok ok no"),
    Row("GET /sessions/{session}/dependency-graph", "ok ok nil ok nil nil ok ok no"),
    Row(
        "POST /bulk-sessions",
        "ok ok ok ok ok ok no invalid-request no",
        {"sessions": [{"name": "{fresh}"}]},
    ),
    Row("GET /session-templates", "ok ok ok ok ok ok ok no no"),
    Row(
        "POST /session-templates",
        "ok ok ok ok ok ok no no no",
        {"name": "{fresh}", "request": {}},
    ),
    Row(
        "POST /session-templates",
        "ok ok ok no no no no no no",
        {"name": "{fresh}", "request": {}, "audience": "domain"},
    ),
    Row("GET /session-templates/{template}", "ok ok nil ok nil nil ok no no"),
    Row("PATCH /session-templates/{template}", "ok ok nil ok nil nil no no no", {}),
    Row("DELETE /session-templates/{template}", "ok ok nil ok nil nil no no no"),
    Row(
        "POST /sessions/{session}/launch",
        "no no no no no no no nil no",
        {"user": "user", "server": "x"},
    ),
    Row("POST /sessions/{session}/started", "no no no no no no no conflict no", {}),
    Row("POST /sessions/{session}/exited", "no no no no no no no ok no", {}),
    Row("POST /sessions/{session}/detach", "no no no no no no no ok no"),
]

# They need no sign-in. How they refuse is shown where their own tests are.
OPEN = {
    ("get", "/health"),
    ("post", "/auth/token"),
    ("post", "/auth/password"),
    ("post", "/auth/code"),
    ("post", "/auth/code/redeem"),
}


def operations() -> dict[tuple[str, str], Any]:
    """Return every operation of the API by method and pattern."""
    return {
        (method, pattern): getattr(handler, method).operation
        for pattern, handler in ROUTES
        for method in METHODS
        if hasattr(getattr(handler, method), "operation")
    }


def matched(row: Row) -> tuple[str, str] | None:
    """Return method and pattern of the route that a row calls."""
    method, _, template = row.call.partition(" ")
    path = re.sub(r"\{\w+\}", "x", template.partition("?")[0])
    for pattern, _ in ROUTES:
        if re.fullmatch(pattern, path):
            return method.lower(), pattern
    return None


def test_every_route_is_in_the_table() -> None:
    found = operations()
    shown = {matched(row) for row in TABLE}
    assert {key for key, op in found.items() if op.is_open} == OPEN
    assert set(found) - OPEN == shown


@pytest.fixture
async def things(api: Api) -> Things:
    manager = api.world.manager
    await manager.folders.vfolders.start()
    spec = {"username": "other-admin", "email": "o@example.com", "role": "admin", "domain": "acme"}
    made = await manager.accounts.users.create(SUPERADMIN, {**spec, "projects": ["acme/default"]})
    api.world.keys["other-admin"] = Keys(**made["keypair"])
    return await Things.of(api)


async def client_of(api: Api, role: str) -> Client:
    if role in ("HUB", "AGENT"):
        return Client(api.url, Token(HUB_TOKEN if role == "HUB" else AGENT_TOKEN))
    return await api.client(role)


async def outcome(http: httpx.AsyncClient, things: Things, row: Row) -> str:
    method, _, template = row.call.partition(" ")
    path, body = await things.fill(template), await things.fill_body(row.body)
    options: dict[str, Any] = {} if body is None else {"json": body}
    # Only the head is read: streams of events have no end.
    async with http.stream(method, path, **options) as answer:
        if not answer.is_error:
            return "ok"
        await answer.aread()
    # A HEAD's refusal has a status only.
    codes = {401: "not-signed-in", 403: "forbidden", 404: "not-found"}
    code = codes[answer.status_code] if method == "HEAD" else str(answer.json()["error"])
    return {"forbidden": "no", "not-found": "nil"}.get(code, code)


@pytest.mark.both_databases
@pytest.mark.parametrize("role", ROLES)
async def test_who_may_do_what(api: Api, things: Things, role: str) -> None:
    column = ROLES.index(role)
    differs = []
    async with await client_of(api, role) as client:
        for row in TABLE:
            expected = row.outcomes.split()[column]
            found = await outcome(client.http, things, row)
            if found != expected:
                differs.append(f"{row.call} {row.body or ''}: {found}, not {expected}")
    assert not differs, "\n".join(differs)


async def test_nobody_may_do_anything_without_signing_in(api: Api, things: Things) -> None:
    differs = []
    async with httpx.AsyncClient(base_url=f"{api.url}/api/v1") as http:
        for row in TABLE:
            found = await outcome(http, things, row)
            if found != "not-signed-in":
                differs.append(f"{row.call}: {found}")
    assert not differs, "\n".join(differs)
