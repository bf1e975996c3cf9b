"""The session panel in JupyterLab, as its person sees it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e import lab
from tests.e2e.contrast import assert_contrast
from tests.e2e.engines import checked, start, stop, wait_for
from tests.e2e.test_journey_browser import sign_in
from tests.hub import RunningHub
from tests.testbed.jupyter import JupyterServer

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page, Route

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
HIGH_CONTRAST = "JupyterLab Dark High Contrast"


async def open_panel(page: Page) -> None:
    """Open the panel unless it is; another click would close it."""
    # At a first visit it opens by itself.
    await page.wait_for_function(
        "Object.keys(localStorage).some(key => key.startsWith('bai-labext:panel-opened:'))"
    )
    tab = page.locator('.lm-TabBar-tab[data-id="bai-session-panel"]')
    if "lm-mod-current" not in (await tab.get_attribute("class") or ""):
        await tab.click()


async def load(page: Page, hub: RunningHub, session: dict[str, Any]) -> None:
    """Load JupyterLab without a layout of before: it comes late and may close the panel."""
    await page.goto(f"{hub.url}{session['url']}lab?reset")
    tab = page.locator('.lm-TabBar-tab[data-id="bai-session-panel"]')
    await tab.wait_for(timeout=lab.PATIENCE_MS)


async def choose_theme(page: Page, name: str) -> None:
    await page.get_by_text("Settings", exact=True).click()
    await page.get_by_text("Theme", exact=True).hover()
    await page.get_by_text(name, exact=True).click()
    await page.locator(f'body[data-jp-theme-name="{name}"]').wait_for(state="attached")


@asynccontextmanager
async def panel_of(
    browser: Browser,
    hub: RunningHub,
    session: dict[str, Any],
    theme: str = "light",
    language: str = "en",
) -> AsyncIterator[Page]:
    """Give a page with the session's JupyterLab and its panel open."""
    page = await browser.new_page(viewport={"width": 1280, "height": 1000})
    try:
        await sign_in(page, hub, "user")
        cookie = {"name": "bai_lang", "value": language, "url": hub.url}
        await page.context.add_cookies([cookie])  # type: ignore[list-item]  # a TypedDict
        await load(page, hub, session)
        if theme == "dark":
            await choose_theme(page, THEMES[theme])
        await open_panel(page)
        await page.locator(".bai-Head h2", has_text=session["name"]).wait_for(
            timeout=lab.PATIENCE_MS
        )
        yield page
    finally:
        await page.close()


# What reaches over the panel's right edge, as wide as it is or as it is made.
STICKS_OUT = """
(node, width) => {
    if (width) node.style.width = `${width}px`;
    const edge = node.getBoundingClientRect().right + 0.5;
    return [...node.querySelectorAll('*')]
        .filter(inner => inner.getBoundingClientRect().right > edge)
        .map(inner => `${inner.className}: ${inner.textContent}`);
}
"""


def nearly_full() -> Callable[[Route], Awaitable[None]]:
    """Answer what the session's server does, and that memory and device are nearly used up."""

    async def answer_so(route: Route) -> None:
        answer = await route.fetch()
        found = await answer.json()
        for kernel in found.get("usage", {}).get("kernels", []):
            kernel["usage"]["mem_bytes"] = 0.85 * 2**30
            kernel["usage"]["devices"] = [
                {**device, "memory_bytes": 990, "limit_bytes": 1000, "utilization_percent": 40}
                for device in kernel["usage"].get("devices") or [{"id": "some"}]
            ]
        await route.fulfill(response=answer, json=found)

    return answer_so


async def look(page: Page, name: str, folder: Path) -> None:
    """Take a picture for people to look at."""
    await page.screenshot(path=folder / f"{name}.png")


def app_row(page: Page, title: str) -> Any:
    return page.locator(".bai-List li", has=page.locator(".bai-List-title", has_text=title))


