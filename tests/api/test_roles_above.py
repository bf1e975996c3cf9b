"""Every route, with each role as caller and each role as owner: nobody acts above their role."""

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
from bai_services.demo import Keys
from tests.api.test_permissions import OPEN, TABLE, Row, matched, operations
from tests.api.things import Things
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

# In everything of an owner that is theirs to read: environment, command, files, output.
SECRET = "marker-of-a-secret"
RANKS = {"user": 0, "monitor": 0, "admin": 1, "superadmin": 2}
OWNERS = ("user", "admin", "superadmin")
DOMAINS = ("default", "acme")
# A template of TABLE names things of somebody by these; each is made anew for each owner.
OWNED = {
    "owner",
    "folder",
    "folder_with_file",
    "cloneable_folder",
    "trashed_folder",
    "upload_folder",
    "invitation",
    "keypair",
    "lent_folder",
    "person",
    "session",
    "template",
    "user_scope",
}
# What TABLE has of a person by name, as a thing of an owner.
NAMED = {
    "/users/user": "/users/{owner}",
    "/accounts/user": "/accounts/{owner}",
    "/members/user2": "/members/{owner}",
}
# Patterns without an owner: lists, things of the caller, of the installation, of a project.
LISTS = {
    "/allocations",
    "/app-shares",
    "/audit-log",
    "/kernels",
    "/keypairs",
    "/quota-scopes",
    "/session-dependencies",
    "/session-templates",
    "/sessions",
    "/users",
    "/vfolder-invitations",
    "/vfolders",
}
UNOWNED = re.compile(
    r"/(me|metrics|counter-audit|drain|domains|projects|(keypair|user|project)-policies|resource-groups"
    r"|agents|devices|images|image-aliases|presets|storage-hosts|auth/(verify|token))(/.*)?"
    r"|/(sessions/options|bulk-sessions|events|app-visits)"
)
# What administrators of a domain may know of everybody in it: no files, environments, secrets.
METADATA = {
    ("get", "/users/{owner}"),
    ("get", "/keypairs/{keypair}"),
    ("get", "/quota-scopes/local/{user_scope}"),
}
# Rows that no stranger comes through, whoever the owner is: for the owner alone, for the invited,
# for the Hub, or refused for another reason (nothing in the body, a session that does not run).
NEVER = {
    "DELETE /projects/{project}/members/{owner}",
    "DELETE /sessions/{session}/app-shares/nothing",
    "DELETE /vfolders/{upload_folder}/uploads/{upload}",
    "GET /auth/accounts/{owner}",
    "GET /keypairs/{keypair}/callback-secret",
    "HEAD /vfolders/{upload_folder}/uploads/{upload}",
    "PATCH /vfolders/{upload_folder}/uploads/{upload}",
    "POST /app-visits",
    "POST /sessions/{session}/activity",
    "POST /sessions/{session}/app-shares",
    "POST /sessions/{session}/detach",
    "POST /sessions/{session}/exited",
    "POST /sessions/{session}/launch",
    "POST /sessions/{session}/lifetime",
    "POST /sessions/{session}/started",
    "POST /sessions/{session}/token",
    "POST /vfolder-invitations/{invitation}/accept",
    "POST /vfolder-invitations/{invitation}/decline",
    "POST /vfolders/{folder}/clone",
    "POST /vfolders/{folder}/uploads",
    "PUT /vfolders/{folder}/archive",
}


@dataclass(frozen=True)
class Person:
    """Who calls or owns; a session's token acts for its owner and has a role of its own."""

    name: str
    role: str
    domain: str
    is_session: bool = False


CALLERS = [
    Person(f"{role}-{domain}", role, domain, is_session)
    for role in RANKS
    for domain in DOMAINS
    for is_session in (False, True)
]


def targeted(row: Row) -> Row:
    """Return a row with a thing of an owner in place of what TABLE has by name."""
    call, body = row.call, row.body
    for before, after in NAMED.items():
        call = re.sub(rf"{before}(?=$|/|\?)", after, call)
    if isinstance(body, dict) and body.get("user") == "user":
        body = {**body, "user": "{owner}"}
    return Row(call, row.outcomes, body)


