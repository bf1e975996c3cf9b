"""Attacks on the web UI: markup, framing, forged requests, redirects, formulas in CSV files."""

from __future__ import annotations

import asyncio
import csv
import io
import re
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from tornado.httpserver import HTTPServer
from tornado.web import Application, RequestHandler

from bai_services.api.base import Operation
from bai_services.api.csv_export import FORMULA_SIGNS
from bai_services.api.routes import ROUTES
from bai_services.api.web_pages import PAGE_NAMES
from tests.e2e.sessions import checked
from tests.hub import RunningHub
from tests.testbed.ports import free_port

from .conftest import Opener
from .data_page import Data
from .entities_page import Entities
from .pages import Shell
from .test_every_page import every_page

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

UI = "/services/bai"
API = f"{UI}/api/v1"
HUB_PAGES = ("login", "home", "token", "admin", "change-password", "no-such-page")
MANAGER_PAGES = (*sorted(PAGE_NAMES), "sessions/none", "cli-login?port=1", "no-such-page")
EVIL = "http://evil.example"
MARKUP = '<img src=x onerror="window.hacked=1">{{7*7}}'
FORMULA = '=HYPERLINK("https://evil.example")'
# The element exists only if a page interpreted MARKUP as HTML.
INJECTED = "img[src=x]"


@pytest.fixture
def browser_client(hub: RunningHub) -> Iterator[httpx.Client]:
    """A client with the cookies of a browser that is signed in to the Hub and the manager."""
    with hub.sign_in("user2") as client:
        assert client.get(f"{UI}/start", follow_redirects=True).status_code == 200
        yield client


def test_no_page_can_be_framed_and_no_page_of_the_web_ui_runs_inline_scripts(
    hub: RunningHub,
) -> None:
    with hub.sign_in("admin") as client:
        for path in (
            *(f"/hub/{name}" for name in HUB_PAGES),
            *(f"{UI}/{n}" for n in MANAGER_PAGES),
        ):
            page = client.get(path, follow_redirects=True)
            policy = page.headers.get("Content-Security-Policy", "")
            assert re.search(r"frame-ancestors 'none'", policy), f"{path}: {policy}"
            assert page.headers.get("X-Content-Type-Options") == "nosniff" or "/hub/" in path
        for name in sorted(PAGE_NAMES):
            page = client.get(f"{UI}/{name}", follow_redirects=True)
            assert "script-src 'self';" in page.headers["Content-Security-Policy"]
            assert re.search(r"<script(?![^>]* src=)|\son\w+=|javascript:", page.text) is None


# Two content types that a page of another site can send without a preflight request.
FORM_TYPES = ("application/x-www-form-urlencoded", "text/plain")


def test_changes_need_the_xsrf_token(browser_client: httpx.Client) -> None:
    body = b'{"name": "webui-forged"}'
    for headers in (
        {"Content-Type": "application/json"},
        *({"Content-Type": kind, "Origin": EVIL} for kind in FORM_TYPES),
        {"Content-Type": "application/json", "X-XSRFToken": "wrong"},
    ):
        for method, path in (("POST", "/vfolders"), ("PUT", "/vfolders/x/content"),
                             ("PATCH", "/users/user2"), ("DELETE", "/sessions/x")):  # fmt: skip
            answer = browser_client.request(method, API + path, headers=headers, content=body)
            assert answer.status_code == 403, f"{method} {path} {headers}"
    folders = browser_client.get(f"{API}/vfolders", params={"name": "webui-forged"})
    assert checked(folders, 200)["items"] == []


def test_page_token_is_valid_in_all_sign_ins_of_its_user_and_of_no_other_user(
    hub: RunningHub, browser_client: httpx.Client
) -> None:
    page = browser_client.get(f"{UI}/start")
    token = re.search(r'"xsrfToken": "([^"]+)"', unescape(page.text))
    assert token is not None
    statuses = {}
    for username in ("user2", "user"):
        with hub.sign_in(username) as client:
            assert client.get(f"{UI}/start", follow_redirects=True).status_code == 200
            answer = client.post(f"{API}/vfolders", headers={"X-XSRFToken": token[1]}, json={})
            statuses[username] = answer.status_code
    # The body has no name, so the accepted request creates nothing.
    assert statuses == {"user2": 400, "user": 403}