@pytest.mark.parametrize("theme", THEMES)
async def test_the_panel_shows_the_session(
    browser: Browser, any_hub: RunningHub, theme: str, tmp_path: Path
) -> None:
    rest = any_hub.rest("user")
    folder = checked(rest.post("/vfolders", json={"name": f"panel-{theme}"}), 201)
    mounts = [{"vfolder": folder["name"], "path": "data"}]
    resources = {"cpu": "1", "mem": "1g", "cuda.shares": "0.25"}
    session = start(rest, f"panel-{theme}", mounts=mounts, resources=resources)
    waiting = checked(
        rest.post(
            "/sessions",
            json={
                "name": f"later-{theme}",
                "type": "batch",
                "startup_command": "true",
                "project": "default",
                "resources": {"cpu": "1", "mem": "256m"},
                "starts_at": (datetime.now(UTC) + timedelta(hours=2)).isoformat(),
            },
        ),
        201,
    )
    async with panel_of(browser, any_hub, session, theme) as page:
        panel = page.locator("#bai-session-panel")
        for text in ("default (default)", session["image"], session["agent"], "/home/work/data"):
            await panel.get_by_text(text).first.wait_for()
        await panel.get_by_text("Share 0.25").wait_for()
        # A sample comes with the agent's next heartbeat.
        await panel.locator(".bai-Chart", has_text="Memory").first.wait_for(timeout=lab.PATIENCE_MS)
        await panel.get_by_text(f"panel-{theme}").nth(1).wait_for()
        await panel.get_by_text(f"later-{theme}").wait_for()
        status = page.locator(".bai-Status")
        await status.get_by_text(re.compile(r"^GPU ¼ · (\S+) of 4 GiB$")).wait_for()
        await look(page, f"panel-{theme}-{any_hub.engine}", tmp_path)
        await page.route("**/bai/api/look?**", nearly_full())
        await panel.locator(".bai-Chart.bai-mod-warning").wait_for(timeout=lab.PATIENCE_MS)
        await page.locator(".bai-Status.bai-mod-alarm").wait_for(timeout=lab.PATIENCE_MS)
        shown = page.locator("#bai-session-panel, .bai-Status")
        await assert_contrast(shown, f"panel-{theme}-{any_hub.engine}", tmp_path)
        if theme == "dark":
            await choose_theme(page, HIGH_CONTRAST)
            await assert_contrast(shown, f"panel-high-contrast-{any_hub.engine}", tmp_path)
        await page.unroute_all(behavior="wait")
        await panel.evaluate("node => node.scrollTo(0, node.scrollHeight)")
        await look(page, f"panel-{theme}-{any_hub.engine}-end", tmp_path)
    stop(rest, waiting["id"])
    stop(rest, session["id"])
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


async def test_apps_are_started_and_stopped_from_the_panel(
    browser: Browser, any_hub: RunningHub, tmp_path: Path
) -> None:
    rest = any_hub.rest("user")
    session = start(rest, "panel-apps")
    async with panel_of(browser, any_hub, session) as page:
        row = app_row(page, "TensorBoard")
        await row.get_by_text("not started").wait_for()
        await row.get_by_role("button", name="Start: TensorBoard").click()
        dialog = page.locator(".jp-Dialog")
        await dialog.get_by_label("Log folder").fill("/proc/none")
        await look(page, f"app-start-{any_hub.engine}", tmp_path)
        await dialog.get_by_role("button", name="Start").click()
        # What was wrong is said in the form, which stays.
        await dialog.get_by_role("alert").wait_for()
        await dialog.get_by_label("Log folder").fill("runs")
        await dialog.get_by_role("button", name="Start").click()
        await row.get_by_text("running").wait_for(timeout=lab.PATIENCE_MS)
        async with page.context.expect_page() as opened:
            await row.get_by_role("button", name="Open: TensorBoard").click()
        board = await opened.value
        await board.wait_for_url("**/tensorboard/**")
        await board.close()
        await row.get_by_role("button", name="Log: TensorBoard").click()
        await page.locator(".bai-LogView .bai-Log").wait_for()
        await look(page, f"app-log-{any_hub.engine}", tmp_path)
        await row.get_by_role("button", name="Stop: TensorBoard").click()
        await row.get_by_text("not started").wait_for(timeout=lab.PATIENCE_MS)
    stop(rest, session["id"])


