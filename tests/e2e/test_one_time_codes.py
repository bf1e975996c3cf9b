"""One-time codes on a real Hub: sign-in pages, settings, and attempts to bypass the code."""

from __future__ import annotations

import base64
import html
import re
import secrets
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP

from bai_services.i18n.catalogue import translator
from tests.e2e.sessions import checked
from tests.e2e.test_login_page import PASSWORD, new_account, submit_sign_in
from tests.hub import RunningHub
from tests.testbed.plain_http import NO_TLS

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

pytestmark = pytest.mark.e2e

ENGLISH = translator("en")
NEW_PASSWORD = "Another-horse-8"
# The domain with required codes; see the fixture `hub`.
REQUIRED = "needs-codes"


class Device:
    """An authenticator app. Tests cannot move the Hub's clock, so codes use the allowed drift."""

    def __init__(self, secret: str) -> None:
        self._totp = TOTP(base64.b32decode(secret.replace(" ", "")), 6, SHA1(), 30)
        self._last_step = 0

    def code(self) -> str:
        """Return an unused code of the current time step or of one of the two adjacent steps."""
        now = int(time.time()) // 30
        step = max(now - 1, self._last_step + 1)
        assert step <= now + 1, "the test has used all codes of this time"
        self._last_step = step
        return self._totp.generate(step * 30).decode()


def account_with_required_codes(hub: RunningHub, **fields: Any) -> str:
    with hub.rest("admin") as admin:
        made = admin.post("/domains", json={"name": REQUIRED})
        assert made.status_code in (201, 409), made.text
    return new_account(hub, domain=REQUIRED, **fields)


def field_of(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None, page
    return html.unescape(found[1])


def test_no_route_accepts_the_password_without_the_code(hub: RunningHub) -> None:
    name = account_with_required_codes(hub, need_password_change=True)

    def token_at_hub() -> httpx.Response:
        body = {"auth": {"username": name, "password": NEW_PASSWORD}}
        return httpx.post(f"{hub.url}/hub/api/users/{name}/tokens", json=body, verify=NO_TLS)

    def token_at_manager(**fields: str) -> httpx.Response:
        body = {"name": name, "password": NEW_PASSWORD, **fields}
        return httpx.post(f"{hub.api}/auth/token", json=body, verify=NO_TLS)

    def is_signed_in(client: httpx.Client) -> bool:
        return client.get("/hub/home").status_code == 200

    # The user must first change the password, and then register an authenticator app.
    with hub.client() as client:
        answer = hub.post_form(client, "/hub/login", username=name, password=PASSWORD)
        assert ENGLISH("password.must_change") in answer.text
        passwords = {"old_password": PASSWORD, "new_password": NEW_PASSWORD}
        answer = hub.post_form(
            client,
            "/hub/change-password",
            username=name,
            **passwords,
            repeat_password=NEW_PASSWORD,
        )
        assert 'id="qr-code"' in answer.text
        assert not is_signed_in(client)
        assert token_at_hub().status_code == 403
        assert token_at_manager().json()["details"]["reason"] == "need-code-registration"
        found = re.search(r'id="manual-key">([^<]*)<', answer.text)
        assert found is not None
        device = Device(found[1])
        pending = field_of(answer.text, "pending")
        with hub.client() as other:
            # Another browser cannot continue.
            stolen = hub.post_form(other, "/hub/login", pending=pending, code="000000")
            assert stolen.status_code == 403
            assert html.escape(ENGLISH("common.form_expired")) in stolen.text
        answer = hub.post_form(client, "/hub/login", pending=pending, code="000000")
        assert (answer.status_code, ENGLISH("code.wrong") in answer.text) == (403, True)
        pending = field_of(answer.text, "pending")
        answer = hub.post_form(client, "/hub/login", pending=pending, code=device.code())
        recovery_codes = re.findall(r"<li>([a-z0-9-]{19})</li>", answer.text)
        assert len(recovery_codes) == 10
        assert answer.headers["Cache-Control"] == "no-store"
        assert not is_signed_in(client)
        pending = field_of(answer.text, "pending")
        answer = hub.post_form(client, "/hub/login", pending=pending)
        assert answer.status_code == 302, answer.text
        assert is_signed_in(client)
        # A signed-in user also needs the code to change the password.
        change = {"old_password": NEW_PASSWORD, "new_password": PASSWORD}
        answer = hub.post_form(client, "/hub/change-password", **change, repeat_password=PASSWORD)
        assert 'name="recovery_code"' in answer.text
        pending = field_of(answer.text, "pending")
        answer = hub.post_form(
            client, "/hub/change-password", pending=pending, recovery_code=recovery_codes[1]
        )
        assert ENGLISH("password.done") in answer.text, answer.text
        change = {"old_password": PASSWORD, "new_password": NEW_PASSWORD}
        answer = hub.post_form(
            client, "/hub/change-password", **change, repeat_password=NEW_PASSWORD
        )
        pending = field_of(answer.text, "pending")
        answer = hub.post_form(
            client, "/hub/change-password", pending=pending, recovery_code=recovery_codes[2]
        )
        assert ENGLISH("password.done") in answer.text, answer.text

    with hub.client() as client:
        # A forged proof, or a form that skips the page for the code, is rejected.
        fields = {"username": name, "password": NEW_PASSWORD}
        for more in ({"code_proof": "x"}, {}):
            answer = hub.post_form(client, "/hub/login", **fields, **more)
            assert 'name="recovery_code"' in answer.text
            assert not is_signed_in(client)
        assert token_at_hub().status_code == 403
        refused = token_at_manager()
        assert refused.json()["details"]["reason"] == "need-one-time-code"
        token = checked(token_at_manager(code=recovery_codes[0]), 200)["token"]
    assert token_at_manager(code=recovery_codes[0]).status_code == 401
    # A token cannot change the authenticator app.
    bearer = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=hub.api, headers=bearer, verify=NO_TLS) as rest:
        assert checked(rest.get("/me/authenticator"), 200)["recovery_codes_left"] == 7
        body = {"code": recovery_codes[3]}
        assert rest.post("/me/authenticator/removal", json=body).status_code in (401, 403)
        assert rest.post("/me/authenticator/recovery-codes", json=body).status_code in (401, 403)
        assert rest.delete(f"/users/{name}/authenticator").status_code in (403, 409)
        assert checked(rest.get("/me/authenticator"), 200)["recovery_codes_left"] == 7
    log = (hub.home / "hub.log").read_text(errors="replace")
    assert not [secret for secret in (found[1], *recovery_codes) if secret in log]


