"""The session panel in JupyterLab, in a browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bai_services.i18n.catalogue import LANGUAGES
from tests.e2e import lab
from tests.e2e.contrast import assert_contrast
from tests.e2e.lab import sign_in
from tests.e2e.panel import (
    HIGH_CONTRAST,
    THEMES,
    app_row,
    choose_theme,
    load,
    open_panel,
    panel_of,
    take_screenshot,
)
from tests.e2e.sessions import JSON, checked, start, stop, wait_for
from tests.hub import RunningHub
from tests.testbed.wait import wait_until_async

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, Request, Route

    from tests.testbed.chromium import SharedBrowser

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


# JavaScript that returns the elements that extend beyond the panel's right edge. If ``width`` is
# given, the panel first gets this width in pixels.
OVERFLOWING_ELEMENTS = """
(node, width) => {
    if (width) node.style.width = `${width}px`;
    const edge = node.getBoundingClientRect().right + 0.5;
    return [...node.querySelectorAll('*')]
        .filter(inner => inner.getBoundingClientRect().right > edge)
        .map(inner => `${inner.className}: ${inner.textContent}`);
}
"""


@pytest.fixture(scope="module")
def session(hub: RunningHub) -> Iterator[JSON]:
    """A session for the tests that neither rename nor stop it."""
    rest = hub.rest("user")
    resources = {"cpu": "1", "mem": "1g", "cuda.shares": "0.1"}
    started = start(rest, "panel", resources=resources)
    yield started
    stop(rest, started["id"])


def with_nearly_full_usage() -> Callable[[Route], Awaitable[None]]:
    """Return a route handler that changes responses so that memory and devices are nearly full."""

    async def change_response(route: Route) -> None:
        answer = await route.fetch()
        document = await answer.json()
        for kernel in document.get("usage", {}).get("kernels", []):
            kernel["usage"]["mem_bytes"] = 0.85 * 2**30
            kernel["usage"]["devices"] = [
                {**device, "memory_bytes": 990, "limit_bytes": 1000, "utilization_percent": 40}
                for device in kernel["usage"].get("devices") or [{"id": "some"}]
            ]
        await route.fulfill(response=answer, json=document)

    return change_response


async def test_the_panel_shows_the_session(
    browser: Browser, shared_browser: SharedBrowser, docker_hub: RunningHub, tmp_path: Path
) -> None:
    rest = docker_hub.rest("user")
    profile = await shared_browser.profile(docker_hub.url, name="panel")
    folder = checked(rest.post("/vfolders", json={"name": "panel-shown"}), 201)
    mounts = [{"vfolder": folder["name"], "path": "data"}]
    resources = {"cpu": "1", "mem": "1g", "cuda.shares": "0.25"}
    session = start(rest, "panel-shown", mounts=mounts, resources=resources)
    waiting = checked(
        rest.post(
            "/sessions",
            json={
                "name": "panel-later",
                "type": "batch",
                "startup_command": "true",
                "project": "default",
                "resources": {"cpu": "1", "mem": "256m"},
                "starts_at": (datetime.now(UTC) + timedelta(hours=2)).isoformat(),
            },
        ),
        201,
    )
    with docker_hub.rest("admin") as admin:
        news = checked(admin.post("/announcements", json={"title": "Course on Thursday"}), 201)
    for theme in THEMES:
        async with panel_of(profile, docker_hub, session, theme) as page:
            await assert_panel_shows_session(page, session)
            notice = page.locator("#bai-session-panel .bai-Notice", has_text=news["title"])
            await notice.get_by_role("button").wait_for()
            await assert_panel_has_contrast(page, theme, tmp_path)
    with docker_hub.rest("admin") as admin:
        checked(admin.delete(f"/announcements/{news['id']}"), 204)
    stop(rest, waiting["id"])
    stop(rest, session["id"])
    checked(rest.delete(f"/vfolders/{folder['id']}"), 204)


async def assert_panel_shows_session(page: Page, session: JSON) -> None:
    panel = page.locator("#bai-session-panel")
    for text in ("default (default)", session["image"], session["agent"], "/home/work/data"):
        await panel.get_by_text(text).first.wait_for()
    await panel.get_by_text("Share 0.25").wait_for()
    # The usage appears after the agent's next heartbeat.
    await panel.locator(".bai-Chart", has_text="Memory").first.wait_for(timeout=lab.TIMEOUT_MS)
    # These are the names of the session and of the folder.
    await panel.get_by_text("panel-shown").nth(1).wait_for()
    await panel.get_by_text("panel-later").wait_for()
    status = page.locator(".bai-Status")
    await status.get_by_text(re.compile(r"^GPU ¼ · (\S+) of 4 GiB$")).wait_for()


async def assert_panel_has_contrast(page: Page, theme: str, folder: Path) -> None:
    panel = page.locator("#bai-session-panel")
    await take_screenshot(page, f"panel-{theme}", folder)
    await page.route("**/bai/api/poll?**", with_nearly_full_usage())
    await panel.locator(".bai-Chart.bai-mod-warning").wait_for(timeout=lab.TIMEOUT_MS)
    await page.locator(".bai-Status.bai-mod-alarm").wait_for(timeout=lab.TIMEOUT_MS)
    shown = page.locator("#bai-session-panel, .bai-Status")
    await assert_contrast(shown, f"panel-{theme}", folder)
    if theme == "dark":
        await choose_theme(page, HIGH_CONTRAST)
        await assert_contrast(shown, "panel-high-contrast", folder)
    await page.unroute_all(behavior="wait")
    await panel.evaluate("node => node.scrollTo(0, node.scrollHeight)")
    await take_screenshot(page, f"panel-{theme}-end", folder)


# This test must run before the tests with the fixture `session`: two cores have room for only two
# sessions.
async def test_the_panel_renames_and_stops_sessions(
    profile: BrowserContext, hub: RunningHub, tmp_path: Path
) -> None:
    rest = hub.rest("user")
    session = start(rest, "panel-old")
    other = start(rest, "panel-other")
    async with panel_of(profile, hub, session) as page:
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
        await take_screenshot(page, "stop", tmp_path)
        # Enter activates the default button, "Cancel".
        await page.keyboard.press("Enter")
        await dialog.wait_for(state="hidden")
        assert checked(rest.get(f"/sessions/{session['id']}"), 200)["status"] == "RUNNING"
        await panel.get_by_role("button", name="Stop", exact=True).click()
        await dialog.get_by_role("button", name="Stop").click()
        await page.wait_for_url(f"{hub.url}/services/bai/sessions?*session={session['id']}")
        wait_for(rest, session["id"], "TERMINATED")


@pytest.mark.checklist("APP-05")
async def test_the_panel_starts_opens_and_stops_apps(
    profile: BrowserContext, hub: RunningHub, session: JSON, tmp_path: Path
) -> None:
    async with panel_of(profile, hub, session) as page:
        row = app_row(page, "TensorBoard")
        await row.get_by_text("not started").wait_for()
        await row.get_by_role("button", name="Start: TensorBoard").click()
        dialog = page.locator(".jp-Dialog")
        await dialog.get_by_label("Log folder").fill("/proc/none")
        await take_screenshot(page, "app-start", tmp_path)
        await dialog.get_by_role("button", name="Start").click()
        # The form stays open and shows the error.
        await dialog.get_by_role("alert").wait_for()
        await dialog.get_by_label("Log folder").fill("runs")
        await dialog.get_by_role("button", name="Start").click()
        await row.get_by_text("running").wait_for(timeout=lab.TIMEOUT_MS)
        notice = page.locator(".Toastify__toast", has_text="TensorBoard: running")
        async with page.context.expect_page() as opened:
            await notice.get_by_role("button", name="Open").click()
        board = await opened.value
        await board.wait_for_url("**/tensorboard/**")
        await board.close()
        async with page.context.expect_page() as opened:
            await row.get_by_role("button", name="Open: TensorBoard").click()
        board = await opened.value
        await board.wait_for_url("**/tensorboard/**")
        await board.close()
        await row.get_by_role("button", name="Log: TensorBoard").click()
        await page.locator(".bai-LogView .bai-Log").wait_for()
        await take_screenshot(page, "app-log", tmp_path)
        await row.get_by_role("button", name="Stop: TensorBoard").click()
        await row.get_by_text("not started").wait_for(timeout=lab.TIMEOUT_MS)


@asynccontextmanager
async def held_responses(page: Page, *urls: str) -> AsyncIterator[None]:
    """Hold the responses to requests for these URLs during the block; there is at least one."""
    held: list[str] = []
    is_over = asyncio.Event()

    async def hold(route: Route) -> None:
        held.append(route.request.url)
        await is_over.wait()
        await route.continue_()

    for url in urls:
        await page.route(url, hold)
    try:
        yield
        assert held
    finally:
        is_over.set()
    for url in urls:
        await page.unroute(url)


async def test_the_panel_opens_at_the_first_visit_and_stays_closed_afterwards(
    browser: Browser, hub: RunningHub
) -> None:
    rest = hub.rest("user")
    session = start(rest, "panel-first")
    # A new profile, because the browser stores that the panel was opened.
    page = await browser.new_page(viewport={"width": 1280, "height": 1000})
    try:
        await sign_in(page, hub, "user")
        panel = page.locator("#bai-session-panel")
        tab = page.locator('.lm-TabBar-tab[data-id="bai-session-panel"]')
        # JupyterLab restores its layout after these responses, which take long on a busy machine.
        async with held_responses(page, "**/api/terminals?*", "**/api/sessions?*"):
            await load(page, hub, session)
            await panel.wait_for(timeout=lab.TIMEOUT_MS)
        await page.locator(".bai-Status").wait_for(timeout=lab.TIMEOUT_MS)
        assert await panel.is_visible()
        await tab.click()
        await panel.wait_for(state="hidden")
        await load(page, hub, session)
        await page.locator(".bai-Status").wait_for(timeout=lab.TIMEOUT_MS)
        assert not await panel.is_visible()
    finally:
        await page.close()
    stop(rest, session["id"])


async def test_a_hidden_page_does_not_poll_and_responses_contain_no_token(
    browser: Browser, hub: RunningHub, session: JSON
) -> None:
    # Do not use the profile of the other tests: a movable clock would apply to all pages of a
    # profile.
    token = re.compile(r"[Bb]earer|JUPYTERHUB_API_TOKEN")
    async with panel_of(browser, hub, session, has_movable_clock=True) as page:
        asked: list[str] = []
        unanswered: set[Request] = set()
        page.on("request", lambda request: asked.append(request.url))
        page.on("request", lambda request: unanswered.add(request))
        page.on("requestfinished", lambda request: unanswered.discard(request))
        page.on("requestfailed", lambda request: unanswered.discard(request))
        answer = await page.evaluate(
            "url => fetch(url).then(answer => answer.text())",
            f"{hub.url}{session['url']}bai/api/session",
        )
        assert not token.search(answer) and '"environ"' not in answer
        # The responses of later polls do not contain unchanged parts.
        async with page.expect_response(re.compile(r"/bai/api/poll\?.*apps=\w")) as looked:
            pass
        assert "apps" not in await (await looked.value).json()
        await page.evaluate(
            """() => {
                Object.defineProperty(document, 'hidden', {value: true});
                Object.defineProperty(document, 'visibilityState', {value: 'hidden'});
                document.dispatchEvent(new Event('visibilitychange'));
            }"""
        )
        # Wait for a poll that may be in progress. If the hidden page still polled, it would poll
        # several times in the next minute.
        await wait_until_async(lambda: not unanswered, lab.TIMEOUT_MS / 1000, "the last response")
        asked.clear()
        await page.clock.run_for(60_000)
        assert not [url for url in asked if "/bai/api/" in url], asked


async def test_no_element_overflows_the_panel(
    profile: BrowserContext, hub: RunningHub, session: JSON, tmp_path: Path
) -> None:
    for language in LANGUAGES:
        async with panel_of(profile, hub, session, language=language) as page:
            panel = page.locator("#bai-session-panel")
            # The read and write rates are the longest values.
            await panel.locator(".bai-Chart").last.wait_for(timeout=lab.TIMEOUT_MS)
            await panel.locator(".bai-Chart-value").last.evaluate(
                "node => { node.textContent += ' 1023 KiB/s · 1023 KiB/s'; }"
            )
            assert await panel.evaluate(OVERFLOWING_ELEMENTS) == [], language
            assert await panel.evaluate(OVERFLOWING_ELEMENTS, 240) == [], language
            await take_screenshot(page, f"narrow-{language}", tmp_path)


async def test_the_log_view_follows_searches_and_downloads_the_log(
    profile: BrowserContext, hub: RunningHub, session: JSON, tmp_path: Path
) -> None:
    async with panel_of(profile, hub, session) as page:
        await (
            page.locator("#bai-session-panel").get_by_role("button", name="Log", exact=True).click()
        )
        view = page.locator(".bai-LogView")
        log = view.locator(".bai-Log")
        await view.get_by_label("Server log").check()
        await log.get_by_text("ServerApp]").first.wait_for(timeout=lab.TIMEOUT_MS)
        # Request a missing page, which the server logs. The view polls the log and shows the line.
        await page.evaluate("url => fetch(url)", f"{session['url']}no-such-page")
        await log.get_by_text("no-such-page").first.wait_for(timeout=lab.TIMEOUT_MS)
        await view.get_by_label("Server log").uncheck()
        await log.get_by_text("ServerApp]").first.wait_for(state="detached")
        await log.get_by_text("no-such-page").first.wait_for(state="detached")
        await view.get_by_label("Times").check()
        await view.get_by_label("Server log").check()
        stamp = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z ")
        await view.locator(".bai-Log").get_by_text(stamp).first.wait_for(timeout=lab.TIMEOUT_MS)
        await view.get_by_placeholder("Search").fill("no-such-page")
        await view.locator("mark").first.wait_for(timeout=lab.TIMEOUT_MS)
        await view.get_by_text("Lines: ").wait_for()
        await assert_contrast(view, "log", tmp_path)
        async with page.expect_download() as begun:
            await view.get_by_role("button", name="Download").click()
        path = await (await begun.value).path()
        assert "no-such-page" in path.read_text()


async def test_the_panel_recovers_after_an_outage_of_the_manager(
    profile: BrowserContext, hub: RunningHub, session: JSON, tmp_path: Path
) -> None:
    async with panel_of(profile, hub, session) as page:
        panel = page.locator("#bai-session-panel")
        with hub.suspended("manager"):
            await panel.get_by_text("The resource manager cannot be reached now").wait_for(
                timeout=lab.TIMEOUT_MS
            )
            # Apps can be started without the manager.
            await app_row(page, "TensorBoard").get_by_role("button", name="Start").wait_for()
            await take_screenshot(page, "away", tmp_path)
        await panel.get_by_role("button", name="Try now").click()
        await panel.get_by_text("The resource manager cannot be reached now").wait_for(
            state="hidden", timeout=lab.TIMEOUT_MS
        )


async def assert_tab_reaches_every_control(page: Page) -> None:
    """Press Tab repeatedly; assert that each control of the panel gets the focus, in order."""
    controls = page.locator("#bai-session-panel").locator("button, summary")
    for number in range(await controls.count()):
        await page.keyboard.press("Tab")
        control = controls.nth(number)
        assert await control.evaluate("node => node === document.activeElement"), number
        assert await control.evaluate("node => getComputedStyle(node).outlineStyle") == "solid"


async def run_in_palette(page: Page, command: str) -> None:
    await page.keyboard.press("Control+Shift+c")
    await page.locator(".lm-CommandPalette-input:focus").wait_for()
    await page.keyboard.type(command)
    await page.locator(".lm-CommandPalette-item", has_text=command).wait_for()
    await page.keyboard.press("Enter")


async def test_the_panel_works_with_keyboard_palette_and_launcher(
    profile: BrowserContext, hub: RunningHub, session: JSON, tmp_path: Path
) -> None:
    async with panel_of(profile, hub, session) as page:
        tile = page.locator(
            '.jp-LauncherCard[data-category="Apps of the session"]', has_text="TensorBoard"
        )
        await tile.locator("svg").wait_for(timeout=lab.TIMEOUT_MS)
        # The launcher has one tile for each app, in a section with an icon.
        assert await page.locator(".jp-LauncherCard", has_text="TensorBoard").count() == 1
        await page.locator(".jp-Launcher-sectionHeader svg").last.wait_for()
        await run_in_palette(page, "Show the session's log")
        await page.locator(".bai-LogView").wait_for()
        await run_in_palette(page, "Show the session panel")
        await page.locator("#bai-session-panel:focus").wait_for()
        await page.get_by_role("button", name="New session").wait_for()
        await assert_tab_reaches_every_control(page)
        summary = page.locator(".bai-Section summary", has_text="My folders")
        await summary.focus()
        await page.keyboard.press("Enter")
        await page.locator(".bai-Section:not([open])", has_text="My folders").wait_for()
        unnamed = await page.locator("#bai-session-panel").evaluate(
            """node => [...node.querySelectorAll('button, input, select, [role=img]')].filter(
                inner => !inner.hidden && !(inner.ariaLabel || inner.textContent.trim()))
                .map(inner => inner.outerHTML)"""
        )
        assert unnamed == []


async def test_suspended_session_returns_with_its_edits_tabs_and_variables(
    profile: BrowserContext, hub: RunningHub, tmp_path: Path
) -> None:
    rest = hub.rest("user")
    session = start(rest, "panel-suspended", resources={"cpu": "1", "mem": "1g"})
    key = session["id"]
    page = await profile.new_page()
    await lab.sign_in(page, hub, "user")
    await page.goto(f"{hub.url}{session['url']}lab?reset")
    await lab.open_notebook(page)
    # The hook runs as the user of the session, and its output is in the log.
    hook = "mkdir -p ~/.bai && printf '#!/bin/sh\\necho hook ran' > ~/.bai/on-preempt"
    await lab.run_cell(page, f'get_ipython().system("{hook} && chmod +x ~/.bai/on-preempt")')
    await lab.run_cell(page, "answer, double = 42, lambda n: 2 * n")
    # Edit a cell, but do not run or save it.
    await page.locator(".jp-Notebook-cell .cm-content").last.click()
    await page.keyboard.insert_text("unsaved = 'edit'")

    checked(rest.post(f"/sessions/{key}/suspend", json={"seconds": 60}), 202)
    await page.locator(".Toastify__toast", has_text="user suspends this session").wait_for(
        timeout=lab.TIMEOUT_MS
    )
    await take_screenshot(page, "suspending", tmp_path)
    await wait_until_async(lambda: _has_status(rest, key, "SUSPENDED"), 90, "the suspension")
    report = checked(rest.get(f"/sessions/{key}/suspension"), 200)["report"]
    assert report["saved_documents"] == ["Untitled.ipynb"]
    assert {"Untitled.ipynb: answer", "Untitled.ipynb: double"} <= set(report["saved_variables"])
    assert (report["pages"], report["hook_exit_code"]) == (1, 0)
    assert "hook ran" in checked(rest.get(f"/sessions/{key}/logs"), 200)["log"]

    checked(rest.post(f"/sessions/{key}/resume"), 202)
    await wait_until_async(lambda: _has_status(rest, key, "RUNNING"), 90, "the return")
    assert checked(rest.get(f"/sessions/{key}"), 200)["url"] == session["url"]
    # The open page comes back by itself.
    notice = page.locator(".Toastify__toast", has_text="The session is back")
    await notice.wait_for(timeout=lab.TIMEOUT_MS)
    await page.locator(".jp-NotebookPanel", has_text="unsaved = 'edit'").wait_for()
    await page.get_by_text("| Idle").wait_for(timeout=lab.TIMEOUT_MS)
    await take_screenshot(page, "returned", tmp_path)
    # The details have the same button, and the notice remains.
    await notice.get_by_role("button", name="Details").click()
    dialog = page.locator(".jp-Dialog")
    await dialog.get_by_role("button", name="Restore variables").wait_for()
    await dialog.get_by_role("button", name="Close").click()
    await notice.get_by_role("button", name="Restore variables").click()
    await page.locator(".Toastify__toast", has_text="restored: answer, double").wait_for()
    await page.locator(".jp-Notebook-cell .cm-content").last.click()
    await page.keyboard.press("Control+End")
    await page.keyboard.press("Shift+Enter")
    assert await lab.run_cell(page, "double(answer), unsaved") == "(84, 'edit')"
    await page.close()
    stop(rest, key)


# Counts the dialogs that are closed from now on.
COUNT_CLOSED_DIALOGS = """() => {
    window.closedDialogs = 0;
    new MutationObserver(changes => {
        const removed = changes.flatMap(change => [...change.removedNodes]);
        const dialogs = removed.filter(node => node.classList?.contains('jp-Dialog'));
        window.closedDialogs += dialogs.length;
    }).observe(document.body, {childList: true});
}"""
# JavaScript that returns the element with the countdown in the notice of a preemption, which is the
# alert for screen readers.
COUNTDOWN = (
    "[...document.querySelectorAll('.Toastify__toast [role=alert]')]"
    ".find(one => one.textContent.includes('needs its resources'))"
)


async def announcement_of_changes(page: Page) -> str:
    """Wait until the countdown changes; return the politeness of its live region.

    Screen readers do not announce changes if it is off.
    """
    text = await page.evaluate(f"{COUNTDOWN}.textContent")
    await page.wait_for_function(f"text => {COUNTDOWN}.textContent !== text", arg=text)
    session = await page.context.new_cdp_session(page)
    found = await session.send("Runtime.evaluate", {"expression": COUNTDOWN})
    element = {"objectId": found["result"]["objectId"], "fetchRelatives": False}
    tree = await session.send("Accessibility.getPartialAXTree", element)
    await session.detach()
    properties = {one["name"]: one["value"]["value"] for one in tree["nodes"][0]["properties"]}
    return str(properties.get("live", "off"))


async def test_preempted_session_returns_with_edits_made_after_the_warning(
    profile: BrowserContext, hub: RunningHub, tmp_path: Path
) -> None:
    rest, admin, other = hub.rest("user"), hub.rest("admin"), hub.rest("user2")
    options = checked(admin.get("/resource-groups/default"), 200)["scheduler_opts"]
    preemption = {"preemption": {"enabled": True, "grace": "20s"}}
    checked(admin.patch("/resource-groups/default", json={"scheduler_opts": preemption}), 200)
    shares = checked(rest.get("/sessions/options"), 200)["limits"]["cuda.shares"]["now"]
    resources = {"cpu": "1", "mem": "1g", "cuda.shares": shares}
    session = start(rest, "panel-preempted", resources=resources, priority=1)
    key = session["id"]
    page = await profile.new_page()
    await lab.sign_in(page, hub, "user")
    await page.goto(f"{hub.url}{session['url']}lab?reset")
    await lab.open_notebook(page)
    await open_panel(page)
    panel = page.locator("#bai-session-panel")

    urgent = {
        "name": "panel-urgent",
        "project": "default",
        "type": "batch",
        "startup_command": "sleep 600",
        "priority": 10,
        "resources": {"cuda.shares": shares},
    }
    blocker = checked(other.post("/sessions", json=urgent), 201)["id"]
    toast = page.locator(".Toastify__toast", has_text="another session needs its resources")
    await toast.wait_for(timeout=lab.TIMEOUT_MS)
    await panel.get_by_text("Then it waits in the queue").wait_for()
    await take_screenshot(page, "preemption-warning", tmp_path)
    # The countdown changes each second. Screen readers announce its first text only.
    for _ in range(2):
        assert await announcement_of_changes(page) == "off"
    # The first save has ended. Then change the variable and the notebook again.
    await wait_until_async(lambda: _has_report(rest, key), 20, "the first save")
    await lab.run_cell(page, "late_variable = 42")
    await page.locator(".jp-Notebook-cell .cm-content").last.click()
    await page.keyboard.insert_text("# late edit")

    await wait_until_async(lambda: _has_status(rest, key, "PENDING"), 90, "the preemption")
    await panel.get_by_text("was stopped to free its resources").wait_for(timeout=lab.TIMEOUT_MS)
    await page.locator(".Toastify__toast", has_text="waits in the queue").wait_for()
    # A save fails now. The notice says why, so JupyterLab's dialog about it is closed.
    await page.evaluate(COUNT_CLOSED_DIALOGS)
    await page.get_by_role("menuitem", name="File", exact=True).click()
    await page.get_by_role("menuitem", name="Save All").click()
    await page.wait_for_function("closedDialogs && !document.querySelector('.jp-Dialog')")
    await take_screenshot(page, "preempted", tmp_path)

    stop(other, blocker)
    await wait_until_async(lambda: _has_status(rest, key, "RUNNING"), 90, "the return")
    # The page comes back by itself.
    notice = page.locator(".Toastify__toast", has_text="The session is back")
    await notice.wait_for(timeout=lab.TIMEOUT_MS)
    await page.locator(".jp-NotebookPanel", has_text="# late edit").wait_for()
    await page.get_by_text("| Idle").wait_for(timeout=lab.TIMEOUT_MS)
    await notice.get_by_role("button", name="Restore variables").click()
    await page.locator(".Toastify__toast", has_text="restored: late_variable").wait_for()
    await page.close()
    stop(rest, key)
    checked(admin.patch("/resource-groups/default", json={"scheduler_opts": options}), 200)


async def _has_report(rest: Any, key: str) -> bool:
    answer = rest.get(f"/sessions/{key}/suspension")
    return answer.status_code == 200 and answer.json()["report"] is not None


async def _has_status(rest: Any, key: str, status: str) -> bool:
    return bool(checked(rest.get(f"/sessions/{key}"), 200)["status"] == status)
