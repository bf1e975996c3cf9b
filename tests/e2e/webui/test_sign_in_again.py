"""Web UI: the sign-in ends while a form is open, and the user signs in again."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from playwright.async_api import expect

from tests.e2e.sessions import checked, wait_for
from tests.hub import RunningHub
from tests.testbed.wait import wait_until_async

from .conftest import Opener
from .data_page import Data
from .entities_page import Entities
from .launcher_page import Launcher
from .pages import WAIT_MILLIS, Shell

if TYPE_CHECKING:
    from playwright.async_api import Locator, Page

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@pytest.fixture
def guest(hub: RunningHub, admin: httpx.Client) -> Iterator[str]:
    """A domain administrator whose browser signs out during the test."""
    name = f"webui-again-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.org", "password": hub.password}
    body |= {"role": "admin"}
    checked(admin.post("/users", json={**body, "projects": ["default"]}), 201)
    yield name
    checked(admin.delete(f"/users/{name}"), 200, 202, 204)


async def let_sign_in_expire(page: Page) -> None:
    await page.context.clear_cookies()


async def sign_out_in_another_tab(page: Page) -> None:
    other = await page.context.new_page()
    await other.goto(page.url.partition("/services/")[0] + "/hub/logout")
    await other.locator("#username_input").wait_for()
    await other.close()


def question(ui: Shell) -> Locator:
    return ui.page.get_by_role("dialog", name="You are signed out")


async def sign_in_again(ui: Shell, username: str) -> Page:
    """Sign in in the window that the dialog opens; return the window."""
    await question(ui).wait_for()
    async with ui.page.context.expect_page() as opened:
        await question(ui).get_by_role("link", name="Sign in").click()
    window = await opened.value
    window.set_default_timeout(WAIT_MILLIS)
    await window.fill("#username_input", username)
    await window.fill("#password_input", ui.password)
    await window.press("#password_input", "Enter")
    return window


async def continues(ui: Shell, username: str) -> None:
    """Sign in again, and wait until the same page continues and the other window is closed."""
    window = await sign_in_again(ui, username)
    await question(ui).wait_for(state="detached")
    assert await ui.page.evaluate("window.wasOpened"), "the page was loaded again"

    async def is_closed() -> bool:
        return window.is_closed()

    await wait_until_async(is_closed, 20, "the window with the sign-in to close itself")


async def mark(ui: Shell) -> None:
    """Set a mark in the page; a reload would remove it."""
    await ui.page.wait_for_load_state("networkidle")
    await ui.page.evaluate("window.wasOpened = true")


ENDS = [
    pytest.param(let_sign_in_expire, id="expired"),
    pytest.param(sign_out_in_another_tab, id="signed out"),
]


@pytest.mark.parametrize("end", ENDS)
async def test_launcher_continues_with_its_input(
    opened: Opener[Launcher],
    hub: RunningHub,
    guest: str,
    end: Callable[[Page], Awaitable[None]],
) -> None:
    """The request that was refused is sent again; the page may also notice the end before it."""
    ui = await opened(Launcher, guest, "/launch")
    await ui.fill(name=guest)
    await ui.preview.get_by_text("It would start now.").wait_for()
    await mark(ui)
    # Wait for the preview of the entered name. Otherwise its request could notice the end first.
    await expect(ui.start_button).to_be_enabled(timeout=WAIT_MILLIS)
    await end(ui.page)
    if end is let_sign_in_expire:
        await ui.launch_without_folder()
        await question(ui).wait_for()
        # The content of the page is hidden, because another user may use the browser.
        assert not await ui.bar.is_visible()
    await continues(ui, guest)
    if end is sign_out_in_another_tab:
        assert await ui.field("name").input_value() == guest
        await ui.launch_without_folder()

    with hub.rest(guest) as rest:

        async def sessions() -> list[dict[str, Any]]:
            found = await asyncio.to_thread(rest.get, "/sessions", params={"name": guest})
            return list(checked(found, 200)["items"])

        (session,) = await wait_until_async(sessions, 30, "the session")
        await asyncio.to_thread(rest.delete, f"/sessions/{session['id']}", params={"force": "true"})
        await asyncio.to_thread(wait_for, rest, session["id"], "TERMINATED", "CANCELLED")


async def test_dialogs_and_drawers_continue_with_their_input(
    opened: Opener[Any], hub: RunningHub, guest: str
) -> None:
    form: Entities = await opened(Entities, guest, "/projects")
    await form.page.get_by_role("button", name="New project").click()
    await form.fill(Name=guest)
    folders: Data = await opened(Data, guest, "/data")
    await folders.page.get_by_role("button", name="New folder").first.click()
    await folders.dialog.get_by_label("Name").fill("kept")
    for ui in (form, folders):
        await mark(ui)
    await let_sign_in_expire(folders.page)

    await folders.dialog.get_by_label("Name").press("Enter")
    await continues(folders, guest)
    await folders.row("kept").get_by_text("Ready").wait_for()
    # The other page asks for a sign-in if it has noticed the end; it then notices the new sign-in.
    await form.page.bring_to_front()
    await question(form).wait_for(state="detached")
    assert await form.drawer.get_by_label("Name", exact=True).input_value() == guest
    await form.save()
    await form.row(guest).wait_for()
    with hub.rest("admin") as rest:
        checked(rest.delete(f"/projects/{guest}"), 200, 202, 204)
    with hub.rest(guest) as rest:
        for folder in checked(rest.get("/vfolders", params={"name": "kept"}), 200)["items"]:
            rest.delete(f"/vfolders/{folder['id']}")
            rest.post(f"/vfolders/{folder['id']}/purge")


async def test_another_user_gets_neither_the_form_nor_the_data(
    opened: Opener[Data], guest: str
) -> None:
    ui = await opened(Data, guest, "/data")
    await ui.page.get_by_role("button", name="New folder").first.click()
    await ui.dialog.get_by_label("Name").fill("not-for-others")
    await mark(ui)
    await let_sign_in_expire(ui.page)
    await ui.dialog.get_by_label("Name").press("Enter")

    await sign_in_again(ui, "user2")
    await ui.page.get_by_role("button", name="Account: user2").wait_for()
    assert ui.page.url == f"{ui.url}/start"
    assert await ui.page.evaluate("window.wasOpened") is None
    await ui.open("/data")
    await ui.page.get_by_role("button", name="New folder").first.wait_for()
    assert await ui.row("not-for-others").count() == 0
    # Sign user2 out: later tests use this profile of the browser as the guest.
    await ui.page.context.clear_cookies()