async def test_the_panel_opens_at_the_first_visit_and_not_again_once_closed(
    browser: Browser, hub: RunningHub
) -> None:
    rest = hub.rest("user")
    session = start(rest, "panel-first")
    page = await browser.new_page(viewport={"width": 1280, "height": 1000})
    try:
        await sign_in(page, hub, "user")
        panel = page.locator("#bai-session-panel")
        tab = page.locator('.lm-TabBar-tab[data-id="bai-session-panel"]')
        await load(page, hub, session)
        await panel.wait_for(timeout=lab.PATIENCE_MS)
        await tab.click()
        await panel.wait_for(state="hidden")
        await load(page, hub, session)
        await page.locator(".bai-Status").wait_for(timeout=lab.PATIENCE_MS)
        assert not await panel.is_visible()
    finally:
        await page.close()
    stop(rest, session["id"])


async def test_renaming_and_stopping_say_what_happens(
    browser: Browser, hub: RunningHub, tmp_path: Path
) -> None:
    rest = hub.rest("user")
    session = start(rest, "panel-old")
    other = start(rest, "panel-other")
    async with panel_of(browser, hub, session) as page:
        panel = page.locator("#bai-session-panel")
        await panel.get_by_role("button", name="Rename", exact=True).click()
        await page.locator(".jp-Dialog input").fill("panel-new")
        await page.keyboard.press("Enter")
        await panel.locator("h2", has_text="panel-new").wait_for()
        assert checked(rest.get(f"/sessions/{session['id']}"), 200)["name"] == "panel-new"

        await panel.get_by_role("button", name="Stop: panel-other").click()
        await page.locator(".jp-Dialog").get_by_role("button", name="Stop").click()
        wait_for(rest, other["id"], "TERMINATED")

        await panel.get_by_role("button", name="Stop", exact=True).click()
        dialog = page.locator(".jp-Dialog")
        await dialog.get_by_text("every file of this session is lost").wait_for()
        await look(page, "stop", tmp_path)
        # Enter alone is "Cancel".
        await page.keyboard.press("Enter")
        await dialog.wait_for(state="hidden")
        assert checked(rest.get(f"/sessions/{session['id']}"), 200)["status"] == "RUNNING"
        await panel.get_by_role("button", name="Stop", exact=True).click()
        await dialog.get_by_role("button", name="Stop").click()
        await page.wait_for_url(f"{hub.url}/services/bai/sessions/**")
        wait_for(rest, session["id"], "TERMINATED")


async def test_nothing_is_asked_while_the_page_is_hidden_and_no_token_is_seen(
    browser: Browser, hub: RunningHub
) -> None:
    rest = hub.rest("user")
    session = start(rest, "panel-quiet")
    token = re.compile(r"[Bb]earer|JUPYTERHUB_API_TOKEN")
    async with panel_of(browser, hub, session) as page:
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        answer = await page.evaluate(
            "url => fetch(url).then(answer => answer.text())",
            f"{hub.url}{session['url']}bai/api/session",
        )
        assert not token.search(answer) and '"environ"' not in answer
        # What it has seen once is not sent again.
        async with page.expect_response(re.compile(r"/bai/api/look\?.*apps=\w")) as looked:
            pass
        assert "apps" not in await (await looked.value).json()
        await page.evaluate(
            """() => {
                Object.defineProperty(document, 'hidden', {value: true});
                Object.defineProperty(document, 'visibilityState', {value: 'hidden'});
                document.dispatchEvent(new Event('visibilitychange'));
            }"""
        )
        # The page's own clock: the round that was begun ends, then two more would come.
        pause = "ms => new Promise(done => setTimeout(done, ms))"
        await page.evaluate(pause, 5000)
        asked.clear()
        await page.evaluate(pause, 12000)
        assert not [url for url in asked if "/bai/api/" in url], asked
    stop(rest, session["id"])