def nouns(row: Row) -> set[str]:
    return set(re.findall(r"\{([a-z_]+)\}", f"{row.call} {json.dumps(row.body)}"))


ROWS = [targeted(row) for row in TABLE]
OWNED_ROWS = [row for row in ROWS if nouns(row) & OWNED]


def test_every_route_has_an_owner_or_is_known_to_have_none() -> None:
    owned = {matched(row) for row in OWNED_ROWS}
    unknown = {
        (method, pattern)
        for method, pattern in operations()
        if (method, pattern) not in OPEN | owned
        and not UNOWNED.fullmatch(pattern)
        and pattern not in LISTS
    }
    assert not unknown, "say in this file whose these are"


class OwnedThings(Things):
    """Things of one owner, kept until a call used them up."""

    def __init__(self, api: Api, admin: Client, user: Client, owner: Person) -> None:
        super().__init__(api, admin, user)
        self.whose = owner
        self._kept: dict[str, str] = {}

    async def fill(self, template: str) -> str:
        filled = template
        for noun in re.findall(r"\{([a-z_]+)\}", template):
            if noun not in self._kept or noun == "fresh":
                self._kept[noun] = await getattr(self, noun)()
            filled = filled.replace(f"{{{noun}}}", self._kept[noun])
        return filled

    def used_up(self) -> None:
        self._kept.clear()

    async def owner(self) -> str:
        return self.whose.name

    async def person(self) -> str:
        name = await self.fresh()
        spec = {"username": name, "email": f"{name}@example.com", "role": self.whose.role}
        await self._admin.post("/users", spec)
        return name

    async def keypair(self) -> str:
        made = await self._admin.post("/keypairs", {"user": self.whose.name})
        return str(made["access_key"])

    async def folder_with_file(self) -> str:
        key = await self.folder()
        path = f"/vfolders/{key}/content"
        await self._user.call("PUT", path, query={"path": "f"}, content=SECRET.encode())
        return key

    async def session(self) -> str:
        body = {
            "name": await self.fresh(),
            "type": "batch",
            "startup_command": f"echo {SECRET}",
            "environ": {"SECRET": SECRET},
        }
        return str((await self._user.post("/sessions", body))["id"])

    async def template(self) -> str:
        request = {"environ": {"SECRET": SECRET}, "startup_command": f"echo {SECRET}"}
        body = {"name": await self.fresh(), "request": request}
        return str((await self._user.post("/session-templates", body))["id"])


@pytest.fixture
async def hub() -> AsyncIterator[FakeHub]:
    async with serve_fake_hub() as voice:
        yield voice


@pytest.fixture
async def crowd(database_url: str, tmp_path: Path, hub: FakeHub) -> AsyncIterator[Api]:
    """A manager with a person of each role in each domain."""
    clock = MovableClock()
    known = {"hub_api_url": hub.url, "hub_api_token": "manager"}
    async with manager_on(database_url, tmp_path, clock, **known) as manager:
        await manager.folders.vfolders.start()
        world = await make_world(manager, clock)
        for role in RANKS:
            for domain in DOMAINS:
                name = f"{role}-{domain}"
                spec = {"username": name, "email": f"{name}@example.com", "role": Role(role)}
                projects = [] if role == "monitor" else ["default"]
                made = await manager.accounts.users.create(
                    SUPERADMIN, {**spec, "domain": domain, "projects": projects}
                )
                world.keys[name] = Keys(**made["keypair"])
                hub.tokens[f"session-of-{name}"] = {
                    "kind": "user",
                    "name": name,
                    "scopes": [f"{SESSION_SCOPE}!server={name}/lab"],
                }
        async with serving(world) as api:
            yield api


def client_of(api: Api, who: Person) -> Client:
    if who.is_session:
        return Client(api.url, Token(f"session-of-{who.name}"))
    keys = api.world.keys[who.name]
    return Client(api.url, Keypair(keys.access_key, keys.secret_key))


@dataclass(frozen=True)
class Answer:
    status: int
    text: str

    @property
    def is_ok(self) -> bool:
        return self.status < 400


