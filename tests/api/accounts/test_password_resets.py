"""Password resets over REST, as the Hub's pages request them, with a real mail server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotSignedIn,
    SignInBlocked,
    SignInRefused,
)
from bai_services.db.tables.mails import mails
from bai_services.db.tables.self_service import password_resets
from bai_services.manager.accounts.request_limits import (
    MAX_REQUESTS_PER_ADDRESS,
    MAX_REQUESTS_PER_NAME,
)
from bai_services.manager.manager import Manager
from bai_services.manager.settings import MailServer
from tests.testbed.mail_server import MailServerThread, serving_mail
from tests.testbed.manager import HUB, PASSWORD, Api, MovableClock, manager_on

NEW = "Another-horse-8"
PAGE = "http://hub.example.org/hub/reset-password"
USER = "user@example.com"


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


async def request(api: Api, email: str = USER, ip: str = "192.0.2.1", **fields: str) -> None:
    body = {"email": email, "page": PAGE, "client_ip": ip, **fields}
    await api.hub.post("/auth/password-reset", body)


async def link_token(api: Api, mail_server: MailServerThread, email: str = USER) -> str:
    """Request a link and return its token from the mail."""
    await request(api, email)
    await api.world.manager.mails.step()
    links = [mail for mail in mail_server.to(email) if PAGE in mail.text]
    return urlsplit(links[-1].link).fragment


async def redeem(api: Api, token: str, **fields: str) -> Any:
    body = {"token": token, "email": USER, "new_password": NEW, "client_ip": "192.0.2.1"}
    return await api.hub.post("/auth/password-reset/redeem", body | fields)


async def sign_in(api: Api, password: str, name: str = "user") -> Any:
    body = {"name": name, "password": password, "client_ip": "192.0.2.1"}
    return await api.hub.post("/auth/verify", body)


@pytest.fixture
async def admin(api: Api) -> Client:
    await api.world.set_password("user")
    return await api.client("admin")


@pytest.mark.both_databases
async def test_a_user_sets_a_new_password_with_the_link(
    api: Api, admin: Client, mail_server: MailServerThread
) -> None:
    await request(api, " User@Example.com ", language="ko")
    await api.world.manager.mails.step()
    (mail,) = mail_server.mails
    assert mail.recipients == [USER] and mail.subject.endswith("비밀번호 재설정")
    assert mail.link.startswith(f"{PAGE}?lang=ko#") and "30분" in mail.text
    token = urlsplit(mail.link).fragment
    assert len(token) >= 43
    async with api.world.manager.database.read() as tx:
        row = (await tx.execute(sa.select(password_resets))).one()
        assert token not in str(row)
        assert await tx.scalar(sa.select(sa.func.count()).select_from(mails)) == 0

    assert await redeem(api, token, language="ja") == {"username": "user"}
    with pytest.raises(SignInRefused):
        await sign_in(api, PASSWORD)
    assert (await sign_in(api, NEW))["username"] == "user"
    async with api.world.manager.database.read() as tx:
        assert (await tx.execute(sa.select(password_resets))).all() == []
    await api.world.manager.mails.step()
    notice = mail_server.mails[-1]
    assert (notice.recipients, len(mail_server.mails)) == ([USER], 2)
    assert "変更されました" in notice.subject

    log = await admin.get("/audit-log", entity="user", sort="-id", limit=2)
    actions = [(one["actor"], one["action"], one["client_ip"]) for one in log["items"]]
    assert actions == [
        ("user", "user.reset-password", "192.0.2.1"),
        ("(not signed in)", "user.send-password-link", "192.0.2.1"),
    ]
    assert token not in str(log) and NEW not in str(log)


async def rejected(api: Api, token: str, **fields: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        await redeem(api, token, **fields)
    return str(caught.value.details["field"])


@pytest.mark.both_databases
async def test_a_link_is_valid_once_and_for_30_minutes(
    api: Api, admin: Client, mail_server: MailServerThread
) -> None:
    first, second = [await link_token(api, mail_server) for _ in range(2)]
    assert first != second
    assert await rejected(api, "x" * 43) == "token"
    # A rejected request does not consume the link.
    assert await rejected(api, first, email="user2@example.com") == "email"
    assert await rejected(api, first, new_password="too weak") == "password"
    assert await rejected(api, first, new_password=PASSWORD) == "password"
    await redeem(api, first)
    for used in (first, second):
        assert await rejected(api, used) == "token"
    late = await link_token(api, mail_server)
    api.world.clock.advance(minutes=31)
    assert await rejected(api, late) == "token"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        pytest.param({"password": "Chosen-by-admin-1"}, "link is invalid", id="another password"),
        pytest.param({"email": "new@example.com"}, "link is invalid", id="another address"),
        pytest.param({"role": "superadmin"}, "link is invalid", id="another role"),
        pytest.param({"status": "inactive"}, "is not active", id="inactive"),
        pytest.param(
            {"allowed_client_ip": ["198.51.100.0/24"]}, "not be used from", id="address not allowed"
        ),
    ],
)
async def test_a_change_of_the_account_makes_the_link_invalid(
    api: Api, admin: Client, mail_server: MailServerThread, change: dict[str, Any], message: str
) -> None:
    token = await link_token(api, mail_server)
    api.world.clock.advance(seconds=1)
    await admin.patch("/users/user", change)
    with pytest.raises((InvalidRequest, SignInRefused), match=message):
        await redeem(api, token)
    if "password" in change:
        assert (await sign_in(api, change["password"]))["username"] == "user"


@pytest.mark.parametrize(
    ("name", "change"),
    [
        pytest.param("admin", {}, id="superadmin"),
        pytest.param("monitor", {}, id="monitor"),
        pytest.param("user", {"status": "inactive"}, id="inactive"),
        pytest.param("acme-user", {"domain": False}, id="inactive domain"),
        pytest.param("user2", {"password": False}, id="no password"),
    ],
)
async def test_accounts_that_an_administrator_must_reset_get_no_link(
    api: Api, admin: Client, mail_server: MailServerThread, name: str, change: dict[str, Any]
) -> None:
    if "password" not in change:
        await api.world.set_password(name)
    if "domain" in change:
        await admin.patch("/domains/acme", {"is_active": False})
    elif "status" in change:
        await admin.patch(f"/users/{name}", change)
    await request(api, f"{name}@example.com")
    await api.world.manager.mails.step()
    (mail,) = mail_server.mails
    assert "cannot be reset by e-mail" in mail.text and "http" not in mail.text


async def test_the_response_does_not_depend_on_the_existence_of_an_account(
    api: Api, admin: Client, mail_server: MailServerThread
) -> None:
    """The request has the same effect for each address: a row in the queue."""
    await admin.delete("/users/user2")
    for email in (USER, "user2@example.com", "nobody@example.com"):
        await request(api, email)
    async with api.world.manager.database.read() as tx:
        rows = (await tx.execute(sa.select(mails.c.kind, mails.c.recipient))).all()
        assert len(rows) == 3 and {row.kind for row in rows} == {"password_reset"}
        assert (await tx.execute(sa.select(password_resets))).all() == []
    await api.world.manager.mails.step()
    assert [mail.recipients for mail in mail_server.mails] == [[USER]]


@pytest.mark.both_databases
async def test_requests_are_limited_per_email_address_and_per_client_address(
    api: Api, admin: Client, mail_server: MailServerThread
) -> None:
    for number in range(MAX_REQUESTS_PER_NAME + 2):
        # After the limit is exceeded, the response is the same.
        await request(api, USER, ip=f"192.0.2.{number}")
    await api.world.manager.mails.step()
    assert len(mail_server.mails) == MAX_REQUESTS_PER_NAME
    for number in range(MAX_REQUESTS_PER_ADDRESS - 1):
        await request(api, f"nobody{number}@example.com", ip="192.0.2.0")
    with pytest.raises(SignInBlocked) as caught:
        await request(api, "nobody@example.com", ip="192.0.2.0")
    assert caught.value.details["retry_after_seconds"] == 1200
    # Sign-ins have separate limits.
    assert (await sign_in(api, PASSWORD))["username"] == "user"
    for _ in range(MAX_REQUESTS_PER_ADDRESS):
        assert await rejected(api, "wrong", client_ip="198.51.100.7") == "token"
    with pytest.raises(SignInBlocked):
        await redeem(api, "wrong", client_ip="198.51.100.7")
    api.world.clock.advance(minutes=21)
    await request(api, USER, ip="192.0.2.0")


@pytest.mark.parametrize("email", ["", "user", "a@b\r\nBcc: c@d", "a b@c.d", "x" * 60 + "@b.cd"])
async def test_invalid_addresses_are_rejected(api: Api, email: str) -> None:
    with pytest.raises(InvalidRequest):
        await request(api, email)


async def test_only_the_hub_may_reset_passwords(api: Api, admin: Client) -> None:
    for path in ("/auth/password-reset", "/auth/password-reset/redeem"):
        body = {"email": USER, "page": PAGE}
        if path.endswith("redeem"):
            body = {"email": USER, "token": "x", "new_password": NEW}
        with pytest.raises(Forbidden):
            await admin.post(path, body)
        with pytest.raises(NotSignedIn):
            await api.nobody.post(path, body)


@pytest.mark.parametrize("page", ["javascript:alert(1)", "//evil.example", "http://a/b#c", ""])
async def test_the_page_must_be_a_plain_url(api: Api, page: str) -> None:
    with pytest.raises(InvalidRequest):
        await request(api, page=page)


async def test_without_a_mail_server_the_request_is_rejected(
    database_url: str, tmp_path: Path, clock: MovableClock
) -> None:
    async with manager_on(database_url, tmp_path, clock, is_migrated=True) as manager:
        resets = manager.accounts.password_resets
        with pytest.raises(Conflict):
            await resets.request(HUB, USER, "192.0.2.1", "en", PAGE)
