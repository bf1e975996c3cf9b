"""App shares: permissions to create and use a share, and the end of access."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core import errors
from bai_services.core.accounts.roles import Role
from bai_services.core.apps.records import AdmittedVisit
from bai_services.db.tables import accounts as tables
from bai_services.manager.manager import Manager
from tests.api.sessions.test_sessions import create_running_session
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

CLIENT_IP = "192.0.2.7"
SMALL = {"cpu": "1", "mem": "1g"}

TOKEN = "hub-token-of-the-visitor"


EnterApp = Callable[..., Awaitable[AdmittedVisit]]


@pytest.fixture
async def allow(api: Api) -> Callable[..., Awaitable[None]]:
    """Return a function that changes the policy of ``user`` for app shares."""

    async def change(app_sharing: str = "public", **others: Any) -> None:
        admin = await api.client("admin")
        policy = (await admin.get("/users/user"))["resource_policy"]
        await admin.patch(f"/user-policies/{policy}", {"app_sharing": app_sharing, **others})

    return change


@pytest.fixture
async def session(
    api: Api, agent: FakeAgent, allow: Callable[..., Awaitable[None]]
) -> dict[str, Any]:
    await allow()
    return await create_running_session(api, agent, "lab1")


@pytest.fixture
def enter(api: Api, session: dict[str, Any]) -> EnterApp:
    """Return a function that opens the link of a share, as a user or anonymously (None).

    The function returns the admitted visit.
    """

    async def open_link(share: dict[str, Any], name: str | None, **others: str) -> AdmittedVisit:
        shares = api.world.manager.app_shares
        caller = None if name is None else await api.world.caller(name)
        address = await shares.create_entry_url(
            share["id"], caller, others.get("client_ip", CLIENT_IP), TOKEN
        )
        assert urlsplit(address).path == f"{session['url']}shared/{share['app']}/"
        entry = parse_qs(urlsplit(address).query)["bai_entry"][0]
        return await authorize(api, session, share["app"], entry=entry, **others)

    return open_link


async def is_signed_in(token: str) -> bool:
    """Return whether the Hub would accept the token."""
    return token == TOKEN


async def authorize(api: Api, session: dict[str, Any], app: str, **shown: str) -> AdmittedVisit:
    """Authorize a visitor with the request that the session's server sends."""
    manager = api.world.manager
    caller = await manager.accounts.callers.in_session("user", "10.0.0.1")
    assert caller.role is Role.SESSION
    facts = {"session_id": session["id"], "app": app, "client_ip": CLIENT_IP, **shown}
    return await manager.app_shares.authorize_visit(caller, facts, is_signed_in)


def shares_of(session: dict[str, Any]) -> str:
    return f"/sessions/{session['id']}/app-shares"


async def test_share_is_listed_for_owner_and_visitor_and_can_be_revoked(
    api: Api, user: Client, session: dict[str, Any], enter: EnterApp
) -> None:
    made = await user.post(shares_of(session), {"app": "tensorboard", "user": "user2"})
    assert (made["audience"], made["user"], made["owner"]) == ("user", "user2", "user")
    assert made["url"] == f"/services/bai/shared/{made['id']}"
    guest = await api.client("user2")
    for client, path in ((user, shares_of(session)), (user, "/app-shares"), (guest, "/app-shares")):
        assert [item["id"] for item in (await client.get(path))["items"]] == [made["id"]]
    visit = await enter(made, "user2")
    assert (await authorize(api, session, "tensorboard", visit=visit.visit)).audience == "user"
    await user.delete(f"{shares_of(session)}/{made['id']}")
    with pytest.raises(errors.Forbidden, match="not shared with you"):
        await authorize(api, session, "tensorboard", visit=visit.visit)
    assert (await guest.get("/app-shares"))["items"] == []
    with pytest.raises(errors.NotFound):
        await user.delete(f"{shares_of(session)}/{made['id']}")


async def pending_session(user: Client) -> dict[str, Any]:
    return await user.post("/sessions", {"name": "lab1", "resources": SMALL})


async def test_share_with_a_user_of_another_domain_has_no_effect(
    api: Api, user: Client, allow: Callable[..., Awaitable[None]]
) -> None:
    await allow()
    guest, shares = await api.client("user2"), api.world.manager.app_shares
    session = await pending_session(user)
    made = await user.post(shares_of(session), {"app": "tensorboard", "user": "user2"})
    with pytest.raises(errors.Conflict, match="PENDING"):
        await shares.create_entry_url(made["id"], await api.world.caller("user2"), CLIENT_IP)
    assert (await guest.get("/app-shares"))["total"] == 1
    async with api.world.manager.database.write() as tx:
        # Change the domain only in the database: a move over REST would delete the share.
        is_visitor = tables.users.c.username == "user2"
        await tx.execute(sa.update(tables.users).where(is_visitor).values(domain="acme"))
    with pytest.raises(errors.NotFound):
        await shares.create_entry_url(made["id"], await api.world.caller("user2"), CLIENT_IP)
    assert (await guest.get("/app-shares"))["total"] == 0