async def ask(http: httpx.AsyncClient, things: Things, row: Row) -> Answer:
    method, _, template = row.call.partition(" ")
    path, body = await things.fill(template), await things.fill_body(row.body)
    options: dict[str, Any] = {} if body is None else {"json": body}
    async with http.stream(method, path, **options) as answer:
        is_stream = "event-stream" in answer.headers.get("Content-Type", "")
        text = "" if is_stream else (await answer.aread()).decode(errors="replace")
        return Answer(answer.status_code, text)


def may(caller: Person, owner: Person, row: Row) -> bool:
    """Return whether a stranger may come through at all; the tables say who else may not."""
    method, _, path = row.call.partition(" ")
    if caller.is_session:
        return False
    if caller.role == "superadmin":
        return True
    if caller.role == "monitor":
        return method == "GET"
    is_above = RANKS[caller.role] >= RANKS[owner.role]
    if caller.role == "admin" and caller.domain == owner.domain:
        return is_above or (method.lower(), path) in METADATA
    return False


def wrongs(caller: Person, owner: Person, row: Row, answer: Answer) -> list[str]:
    if not answer.is_ok:
        return []
    what = f"{caller.name}{' session' * caller.is_session}: {row.call} of {owner.name}"
    found = [] if may(caller, owner, row) else [f"{what}: {answer.status}"]
    reads_secrets = caller.role in ("admin", "superadmin")
    if SECRET in answer.text and not reads_secrets:
        found.append(f"{what}: shows what is private")
    return found


@pytest.mark.parametrize("role", OWNERS)
async def test_nobody_acts_on_what_belongs_to_a_higher_role(crowd: Api, role: str) -> None:
    owner = Person(f"{role}-default", role, "default")
    admin = await crowd.client("admin")
    things = OwnedThings(crowd, admin, await crowd.client(owner.name), owner)
    wrong: list[str] = []
    closed = {row.call for row in OWNED_ROWS}
    for caller in CALLERS:
        if caller.name == owner.name:
            continue
        async with client_of(crowd, caller) as client:
            for row in OWNED_ROWS:
                answer = await ask(client.http, things, row)
                wrong += wrongs(caller, owner, row, answer)
                closed -= {row.call} if answer.is_ok else set()
                if answer.is_ok and not row.call.startswith(("GET", "HEAD")):
                    things.used_up()
    async with httpx.AsyncClient(base_url=f"{crowd.url}/api/v1") as http:
        for row in OWNED_ROWS:
            answer = await ask(http, things, row)
            wrong += [f"nobody: {row.call}"] if answer.status != 401 else []
    assert not wrong, "\n".join(wrong)
    assert closed == NEVER


async def test_lists_leave_out_what_belongs_to_a_higher_role(crowd: Api) -> None:
    admin = await crowd.client("admin")
    ids: dict[str, set[str]] = {}
    for role in OWNERS:
        owner = Person(f"{role}-default", role, "default")
        things = OwnedThings(crowd, admin, await crowd.client(owner.name), owner)
        made = [await things.fill(f"{{{noun}}}") for noun in ("session", "folder", "template")]
        ids[role] = set(made)
    assert {p for p, _ in ROUTES} >= LISTS
    wrong = []
    for caller in CALLERS:
        async with client_of(crowd, caller) as client:
            for path in sorted(LISTS):
                answer = await client.http.get(path, params={"limit": 500})
                name = f"{caller.name}{' session' * caller.is_session} {path}"
                is_reader = caller.role in ("monitor", "superadmin") and not caller.is_session
                for role, found in ids.items():
                    is_own = caller.name == f"{role}-default"
                    is_admin = caller.role == "admin" and caller.domain == "default"
                    above = RANKS[role] > RANKS[caller.role]
                    reaches = is_own or is_reader or (is_admin and not above)
                    shown = any(key in answer.text for key in found)
                    if shown and not reaches:
                        wrong.append(f"{name} shows what belongs to {role}")
                if SECRET in answer.text and caller.role == "monitor":
                    wrong.append(f"{name} shows what is private")
    assert not wrong, "\n".join(wrong)


async def test_a_role_that_is_raised_later_counts_from_then_on(crowd: Api) -> None:
    owner = await crowd.client("user-default")
    admin = await crowd.client("admin-default")
    await owner.post("/vfolders", {"name": "data"})
    session = await owner.post("/sessions", {"name": "lab1", "environ": {"SECRET": SECRET}})
    path = f"/sessions/{session['id']}"
    assert (await admin.get(path))["environ"] == {"SECRET": SECRET}
    assert (await admin.get("/vfolders/data"))["permission"] == "wd"
    await (await crowd.client("admin")).patch("/users/user-default", {"role": "superadmin"})
    for hidden in (path, "/vfolders/data"):
        with pytest.raises(NotFound):
            await admin.get(hidden)


