"""Pages for a forgotten password, sign-up, and account deletion."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from bai_services.i18n.catalogue import translator
from tests.e2e.sessions import checked
from tests.hub import RunningHub
from tests.testbed.mail_server import MailServerThread

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

ENGLISH = translator("en")
PASSWORD = "Correct-horse-7"
NEW = "Another-horse-8"


def new_account(hub: RunningHub, **fields: Any) -> str:
    name = f"s-{secrets.token_hex(5)}"
    spec = {"username": name, "email": f"{name}@example.org", "password": PASSWORD}
    with hub.rest("admin") as admin:
        checked(admin.post("/users", json={**spec, "domain": "default", **fields}), 201)
    return name


async def submit(page: Page, key: str, **fields: str) -> None:
    """Fill in fields by id and press the button with the text of ``key``."""
    for name, value in fields.items():
        await page.fill(f"#{name}", value)
    await page.get_by_role("button", name=ENGLISH(key)).click()


async def sign_in(page: Page, name: str, password: str) -> None:
    async with page.expect_navigation():
        await submit(page, "sign_in.submit", username_input=name, password_input=password)


async def wait_for_text(page: Page, key: str, **values: object) -> None:
    await page.locator("main").get_by_text(ENGLISH(key, **values)).wait_for()


@pytest.mark.checklist("AUTH-11")
async def test_a_forgotten_password_is_reset_by_mail(
    hub: RunningHub, browser: Browser, mail_server: MailServerThread
) -> None:
    name = new_account(hub)
    email = f"{name}@example.org"
    other = await (await browser.new_context(locale="en-US")).new_page()
    await other.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fhome")
    await sign_in(other, name, PASSWORD)

    page = await (await browser.new_context(locale="en-US")).new_page()
    for address in (f"no-{email}", email):
        await page.goto(f"{hub.url}/hub/login")
        await page.get_by_role("link", name=ENGLISH("self_service.forgot_link")).click()
        await submit(page, "self_service.send_link", email="")
        assert await page.locator("#email:invalid").count() == 1
        await submit(page, "self_service.send_link", email="ann@-")
        assert await page.locator("#email:invalid").count() == 1
        await submit(page, "self_service.send_link", email=address)
        # The text is the same for an unknown and a known address.
        await wait_for_text(page, "self_service.link_sent")
    mail = await asyncio.to_thread(mail_server.wait_for, email)
    assert mail_server.to(f"no-{email}") == []
    token = urlsplit(mail.link).fragment
    assert mail.link.startswith(f"{hub.url}/hub/reset-password?lang=en#")

    await page.goto(f"{hub.url}/hub/reset-password")
    await wait_for_text(page, "self_service.no_token")
    await page.goto(mail.link)
    await page.locator("#email").wait_for()
    assert token not in page.url
    wrong = {"email": email, "new_password": NEW, "repeat_password": NEW}
    for changes, key in (
        ({"repeat_password": "Another-horse-9"}, "password.differs"),
        ({"email": "user@example.com"}, "self_service.email_rejected"),
        ({"new_password": "weak", "repeat_password": "weak"}, "password.rule_broken"),
        ({"new_password": PASSWORD, "repeat_password": PASSWORD}, "password.rule_broken"),
    ):
        await submit(page, "self_service.set_password", **{**wrong, **changes})
        await page.get_by_role("alert").get_by_text(ENGLISH(key)).wait_for()
    await submit(page, "self_service.set_password", **wrong)
    await wait_for_text(page, "self_service.notice_password_reset")
    assert urlsplit(page.url).path == "/hub/login"

    await other.reload()
    await other.get_by_role("heading", name=ENGLISH("sign_in.title")).wait_for()
    await page.goto(mail.link)
    await submit(page, "self_service.set_password", **wrong)
    await wait_for_text(page, "self_service.token_rejected")
    await page.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fhome")
    await sign_in(page, name, NEW)
    assert page.url == f"{hub.url}/hub/home"
    notice = await asyncio.to_thread(mail_server.wait_for, email, 2)
    assert "has been changed" in notice.subject
    logs = hub.logs(lines=10_000)
    assert token not in logs and NEW not in logs


@pytest.mark.checklist("AUTH-12")
async def test_a_user_signs_up_with_an_invitation_and_is_approved(
    hub: RunningHub, browser: Browser, mail_server: MailServerThread
) -> None:
    name = f"s-{secrets.token_hex(5)}"
    email = f"{name}@example.org"
    admin = await (await browser.new_context(locale="en-US")).new_page()
    await admin.goto(f"{hub.url}/services/bai/users?tab=sign-up-invitations")
    await submit(admin, "sign_in.submit", username_input="admin", password_input=hub.password)
    await admin.get_by_role("button", name="New invitation").click()
    await admin.get_by_role("textbox", name="Purpose").fill(f"course {name}")
    await admin.get_by_role("button", name="Save", exact=True).click()
    shown = admin.get_by_role("dialog").filter(has_text="This link is shown only now")
    link = await shown.locator(".ant-typography").inner_text()
    assert link.startswith(f"{hub.url}/hub/sign-up#")
    await shown.get_by_role("button", name="OK").click()

    page = await (await browser.new_context(locale="en-US")).new_page()
    await page.goto(f"{hub.url}/hub/login")
    await page.get_by_role("link", name=ENGLISH("sign_up.link")).click()
    submit_form = page.get_by_role("button", name=ENGLISH("sign_up.submit"))
    await submit_form.click()
    # Five texts (the full name is one of them), the invitation and two consents are required.
    assert await page.locator("input:invalid").count() == 8
    assert await page.locator("details b").count() == 0
    await page.goto(link)
    await page.locator("#email").wait_for()
    token = urlsplit(link).fragment
    await page.wait_for_url(f"{hub.url}/hub/sign-up")
    assert await page.input_value("#invitation") == token
    good = {
        "email": email,
        "username": name,
        "full_name": "Ann Kim",
        "password": PASSWORD,
        "repeat_password": PASSWORD,
        "invitation": token,
    }
    for changes, key in (
        ({"repeat_password": NEW}, "password.differs"),
        ({"password": "weak", "repeat_password": "weak"}, "password.rule_broken"),
        ({"username": "user"}, "sign_up.username_taken"),
        ({"username": "a b"}, "sign_up.username_invalid"),
        ({"full_name": "An\u200bn"}, "sign_up.full_name_invalid"),
        ({"email": f"{name}@other.org"}, "sign_up.email_domain"),
        ({"invitation": "wrong"}, "sign_up.invitation_rejected"),
    ):
        await page.check("#terms")
        await page.check("#privacy")
        await submit(page, "sign_up.submit", **{**good, **changes})
        await page.get_by_role("alert").get_by_text(ENGLISH(key)).wait_for()
    await submit(page, "sign_up.submit", **good)
    await wait_for_text(page, "sign_up.mail_sent")

    mail = await asyncio.to_thread(mail_server.wait_for, email)
    await page.goto(f"{hub.url}/hub/verify-email")
    await wait_for_text(page, "self_service.no_token")
    await page.goto(mail.link)
    await submit(page, "sign_up.verify_submit", password=NEW)
    await page.get_by_role("alert").get_by_text(ENGLISH("sign_up.password_rejected")).wait_for()
    await submit(page, "sign_up.verify_submit", password=PASSWORD)
    await wait_for_text(page, "sign_up.awaits_approval")
    await page.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fhome")
    await sign_in(page, name, PASSWORD)
    await wait_for_text(page, "sign_in.inactive")

    await admin.get_by_role("tab", name="Users").click()
    await admin.get_by_text("Awaiting approval", exact=True).click()
    await admin.get_by_role("button", name=name, exact=True).click()
    await admin.get_by_role("button", name="Approve").click()
    await admin.get_by_text(f"{name} is approved").wait_for()
    approval = await asyncio.to_thread(mail_server.wait_for, email, 2)
    assert "has been approved" in approval.subject
    await sign_in(page, name, PASSWORD)
    assert page.url == f"{hub.url}/hub/home"
    with hub.rest("admin") as rest:
        user = checked(rest.get(f"/users/{name}"), 200)
    assert (user["full_name"], user["role"]) == ("Ann Kim", "user")
    assert [project["name"] for project in user["projects"]] == ["default"]
    logs = hub.logs(lines=10_000)
    assert token not in logs and urlsplit(mail.link).fragment not in logs


@pytest.mark.checklist("AUTH-14")
async def test_signed_in_user_deletes_the_account_with_the_password(
    hub: RunningHub, browser: Browser
) -> None:
    name = new_account(hub)
    page = await (await browser.new_context(locale="en-US")).new_page()
    await page.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fchange-password")
    await sign_in(page, name, PASSWORD)
    await page.get_by_role("link", name=ENGLISH("self_service.deletion_title")).click()
    await submit(page, "self_service.deletion_submit", password=PASSWORD)
    assert await page.locator("input:invalid").count() == 1
    await page.check("#confirmed")
    await submit(page, "self_service.deletion_submit", password=NEW)
    await page.get_by_role("alert").get_by_text(ENGLISH("password.wrong")).wait_for()
    await page.check("#confirmed")
    await submit(page, "self_service.deletion_submit", password=PASSWORD)
    await wait_for_text(page, "self_service.notice_account_deleted")
    await page.goto(f"{hub.url}/hub/home")
    await page.get_by_role("heading", name=ENGLISH("sign_in.title")).wait_for()
    await sign_in(page, name, PASSWORD)
    await wait_for_text(page, "sign_in.refused")
