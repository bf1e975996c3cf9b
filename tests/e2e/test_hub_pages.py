"""The Hub's REST API and pages: failed and concurrent starts, pending sessions, administration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e import lab
from tests.e2e.sessions import JSON, checked, wait_for
from tests.hub import RunningHub, running_session
from tests.testbed.wait import wait_until

if TYPE_CHECKING:
    from playwright.async_api import Browser, Dialog

pytestmark = pytest.mark.e2e

SMALL = {"resources": {"cpu": "1", "mem": "256m"}}
# Valid statuses of responses to concurrent starts and removals of one server.
EXPECTED_STATUSES = {201, 202, 204, 400, 404, 409}
# With this environment, Python exits at once, so the start of the session fails.
FAILING_START = {**SMALL, "environ": {"PYTHONHOME": "/nowhere"}}


def hub_api_of(hub: RunningHub) -> httpx.Client:
    """Return a client of the Hub's REST API for ``user``."""
    client = hub.rest("user")
    client.base_url = httpx.URL(f"{hub.url}/hub/api")
    return client


@pytest.fixture
def no_gpus_free(hub: RunningHub) -> Iterator[None]:
    """Run a session with all free GPU shares, so that the next request for a share waits."""
    rest = hub.rest("user")
    now = rest.get("/sessions/options").json()["limits"]["cuda.shares"]["now"]
    body = {"name": "takes-gpus", "resources": {"cuda.shares": now}}
    filler = checked(rest.post("/sessions", json=body), 201)
    wait_for(rest, filler["id"], "RUNNING")
    yield
    checked(rest.delete(f"/sessions/{filler['id']}"), 202)
    wait_for(rest, filler["id"], "TERMINATED")


def latest_session(rest: httpx.Client, server: str) -> JSON | None:
    query = {"hub_user": "user", "hub_server": server, "sort": "-created_at", "limit": 1}
    items: list[JSON] = rest.get("/sessions", params=query).json()["items"]
    return items[0] if items else None


def test_a_start_after_a_failed_start_causes_no_internal_error(hub: RunningHub) -> None:
    """The manager is still removing the failed start's server when the next start is requested."""
    # Wait until the scheduler is JIT-compiled: before that, the manager can respond too late.
    running = running_session(hub, "user", **SMALL)
    checked(hub.rest("user").delete(f"/sessions/{running['id']}"), 202)
    hub_api = hub_api_of(hub)
    path = "/users/user/servers/fails-often"
    for attempt in range(8):
        answer = hub_api.post(path, json={"user_options": FAILING_START})
        text = f"attempt {attempt}: {answer.text}"
        assert answer.status_code >= HTTPStatus.BAD_REQUEST, text
        # The message gives the reason for the failed start, not an internal error of the Hub.
        assert "its server exited during the start" in answer.json()["message"], text


def test_simultaneous_starts_and_removals_cause_no_internal_error(hub: RunningHub) -> None:
    """Three cases: two starts, a removal between two starts, and six starts with six removals."""
    hub_api = hub_api_of(hub)
    path = "/users/user/servers/at-once"

    def start() -> httpx.Response:
        return hub_api.post(path, json={"user_options": SMALL}, timeout=120)

    def remove() -> httpx.Response:
        return hub_api.request("DELETE", path, json={"remove": True}, timeout=120)

    with ThreadPoolExecutor(12) as pool:
        for calls in ([start, start], [start, remove, start], [start, remove] * 6):
            futures = [(call.__name__, pool.submit(call)) for call in calls]
            answers = [(name, future.result()) for name, future in futures]
            codes = [(name, answer.status_code) for name, answer in answers]
            unexpected = [a.text for _, a in answers if a.status_code not in EXPECTED_STATUSES]
            assert not unexpected, f"{codes}: {unexpected}"
    wait_until(lambda: remove().status_code == HTTPStatus.NOT_FOUND, 60, "the end of the server")


