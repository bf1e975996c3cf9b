"""Sign-up over REST, as the Hub's pages use it, with invitations, verification and approval."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.accounts.sign_ups import PendingSignUp
from bai_services.core.errors import (
    AlreadyExists,
    BaiError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    NotSignedIn,
    SignInBlocked,
    SignInRefused,
    Unavailable,
)
from bai_services.core.mail import Mail
from bai_services.db.accounts.sign_ups import SignUpStore
from bai_services.db.tables.accounts import users
from bai_services.db.tables.mails import mails
from bai_services.db.tables.self_service import pending_sign_ups, sign_up_invitations
from bai_services.manager.accounts.request_limits import (
    MAX_REQUESTS_PER_ADDRESS,
    MAX_REQUESTS_PER_NAME,
)
from bai_services.manager.manager import Manager
from bai_services.manager.settings import MailServer
from tests.testbed.mail_server import MailServerThread, serving_mail
from tests.testbed.manager import PASSWORD, Api, MovableClock, manager_on

PAGE = "http://hub.example.org/hub/verify-email"
OPEN = {
    "domain": "default",
    "needs_invitation": False,
    "verifies_email": False,
    "needs_approval": False,
}
VERIFIED = {**OPEN, "verifies_email": True}


@pytest.fixture
def mail_server() -> Iterator[MailServerThread]:
    with serving_mail() as made:
        yield made


@pytest.fixture
async def manager(
    database_url: str, tmp_path: Path, clock: MovableClock, mail_server: MailServerThread
) -> AsyncIterator[Manager]:
    server = MailServer("127.0.0.1", mail_server.port, "none", "hub@example.org")
    async with manager_on(database_url, tmp_path, clock, is_migrated=True, mail=server) as made:
        yield made


@pytest.fixture
async def admin(api: Api) -> Client:
    return await api.client("admin")


async def sign_up(api: Api, rules: dict[str, Any] = OPEN, name: str = "ann", **more: Any) -> str:
    body = {
        "username": name,
        "email": f"{name}@example.org",
        "full_name": "Ann Kim",
        "password": PASSWORD,
        "consents": ["terms", "privacy"],
        "rules": rules,
        "page": PAGE,
        "client_ip": "192.0.2.1",
    }
    return str((await api.hub.post("/auth/sign-up", body | more))["next"])


async def verify(
    api: Api,
    token: str,
    password: str = PASSWORD,
    ip: str = "192.0.2.1",
    rules: dict[str, Any] = VERIFIED,
) -> str:
    body = {"token": token, "password": password, "rules": rules, "client_ip": ip}
    return str((await api.hub.post("/auth/sign-up/verify", body))["next"])


async def sign_in(api: Api, name: str = "ann") -> Any:
    body = {"name": name, "password": PASSWORD, "client_ip": "192.0.2.1"}
    return await api.hub.post("/auth/verify", body)


async def rejected(call: Any, kind: type[BaiError] = InvalidRequest) -> str:
    """Assert that the call fails with this kind of error; return the field that the error names."""
    with pytest.raises(kind) as caught:
        await call
    return str(caught.value.details.get("field"))


@pytest.mark.both_databases
async def test_an_account_has_the_defaults_of_the_domain(api: Api, admin: Client) -> None:
    assert await sign_up(api, name="Ann") == "sign-in"
    assert (await sign_in(api))["hub_groups"] == ["d-default", "p-default-default"]
    user = await admin.get("/users/ann")
    fields = ("role", "domain", "status", "full_name", "email", "resource_policy")
    expected = ["user", "default", "active", "Ann Kim", "ann@example.org", "default"]
    assert [user[name] for name in fields] == expected
    assert [project["name"] for project in user["projects"]] == ["default"]
    assert user["awaits_approval"] is False and user["container_uid"] > 100_000
    (keypair,) = (await admin.get("/keypairs", user="ann"))["items"]
    assert (keypair["access_key"], keypair["is_active"]) == (user["main_access_key"], True)
    (entry,) = (await admin.get("/audit-log", action="user.sign-up"))["items"]
    assert (entry["actor"], entry["domain"], entry["client_ip"]) == ("ann", "default", "192.0.2.1")
    assert entry["details"]["consents"] == ["terms", "privacy"]
    assert PASSWORD not in str(entry)


@pytest.mark.both_databases
async def test_the_account_is_created_when_the_address_is_confirmed(
    api: Api, admin: Client, mail_server: MailServerThread
) -> None:
    assert await sign_up(api, VERIFIED, language="th") == "verify-email"
    with pytest.raises(NotFound):
        await admin.get("/users/ann")
    with pytest.raises(SignInRefused):
        await sign_in(api)
    await api.world.manager.mails.step()
    (mail,) = mail_server.to("ann@example.org")
    assert mail.link.startswith(f"{PAGE}?lang=th#") and "24" in mail.text
    # No text that the user has chosen is sent to an address that may belong to another person.
    assert "Ann" not in mail.text and "ann" not in mail.text.replace("ann@", "")
    token = urlsplit(mail.link).fragment
    async with api.world.manager.database.read() as tx:
        row = (await tx.execute(sa.select(pending_sign_ups))).one()
    assert token not in str(row) and PASSWORD not in str(row)

    assert await rejected(verify(api, "x" * 43)) == "token"
    # The link in the mail alone does not create the account.
    assert await rejected(verify(api, token, "Wrong-horse-7")) == "password"
    assert await verify(api, token) == "sign-in"
    assert (await sign_in(api))["username"] == "ann"
    assert await rejected(verify(api, token)) == "token"

    await sign_up(api, VERIFIED, "late")
    await api.world.manager.mails.step()
    late = urlsplit(mail_server.to("late@example.org")[-1].link).fragment
    api.world.clock.advance(hours=25)
    assert await rejected(verify(api, late)) == "token"


async def test_the_current_rules_apply_to_a_confirmation(
    api: Api, admin: Client, mail_server: MailServerThread
) -> None:
    await sign_up(api, VERIFIED)
    await api.world.manager.mails.step()
    token = urlsplit(mail_server.mails[-1].link).fragment
    for change, field in (
        ({"needs_invitation": True}, "invitation"),
        ({"email_domains": ["example.com"]}, "email"),
        ({"domain": "acme"}, "token"),
    ):
        assert await rejected(verify(api, token, rules={**VERIFIED, **change})) == field
    await admin.patch("/domains/default", {"is_active": False})
    await rejected(verify(api, token), Unavailable)
    await admin.patch("/domains/default", {"is_active": True})
    start = (api.world.clock()).isoformat()
    body = {"reason": "upgrade", "mode": "read-only", "starts_at": start}
    made = await admin.post("/maintenances", body)
    await rejected(verify(api, token), Unavailable)
    await rejected(sign_up(api, OPEN, "other"), Unavailable)
    await admin.delete(f"/maintenances/{made['id']}")
    assert await verify(api, token, rules={**VERIFIED, "needs_approval": True}) == "await-approval"


async def test_the_response_does_not_reveal_a_taken_address(
    api: Api, admin: Client, mail_server: MailServerThread
) -> None:
    for name, email in (("new", "new@example.org"), ("other", "user@example.com")):
        assert await sign_up(api, VERIFIED, name, email=email) == "verify-email"
    async with api.world.manager.database.read() as tx:
        assert await tx.scalar(sa.select(sa.func.count()).select_from(mails)) == 2
    await api.world.manager.mails.step()
    (mail,) = mail_server.to("user@example.com")
    assert "already belongs to an account" in mail.text and "http" not in mail.text
    async with api.world.manager.database.read() as tx:
        emails = list(await tx.scalars(sa.select(pending_sign_ups.c.email)))
    assert emails == ["new@example.org"]


@pytest.mark.both_databases
async def test_the_first_confirmed_sign_up_gets_a_name_that_two_have_chosen(
    api: Api, mail_server: MailServerThread
) -> None:
    for email in ("a@example.org", "b@example.org"):
        assert await sign_up(api, VERIFIED, "same", email=email) == "verify-email"
    await api.world.manager.mails.step()
    tokens = [urlsplit(mail.link).fragment for mail in mail_server.mails]
    assert await verify(api, tokens[0]) == "sign-in"
    assert await rejected(verify(api, tokens[1]), AlreadyExists) == "username"
    assert await rejected(sign_up(api, VERIFIED, "same"), AlreadyExists) == "username"


@pytest.mark.both_databases
async def test_an_administrator_approves_an_account(
    api: Api, admin: Client, mail_server: MailServerThread
) -> None:
    rules = {**OPEN, "needs_approval": True}
    assert await sign_up(api, rules) == "await-approval"
    assert await sign_up(api, rules, "eve") == "await-approval"
    with pytest.raises(SignInRefused) as caught:
        await sign_in(api)
    assert caught.value.details["reason"] == "inactive"
    waiting = await admin.get("/users", awaits_approval="true", sort="username")
    assert [(u["username"], u["status"]) for u in waiting["items"]] == [
        ("ann", "inactive"),
        ("eve", "inactive"),
    ]
    domain_admin = await api.client("domain-admin")
    approved = await domain_admin.post("/users/ann/approve")
    assert (approved["status"], approved["awaits_approval"], approved["status_info"]) == (
        "active",
        False,
        "",
    )
    assert (await sign_in(api))["username"] == "ann"
    with pytest.raises(Conflict):
        await admin.post("/users/ann/approve")
    await api.world.manager.mails.step()
    (mail,) = mail_server.mails
    assert (mail.recipients, mail.subject) == (
        ["ann@example.org"],
        "bai-hub: your account has been approved",
    )
    # An administrator who activates the account also approves it.
    changed = await admin.patch("/users/eve", {"status": "active"})
    assert (changed["awaits_approval"], changed["status_info"]) == (False, "")
    log = await admin.get("/audit-log", action="user.approve")
    assert [one["actor"] for one in log["items"]] == ["domain-admin"]


@pytest.mark.both_databases
async def test_an_invitation_determines_domain_and_project(api: Api, admin: Client) -> None:
    rules = {**OPEN, "needs_invitation": True}
    assert await rejected(sign_up(api, rules)) == "invitation"
    assert await rejected(sign_up(api, rules, invitation="x" * 43)) == "invitation"
    spec = {"project": "research", "max_uses": 2, "valid_days": 3, "description": "course"}
    made = await admin.post("/sign-up-invitations", spec)
    token = made.pop("token")
    assert len(token) == 43 and (made["domain"], made["project"]) == ("default", "research")
    assert await admin.get(f"/sign-up-invitations/{made['id']}") == made
    async with api.world.manager.database.read() as tx:
        assert token not in str((await tx.execute(sa.select(sign_up_invitations))).all())
    await sign_up(api, {**rules, "domain": "acme"}, invitation=token)
    user = await admin.get("/users/ann")
    assert (user["domain"], user["role"]) == ("default", "user")
    assert [project["name"] for project in user["projects"]] == ["research"]

    # Concurrent sign-ups cannot create more accounts than permitted.
    calls = [sign_up(api, rules, f"u{number}", invitation=token) for number in range(4)]
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert results.count("sign-in") == 1
    assert sum(isinstance(result, InvalidRequest) for result in results) == 3
    assert (await admin.get(f"/sign-up-invitations/{made['id']}"))["uses"] == 2

    other = await admin.post("/sign-up-invitations", {"domain": "acme"})
    await admin.delete(f"/sign-up-invitations/{other['id']}")
    assert await rejected(sign_up(api, rules, "x1", invitation=other["token"])) == "invitation"
    late = await admin.post("/sign-up-invitations", {"domain": "acme", "valid_days": 1})
    api.world.clock.advance(hours=25)
    assert await rejected(sign_up(api, rules, "x2", invitation=late["token"])) == "invitation"


async def test_a_domain_admin_cannot_invite_to_another_domain(api: Api, admin: Client) -> None:
    domain_admin = await api.client("domain-admin")
    own = await domain_admin.post("/sign-up-invitations", {})
    assert own["domain"] == "default"
    with pytest.raises(NotFound):
        await domain_admin.post("/sign-up-invitations", {"domain": "acme"})
    foreign = await admin.post("/sign-up-invitations", {"domain": "acme"})
    listed = (await domain_admin.get("/sign-up-invitations"))["items"]
    assert [one["id"] for one in listed] == [own["id"]] and "token" not in listed[0]
    for call in (
        domain_admin.delete(f"/sign-up-invitations/{foreign['id']}"),
        domain_admin.post("/sign-up-invitations", {"project": "acme/default"}),
    ):
        with pytest.raises(NotFound):
            await call
    with pytest.raises(InvalidRequest, match="not in domain"):
        await admin.post("/sign-up-invitations", {"project": "acme/default"})


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("username", {"username": "no spaces"}),
        ("email", {"email": "nobody"}),
        ("email", {"email": "a@b.c\r\nBcc: d@e.f"}),
        ("email", {"email": "ann@other.org"}),
        ("password", {"password": "weak"}),
        ("password", {"password": "x-ann-1234567"}),
        ("None", {"full_name": "An\u200bn"}),
        ("None", {"full_name": "A" * 65}),
        ("None", {"role": "superadmin"}),
        ("None", {"page": "javascript:alert(1)"}),
    ],
)
async def test_invalid_fields_are_rejected(api: Api, field: str, changes: dict[str, Any]) -> None:
    rules = {**OPEN, "email_domains": ["example.org"]}
    assert await rejected(sign_up(api, rules, **changes)) == field
    async with api.world.manager.database.read() as tx:
        assert await tx.scalar(sa.select(users.c.id).where(users.c.username == "ann")) is None


async def test_taken_names_and_addresses_are_rejected(api: Api) -> None:
    assert await rejected(sign_up(api, name="user"), AlreadyExists) == "username"
    assert await rejected(sign_up(api, email="user@example.com"), AlreadyExists) == "email"


async def test_nobody_signs_up_for_an_inactive_or_unknown_domain(api: Api, admin: Client) -> None:
    await admin.patch("/domains/acme", {"is_active": False})
    for domain in ("acme", "nowhere"):
        with pytest.raises(BaiError, match="not active"):
            await sign_up(api, {**OPEN, "domain": domain})


async def test_sign_ups_are_limited(api: Api) -> None:
    for number in range(MAX_REQUESTS_PER_NAME):
        await sign_up(api, VERIFIED, f"n{number}", email="ann@example.org")
    with pytest.raises(SignInBlocked):
        await sign_up(api, VERIFIED, "n9", email="ann@example.org")
    for _ in range(MAX_REQUESTS_PER_ADDRESS):
        assert await rejected(sign_up(api, password="weak", client_ip="198.51.100.7")) == "password"
        assert await rejected(verify(api, "x", ip="198.51.100.7")) == "token"
    for call in (
        sign_up(api, name="bob", client_ip="198.51.100.7"),
        verify(api, "x", ip="198.51.100.7"),
    ):
        with pytest.raises(SignInBlocked):
            await call


async def test_users_may_neither_call_the_routes_of_the_hub_nor_invite(
    api: Api, admin: Client
) -> None:
    body = {"username": "x", "email": "x@y.z", "password": PASSWORD, "rules": OPEN, "page": PAGE}
    with pytest.raises(Forbidden):
        await admin.post("/auth/sign-up", body)
    with pytest.raises(Forbidden):
        await admin.post("/auth/sign-up/verify", {"token": "x", "password": "x", "rules": OPEN})
    with pytest.raises(NotSignedIn):
        await api.nobody.post("/auth/sign-up", body)
    for path in ("/sign-up-invitations",):
        with pytest.raises(Forbidden):
            await (await api.client("user")).post(path, {})


@pytest.mark.both_databases
async def test_an_invitation_that_is_deleted_during_the_sign_up_is_rejected(
    manager: Manager, clock: MovableClock
) -> None:
    pending = PendingSignUp(
        id="1",
        username="ann",
        email="ann@example.org",
        full_name="",
        password_hash="",
        domain="default",
        invitation_id="deleted",
        needs_approval=False,
        consents=(),
    )
    now = clock()
    mail = Mail("1", now, "sign_up", "ann@example.org", "en", now)
    with pytest.raises(InvalidRequest, match="the invitation was deleted"):
        await SignUpStore(manager.database).add_pending(pending, now, now, mail)
