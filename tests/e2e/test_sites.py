"""Sessions of a site are reached through its reverse proxy: CLI, app shares, browser."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e import lab, panel
from tests.e2e.sessions import JSON, checked, start, stop
from tests.e2e.sites import site_of
from tests.e2e.test_tunnel import command
from tests.hub import RunningHub

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = pytest.mark.e2e

TIMEOUT_SECONDS = 120


@pytest.fixture(scope="module")
def rest(hub: RunningHub) -> httpx.Client:
    return hub.rest("user")


@pytest.fixture(scope="module")
def session(rest: httpx.Client) -> Iterator[JSON]:
    row = start(rest, f"site-{secrets.token_hex(3)}")
    yield row
    stop(rest, row["id"])


def test_cli_connects_through_the_proxy_of_the_site(
    hub: RunningHub, rest: httpx.Client, session: JSON
) -> None:
    def bai(*words: str) -> subprocess.CompletedProcess[bytes]:
        options: dict[str, Any] = command(hub, rest, *words)
        return subprocess.run(**options, capture_output=True, timeout=TIMEOUT_SECONDS)

    path = f"/sessions/{session['id']}"
    with site_of(hub, session) as site:
        found = checked(rest.get(path), 200)
        assert found["url"] == site.url + session["url"]
        # The page of the manager stays at the address of the hub.
        assert found["page"] == session["page"]
        token = rest.headers["Authorization"].removeprefix("Bearer ")
        headers = {"Authorization": f"token {token}"}
        status = httpx.get(found["url"] + "api/status", headers=headers, timeout=60)
        assert status.status_code == 200
        before = site.connections
        done = bai("session", "exec", session["name"], "echo", "in")
        assert (done.returncode, done.stdout) == (0, b"in\n"), done.stderr
        assert site.connections > before
        shown = bai("session", "open", session["name"], "--no-browser", "--json")
        assert json.loads(shown.stdout)["url"] == found["url"], shown
    assert checked(rest.get(path), 200)["url"] == session["url"]


def test_the_link_of_a_share_leads_to_the_site(
    hub: RunningHub, rest: httpx.Client, session: JSON
) -> None:
    admin = hub.rest("admin")
    policy = f"/user-policies/{checked(admin.get('/users/user'), 200)['resource_policy']}"
    checked(admin.patch(policy, json={"app_sharing": "public"}), 200)
    body = {"app": "tensorboard", "user": "user2"}
    share = checked(rest.post(f"/sessions/{session['id']}/app-shares", json=body), 201)
    with site_of(hub, session) as site, hub.sign_in("user2") as guest:
        before = site.connections
        opened = guest.get(share["url"], follow_redirects=True)
        shared = f"{site.url}{session['url']}shared/tensorboard/"
        assert (opened.status_code, str(opened.url)) == (200, shared), opened.text
        entries = [one for one in opened.history if "/services/bai/shared/" in one.url.path]
        entry = entries[-1]
        assert entry.headers["Location"].startswith(f"{shared}?bai_entry=")
        assert site.connections > before
    checked(rest.delete(f"/sessions/{session['id']}/app-shares/{share['id']}"), 204)


async def test_open_links_of_the_web_ui_lead_to_jupyterlab_at_the_site(
    hub: RunningHub, session: JSON, browser: Browser
) -> None:
    """The user signs in at the address of the site; notebooks and the panel work there."""
    page = await browser.new_page()
    with site_of(hub, session, host="localhost") as site:
        at_site = site.url + session["url"]
        await lab.sign_in(page, hub, "user")
        await page.goto(f"{hub.url}/services/bai/sessions?session={session['id']}")
        drawer = page.get_by_role("dialog", name=session["name"])
        await drawer.get_by_role("tab", name="Apps", exact=True).click()
        async with page.context.expect_page() as opening:
            await drawer.get_by_role("link", name="Open JupyterLab", exact=True).click()
        app = await opening.value
        await app.fill("#username_input", "user")
        await app.fill("#password_input", hub.password)
        assert app.url.startswith(f"{site.url}/hub/login")
        await app.press("#password_input", "Enter")
        await app.wait_for_url(f"{at_site}lab*", timeout=lab.TIMEOUT_MS)
        await lab.open_notebook(app)
        assert await lab.run_cell(app, "6 * 7") == "42"
        await panel.open_panel(app)
        await app.locator(".bai-Head h2", has_text=session["name"]).wait_for(timeout=lab.TIMEOUT_MS)
        terminal = panel.app_row(app, "Terminal").get_by_role("button", name="Open")
        await terminal.wait_for(timeout=lab.TIMEOUT_MS)