@pytest.mark.browser
async def test_stop_on_the_page_of_a_pending_session_stops_only_that_server(
    browser: Browser, hub: RunningHub, no_gpus_free: None
) -> None:
    rest, hub_api = hub.rest("user"), hub_api_of(hub)
    page = await browser.new_page()
    await lab.sign_in(page, hub, "user")
    started = hub_api.post("/users/user/server", json={"user_options": SMALL}, timeout=120)
    assert started.status_code in (HTTPStatus.CREATED, HTTPStatus.ACCEPTED), started.text
    default = wait_until(lambda: latest_session(rest, ""), 20, "the default session")
    wait_for(rest, default["id"], "RUNNING")

    await page.goto(f"{hub.url}/hub/spawn/user/waits")
    await page.select_option("#bai-preset", value="")
    await page.fill('input[name="resource:cuda.shares"]', "1")
    await page.click('.bai-start button[type="submit"]')
    await page.wait_for_url(f"{hub.url}/hub/spawn-pending/**", timeout=lab.TIMEOUT_MS)
    session = wait_until(lambda: latest_session(rest, "waits"), 20, "the session")
    await page.get_by_role("button", name=re.compile("^Stop")).click()

    wait_for(rest, session["id"], "CANCELLED")
    await page.wait_for_url(f"{hub.url}/hub/home", timeout=lab.TIMEOUT_MS)
    # The home page asks before it stops a session.
    questions: list[str] = []

    async def answer(dialog: Dialog) -> None:
        questions.append(dialog.message)
        await (dialog.dismiss() if len(questions) == 1 else dialog.accept())

    page.on("dialog", answer)
    await page.click("#stop")
    assert rest.get(f"/sessions/{default['id']}").json()["status"] == "RUNNING"
    await page.click("#stop")
    wait_for(rest, default["id"], "TERMINATED")
    assert [question.partition("?")[0] for question in questions] == ["Stop your session"] * 2
    # After the stop, the button has the text of bai-hub, not that of JupyterHub's home.js.
    await page.get_by_role("button", name="Start my session").wait_for()


@pytest.mark.browser
async def test_home_page_does_not_offer_to_start_an_ended_session(
    browser: Browser, hub: RunningHub
) -> None:
    session = running_session(hub, "user", **SMALL)
    server = session["hub_server"]
    page = await browser.new_page()
    await lab.sign_in(page, hub, "user")
    await page.goto(f"{hub.url}/hub/home")
    page.once("dialog", lambda dialog: dialog.accept())
    await page.click(f"[id='stop-{server}']")
    wait_for(hub.rest("user"), session["id"], "TERMINATED")
    start = page.locator(f"[id='start-{server}']")
    await start.wait_for(state="detached")
    await page.reload()
    assert await start.count() == 0


@pytest.mark.browser
async def test_home_page_lists_a_pending_session_without_buttons(
    browser: Browser, hub: RunningHub, no_gpus_free: None
) -> None:
    rest, hub_api = hub.rest("user"), hub_api_of(hub)
    body = {"name": "in-the-queue", "resources": {"cuda.shares": "1"}}
    session = checked(rest.post("/sessions", json=body), 201)
    server = session["hub_server"]
    path = f"/users/user/servers/{server}"
    page = await browser.new_page()
    await lab.sign_in(page, hub, "user")
    links = page.locator(f'a[data-bai-waiting][href="{session["page"]}"]')
    # The page lists the session even before the Hub has a server for the session.
    await page.goto(f"{hub.url}/hub/home")
    assert await links.count() == 1
    wait_until(lambda: hub_api.get(path).status_code == 200, 30, "the Hub's server")

    await page.goto(f"{hub.url}/hub/home")
    assert await links.count() == 1
    assert await page.get_by_text("Pending", exact=True).count() == 1
    for action in ("start", "stop", "delete"):
        assert await page.locator(f"#{action}-{server}").count() == 0
    # The page at the URL of the server says that the session is waiting, and has no start button.
    for address in (f"user/user/{server}/lab", f"user/user/{server}/"):
        await page.goto(f"{hub.url}/{address}")
        await page.locator(f'a[data-bai-queued][href="{session["page"]}"]').wait_for()
        assert await page.locator("#start").count() == 0
    # If the server has a session, its start form redirects to the session.
    await page.goto(f"{hub.url}/hub/spawn/user/{server}")
    await page.wait_for_url(f"**/sessions?**session={session['id']}")
    await page.get_by_role("dialog").get_by_text("Position 1 in resource group").first.wait_for()
    await page.goto(f"{hub.url}/hub/home")
    await links.click()
    await page.wait_for_url(f"**/sessions?**session={session['id']}")
    checked(rest.delete(f"/sessions/{session['id']}"), 202)
    wait_for(rest, session["id"], "CANCELLED")
    # A bookmark of an ended session leads to the reason of its end.
    await page.goto(f"{hub.url}/user/user/{server}/lab")
    await page.get_by_role("heading", name="Session ended").wait_for()
    assert await page.locator("#start").count() == 0
    await page.locator(f'a[data-bai-ended][href="{session["page"]}"]').click()
    await page.get_by_role("dialog").get_by_text("stopped by user").first.wait_for()