async def enter_code(page: Page, code: str) -> None:
    await page.fill("#code_input", code)
    async with page.expect_navigation():
        await page.keyboard.press("Enter")


async def set_up_authenticator(page: Page, password: str) -> Device:
    """Register an authenticator app on the settings page."""
    await page.get_by_role("button", name="Set up authenticator").click()
    dialog = page.get_by_role("dialog")
    for typed in (f"{password}?", password):
        await dialog.get_by_label("Password").fill(typed)
        await dialog.get_by_role("button", name="Confirm").click()
        if typed != password:
            await dialog.get_by_text("The password is wrong").wait_for()
    # `decode` fails if the image cannot be shown.
    await dialog.get_by_role("img", name="QR code").evaluate("e => e.decode()")
    device = Device(await dialog.locator("code").inner_text())
    await dialog.get_by_label("6-digit code").fill("000000")
    await dialog.get_by_role("button", name="Confirm").click()
    await dialog.get_by_text("The code is wrong").wait_for()
    await dialog.get_by_label("6-digit code").fill(device.code())
    await dialog.get_by_role("button", name="Confirm").click()
    await page.get_by_text("They are shown only now").wait_for()
    await page.get_by_role("button", name="I have stored the codes").click()
    await page.get_by_text("Recovery codes left: 10").wait_for()
    return device


@pytest.mark.browser
@pytest.mark.checklist("AUTH-07", "SHELL-09")
async def test_a_user_registers_uses_and_removes_an_authenticator(
    hub: RunningHub, browser: Browser
) -> None:
    policy = f"one-{secrets.token_hex(3)}"
    with hub.rest("admin") as admin:
        body = {"name": policy, "max_concurrent_logins": 1}
        checked(admin.post("/user-policies", json=body), 201)
    name = new_account(hub, resource_policy=policy)
    first = await browser.new_page()
    await first.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fhome")
    await submit_sign_in(first, name, PASSWORD)
    await first.goto(f"{hub.url}/services/bai/settings?tab=account")
    device = await set_up_authenticator(first, PASSWORD)

    # The Hub asks for the code first, and then for a confirmation to end the other sign-in.
    second = await browser.new_page()
    await second.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fhome")
    await submit_sign_in(second, name, PASSWORD)
    await second.get_by_role("heading", name=ENGLISH("code.title")).wait_for()
    assert PASSWORD not in await second.content()
    await second.locator("#code_input:focus").wait_for()
    await enter_code(second, "000000")
    await second.get_by_role("alert").get_by_text(ENGLISH("code.wrong")).wait_for()
    await enter_code(second, device.code())
    await second.get_by_role("heading", name=ENGLISH("sign_in.limit_title")).wait_for()
    await second.get_by_role("button", name=ENGLISH("sign_in.limit_proceed")).click()
    await second.wait_for_url(f"{hub.url}/hub/home")
    await first.goto(f"{hub.url}/hub/home")
    assert "/hub/login" in first.url

    await second.goto(f"{hub.url}/services/bai/settings?tab=account")
    await second.get_by_role("button", name="Remove authenticator").click()
    dialog = second.get_by_role("dialog")
    await dialog.get_by_label("6-digit code or recovery code").fill(device.code())
    await dialog.get_by_role("button", name="Confirm").click()
    await second.get_by_role("button", name="Set up authenticator").wait_for()