@pytest.mark.parametrize("language", ["en", "ko", "ja", "th"])
async def test_nothing_sticks_out_of_the_panel(
    browser: Browser, hub: RunningHub, language: str, tmp_path: Path
) -> None:
    rest = hub.rest("user")
    session = start(rest, "panel-narrow", resources={"cpu": "1", "mem": "1g", "cuda.shares": "0.1"})
    async with panel_of(browser, hub, session, language=language) as page:
        panel = page.locator("#bai-session-panel")
        # The longest values: of what is read and written each second.
        await panel.locator(".bai-Chart").last.wait_for(timeout=lab.PATIENCE_MS)
        await panel.locator(".bai-Chart-value").last.evaluate(
            "node => { node.textContent += ' 1023 KiB/s · 1023 KiB/s'; }"
        )
        assert await panel.evaluate(STICKS_OUT) == []
        assert await panel.evaluate(STICKS_OUT, 240) == []
        await look(page, f"narrow-{language}", tmp_path)
    stop(rest, session["id"])


async def test_the_log_is_followed_searched_and_downloaded(
    browser: Browser, any_hub: RunningHub, tmp_path: Path
) -> None:
    rest = any_hub.rest("user")
    session = start(rest, "panel-log")
    async with panel_of(browser, any_hub, session) as page:
        await (
            page.locator("#bai-session-panel").get_by_role("button", name="Log", exact=True).click()
        )
        view = page.locator(".bai-LogView")
        log = view.locator(".bai-Log")
        await view.get_by_label("Server log").check()
        await log.get_by_text("ServerApp]").first.wait_for(timeout=lab.PATIENCE_MS)
        await view.get_by_label("Server log").uncheck()
        await log.get_by_text("ServerApp]").first.wait_for(state="detached")
        # A page that is not there is logged, comes by itself, and is shown on request.
        await page.evaluate("url => fetch(url)", f"{session['url']}no-such-page")
        await view.get_by_label("Times").check()
        await view.get_by_text("no-such-page").wait_for(state="detached")
        await view.get_by_label("Server log").check()
        stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ")
        await view.locator(".bai-Log").get_by_text(stamp).first.wait_for(timeout=lab.PATIENCE_MS)
        await view.get_by_placeholder("Search").fill("no-such-page")
        await view.locator("mark").first.wait_for(timeout=lab.PATIENCE_MS)
        await view.get_by_text("Lines: ").wait_for()
        await assert_contrast(view, f"log-{any_hub.engine}", tmp_path)
        async with page.expect_download() as begun:
            await view.get_by_role("button", name="Download").click()
        found = await (await begun.value).path()
        assert "no-such-page" in found.read_text()
    stop(rest, session["id"])


def nearly_over() -> Callable[[Route], Awaitable[None]]:
    """Answer what the session's server does, and that nobody has used it for fifty minutes.

    The end stays the same: of one that is put off people are told anew.
    """
    now = datetime.now(UTC)
    times = {
        "idle_since": (now - timedelta(minutes=50)).isoformat(),
        "idle_ends_at": (now + timedelta(minutes=10)).isoformat(),
    }

    async def answer_so(route: Route) -> None:
        answer = await route.fetch()
        found = await answer.json()
        if "session" in found:
            found["session"] |= times
        await route.fulfill(response=answer, json=found)

    return answer_so