def test_scripts_of_other_sites_read_nothing(browser_client: httpx.Client) -> None:
    """The API refuses requests of scripts on other sites, and sends no CORS headers."""
    foreign = {"Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}
    for path in ("/events", "/me", "/sessions"):
        answer = browser_client.get(API + path, headers=foreign)
        assert answer.status_code == 403, path
        assert "Access-Control-Allow-Origin" not in answer.headers
    preflight = {**foreign, "Access-Control-Request-Method": "POST"}
    answer = browser_client.options(f"{API}/vfolders", headers=preflight)
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    # A user may follow a link on another site; the browser marks such a request "navigate".
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    answer = browser_client.get(f"{API}/sessions", params={"format": "csv"}, headers=link)
    assert answer.status_code == 200


REDIRECT_TARGETS = (
    EVIL,
    "//evil.example",
    r"/\evil.example",
    r"\\evil.example",
    "https:evil.example",
    "https:/evil.example",
    "/hub/..//evil.example",
    "/\t/evil.example",
    "javascript:alert(1)",
    "http://127.0.0.1.evil.example/hub/",
    "http://evil.example@127.0.0.1/",
)


def test_no_redirect_leads_to_another_site(browser_client: httpx.Client) -> None:
    base = str(browser_client.base_url)
    for target in REDIRECT_TARGETS:
        for path in ("/hub/login", "/hub/", f"{UI}/oauth_callback", f"{UI}/start", UI):
            answer = browser_client.get(path, params={"next": target})
            # Browsers read a backslash as a slash and ignore tabs.
            location = re.sub(r"[\t\r\n]", "", answer.headers.get("Location", ""))
            reached = urlsplit(urljoin(base, location.replace("\\", "/")))
            assert reached.netloc == urlsplit(base).netloc, (path, target)


def list_paths() -> list[str]:
    """Return the paths of all list routes that have no parameter in their path."""
    paths = []
    for path, handler in ROUTES:
        declared: Operation | None = getattr(getattr(handler, "get", None), "operation", None)
        if declared is not None and declared.is_list and "(" not in path:
            paths.append(path)
    return paths


def create_hostile_objects(hub: RunningHub, text: str, name: str) -> dict[str, str]:
    """Create objects of several kinds, with the text in some of their fields.

    Return a mapping from the path of each object to a user who may delete the object.
    """
    made = {}
    with hub.rest("admin") as admin:
        user = {"username": name, "email": f"{name}@example.org", "password": hub.password}
        user |= {"full_name": text[:60], "description": text}
        for path, body in (
            ("/users", user),
            ("/projects", {"name": name, "domain": "default", "description": text}),
            ("/domains", {"name": name, "description": text}),
        ):
            checked(admin.post(path, json=body), 201)
            made[f"{path}/{name}"] = "admin"
    with hub.rest("user2") as rest:
        folder = checked(rest.post("/vfolders", json={"name": name}), 201)["id"]
        made[f"/vfolders/{folder}"] = "user2"
        path = f"/vfolders/{folder}/content"
        checked(rest.put(path, params={"path": text.replace("/", "")}, content=b"x"), 200)
        command = {"type": "batch", "startup_command": f"echo '{text}'", "project": "default"}
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        command |= {"name": name, "starts_at": tomorrow.isoformat(), "environ": {"X": text}}
        # The API may also reject the text, here and in the template.
        session = rest.post("/sessions", json=command)
        if session.status_code == 201:
            made[f"/sessions/{session.json()['id']}"] = "user2"
        template = {"name": text[:60], "request": {"environ": {"X": text}}}
        answer = rest.post("/session-templates", json=template)
        if answer.status_code == 201:
            made[f"/session-templates/{answer.json()['id']}"] = "user2"
    return made


def remove(hub: RunningHub, made: dict[str, str]) -> None:
    for path, owner in made.items():
        with hub.rest(owner) as rest:
            rest.delete(path)


async def test_markup_is_shown_as_text_on_every_page(opened: Opener[Any], hub: RunningHub) -> None:
    name = f"webui-markup-{secrets.token_hex(3)}"
    made = await asyncio.to_thread(create_hostile_objects, hub, MARKUP, name)
    try:
        for username in ("admin", "user2"):
            ui = await opened(Shell, username, "/start")
            async for page in every_page(ui, is_admin=username == "admin"):
                await assert_nothing_injected(ui, page)
        admin = await opened(Entities, "admin", f'/projects?filters={{"name":"{name}"}}')
        await admin.show(name)
        await admin.drawer.get_by_text(MARKUP).first.wait_for()
        await assert_nothing_injected(admin, "project")
        data = await opened(Data, "user2", f'/data?filters={{"name__contains":"{name}"}}')
        await data.page.get_by_role("link", name=name).click()
        await data.page.get_by_text(MARKUP.replace("/", "")).first.wait_for()
        await assert_nothing_injected(data, "files")
        # Error messages repeat what the user has entered.
        await data.open(f"/sessions?session={MARKUP}")
        await data.page.get_by_role("dialog").get_by_role("alert").wait_for()
        await assert_nothing_injected(data, "error")
        await data.open("/launch")
        await data.page.locator("[id='launch-name']").fill(MARKUP)
        await data.page.locator(".ant-form-item-explain-error", has_text="<img").first.wait_for()
        await assert_nothing_injected(data, "launcher")
        for path in ("/hub/home", "/hub/token"):
            await data.page.goto(hub.url + path)
            await assert_nothing_injected(data, path)
    finally:
        await asyncio.to_thread(remove, hub, made)


async def assert_nothing_injected(ui: Shell, where: str) -> None:
    assert await ui.page.evaluate("window.hacked") is None, where
    assert await ui.page.locator(INJECTED).count() == 0, where


def test_no_csv_has_a_formula(hub: RunningHub) -> None:
    made = create_hostile_objects(hub, FORMULA, f"webui-csv-{secrets.token_hex(3)}")
    hostile = 0
    try:
        for username in ("admin", "user2"):
            with hub.rest(username) as rest:
                for path in list_paths():
                    answer = rest.get(path, params={"format": "csv"})
                    assert answer.status_code in (200, 403), path
                    if answer.status_code == 200:
                        cells = [c for row in csv.reader(io.StringIO(answer.text)) for c in row]
                        hostile += sum(cell == "'" + FORMULA for cell in cells)
                        wrong = [cell for cell in cells if cell.startswith(tuple(FORMULA_SIGNS))]
                        assert [cell for cell in wrong if not re.fullmatch(r"-[\d.]+", cell)] == []
    finally:
        remove(hub, made)
    assert hostile >= 3


LISTEN = """address => new Promise(done => {
    const events = new EventSource(address, {withCredentials: true});
    events.onopen = () => done('open');
    events.onerror = () => done('refused');
})"""


@asynccontextmanager
async def foreign_site(html: str) -> AsyncIterator[str]:
    """Serve one page on this machine under a host name that differs from the Hub's."""

    class Page(RequestHandler):
        def get(self) -> None:
            self.finish(html)

    server = HTTPServer(Application([("/", Page)]))
    port = free_port()
    server.listen(port, "127.0.0.1")
    try:
        yield f"http://localhost:{port}/"
    finally:
        server.stop()
        await server.close_all_connections()


async def test_foreign_page_can_neither_frame_nor_change_anything(
    browser: Browser, hub: RunningHub
) -> None:
    context = await browser.new_context(locale="en-US")
    page = await context.new_page()
    ui = Shell(page, hub)
    await ui.sign_in("user2", "/start")
    frames = "".join(
        f'<iframe src="{hub.url}{path}"></iframe>' for path in (f"{UI}/start", "/hub/home")
    )
    html = f"""<title>foreign</title>{frames}<iframe name=target></iframe>
        <form method=post enctype=text/plain target=target action="{hub.url}{API}/vfolders">
        <input name='{{"name":"webui-forged","x":"' value='"}}'></form>"""

    async with foreign_site(html) as address:
        await page.goto(address)
        await page.wait_for_load_state("load")
        async with page.expect_response(lambda answer: answer.request.method == "POST") as posted:
            await page.evaluate("document.forms[0].submit()")
        assert (await posted.value).status in (401, 403)
        for frame in page.frames[1:]:
            assert await frame.locator("#content, .navbar-brand").count() == 0
        outcome = await page.evaluate(LISTEN, f"{hub.url}{API}/events")
        assert outcome == "refused"
    await context.close()


# Opens a window, and returns the HTML of the loaded page; "" if the script may not read it.
READ_WINDOW = """
async url => {
    const opened = window.open(url);
    for (let i = 0; i < 100; i += 1) {
        await new Promise(done => setTimeout(done, 50));
        try {
            const loaded = opened.document;
            if (loaded.readyState === 'complete' && opened.location.href !== 'about:blank')
                return loaded.documentElement.outerHTML;
        } catch (error) {
            return '';
        }
    }
    throw new Error('the page did not load');
}
"""


async def test_an_app_cannot_read_pages_that_it_opens_in_a_window(
    browser: Browser, hub: RunningHub
) -> None:
    """An app has the same origin as the Hub's pages, which contain the XSRF token."""
    context = await browser.new_context(locale="en-US")
    try:
        page = await context.new_page()
        await Shell(page, hub).sign_in("user")
        app = f"{hub.url}/user/someone/app/"
        await page.route(
            app,
            lambda route: route.fulfill(
                body="<p>app",
                content_type="text/html",
                # The Hub's pages send this header. An app that sends the same header still cannot
                # read the pages.
                headers={"Cross-Origin-Opener-Policy": "noopener-allow-popups"},
            ),
        )
        await page.goto(app)
        consent = f"challenge={'c' * 43}&state={'s' * 24}"
        for path in (
            f"{UI}/start",
            f"{UI}/panel-login?{consent}",
            f"{UI}/cli-login?port=5000&{consent}",
            "/hub/home",
            "/hub/token",
            "/hub/no-such-page",
        ):
            assert await page.evaluate(READ_WINDOW, path) == "", path
    finally:
        await context.close()
