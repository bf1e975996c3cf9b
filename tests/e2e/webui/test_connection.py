"""Web UI on a bad connection: a manager restart while pages are open, and a slow network."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

from .conftest import Opener
from .data_page import Data
from .entities_page import Entities
from .launcher_page import Launcher
from .pages import Sessions, Shell
from .test_every_page import NARROW

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

LOST = "The connection to the server is lost"
# Latency of a slow mobile network, added to every response.
LATENCY_MILLIS = 1_500
FOLDER = "webui-once"


@contextmanager
def manager_down(hub: RunningHub) -> Iterator[None]:
    """Kill the manager; at the end of the block, let its supervisor start it again."""
    supervisor = hub.process_of("manager").parent()
    assert supervisor is not None
    supervisor.suspend()
    try:
        hub.kill("manager")
        yield
    finally:
        supervisor.resume()
        wait_until(hub.is_up, 60, "the manager to be up again")


async def test_pages_say_that_the_browser_is_offline(opened: Opener[Shell]) -> None:
    """The chat page sends no request without an action of the user, so no request fails."""
    ui = await opened(Shell, "user2", "/chat")
    # On a busy machine, the network can be idle before the scripts have run.
    await ui.page.locator("#content").wait_for()
    await ui.page.wait_for_load_state("networkidle")
    await ui.page.context.set_offline(True)
    try:
        # The notice must appear at once. The page would also show it after a silence of the event
        # stream, but that takes longer than this timeout.
        await ui.page.get_by_text(LOST).wait_for(timeout=12_000)
    finally:
        await ui.page.context.set_offline(False)
    await ui.page.get_by_text(LOST).wait_for(state="detached")


async def test_open_pages_survive_a_restart_of_the_manager(
    opened: Opener[Shell], hub: RunningHub
) -> None:
    form = await opened(Entities, "admin", "/presets")
    await form.page.get_by_role("button", name="New preset").click()
    await form.fill(Name="kept-preset")
    launcher = await opened(Launcher, "user2", "/launch")
    await launcher.fill(name="kept-session")
    sessions = await opened(Sessions, "user2", "/sessions")
    pages = (form, launcher, sessions)
    for ui in pages:
        await ui.page.wait_for_load_state("networkidle")
        # A reload would remove this mark.
        await ui.page.evaluate("window.wasOpened = true")

    await form.page.set_viewport_size(NARROW)
    with manager_down(hub):
        for ui in pages:
            await ui.page.get_by_text(LOST).wait_for()
        # The notice does not cover the buttons of the form.
        await form.drawer.get_by_role("button", name="Save").click(trial=True, timeout=5_000)
    for ui in pages:
        await ui.page.get_by_text(LOST).wait_for(state="detached")
        assert await ui.page.evaluate("window.wasOpened")
    assert await form.drawer.get_by_label("Name", exact=True).input_value() == "kept-preset"
    assert await launcher.field("name").input_value() == "kept-session"
    await launcher.preview.get_by_text("It would start now.").wait_for()

    # Check that the pages receive events again: a new session must appear in the open list.
    with hub.rest("user2") as rest:
        # Each run uses a new name, because an ended session of an earlier run keeps its name.
        name = f"after-restart-{secrets.token_hex(3)}"
        body = {"name": name, "project": "default", "resources": {"cpu": "1"}}
        tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        body |= {"type": "batch", "startup_command": "true", "starts_at": tomorrow}
        session = checked(await asyncio.to_thread(rest.post, "/sessions", json=body), 201)
        await sessions.row(name).wait_for()
        await asyncio.to_thread(rest.delete, f"/sessions/{session['id']}")


async def test_open_page_notices_a_manager_that_does_not_respond(
    opened: Opener[Data], hub: RunningHub
) -> None:
    ui = await opened(Data, "user2", "/data")
    await ui.page.wait_for_load_state("networkidle")
    manager = hub.process_of("manager")
    manager.suspend()
    try:
        # This tab causes a request, because its list has not been read yet.
        await ui.choose_tab("Shared")
        await ui.page.get_by_text(LOST).wait_for(timeout=10_000)
        assert await ui.page.locator("#content .ant-empty").count() == 0
    finally:
        manager.resume()
    await ui.page.get_by_text(LOST).wait_for(state="detached")


async def test_page_whose_script_cannot_be_loaded_appears_when_the_manager_is_back(
    opened: Opener[Shell], hub: RunningHub
) -> None:
    ui = await opened(Shell, "user2", "/start")
    await ui.page.get_by_role("heading", name="Welcome").wait_for()
    # Other tests share the browser's cache, which may already contain the script.
    session = await ui.page.context.new_cdp_session(ui.page)
    await session.send("Network.enable")
    await session.send("Network.setCacheDisabled", {"cacheDisabled": True})
    await ui.page.evaluate("window.wasOpened = true")
    with manager_down(hub):
        await ui.page.locator("nav").get_by_role("link", name="Data").first.click()
        await ui.page.get_by_text(LOST).wait_for()
        await ui.page.locator("#content .ant-skeleton-active").first.wait_for()
        # A page that was opened during the restart also appears without a reload.
        late = await ui.page.context.new_page()
        await late.goto(f"{ui.url}/data")
        await late.get_by_text("The page loads again by itself").wait_for()
    await ui.page.get_by_role("button", name="New folder").first.wait_for()
    await ui.page.get_by_text(LOST).wait_for(state="detached")
    assert await ui.page.evaluate("window.wasOpened")
    await late.get_by_role("button", name="New folder").first.wait_for()


@asynccontextmanager
async def slow_network(page: Page) -> AsyncIterator[None]:
    """Delay every response by ``LATENCY_MILLIS`` during the block."""
    session = await page.context.new_cdp_session(page)
    unlimited = {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
    await session.send("Network.enable")
    await session.send("Network.emulateNetworkConditions", {"latency": LATENCY_MILLIS, **unlimited})
    try:
        yield
    finally:
        await session.send("Network.emulateNetworkConditions", {"latency": 0, **unlimited})
        await session.detach()


class HeldChanges:
    """Counts the requests other than GET to one path, and delays them until ``release`` is set."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.count = 0
        self.release = asyncio.Event()

    async def __call__(self, route: Route) -> None:
        if route.request.method != "GET":
            self.count += 1
            await self.release.wait()
        await route.continue_()