@pytest.mark.browser
@pytest.mark.parametrize(
    "name, sees_all",
    [
        pytest.param("domain-admin", False, id="domain admin"),
        pytest.param("admin", True, id="superadmin"),
    ],
)
async def test_the_admin_page_lists_searches_and_links_sessions(
    browser: Browser, hub: RunningHub, name: str, sees_all: bool
) -> None:
    rest = hub.rest("user")
    for known in ("user", "acme-user"):
        with hub.sign_in(known):
            pass
    session = checked(rest.post("/sessions", json={"name": f"seen-by-{name}", **SMALL}), 201)
    superadmin = hub.rest("admin")
    above = checked(superadmin.post("/sessions", json={"name": f"above-{name}", **SMALL}), 201)
    page = await browser.new_page()
    await lab.sign_in(page, hub, name)
    await page.get_by_role("link", name="Hub users").click()
    users = page.locator("#bai-users tbody tr td:first-child")
    await users.first.wait_for()
    shown = await users.all_inner_texts()
    assert {"user", name} <= set(shown)
    assert ("acme-user" in shown) is sees_all
    # Only superadmins can see sessions of superadmins.
    links = page.locator("#bai-users")
    assert await links.get_by_role("link", name=session["name"]).count() == 1
    assert (await links.get_by_role("link", name=above["name"]).count() == 1) is sees_all
    checked(superadmin.delete(f"/sessions/{above['id']}"), 202)
    # The page has no buttons to change users, start servers or shut down the Hub.
    main = page.locator(".container:has(#bai-users)")
    assert await main.get_by_role("button").all_inner_texts() == ["Search"]

    await page.fill('input[name="name"]', "user")
    await page.get_by_role("button", name="Search").click()
    await page.wait_for_url("**/admin?name=user")
    await users.first.wait_for()
    assert name not in await users.all_inner_texts()
    await page.get_by_role("link", name=session["name"]).click()
    await page.wait_for_url(f"**/sessions?**session={session['id']}")
    drawer = page.get_by_role("dialog")
    await drawer.get_by_role("button", name=re.compile("^(Stop|Cancel)$")).click()
    confirm = page.locator(".ant-modal-confirm").get_by_role("button")
    await confirm.get_by_text(re.compile("^(Stop|Cancel)$")).last.click()
    wait_until(
        lambda: (
            rest.get(f"/sessions/{session['id']}").json()["status"]
            in ("CANCELLED", "TERMINATING", "TERMINATED")
        ),
        30,
        "the end of the session",
    )


def test_requests_for_hub_tokens_are_checked_and_tokens_expire(hub: RunningHub) -> None:
    with hub_api_of(hub) as api:
        for body, reason in (
            ([], "JSON object"),
            ({"note": {"a": 1}}, "note must be a string"),
            ({"note": "a" * 201}, "at most 200"),
            ({"note": "lone \ud800 surrogate"}, "U+D800 at position 6"),
            ({"note": "nul \0"}, "U+0000 at position 5"),
            ({"expires_in": 0}, "at least 1"),
            ({"expires_in": 366 * 24 * 3600}, "must not exceed"),
        ):
            answer = checked(api.post("/users/user/tokens", content=json.dumps(body)), 400)
            assert reason in answer["message"]
        token = checked(api.post("/users/user/tokens", json={"note": "a" * 200}), 201)
        checked(api.delete(f"/users/user/tokens/{token['id']}"), 204)
    end = datetime.fromisoformat(token["expires_at"]) - datetime.fromisoformat(token["created"])
    assert timedelta(days=364) < end <= timedelta(days=365)


def test_a_text_that_the_hub_cannot_store_breaks_no_later_request(hub: RunningHub) -> None:
    """SQLite cannot store a lone surrogate: the transaction fails, and must be rolled back."""
    with hub_api_of(hub) as api, hub.rest("acme-user") as other:
        other.base_url = httpx.URL(f"{hub.url}/hub/api")
        path = "/users/user/servers/cannot-store"
        checked(api.put(path), 201)
        for _ in range(3):
            failed = api.patch(path, content=r'{"display_name": "\ud800"}')
            assert failed.status_code >= HTTPStatus.BAD_REQUEST, failed.text
            assert checked(other.get("/user"), 200)["name"] == "acme-user"
        checked(api.request("DELETE", path, json={"remove": True}), 204)