async def keep_alive_on_its_page(
    browser: Browser, hub: RunningHub, session: dict[str, Any]
) -> None:
    """Press the button there, and see that the session is taken as used by that."""
    rest = hub.rest("user")
    before = idle_since(rest, session)
    page = await browser.new_page()
    try:
        await sign_in(page, hub, "user")
        await page.goto(hub.url + session["page"])
        await page.get_by_text("unless it is used").wait_for(timeout=lab.PATIENCE_MS)
        path = f"/sessions/{session['id']}/activity"
        async with page.expect_response(lambda answer: answer.url.endswith(path)) as answered:
            await page.get_by_role("button", name="Keep it alive").click()
        assert (await answered.value).ok
    finally:
        await page.close()
    assert idle_since(rest, session) > before


def idle_since(rest: httpx.Client, session: dict[str, Any]) -> datetime:
    found = checked(rest.get(f"/sessions/{session['id']}"), 200)
    return datetime.fromisoformat(found["idle_since"])


def end_unused(hub: RunningHub, session: dict[str, Any]) -> None:
    """Leave a session unused for longer than its policy allows, with its page open."""
    rest, admin = hub.rest("user"), hub.rest("admin")
    limit = {"idle_timeout_seconds": 3}
    checked(admin.patch("/keypair-policies/default", json=limit), 200)
    # A use, which tells the session of the limit as well.
    token = rest.headers["Authorization"].partition(" ")[2]
    server = JupyterServer(hub.url + session["url"], token)
    assert server.request("POST", "bai/api/session/activity").status_code == 200
    ended = wait_for(rest, session["id"], "TERMINATED")
    assert ended["status_info"].startswith("idle-timeout: unused for 3s"), ended
    steps = checked(rest.get(f"/sessions/{session['id']}/history"), 200)["items"]
    assert [step["reason"] for step in steps if step["to_status"] == "TERMINATING"] == [
        ended["status_info"]
    ]


async def test_a_coming_end_is_told_and_put_off_and_the_end_itself_is_said(
    browser: Browser, hub: RunningHub, tmp_path: Path
) -> None:
    rest, admin = hub.rest("user"), hub.rest("admin")
    session = start(rest, "panel-ends")
    policy = {
        "max_session_lifetime_seconds": 1500,
        "max_lifetime_extension_seconds": 5400,
        "idle_timeout_seconds": 3600,
    }
    checked(admin.patch("/keypair-policies/default", json=policy), 200)
    try:
        async with panel_of(browser, hub, session) as page:
            panel = page.locator("#bai-session-panel")
            await panel.get_by_text("This session will be stopped in").wait_for()
            await (
                page.locator(".Toastify").get_by_text("This session will be stopped in").wait_for()
            )
            await look(page, "stops-soon", tmp_path)
            await panel.get_by_role("button", name="Keep it alive").click()
            await panel.get_by_text("This session will be stopped in").wait_for(state="hidden")
            kept = checked(rest.get(f"/sessions/{session['id']}"), 200)["lifetime"]
            assert kept["added_seconds"] == 3600 and kept["addable_seconds"] == 1800
            await panel.get_by_text("Ends in", exact=True).wait_for()
            await panel.get_by_text("If unused, ends in").wait_for()
            checked(admin.patch(f"/agents/{session['agent']}", json={"schedulable": False}), 200)
            await page.route("**/bai/api/look?**", nearly_over())
            await load(page, hub, session)
            await open_panel(page)
            await panel.get_by_text("accepts no new sessions").wait_for(timeout=lab.PATIENCE_MS)
            checked(admin.patch(f"/agents/{session['agent']}", json={"schedulable": True}), 200)
            unused = "This session is unused"
            await panel.get_by_text(unused).wait_for()
            await page.locator(".Toastify").get_by_text(unused).wait_for()
            await look(page, "stops-unused", tmp_path)
            await page.unroute_all(behavior="wait")
            await panel.get_by_role("button", name="I am still here").click()
            await panel.get_by_text(unused).wait_for(state="hidden")
            await page.locator(".Toastify").get_by_text(unused).wait_for(state="hidden")
            await keep_alive_on_its_page(browser, hub, session)
            end_unused(hub, session)
            # Whoever goes on here must hear that nothing of it arrives any more.
            await panel.get_by_text("This session has ended:").wait_for(timeout=lab.PATIENCE_MS)
            # Nor is anything offered that could not be had.
            await app_row(page, "TensorBoard").wait_for(state="hidden")
            await look(page, "ended", tmp_path)
    finally:
        unlimited = dict.fromkeys(policy, 0)
        checked(admin.patch("/keypair-policies/default", json=unlimited), 200)
        checked(admin.patch(f"/agents/{session['agent']}", json={"schedulable": True}), 200)