@asynccontextmanager
async def held_changes(page: Page, path: str) -> AsyncIterator[HeldChanges]:
    held = HeldChanges(path)
    await page.route(f"**/api/v1{path}", held)
    try:
        yield held
    finally:
        held.release.set()
        await page.unroute(f"**/api/v1{path}", held)


async def test_slow_responses_show_progress_and_each_form_is_sent_once(
    opened: Opener[Data], hub: RunningHub
) -> None:
    ui = await opened(Data, "user2", "/start")
    await ui.page.get_by_role("heading", name="Welcome").wait_for()
    async with slow_network(ui.page):
        # The browser may have cached the page's script, but not its data.
        await ui.page.locator("nav").get_by_role("link", name="Data").first.click()
        await ui.page.locator(
            "#content .ant-skeleton-active, #content .ant-spin-spinning"
        ).first.wait_for()
        # The browser asks for reduced motion, so no animation is repeated without end.
        endless = "document.getAnimations().filter(one => one.effect.getTiming().iterations > 1)"
        assert await ui.page.evaluate(f"{endless}.length") == 0
        await ui.page.get_by_role("button", name="New folder").first.wait_for()
    try:
        await ui.page.get_by_role("button", name="New folder").first.click()
        await ui.dialog.get_by_label("Name").fill(FOLDER)
        async with held_changes(ui.page, "/vfolders") as folders:
            await submit_repeatedly(ui.page)
            folders.release.set()
            await ui.row(FOLDER).wait_for()

        launcher = Launcher(ui.page, hub)
        await launcher.open("/launch")
        await launcher.preview.get_by_role("button", name="Save as template").click()
        await ui.dialog.get_by_label("Name of the template").fill(FOLDER)
        async with held_changes(ui.page, "/session-templates") as templates:
            await submit_repeatedly(ui.page)
            templates.release.set()
            await ui.page.get_by_role("button", name=FOLDER).wait_for()
    finally:
        with hub.rest("user2") as rest:
            await asyncio.to_thread(clean_up, rest)
    assert (folders.count, templates.count) == (1, 1)


async def submit_repeatedly(page: Page) -> None:
    """Submit the open dialog, and submit it again while the request is in progress."""
    await page.get_by_role("dialog").locator(".ant-modal-footer .ant-btn-primary").click()
    button = page.get_by_role("dialog").locator(".ant-btn-loading")
    await button.wait_for()
    await page.get_by_role("dialog").get_by_role("textbox").first.press("Enter")
    await button.dispatch_event("click")


def clean_up(rest: httpx.Client) -> None:
    for folder in checked(rest.get("/vfolders", params={"name": FOLDER}), 200)["items"]:
        checked(rest.delete(f"/vfolders/{folder['id']}"), 200, 202, 204)
        rest.post(f"/vfolders/{folder['id']}/purge")
    for template in checked(rest.get("/session-templates"), 200)["items"]:
        rest.delete(f"/session-templates/{template['id']}")
