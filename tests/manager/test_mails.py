"""The mail queue against a real mail server: delivery, retries, TLS and hostile values."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, Unavailable
from bai_services.core.mail import Mail
from bai_services.db.mails import MailStore
from bai_services.i18n.catalogue import LANGUAGES
from bai_services.mail_settings import read_mail_server
from bai_services.manager.mail.messages import message_of
from bai_services.manager.manager import Manager
from bai_services.manager.settings import MailServer
from tests.testbed.mail_server import (
    PASSWORD,
    USER,
    MailServerThread,
    make_certificate,
    serving_mail,
)
from tests.testbed.manager import HUB, SUPERADMIN, MovableClock, manager_on
from tests.testbed.ports import free_port

FROM = "hub@example.org"


@pytest.fixture
def server() -> Iterator[MailServerThread]:
    with serving_mail() as made:
        yield made


def settings_of(port: int, security: str = "none", **fields: str) -> MailServer:
    return MailServer("localhost", port, security, FROM, **fields)


@asynccontextmanager
async def mailing(
    database_url: str, home: Path, clock: MovableClock, mail: MailServer
) -> AsyncIterator[Manager]:
    async with manager_on(database_url, home, clock, is_migrated=True, mail=mail) as manager:
        yield manager


async def queued(manager: Manager) -> int:
    return (await manager.mails.status(HUB)).pending


@pytest.mark.both_databases
async def test_a_mail_is_delivered_in_the_language_of_its_recipient(
    database_url: str, tmp_path: Path, clock: MovableClock, server: MailServerThread
) -> None:
    async with mailing(database_url, tmp_path, clock, settings_of(server.port)) as manager:
        for language in LANGUAGES:
            await manager.mails.add(manager.mails.new("test", f"{language}@example.com", language))
        assert await queued(manager) == 4
        await manager.mails.step()
        assert await queued(manager) == 0
    assert len(server.mails) == 4
    (first,), (second,) = server.to("en@example.com"), server.to("ko@example.com")
    assert (first.sender, str(first.message["From"])) == (FROM, f"bai-hub <{FROM}>")
    assert first.subject == "bai-hub: test message"
    assert "can send e-mail" in first.text and "automatically" in first.text
    assert first.message["Auto-Submitted"] == "auto-generated"
    assert second.subject == "bai-hub: 테스트 메일"


@pytest.mark.both_databases
async def test_a_mail_survives_a_restart_while_the_server_is_down(
    database_url: str, tmp_path: Path, clock: MovableClock, server: MailServerThread
) -> None:
    down = settings_of(free_port())
    async with mailing(database_url, tmp_path, clock, down) as manager:
        for number in range(2):
            await manager.mails.add(manager.mails.new("test", f"u{number}@example.com", "en"))
        await manager.mails.step()
        status = await manager.mails.status(HUB)
        assert status.pending == 2 and "cannot be reached" in status.last_error
    async with mailing(database_url, tmp_path, clock, settings_of(server.port)) as manager:
        await manager.mails.step()
        # The failed mail is not due yet, and the other mail was not tried.
        assert len(server.mails) == 1
        clock.advance(seconds=31)
        await manager.mails.step()
        assert {mail.recipients[0] for mail in server.mails} == {"u0@example.com", "u1@example.com"}
        assert await queued(manager) == 0


async def test_a_rejected_mail_is_given_up_and_an_undeliverable_one_expires(
    database_url: str, tmp_path: Path, clock: MovableClock, server: MailServerThread
) -> None:
    server.responses = {"no@example.com": "550 unknown", "busy@example.com": "450 try later"}
    async with mailing(database_url, tmp_path, clock, settings_of(server.port)) as manager:
        for name in ("no", "busy", "yes"):
            await manager.mails.add(manager.mails.new("test", f"{name}@example.com", "en"))
        await manager.mails.step()
        await manager.mails.step()
        assert [mail.recipients for mail in server.mails] == [["yes@example.com"]]
        assert await queued(manager) == 1
        assert "450 try later" in (await manager.mails.status(HUB)).last_error
        clock.advance(hours=25)
        await manager.mails.step()
        assert await queued(manager) == 0


async def test_recipients_that_are_rejected_for_now_do_not_delay_other_mails(
    database_url: str, tmp_path: Path, clock: MovableClock, server: MailServerThread
) -> None:
    # These mails must not delay others: any client can cause them, because many mail servers
    # respond with 450 to unknown domains.
    names = [f"busy{number}@example.com" for number in range(3)]
    server.responses = dict.fromkeys(names, "450 domain not found")
    async with mailing(database_url, tmp_path, clock, settings_of(server.port)) as manager:
        for name in (*names, "yes@example.com"):
            await manager.mails.add(manager.mails.new("test", name, "en"))
        await manager.mails.step()
        assert [mail.recipients for mail in server.mails] == [["yes@example.com"]]
        assert await queued(manager) == len(names)
        # If the server closes the connection, the step ends, because every other mail would fail,
        # too.
        server.responses = {"closed@example.com": "421 closing"}
        for name in ("closed@example.com", "later@example.com"):
            await manager.mails.add(manager.mails.new("test", name, "en"))
            clock.advance(seconds=1)
        await manager.mails.step()
        assert server.to("later@example.com") == []


async def test_a_mail_that_cannot_be_prepared_does_not_delay_others(
    database_url: str,
    tmp_path: Path,
    clock: MovableClock,
    server: MailServerThread,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with mailing(database_url, tmp_path, clock, settings_of(server.port)) as manager:

        async def fail(_mail: Mail) -> None:
            raise ZeroDivisionError

        manager.mails.prepare("broken", fail)
        for kind, name in (("broken", "ann"), ("test", "bob")):
            await manager.mails.add(manager.mails.new(kind, f"{name}@example.com", "en"))
        await manager.mails.step()
        assert [mail.recipients for mail in server.mails] == [["bob@example.com"]]
        assert await queued(manager) == 1
    assert "cannot be prepared" in caplog.text


async def test_the_log_does_not_contain_the_address_of_a_rejected_recipient(
    database_url: str,
    tmp_path: Path,
    clock: MovableClock,
    server: MailServerThread,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.responses = {
        "no@example.com": "550 <No@Example.com>: unknown",
        "busy@example.com": "450 <busy@example.com>: try later",
    }
    async with mailing(database_url, tmp_path, clock, settings_of(server.port)) as manager:
        for name in server.responses:
            await manager.mails.add(manager.mails.new("test", name, "en"))
        await manager.mails.step()
    text = caplog.text.lower()
    assert "<the recipient>: unknown" in text and "<the recipient>: try later" in text
    assert "@example.com" not in text


async def test_a_secret_is_added_only_at_the_time_of_the_delivery(
    database_url: str, tmp_path: Path, clock: MovableClock, server: MailServerThread
) -> None:
    async with mailing(database_url, tmp_path, clock, settings_of(server.port)) as manager:

        async def add_link(mail: Mail) -> tuple[str, dict[str, str]] | None:
            if mail.recipient.startswith("nobody"):
                return None
            return "verify_email", {"hours": "24", "link": "https://hub.example.org/#secret"}

        manager.mails.prepare("some", add_link)
        for name in ("nobody", "ann"):
            await manager.mails.add(manager.mails.new("some", f"{name}@example.com", "en"))
        stored = await MailStore(manager.database).due(clock(), 10)
        assert len(stored) == 2 and "secret" not in str(stored)
        await manager.mails.step()
        assert await queued(manager) == 0
    (mail,) = server.mails
    assert mail.link == "https://hub.example.org/#secret"


@pytest.mark.parametrize("security", ["starttls", "tls"])
async def test_the_connection_is_encrypted_and_the_certificate_is_verified(
    database_url: str,
    tmp_path: Path,
    clock: MovableClock,
    monkeypatch: pytest.MonkeyPatch,
    security: str,
) -> None:
    certificate = make_certificate(tmp_path)
    with serving_mail(security, certificate) as server:
        mail = settings_of(server.port, security, user=USER, password=PASSWORD)
        async with mailing(database_url, tmp_path, clock, mail) as manager:
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED|certificate"):
                await manager.mails.send_test(SUPERADMIN, "ann@example.com", "en")
            monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
            sent = await manager.mails.send_test(SUPERADMIN, "Ann@example.com", "en")
            assert sent.recipient == "ann@example.com"
        wrong = settings_of(server.port, security, user=USER, password="wrong")
        async with mailing(database_url, tmp_path, clock, wrong) as manager:
            with pytest.raises(Unavailable, match="responded: 535") as caught:
                await manager.mails.send_test(SUPERADMIN, "ann@example.com", "en")
            assert "wrong" not in str(caught.value)
    assert [mail.recipients for mail in server.mails] == [["ann@example.com"]]


async def test_starttls_is_required_if_it_is_configured(
    database_url: str, tmp_path: Path, clock: MovableClock, server: MailServerThread
) -> None:
    mail = settings_of(server.port, "starttls")
    async with mailing(database_url, tmp_path, clock, mail) as manager:
        with pytest.raises(Unavailable, match="STARTTLS"):
            await manager.mails.send_test(SUPERADMIN, "ann@example.com", "en")
    assert server.mails == []


async def test_only_superadmins_send_test_mails(manager: Manager) -> None:
    with pytest.raises(Forbidden):
        await manager.mails.send_test(HUB, "ann@example.com", "en")
    with pytest.raises(Conflict, match="no mail server"):
        await manager.mails.send_test(SUPERADMIN, "ann@example.com", "en")
    assert not (await manager.mails.status(HUB)).is_configured


@pytest.mark.parametrize(
    "address",
    ["a@b.c\r\nBcc: d@e.f", "a@b.c\nx", "a b@c.d", "<a@b.c>", "a@b.c,d@e.f", "a@b\x00.c", "@", ""],
)
async def test_an_address_cannot_add_a_header(manager: Manager, address: str) -> None:
    with pytest.raises(InvalidRequest):
        await manager.mails.send_test(SUPERADMIN, address, "en")
    mail = manager.mails.new("test", address, "en")
    # The creation of the message also rejects the address, in case no earlier check has done so.
    with pytest.raises(ValueError):
        message_of(mail, "test", {}, settings_of(25), "bai-hub")


def test_values_cannot_add_headers_or_lines(clock: MovableClock) -> None:
    hostile = "x\r\n\r\nBcc: a@b.c\r\n{brand} \u2028 {0.__class__}"
    mail = Mail("id", clock(), "verify_email", "a@b.c", "xx", clock() + timedelta(days=1))
    values = {"link": hostile, "hours": "1"}
    message = message_of(mail, mail.kind, values, settings_of(25), 'A "B", <c@d.e>')
    text = message.as_bytes().decode()
    head, _, body = text.partition("\r\n\r\n")
    assert "bcc" not in head.lower() and message["To"] == "a@b.c"
    assert message["From"].addresses[0].addr_spec == FROM
    assert message["Content-Language"] == "en"
    assert "x Bcc: a@b.c {brand} {0.__class__}" in message.get_content()
    with pytest.raises(ValueError):
        message_of(mail, mail.kind, values, settings_of(25), "A\r\nBcc: d@e.f")


GOOD = {"BAI_MAIL_HOST": "mail.example.org", "BAI_MAIL_FROM": "Hub@example.org"}


def test_settings_have_safe_defaults(tmp_path: Path) -> None:
    assert read_mail_server({}) is None
    made = read_mail_server(GOOD)
    assert made == MailServer("mail.example.org", 587, "starttls", "hub@example.org")
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    login = {**GOOD, "BAI_MAIL_USER": "hub", "BAI_MAIL_PASSWORD_FILE": str(file)}
    made = read_mail_server({**login, "BAI_MAIL_SECURITY": "tls"})
    assert made is not None and (made.port, made.password) == (465, "s3cret")
    assert "s3cret" not in repr(made)


@pytest.mark.parametrize(
    ("changes", "variable"),
    [
        ({"BAI_MAIL_SECURITY": "ssl"}, "BAI_MAIL_SECURITY"),
        ({"BAI_MAIL_PORT": "70000"}, "BAI_MAIL_PORT"),
        ({"BAI_MAIL_FROM": "hub"}, "BAI_MAIL_FROM"),
        ({"BAI_MAIL_USER": "hub"}, "BAI_MAIL_PASSWORD_FILE"),
        ({"BAI_MAIL_USER": "hub", "BAI_MAIL_PASSWORD_FILE": "/nowhere"}, "BAI_MAIL_PASSWORD_FILE"),
        ({"BAI_MAIL_USER": "hub", "BAI_MAIL_SECURITY": "none"}, "BAI_MAIL_USER"),
    ],
)
def test_an_invalid_setting_stops_the_start(changes: dict[str, str], variable: str) -> None:
    with pytest.raises(SystemExit, match=variable):
        read_mail_server({**GOOD, **changes})


async def test_last_error_is_that_of_the_latest_failure(
    database_url: str, tmp_path: Path, clock: MovableClock, server: MailServerThread
) -> None:
    server.responses = {"a@example.com": "450 first", "b@example.com": "450 second"}
    async with mailing(database_url, tmp_path, clock, settings_of(server.port)) as manager:
        await manager.mails.add(manager.mails.new("test", "a@example.com", "en"))
        for _ in range(8):  # the next attempt of this mail is in an hour, of the other mail in 30 s
            clock.advance(hours=1)
            await manager.mails.step()
        await manager.mails.add(manager.mails.new("test", "b@example.com", "en"))
        clock.advance(seconds=1)
        await manager.mails.step()
        assert "450 second" in (await manager.mails.status(HUB)).last_error


async def test_delivery_ends_when_another_manager_takes_over_the_lease(
    database_url: str, tmp_path: Path, clock: MovableClock, server: MailServerThread
) -> None:
    async with mailing(database_url, tmp_path, clock, settings_of(server.port)) as manager:
        for number in range(3):
            await manager.mails.add(manager.mails.new("test", f"u{number}@example.com", "en"))

        async with manager_on(database_url, tmp_path, clock, is_migrated=True) as other:

            async def lose_lease(_mail: Mail) -> tuple[str, dict[str, str]]:
                await manager.scheduling.lease.stop()
                assert await other.scheduling.lease.hold() is not None
                return "test", {}

            manager.mails.prepare("test", lose_lease)
            await manager.mails.step()
    assert len(server.mails) == 1