async def test_the_audit_log_leaves_out_what_a_higher_role_did(crowd: Api) -> None:
    for name in ("superadmin-default", "user-default"):
        person = await crowd.client(name)
        folder = await person.post("/vfolders", {"name": f"of-{name}"})
        path = f"/vfolders/{folder['id']}/content"
        await person.call("PUT", path, query={"path": "f"}, content=b"x")
    found = {}
    for name in ("admin-default", "monitor-acme", "superadmin-acme"):
        page = await (await crowd.client(name)).get("/audit-log", entity="vfolder", limit=500)
        assert page["total"] == len(page["items"])
        found[name] = {(entry["actor"], entry["action"]) for entry in page["items"]}
    actions = ("vfolder.create", "vfolder.upload")
    below = {("user-default", action) for action in actions}
    above = {("superadmin-default", action) for action in actions}
    assert below <= found["admin-default"]
    assert not above & found["admin-default"]
    assert below | above <= found["monitor-acme"] & found["superadmin-acme"]


async def test_the_hub_lists_sessions_as_the_user_to_whom_it_shows_them(crowd: Api) -> None:
    """The Hub's page for administrators showed a domain admin the superadmin's sessions."""
    for name in ("superadmin-default", "user-default", "user-acme"):
        await (await crowd.client(name)).post("/sessions", {"name": f"of-{name}"})

    async def shown(viewer: str, client: Client = crowd.hub) -> set[str]:
        page = await client.get("/sessions", viewer=viewer)
        return {session["name"] for session in page["items"]}

    assert await shown("admin-default") == {"of-user-default"}
    assert await shown("user-acme") == {"of-user-acme"}
    everything = {"of-superadmin-default", "of-user-default", "of-user-acme"}
    assert await shown("superadmin-default") == everything
    for viewer in ("", "nobody-of-that-name"):
        with pytest.raises(Forbidden, match="viewer must name"):
            await shown(viewer)
    # Nobody else sees with the eyes of another user.
    for name in ("user-default", "admin-default", "superadmin-default"):
        with pytest.raises(Forbidden):
            await shown("superadmin-default", await crowd.client(name))


async def test_a_folder_of_a_project_belongs_to_no_role(crowd: Api) -> None:
    body = {"name": "team", "project": "default/default"}
    made = await (await crowd.client("superadmin-default")).post("/vfolders", body)
    admin = await crowd.client("admin-default")
    changed = await admin.patch(f"/vfolders/{made['id']}", {"name": "group"})
    assert changed["name"] == "group"


async def test_events_tell_nothing_of_the_sessions_of_a_higher_role(crowd: Api) -> None:
    manager = crowd.world.manager
    caller = await crowd.world.caller("admin-default")
    changes = manager.feed.follow(caller, None, 30)
    async with asyncio.timeout(30):
        first = asyncio.ensure_future(anext(changes))
        await wait_until_async(lambda: manager.events.is_followed, 30, "the listener")
        await (await crowd.client("superadmin-default")).post("/sessions", {"name": "above"})
        below = await (await crowd.client("user-default")).post("/sessions", {"name": "below"})
        change = await first
    assert change is not None and change.session_id == below["id"]
    await changes.aclose()


async def test_a_monitor_sees_a_session_without_what_is_private(crowd: Api) -> None:
    body = {"name": "lab1", "type": "batch", "startup_command": SECRET, "environ": {"A": SECRET}}
    made = await (await crowd.client("user-default")).post("/sessions", body)
    path = f"/sessions/{made['id']}"
    assert made["hidden_fields"] == []
    monitor = await crowd.client("monitor-acme")
    shown = await monitor.get(path)
    assert (shown["environ"], shown["startup_command"]) == ({}, None)
    assert shown["hidden_fields"] == ["callback", "environ", "startup_command"]
    with pytest.raises(Forbidden):
        await monitor.get(f"{path}/logs")