@pytest.mark.parametrize("who", ["user", "user2"], ids=["owner moves", "visitor moves"])
async def test_move_to_another_domain_deletes_shares(
    api: Api, user: Client, allow: Callable[..., Awaitable[None]], who: str
) -> None:
    await allow()
    session = await pending_session(user)
    await user.post(shares_of(session), {"app": "tensorboard", "user": "user2"})
    kept = await user.post(shares_of(session), {"app": "tensorboard", "user": "domain-admin"})
    admin = await api.client("admin")
    await admin.patch(f"/users/{who}", {"domain": "acme"})
    await admin.patch(f"/users/{who}", {"domain": "default"})
    expected = [kept["id"]] if who == "user2" else []
    listed = (await admin.get(shares_of(session)))["items"]
    assert [share["id"] for share in listed] == expected


@pytest.mark.parametrize(
    ("audience", "visitor", "is_admitted"),
    [
        ({"user": "user2"}, "user2", True),
        ({"user": "user2"}, None, False),
        ({"user": "user2"}, "user", False),
        ({"user": "user2"}, "admin", False),
        ({"project": "default"}, "user2", True),
        ({"project": "default"}, "acme-user", False),
        ({"project": "default"}, None, False),
        ({"public": True, "allowed_addresses": ["192.0.2.0/24"]}, None, True),
        ({"public": True, "allowed_addresses": ["192.0.2.0/24"]}, "acme-user", True),
        ({"public": True, "allowed_addresses": ["198.51.100.0/24"]}, None, False),
        ({"user": "user2", "allowed_addresses": ["198.51.100.0/24"]}, "user2", False),
    ],
)
async def test_only_the_audience_of_a_share_is_admitted(
    api: Api,
    user: Client,
    session: dict[str, Any],
    enter: EnterApp,
    audience: dict[str, Any],
    visitor: str | None,
    is_admitted: bool,
) -> None:
    if visitor is not None and visitor not in api.world.keys:
        pytest.fail(f"the demo has no user {visitor}: {sorted(api.world.keys)}")
    made = await user.post(shares_of(session), {"app": "tensorboard", **audience})
    if is_admitted:
        assert (await enter(made, visitor)).visit
        (access,) = (await user.get("/audit-log/mine", action="session.visit-app"))["items"]
        assert access["actor"] == (visitor or "anonymous")
        assert (access["entity_name"], access["details"]["app"]) == ("lab1", "tensorboard")
    else:
        # The message is the same as for a missing share, so that a guessed id reveals nothing.
        with pytest.raises(errors.NotFound, match="no such share, or it is not for you"):
            await enter(made, visitor)


@pytest.mark.both_databases
async def test_entry_token_is_single_use_and_bound_to_app_and_session(
    api: Api, user: Client, session: dict[str, Any]
) -> None:
    made = await user.post(shares_of(session), {"app": "tensorboard", "user": "user2"})
    shares = api.world.manager.app_shares
    guest = await api.world.caller("user2")

    async def entry() -> str:
        address = await shares.create_entry_url(made["id"], guest, CLIENT_IP, TOKEN)
        return parse_qs(urlsplit(address).query)["bai_entry"][0]

    for wrong in (
        {"app": "mlflow", "entry": await entry()},
        {"app": "tensorboard", "entry": await entry(), "session_id": "another"},
        {"app": "tensorboard", "visit": await entry()},
        {"app": "tensorboard", "entry": "e.made.up.1.x.y"},
        {"app": "tensorboard"},
    ):
        with pytest.raises(errors.Forbidden):
            await authorize(api, session, **wrong)
    once = await entry()
    assert await authorize(api, session, "tensorboard", entry=once)
    with pytest.raises(errors.Forbidden):
        await authorize(api, session, "tensorboard", entry=once)
    late = await entry()
    api.world.clock.advance(minutes=2)
    with pytest.raises(errors.Forbidden):
        await authorize(api, session, "tensorboard", entry=late)


async def test_used_entry_token_is_rejected_by_a_restarted_manager(
    api: Api, user: Client, session: dict[str, Any]
) -> None:
    made = await user.post(shares_of(session), {"app": "tensorboard", "user": "user2"})
    manager = api.world.manager
    guest = await api.world.caller("user2")
    address = await manager.app_shares.create_entry_url(made["id"], guest, CLIENT_IP, TOKEN)
    entry = parse_qs(urlsplit(address).query)["bai_entry"][0]
    assert await authorize(api, session, "tensorboard", entry=entry)
    # A restarted manager has only the data in the database.
    restarted = Manager(manager.settings, manager.database, api.world.clock)
    caller = await restarted.accounts.callers.in_session("user", "10.0.0.1")
    facts = {
        "session_id": session["id"],
        "app": "tensorboard",
        "client_ip": CLIENT_IP,
        "entry": entry,
    }
    with pytest.raises(errors.Forbidden):
        await restarted.app_shares.authorize_visit(caller, facts, is_signed_in)


