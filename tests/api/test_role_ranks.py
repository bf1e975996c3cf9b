"""Access of callers to the resources of owners, for each pair of roles.

The tests send the requests of TABLE that concern a resource with an owner, and list resources. A
request may succeed only if the role and the domain of the caller permit it (see ``is_allowed``).
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from bai_services.api.routes import ROUTES
from bai_services.client import Client, Keypair, Token
from bai_services.core.accounts.roles import SESSION_SCOPE, Role
from bai_services.core.errors import Forbidden, NotFound
from tests.api.resource_factory import PLACEHOLDER, ResourceFactory, ReusedResources
from tests.api.test_permissions import OPEN, TABLE, Row, operation_of, operations
from tests.testbed.fake_hub import FakeHub, serve_fake_hub
from tests.testbed.manager import (
    SUPERADMIN,
    Api,
    MovableClock,
    make_world,
    manager_on,
    serving,
)
from tests.testbed.wait import wait_until_async

# Text in the private data of each owner: the environment and the command of sessions and templates,
# and the content of files.
PRIVATE = "marker-of-private-data"
RANKS = {"user": 0, "monitor": 0, "admin": 1, "superadmin": 2}
OWNER_ROLES = ("user", "admin", "superadmin")
DOMAINS = ("default", "acme")
# Placeholders in ROWS for the owner and for resources that have an owner. The test creates these
# resources for each tested owner.
OWNED = {
    "owner",
    "folder",
    "folder_with_file",
    "cloneable_folder",
    "trashed_folder",
    "upload_folder",
    "invitation",
    "keypair",
    "other_user",
    "shared_folder",
    "session",
    "schedule",
    "custom_image",
    "open_commit",
    "endpoint",
    "chat",
    "model_import",
    "pipeline",
    "pipeline_run",
    "pipeline_schedule",
    "pipeline_trigger",
    "pipeline_template",
    "cancelled_run",
    "folder_import",
    "template",
    "user_scope",
}
# Paths of TABLE with a fixed user name, and the paths that replace them.
FIXED_NAMES = {
    "/users/user": "/users/{owner}",
    "/accounts/user": "/accounts/{owner}",
    "/members/user2": "/members/{owner}",
}
# Routes that list resources of several users.
LISTS = {
    "/allocations",
    "/app-shares",
    "/audit-log",
    "/kernels",
    "/keypairs",
    "/quota-scopes",
    "/schedules",
    "/custom-images",
    "/endpoints",
    "/endpoint-usage",
    "/chats",
    "/model-imports",
    "/pipelines",
    "/pipeline-runs",
    "/pipeline-schedules",
    "/pipeline-triggers",
    "/pipeline-templates",
    "/folder-imports",
    "/session-dependencies",
    "/session-templates",
    "/sessions",
    "/usage",
    "/usage-trends",
    "/users",
    "/vfolder-invitations",
    "/vfolders",
}
# Lists that must contain the caller's own resource, and the placeholder of this resource.
LISTED_RESOURCES = {
    "/sessions": "session",
    "/vfolders": "folder",
    "/session-templates": "template",
}
# Routes for resources of the caller, of the installation or of a project.
UNOWNED_RESOURCES = (
    "me",
    "dashboard",
    "mail",
    "metrics",
    "counter-audit",
    "audit-log/(mine|verification)",
    "announcements",
    "maintenances",
    "reservations",
    "system",
    "configuration",
    "component-settings",
    "pipeline-schema",
    "pipeline-checks",
    "pipeline-conversions",
    "session-logs",
    "drain",
    "domains",
    "projects",
    "(keypair|user|project)-policies",
    "resource-groups",
    "agents",
    "agent-invitations",
    "cluster-checks",
    "provisioned-machines",
    "agent-joins",
    "agent-summaries",
    "agent-totals",
    "devices",
    "images",
    "image-aliases",
    "image-pulls",
    "image-prunes",
    "image-registries",
    "presets",
    "idle-checkers",
    "idle-checker-bindings",
    "idle-decisions",
    "idle-replays",
    "preemptions",
    "storage-hosts",
    "usage-prices",
    "budgets",
    "overflow-rules",
    "notifications",
    "notification-events",
    "notification-settings",
    "webhooks",
    "runtime-variants",
    "models",
    "recipes",
    "model-definitions",
    "endpoint-trials",
    "gateway",
    "sign-up-invitations",
    "auth/(verify|token|external|signed-tokens|password-reset|sign-up|account-deletion)",
)
UNOWNED = re.compile(
    rf"/({'|'.join(UNOWNED_RESOURCES)})(/.*)?"
    r"|/(sessions/(options|preview|quotas)|folder-imports/preview|bulk-sessions|events|app-visits)"
)
# Metadata that a domain admin may read about each user of the domain, even about superadmins.
METADATA = {
    ("get", "/users/{owner}"),
    ("get", "/users/{owner}/identities"),
    ("get", "/keypairs/{keypair}"),
    ("get", "/quota-scopes/local/{user_scope}"),
}
# Requests that fail for every caller other than the owner. They are permitted only to the owner,
# the invitee or the Hub, or they fail here for every caller: for instance, the body is empty, the
# resource does not exist, or the session is not running.
ALWAYS_REJECTED = {
    "DELETE /projects/{project}/members/{owner}",
    "DELETE /sessions/{session}/app-shares/nothing",
    "DELETE /endpoints/{endpoint}/tokens/nothing",
    "GET /endpoints/{endpoint}/replicas/nothing/history",
    "DELETE /chats/{chat}",
    "DELETE /users/{owner}/authenticator",
    "DELETE /vfolders/{upload_folder}/uploads/{upload}",
    "DELETE /auth/accounts/{owner}/identities/nothing",
    "DELETE /users/{owner}/identities/nothing",
    "GET /auth/accounts/{owner}",
    "GET /auth/accounts/{owner}/identities",
    "GET /chats/{chat}",
    "GET /keypairs/{keypair}/callback-secret",
    "GET /sessions/{session}/suspension",
    "HEAD /vfolders/{upload_folder}/uploads/{upload}",
    "PATCH /vfolders/{upload_folder}/uploads/{upload}",
    "PATCH /chats/{chat}",
    "POST /app-visits",
    "POST /endpoints/{endpoint}/promotion",
    # The import has not failed.
    "POST /model-imports/{model_import}/retry",
    "PATCH /pipelines/{pipeline}",
    "POST /pipelines/{pipeline}/runs",
    # Only the owner of a pipeline creates schedules and triggers.
    "POST /pipeline-schedules",
    "POST /pipeline-triggers",
    "POST /pipeline-triggers/{pipeline_trigger}/secret",
    "POST /pipeline-runs/{cancelled_run}/resumption",
    # The session belongs to the caller.
    "POST /pipeline-runs/{pipeline_run}/apps",
    # There is no such task.
    "POST /pipeline-runs/{pipeline_run}/tasks/nothing/approval",
    "POST /endpoints/{endpoint}/revisions",
    "POST /endpoints/{endpoint}/tokens",
    "POST /auth/accounts/{owner}/authenticator",
    "POST /auth/accounts/{owner}/identities",
    "POST /auth/accounts/{owner}/authenticator/registration",
    "POST /auth/accounts/{owner}/identity-confirmation",
    "POST /sessions/{session}/activity",
    "POST /sessions/{session}/app-shares",
    "POST /sessions/{session}/commit",
    "POST /sessions/{session}/detach",
    "POST /sessions/{session}/exited",
    "POST /sessions/{session}/idle-checks/keep-alive",
    "POST /sessions/{session}/launch",
    "POST /sessions/{session}/lifetime",
    "POST /sessions/{session}/resize",
    "POST /sessions/{session}/resume",
    "POST /sessions/{session}/started",
    "POST /sessions/{session}/stop-notice",
    "POST /sessions/{session}/suspend",
    "POST /sessions/{session}/token",
    "POST /sessions/{session}/server",
    "POST /users/{owner}/approve",
    "POST /users/{owner}/purge",
    "POST /vfolder-invitations/{invitation}/accept",
    "POST /vfolder-invitations/{invitation}/decline",
    "POST /vfolders/{folder}/clone",
    "POST /vfolders/{folder}/uploads",
    "PUT /vfolders/{folder}/archive",
    "PUT /sessions/{session}/idle-checks/exclusion",
}


# Requests that the members of the project of a resource may send.
PROJECT_USES = re.compile(
    r"GET /endpoints/\{endpoint\}(/revisions|/replicas|/scalings|/load)?"
    r"|POST /endpoints/\{endpoint\}/chat-token"
)


@dataclass(frozen=True)
class Account:
    """A caller or an owner. With ``is_session``, the caller uses a session token of the account."""

    name: str
    role: str
    domain: str
    is_session: bool = False

    @property
    def label(self) -> str:
        return f"session token of {self.name}" if self.is_session else self.name


CALLERS = [Account(f"{role}-{domain}", role, domain) for role in RANKS for domain in DOMAINS]
# A session token has fewer permissions than its account. The accounts of the owner's domain have
# the most permissions.
CALLERS += [Account(f"{role}-default", role, "default", is_session=True) for role in OWNER_ROLES]


def with_owner_placeholder(row: Row) -> Row:
    """Return the row with the placeholder ``{owner}`` instead of fixed user names."""
    request, body = row.request, row.body
    for path, replacement in FIXED_NAMES.items():
        request = re.sub(rf"{path}(?=$|/|\?)", replacement, request)
    if isinstance(body, dict) and body.get("user") == "user":
        body = {**body, "user": "{owner}"}
    return Row(request, row.outcomes, body)


def placeholders(row: Row) -> set[str]:
    return set(PLACEHOLDER.findall(f"{row.request} {json.dumps(row.body)}"))


ROWS = [with_owner_placeholder(row) for row in TABLE]
OWNED_ROWS = [row for row in ROWS if placeholders(row) & OWNED]


def test_every_operation_has_an_owner_rule() -> None:
    owned = {operation_of(row) for row in OWNED_ROWS}
    unknown = {
        (method, pattern)
        for method, pattern in operations()
        if (method, pattern) not in OPEN | owned
        and not UNOWNED.fullmatch(pattern)
        and pattern not in LISTS
    }
    assert not unknown, "operations without an owner rule: add them to OWNED, UNOWNED or LISTS"


class OwnedResources(ReusedResources):
    """Resources of one owner."""

    def __init__(self, api: Api, admin: Client, user: Client, owner: Account) -> None:
        super().__init__(api, admin, user)
        self._owner = owner
        self.member = owner.name

    async def owner(self) -> str:
        return self._owner.name

    async def other_user(self) -> str:
        name = await self.fresh()
        spec = {"username": name, "email": f"{name}@example.com", "role": self._owner.role}
        await self._admin.post("/users", spec)
        return name

    async def keypair(self) -> str:
        created = await self._admin.post("/keypairs", {"user": self._owner.name})
        return str(created["access_key"])

    async def folder_with_file(self) -> str:
        key = await self.folder()
        path = f"/vfolders/{key}/content"
        await self._user.call("PUT", path, query={"path": "f"}, content=PRIVATE.encode())
        return key

    async def session(self) -> str:
        body = {
            "name": await self.fresh(),
            "type": "batch",
            "startup_command": f"echo {PRIVATE}",
            "environ": {"PRIVATE": PRIVATE},
        }
        return str((await self._user.post("/sessions", body))["id"])

    async def template(self) -> str:
        request = {"environ": {"PRIVATE": PRIVATE}, "startup_command": f"echo {PRIVATE}"}
        body = {"name": await self.fresh(), "request": request}
        return str((await self._user.post("/session-templates", body))["id"])

    async def schedule(self) -> str:
        request = {"environ": {"PRIVATE": PRIVATE}, "startup_command": f"echo {PRIVATE}"}
        body = {"name": await self.fresh(), "start": "daily 08:00", "request": request}
        return str((await self._user.post("/schedules", body))["id"])

    async def chat(self) -> str:
        messages = [{"role": "user", "text": PRIVATE}]
        return str((await self._user.post("/chats", {"cards": [{"messages": messages}]}))["id"])

    async def endpoint(self) -> str:
        request = {"environ": {"PRIVATE": PRIVATE}}
        settings = {"variant": "cmd", "command": f"echo {PRIVATE}", "request": request}
        body = {"name": await self.fresh(), "settings": settings}
        return str((await self._user.post("/endpoints", body))["id"])


@pytest.fixture
async def hub() -> AsyncIterator[FakeHub]:
    async with serve_fake_hub() as hub:
        yield hub


@pytest.fixture
async def api_with_all_roles(database_url: str, tmp_path: Path, hub: FakeHub) -> AsyncIterator[Api]:
    """The API of a manager with an account ``ROLE-DOMAIN`` for each role and domain."""
    clock = MovableClock()
    hub_settings = {"hub_api_url": hub.url, "hub_api_token": "manager"}
    async with manager_on(database_url, tmp_path, clock, **hub_settings) as manager:
        await manager.folders.vfolders.start()
        world = await make_world(manager, clock)
        for role in RANKS:
            for domain in DOMAINS:
                name = f"{role}-{domain}"
                spec = {"username": name, "email": f"{name}@example.com", "role": Role(role)}
                projects = [] if role == "monitor" else ["default"]
                user = await manager.accounts.users.create(
                    SUPERADMIN, {**spec, "domain": domain, "projects": projects}
                )
                world.keys[name] = user.keypair
                hub.tokens[f"session-of-{name}"] = {
                    "kind": "user",
                    "name": name,
                    "scopes": [f"{SESSION_SCOPE}!server={name}/lab"],
                }
        async with serving(world) as api:
            yield api


def client_of(api: Api, caller: Account) -> Client:
    if caller.is_session:
        return Client(api.url, Token(f"session-of-{caller.name}"))
    keys = api.world.keys[caller.name]
    return Client(api.url, Keypair(keys.access_key, keys.secret_key))


@dataclass(frozen=True)
class Response:
    status: int
    text: str

    @property
    def is_ok(self) -> bool:
        return self.status < 400


async def send(http: httpx.AsyncClient, factory: ResourceFactory, row: Row) -> Response:
    method, _, template = row.request.partition(" ")
    path, body = await factory.fill(template), await factory.fill_body(row.body)
    options: dict[str, Any] = {} if body is None else {"json": body}
    async with http.stream(method, path, **options) as response:
        is_stream = "event-stream" in response.headers.get("Content-Type", "")
        text = "" if is_stream else (await response.aread()).decode(errors="replace")
        return Response(response.status_code, text)


def is_allowed(caller: Account, owner: Account, row: Row) -> bool:
    """Return whether the caller's role and domain permit the request.

    The request can still be forbidden for another reason; TABLE has the exact outcomes.
    """
    method, _, path = row.request.partition(" ")
    if caller.is_session:
        return False
    if caller.role == "superadmin":
        return True
    if PROJECT_USES.fullmatch(row.request) and caller.domain == owner.domain:
        # All owners and callers of a domain, except monitors, are members of one project.
        if caller.role == "monitor":
            return method == "GET"
        return RANKS[owner.role] <= RANKS[caller.role]
    if caller.role == "monitor":
        return method == "GET"
    if caller.role == "admin" and caller.domain == owner.domain:
        is_owner_above = RANKS[owner.role] > RANKS[caller.role]
        return not is_owner_above or (method.lower(), path) in METADATA
    return False


def violations(caller: Account, owner: Account, row: Row, response: Response) -> list[str]:
    """Return a message for each rule that the response to the caller breaks."""
    if not response.is_ok:
        return []
    request = f"{caller.label}: {row.request} of {owner.name}"
    messages = [] if is_allowed(caller, owner, row) else [f"{request}: {response.status}"]
    may_read_private = caller.role in ("admin", "superadmin")
    if PRIVATE in response.text and not may_read_private:
        messages.append(f"{request}: contains private data")
    return messages


@pytest.mark.parametrize("role", OWNER_ROLES)
async def test_callers_access_only_resources_that_their_role_permits(
    api_with_all_roles: Api, role: str
) -> None:
    api = api_with_all_roles
    owner = Account(f"{role}-default", role, "default")
    factory = OwnedResources(api, await api.client("admin"), await api.client(owner.name), owner)
    messages: list[str] = []
    always_rejected = {row.request for row in OWNED_ROWS}
    for caller in CALLERS:
        if caller.name == owner.name:
            continue
        async with client_of(api, caller) as client:
            if caller.is_session:
                # Positive control: the API accepts the token.
                assert (await client.http.get("/sessions")).status_code == 200
            for row in OWNED_ROWS:
                response = await send(client.http, factory, row)
                messages += violations(caller, owner, row, response)
                if caller.is_session and response.status == 401:
                    messages.append(f"{caller.label}: {row.request}: 401, expected 403 or 404")
                if response.is_ok:
                    always_rejected.discard(row.request)
                if response.is_ok and not row.request.startswith(("GET", "HEAD")):
                    factory.forget(row.request, row.body)
    async with httpx.AsyncClient(base_url=f"{api.url}/api/v1") as http:
        for row in OWNED_ROWS:
            response = await send(http, factory, row)
            messages += [f"not signed in: {row.request}"] if response.status != 401 else []
    assert not messages, "\n".join(messages)
    if role == "superadmin":
        # Permitted only to members of the project with an equal or higher role; no caller of this
        # test is such a member.
        always_rejected.remove("POST /endpoints/{endpoint}/chat-token")
    assert always_rejected == ALWAYS_REJECTED


async def test_lists_leave_out_resources_that_the_caller_may_not_read(
    api_with_all_roles: Api,
) -> None:
    api = api_with_all_roles
    admin = await api.client("admin")
    keys: dict[str, dict[str, str]] = {}
    for role in OWNER_ROLES:
        owner = Account(f"{role}-default", role, "default")
        factory = OwnedResources(api, admin, await api.client(owner.name), owner)
        keys[role] = {
            path: await factory.fill(f"{{{placeholder}}}")
            for path, placeholder in LISTED_RESOURCES.items()
        }
    assert {pattern for pattern, _ in ROUTES} >= LISTS
    messages = []
    for caller in CALLERS:
        async with client_of(api, caller) as client:
            for path in sorted(LISTS):
                response = await client.http.get(path, params={"limit": 500})
                messages += list_violations(caller, path, response, keys)
    assert not messages, "\n".join(messages)


def list_violations(
    caller: Account, path: str, response: httpx.Response, keys: dict[str, dict[str, str]]
) -> list[str]:
    """Return a message for each rule that a list breaks.

    ``keys`` maps (role of the owner, path of a list) to the key of the owner's resource.
    """
    request = f"{caller.label}: {path}"
    if response.status_code != 200:
        # Some lists reject session tokens. The role user may not read the audit log.
        is_expected = caller.is_session or (path == "/audit-log" and caller.role == "user")
        return [] if is_expected and response.status_code == 403 else [f"{request}: no list"]
    messages = []
    for role, key_of in keys.items():
        is_own = caller.name == f"{role}-default"
        is_reader = caller.role in ("monitor", "superadmin") and not caller.is_session
        is_admin = caller.role == "admin" and caller.domain == "default"
        is_visible = is_own or is_reader or (is_admin and RANKS[role] <= RANKS[caller.role])
        if not is_visible and any(key in response.text for key in key_of.values()):
            messages.append(f"{request}: contains a resource of {role}")
        if is_own and path in key_of and key_of[path] not in response.text:
            messages.append(f"{request}: does not contain the caller's own resource")
    if PRIVATE in response.text and caller.role == "monitor":
        messages.append(f"{request}: contains private data")
    return messages


async def test_resources_of_a_promoted_user_are_hidden_from_domain_admins(
    api_with_all_roles: Api,
) -> None:
    api = api_with_all_roles
    owner = await api.client("user-default")
    admin = await api.client("admin-default")
    await owner.post("/vfolders", {"name": "data"})
    session = await owner.post("/sessions", {"name": "lab1", "environ": {"PRIVATE": PRIVATE}})
    path = f"/sessions/{session['id']}"
    assert (await admin.get(path))["environ"] == {"PRIVATE": PRIVATE}
    assert (await admin.get("/vfolders/data"))["permission"] == "wd"
    await (await api.client("admin")).patch("/users/user-default", {"role": "superadmin"})
    for hidden in (path, "/vfolders/data"):
        with pytest.raises(NotFound):
            await admin.get(hidden)


async def test_audit_log_leaves_out_changes_by_a_higher_role(api_with_all_roles: Api) -> None:
    api = api_with_all_roles
    for name in ("superadmin-default", "user-default"):
        user = await api.client(name)
        folder = await user.post("/vfolders", {"name": f"of-{name}"})
        path = f"/vfolders/{folder['id']}/content"
        await user.call("PUT", path, query={"path": "f"}, content=b"x")
    entries = {}
    for name in ("admin-default", "monitor-acme", "superadmin-acme"):
        page = await (await api.client(name)).get("/audit-log", entity="vfolder", limit=500)
        assert page["total"] == len(page["items"])
        entries[name] = {(entry["actor"], entry["action"]) for entry in page["items"]}
    actions = ("vfolder.create", "vfolder.upload")
    by_user = {("user-default", action) for action in actions}
    by_superadmin = {("superadmin-default", action) for action in actions}
    assert by_user <= entries["admin-default"]
    assert not by_superadmin & entries["admin-default"]
    assert by_user | by_superadmin <= entries["monitor-acme"] & entries["superadmin-acme"]


async def test_hub_lists_sessions_with_the_permissions_of_the_viewer(
    api_with_all_roles: Api,
) -> None:
    """Regression: the Hub's admin page listed a superadmin's sessions to a domain admin."""
    api = api_with_all_roles
    for name in ("superadmin-default", "user-default", "user-acme"):
        await (await api.client(name)).post("/sessions", {"name": f"of-{name}"})

    async def listed_names(viewer: str, client: Client = api.hub) -> set[str]:
        page = await client.get("/sessions", viewer=viewer)
        return {session["name"] for session in page["items"]}

    assert await listed_names("admin-default") == {"of-user-default"}
    assert await listed_names("user-acme") == {"of-user-acme"}
    everything = {"of-superadmin-default", "of-user-default", "of-user-acme"}
    assert await listed_names("superadmin-default") == everything
    for viewer in ("", "nobody-of-that-name"):
        with pytest.raises(Forbidden, match="viewer must name"):
            await listed_names(viewer)
    # Only the Hub may set the viewer.
    for name in ("user-default", "admin-default", "superadmin-default"):
        with pytest.raises(Forbidden):
            await listed_names("superadmin-default", await api.client(name))


async def test_domain_admin_may_change_project_folder_created_by_superadmin(
    api_with_all_roles: Api,
) -> None:
    api = api_with_all_roles
    body = {"name": "team", "project": "default/default"}
    folder = await (await api.client("superadmin-default")).post("/vfolders", body)
    admin = await api.client("admin-default")
    changed = await admin.patch(f"/vfolders/{folder['id']}", {"name": "group"})
    assert changed["name"] == "group"


async def test_events_leave_out_sessions_of_a_higher_role(api_with_all_roles: Api) -> None:
    api = api_with_all_roles
    manager = api.world.manager
    caller = await api.world.caller("admin-default")
    changes = manager.feed.follow(caller, None, 30)
    async with asyncio.timeout(30):
        first = asyncio.ensure_future(anext(changes))
        await wait_until_async(
            lambda: manager.events.is_followed, 30, "the subscription to the events"
        )
        await (await api.client("superadmin-default")).post("/sessions", {"name": "above"})
        below = await (await api.client("user-default")).post("/sessions", {"name": "below"})
        change = await first
    assert change is not None and change.session_id == below["id"]
    await changes.aclose()


async def test_monitor_reads_a_session_without_private_data(api_with_all_roles: Api) -> None:
    api = api_with_all_roles
    body = {"name": "lab1", "type": "batch", "startup_command": PRIVATE, "environ": {"A": PRIVATE}}
    created = await (await api.client("user-default")).post("/sessions", body)
    path = f"/sessions/{created['id']}"
    assert created["hidden_fields"] == []
    monitor = await api.client("monitor-acme")
    session = await monitor.get(path)
    assert (session["environ"], session["startup_command"]) == ({}, None)
    assert session["hidden_fields"] == ["callback", "environ", "startup_command"]
    with pytest.raises(Forbidden):
        await monitor.get(f"{path}/logs")


# Objects that administrators share: a new one for domain ``default``, and a change of it.
SHARED_OBJECTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "/budgets": ({"project": "default/default", "amount": 1}, {"amount": 2}),
    "/overflow-rules": (
        {"project": "default/default", "from_group": "default", "to_group": "other"},
        {"position": 1},
    ),
    "/announcements": ({"title": "a", "audience": "domain", "target": "default"}, {"title": "b"}),
    "/webhooks": (
        {"url": "https://1.1.1.1/", "scope": "domain", "domain": "default"},
        {"name": "b"},
    ),
    "/idle-checker-bindings": (
        {"checker": "lifetime", "scope": "domain", "scope_key": "default"},
        {"is_enabled": False},
    ),
}


@pytest.mark.parametrize("path", sorted(SHARED_OBJECTS))
async def test_domain_admins_cannot_change_what_a_superadmin_has_created_or_changed(
    api_with_all_roles: Api, path: str
) -> None:
    api = api_with_all_roles
    superadmin = await api.client("superadmin-default")
    admin = await api.client("admin-default")
    await superadmin.post("/resource-groups", {"name": "other"})
    checker = {"name": "lifetime", "type": "session-lifetime", "max_seconds": 3600}
    await superadmin.post("/idle-checkers", checker)
    body, change = SHARED_OBJECTS[path]

    async def created_by(client: Client) -> str:
        made = await client.post(path, body)
        return f"{path}/{made.get('id') or made['project_id']}"

    async def assert_out_of_reach(one: str) -> None:
        attempts = [lambda: admin.patch(one, change), lambda: admin.delete(one)]
        if path == "/webhooks":
            attempts += [lambda: admin.post(f"{one}/secret"), lambda: admin.post(f"{one}/test")]
        for attempt in attempts:
            with pytest.raises(Forbidden, match="a superadmin has created or last changed this"):
                await attempt()
        (listed,) = (await admin.get(path))["items"]
        assert listed["changed_by_role"] == "superadmin"
        assert (await admin.get(path, changed_by_role="admin"))["items"] == []

    by_superadmin = await created_by(superadmin)
    await assert_out_of_reach(by_superadmin)
    await superadmin.delete(by_superadmin)
    by_admin = await created_by(admin)
    assert (await admin.patch(by_admin, change))["changed_by_role"] == "admin"
    await superadmin.patch(by_admin, change)
    await assert_out_of_reach(by_admin)
    await superadmin.delete(by_admin)
    await admin.delete(await created_by(admin))
    assert (await admin.get(path))["items"] == []
