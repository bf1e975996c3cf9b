"""Sign-in with an OpenID provider on a real Hub, in a browser."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bai_services.i18n.catalogue import translator
from tests.e2e.sessions import checked
from tests.e2e.test_login_page import submit_sign_in
from tests.e2e.test_one_time_codes import enter_code, set_up_authenticator
from tests.hub import RunningHub
from tests.testbed.openid_provider import CLIENT_ID, CLIENT_SECRET, serve_openid_provider

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

ENGLISH = translator("en")
CONFIGURATION = """
c.BaiAuthenticator.one_time_codes = "optional"
c.BaiAuthenticator.openid_providers = [
    {{
        "name": "uni",
        "title": "Example University",
        "issuer": "{issuer}",
        "client_id": "{client_id}",
        "client_secret_file": "{secret}",
        "creates_accounts": True,
        "domain": "default",
        "projects": ["default"],
    }}
]
"""
HOME = "/hub/home"


async def sign_in(page: Page, hub: RunningHub) -> None:
    """Press the provider's button; the provider signs the user in without a form."""
    await page.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fhome")
    button = ENGLISH("openid.with", title="Example University")
    async with page.expect_navigation():
        await page.get_by_role("link", name=button).click()


@pytest.mark.checklist("AUTH-05")
async def test_users_sign_in_with_an_openid_provider(
    own_hub: Callable[..., RunningHub], browser: Browser, tmp_path: Path
) -> None:
    async with serve_openid_provider() as provider:
        secret, further = tmp_path / "secret", tmp_path / "further.py"
        secret.write_text(CLIENT_SECRET)
        values = {"issuer": provider.url, "client_id": CLIENT_ID, "secret": secret}
        further.write_text(CONFIGURATION.format(**values))
        hub = own_hub(environment={"BAI_CONFIG": str(further)}).start()
        ada: dict[str, Any] = {
            "sub": "0001",
            "preferred_username": "ada",
            "email": "ada@uni.example",
            "email_verified": True,
        }
        provider.claims = ada
        page = await (await browser.new_context()).new_page()

        async def expect(key: str) -> None:
            await page.get_by_role("alert").get_by_text(ENGLISH(key)).wait_for()
            await page.goto(f"{hub.url}{HOME}")
            assert "/hub/login" in page.url

        # After a failure, the Hub redirects to the sign-in page, which shows the reason.
        provider.is_down = True
        await sign_in(page, hub)
        await expect("openid.unavailable")
        provider.is_down, provider.denies = False, True
        # Try again: for 2 s after a failure, the Hub does not read the provider's metadata again.
        await sign_in(page, hub)
        while await page.get_by_text(ENGLISH("openid.unavailable")).count():
            await sign_in(page, hub)
        await expect("openid.denied")
        provider.denies = False
        provider.change = lambda claims: claims.update(nonce="another")
        await sign_in(page, hub)
        await expect("openid.invalid")
        provider.change = lambda claims: None
        await page.goto(f"{hub.url}/hub/openid/uni/callback?code=x&state={'x' * 43}")
        await expect("openid.expired")

        # The first sign-in creates the account. `next` can only be a page of the Hub.
        await sign_in(page, hub)
        assert page.url == f"{hub.url}{HOME}"
        await page.get_by_text("ada", exact=True).first.wait_for()
        await page.goto(f"{hub.url}/hub/openid/uni/start?next=https%3A%2F%2Fevil.example%2F")
        assert page.url.startswith(hub.url)

        # The rules of the account apply: even after a sign-in without a password, the user must
        # confirm that the sign-in above the limit ends another one.
        policy = f"one-{secrets.token_hex(3)}"
        with hub.rest("admin") as admin:
            body = {"name": policy, "max_concurrent_logins": 1}
            checked(admin.post("/user-policies", json=body), 201)
            checked(admin.patch("/users/ada", json={"resource_policy": policy}), 200)
        second = await (await browser.new_context()).new_page()
        await sign_in(second, hub)
        await second.get_by_role("heading", name=ENGLISH("sign_in.limit_title")).wait_for()
        await second.get_by_role("button", name=ENGLISH("sign_in.limit_proceed")).click()
        await second.wait_for_url(f"{hub.url}{HOME}")
        with hub.rest("admin") as admin:
            checked(admin.patch("/users/ada", json={"status": "inactive"}), 200)
        await sign_in(page, hub)
        await expect("sign_in.inactive")

        # An identity with the name of an existing account is not linked automatically.
        provider.claims = {**ada, "sub": "0002", "preferred_username": "user"}
        await sign_in(page, hub)
        await expect("openid.account_exists")
        await page.goto(f"{hub.url}/hub/login?next=%2Fhub%2Fidentities")
        await submit_sign_in(page, "user", hub.password)
        for typed in (f"{hub.password}?", hub.password):
            await page.get_by_label("Password", exact=True).fill(typed)
            await page.get_by_role("button", name="Link Example University").click()
            if typed != hub.password:
                await page.get_by_role("alert").wait_for()
        await page.get_by_role("button", name=ENGLISH("openid.unlink")).wait_for()
        # The Hub also asks for a one-time code after the sign-in at the provider.
        await page.goto(f"{hub.url}/services/bai/settings?tab=account")
        device = await set_up_authenticator(page, hub.password)
        third = await (await browser.new_context()).new_page()
        await sign_in(third, hub)
        await third.get_by_role("heading", name=ENGLISH("code.title")).wait_for()
        await third.goto(f"{hub.url}{HOME}")
        assert "/hub/login" in third.url
        await sign_in(third, hub)
        await enter_code(third, "000000")
        await third.get_by_role("alert").get_by_text(ENGLISH("code.wrong")).wait_for()
        await enter_code(third, device.code())
        assert third.url == f"{hub.url}{HOME}"
        await third.goto(f"{hub.url}/hub/identities")
        await third.get_by_role("button", name=ENGLISH("openid.unlink")).click()
        await third.get_by_text(ENGLISH("openid.none")).wait_for()

        # The setting for one-time codes in the configuration file reaches the manager.
        with hub.rest("user2") as user:
            assert checked(user.get("/me/authenticator"), 200)["rule"] == "optional"
        log = (hub.home / "hub.log").read_text(errors="replace")
        assert CLIENT_SECRET not in log
        assert "state=[secret]" in log and f"state={'x' * 43}" not in log