async def test_visit_is_denied_after_the_permission_has_ended(
    api: Api,
    user: Client,
    session: dict[str, Any],
    enter: EnterApp,
    allow: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admin = await api.client("admin")
    short = {"app": "tensorboard", "expires_in": 600}
    to_user = await user.post(shares_of(session), {**short, "user": "user2"})
    to_project = await user.post(shares_of(session), {**short, "project": "default"})
    visits = [(await enter(share, "user2")).visit for share in (to_user, to_project)]

    async def is_admitted(visit: str, **others: str) -> bool:
        try:
            await authorize(api, session, "tensorboard", visit=visit, **others)
        except errors.Forbidden:
            return False
        return True

    assert [await is_admitted(visit) for visit in visits] == [True, True]
    await allow("user")
    assert [await is_admitted(visit) for visit in visits] == [True, False]
    await allow()
    project = await api.world.project_id()
    guest = await api.world.user_id("user2")
    await admin.delete(f"/projects/{project}/members/{guest}")
    assert [await is_admitted(visit) for visit in visits] == [True, False]
    await admin.put(f"/projects/{project}/members/{guest}", {})
    await admin.patch("/users/user2", {"status": "inactive"})
    assert [await is_admitted(visit) for visit in visits] == [False, False]
    await admin.patch("/users/user2", {"status": "active"})
    assert [await is_admitted(visit) for visit in visits] == [True, True]
    monkeypatch.setattr(f"{__name__}.TOKEN", "token-of-a-later-sign-in")
    assert [await is_admitted(visit) for visit in visits] == [False, False]
    monkeypatch.undo()
    api.world.clock.advance(minutes=10)
    assert [await is_admitted(visit) for visit in visits] == [False, False]
    assert (await user.get(shares_of(session)))["items"] == []


async def test_share_with_a_wider_audience_than_the_policy_allows_is_denied(
    api: Api, user: Client, session: dict[str, Any], allow: Any
) -> None:
    await allow("none")
    with pytest.raises(errors.Forbidden, match="app_sharing"):
        await user.post(shares_of(session), {"app": "tensorboard", "user": "user2"})
    await allow("project", max_app_share_seconds=3600)
    public = {"app": "tensorboard", "public": True, "allowed_addresses": ["0.0.0.0/0"]}
    with pytest.raises(errors.Forbidden, match="project; public was requested"):
        await user.post(shares_of(session), public)
    with pytest.raises(errors.InvalidRequest, match="your policy allows 3600 s"):
        await user.post(
            shares_of(session), {"app": "tensorboard", "user": "user2", "expires_in": 3601}
        )


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"app": "tensorboard"}, "exactly one of"),
        ({"app": "tensorboard", "user": "user2", "public": True}, "exactly one of"),
        ({"app": "terminal", "user": "user2"}, "whole session"),
        ({"app": "tensorboard", "user": "user"}, "is the owner"),
        ({"app": "tensorboard", "user": "nobody-here"}, "no user named"),
        ({"app": "tensorboard", "user": "acme-user"}, "no user named"),
        ({"app": "tensorboard", "project": "other"}, "belongs to project default"),
        ({"app": "tensorboard", "public": True}, "networks"),
        ({"app": "tensorboard", "user": "user2", "allowed_addresses": ["x"]}, "not a network"),
    ],
)
async def test_invalid_share_is_rejected(
    user: Client, session: dict[str, Any], spec: dict[str, Any], why: str
) -> None:
    with pytest.raises((errors.InvalidRequest, errors.NotFound), match=why):
        await user.post(shares_of(session), spec)


async def test_admin_may_revoke_but_not_create_shares_of_another_user(
    api: Api, user: Client, session: dict[str, Any]
) -> None:
    made = await user.post(shares_of(session), {"app": "tensorboard", "user": "user2"})
    other, domain_admin = await api.client("user2"), await api.client("domain-admin")
    spec = {"app": "tensorboard", "user": "user2"}
    with pytest.raises(errors.NotFound):
        await other.post(shares_of(session), spec)
    with pytest.raises(errors.NotFound):
        await other.delete(f"{shares_of(session)}/{made['id']}")
    with pytest.raises(errors.Forbidden):
        await domain_admin.post(shares_of(session), spec)
    await domain_admin.delete(f"{shares_of(session)}/{made['id']}")
    assert (await user.get(shares_of(session)))["items"] == []


async def test_visit_of_a_session_that_is_not_running_is_denied(
    api: Api, agent: FakeAgent, user: Client, allow: Any
) -> None:
    await allow()
    waiting = await user.post("/sessions", {"name": "lab2", "resources": SMALL})
    made = await user.post(shares_of(waiting), {"app": "tensorboard", "user": "user2"})
    with pytest.raises(errors.Conflict, match="available while it runs"):
        await api.world.manager.app_shares.create_entry_url(
            made["id"], await api.world.caller("user2"), CLIENT_IP
        )