async def test_a_manager_that_goes_away_and_comes_back(
    browser: Browser, own_hub: Any, tmp_path: Path
) -> None:
    hub = own_hub().start()
    rest = hub.rest("user")
    session = start(rest, "panel-away")
    async with panel_of(browser, hub, session) as page:
        panel = page.locator("#bai-session-panel")
        hub.process_of("manager").suspend()
        await panel.get_by_text("The resource manager cannot be reached now").wait_for(
            timeout=lab.PATIENCE_MS
        )
        # Apps are the session's own.
        await app_row(page, "TensorBoard").get_by_role("button", name="Start").wait_for()
        await look(page, "away", tmp_path)
        hub.process_of("manager").resume()
        await panel.get_by_role("button", name="Try now").click()
        await panel.get_by_text("The resource manager cannot be reached now").wait_for(
            state="hidden", timeout=lab.PATIENCE_MS
        )
    stop(rest, session["id"])


async def every_control_by_tab(page: Page) -> None:
    """Go from the panel's beginning through its controls, and see where the focus is."""
    controls = page.locator("#bai-session-panel").locator("button, summary")
    for number in range(await controls.count()):
        await page.keyboard.press("Tab")
        control = controls.nth(number)
        assert await control.evaluate("node => node === document.activeElement"), number
        assert await control.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"


async def by_palette(page: Page, command: str) -> None:
    await page.keyboard.press("Control+Shift+c")
    await page.locator(".lm-CommandPalette-input:focus").wait_for()
    await page.keyboard.type(command)
    await page.locator(".lm-CommandPalette-item", has_text=command).wait_for()
    await page.keyboard.press("Enter")


async def test_the_panel_by_keyboard_palette_and_launcher(
    browser: Browser, hub: RunningHub, tmp_path: Path
) -> None:
    rest = hub.rest("user")
    session = start(rest, "panel-keys")
    async with panel_of(browser, hub, session) as page:
        tile = page.locator(
            '.jp-LauncherCard[data-category="Apps of the session"]', has_text="TensorBoard"
        )
        await tile.locator("svg").wait_for(timeout=lab.PATIENCE_MS)
        # One tile for each app, in one section with a picture of its own.
        assert await page.locator(".jp-LauncherCard", has_text="TensorBoard").count() == 1
        await page.locator(".jp-Launcher-sectionHeader svg").last.wait_for()
        await by_palette(page, "Show the session's log")
        await page.locator(".bai-LogView").wait_for()
        await by_palette(page, "Show the session panel")
        await page.locator("#bai-session-panel:focus").wait_for()
        await page.get_by_role("button", name="New session").wait_for()
        await every_control_by_tab(page)
        summary = page.locator(".bai-Section summary", has_text="My folders")
        await summary.focus()
        await page.keyboard.press("Enter")
        await page.get_by_text("You have no folders.").wait_for(state="hidden")
        unnamed = await page.locator("#bai-session-panel").evaluate(
            """node => [...node.querySelectorAll('button, input, select, [role=img]')].filter(
                inner => !inner.hidden && !(inner.ariaLabel || inner.textContent.trim()))
                .map(inner => inner.outerHTML)"""
        )
        assert unnamed == []
    stop(rest, session["id"])
