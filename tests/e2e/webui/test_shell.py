# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""Web UI: notifications, project, account menu, settings and saved filters."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import httpx
import pytest

from bai_services import __version__
from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .pages import Shell

if TYPE_CHECKING:
    from playwright.async_api import Locator

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

FOLDER = "webui-notice"


@pytest.fixture
def inviter(hub: RunningHub) -> Iterator[httpx.Client]:
    """REST client of ``user``, who owns a folder to share."""
    with hub.rest("user") as client:
        folder = checked(client.post("/vfolders", json={"name": FOLDER}), 201)["id"]
        yield client
        client.delete(f"/vfolders/{folder}")
        client.post(f"/vfolders/{folder}/purge")


def dialog(ui: Shell, title: str) -> Locator:
    return ui.page.get_by_role("dialog").filter(has_text=title)


@pytest.mark.checklist("SHELL-02", "START-04")
async def test_invitation_appears_as_an_unread_notice(
    opened: Opener[Shell], inviter: httpx.Client, hub: RunningHub
) -> None:
    with hub.rest("user2") as guest:
        # Decline invitations that other tests have left.
        for left in checked(guest.get("/vfolder-invitations", params={"status": "pending"}), 200)[
            "items"
        ]:
            guest.post(f"/vfolder-invitations/{left['id']}/decline")
        # Sessions and folders of other tests leave unread notifications.
        checked(guest.put("/notifications/read"), 204)
    ui = await opened(Shell, "user2", "/start")
    bell = ui.page.get_by_role("button", name="Notifications")
    await bell.wait_for()
    body = {"user": "user2", "permission": "ro"}
    checked(inviter.post(f"/vfolders/{FOLDER}/invitations", json=body), 201)
    # The page receives the notification and the invitation as events.
    await ui.page.get_by_role("button", name=re.compile("^Notifications, .* unread$")).wait_for()
    await ui.page.locator("#content").get_by_text(FOLDER).first.wait_for()
    await ui.page.get_by_role("button", name="Accept").wait_for()

    await ui.page.keyboard.press("]")
    drawer = dialog(ui, "Notifications")
    await drawer.get_by_text(FOLDER).wait_for()
    await drawer.get_by_role("button", name="Mark all as read").click()
    await drawer.get_by_text("No unread notifications").wait_for()
    await ui.page.keyboard.press("]")
    await ui.page.get_by_role("button", name="Notifications", exact=True).wait_for()
    # The invitation is still pending, but its notification is read.
    await ui.page.reload()
    await ui.page.get_by_role("button", name="Accept").wait_for()
    await bell.click()
    await drawer.get_by_text("No unread notifications").wait_for()


@pytest.mark.checklist("SHELL-01", "SHELL-04", "SHELL-05", "SHELL-06", "SHELL-07")
async def test_header_has_project_theme_and_account(opened: Opener[Shell]) -> None:
    ui = await opened(Shell, "user2", "/sessions")
    await ui.page.get_by_role("button", name="Project: All projects").click()
    async with ui.page.expect_request(lambda request: "project=default" in request.url):
        await ui.page.get_by_role("menuitem", name="default").click()
    await ui.page.get_by_role("button", name="Project: default").wait_for()

    # The manual opens at the chapter of the page.
    manual = ui.page.get_by_role("link", name="Manual", exact=True)
    address = await manual.get_attribute("href") or ""
    assert address.endswith("/services/bai/manual/user-guide/sessions.html#the-queue")
    assert await manual.get_attribute("target") == "_blank"

    account = ui.page.get_by_role("button", name="Account: user2")
    await account.click()
    menu = ui.page.get_by_role("menu").last
    for text in ("user2@", "user · default"):
        await menu.get_by_text(text).wait_for()
    for link in ("Hub home", "Tokens", "Sign out"):
        await ui.page.get_by_role("link", name=link).wait_for()
    assert await ui.page.get_by_role("link", name="Hub: administration").count() == 0
    await ui.page.get_by_role("menuitem", name="Theme").hover()
    await ui.page.get_by_role("menuitem", name="Dark").click()
    await ui.page.wait_for_function("document.documentElement.style.colorScheme === 'dark'")

    await account.click()
    await ui.page.get_by_role("menuitem", name="About and help").click()
    about = dialog(ui, "About and help")
    await about.get_by_text("All components work").wait_for()
    await about.get_by_text(__version__, exact=True).wait_for()


@pytest.mark.checklist("SET-01", "SET-02", "SET-03", "SET-04", "SET-05", "SET-06", "SET-12")
async def test_preferences_are_kept_and_reset(opened: Opener[Shell]) -> None:
    ui = await opened(Shell, "user2", "/settings")
    page = ui.page
    for name in ("Preferences", "Requests"):
        await page.get_by_role("tab", name=name, exact=True).wait_for()
    # The header also has a button for the language.
    for name in ("Language", "Theme", "Desktop notifications"):
        await page.locator("#content").get_by_label(name, exact=True).wait_for()
    await page.get_by_label("Compact sidebar", exact=True).click()
    await page.locator(".ant-layout-sider-collapsed").wait_for()
    await page.get_by_label("Parallel uploads", exact=True).fill("5")
    await page.reload()
    await page.locator(".ant-layout-sider-collapsed").wait_for()
    assert await page.get_by_label("Parallel uploads", exact=True).input_value() == "5"

    await page.get_by_text("Only changed").click()
    await page.get_by_label("Theme", exact=True).wait_for(state="detached")
    await page.get_by_role("button", name="Reset all preferences").click()
    await page.locator(".ant-modal-confirm-btns .ant-btn-primary").click()
    await page.locator(".ant-layout-sider-collapsed").wait_for(state="detached")
    await page.get_by_text("Only changed").click()
    await page.get_by_placeholder("Find a preference").fill("parallel")
    assert await page.get_by_label("Parallel uploads", exact=True).input_value() == "3"


@pytest.mark.checklist("SET-10", "SET-11", "SET-18")
async def test_keys_are_managed_in_settings(opened: Opener[Shell], hub: RunningHub) -> None:
    ui = await opened(Shell, "user2", "/settings?tab=ssh-keys")
    page = ui.page
    try:
        await page.get_by_label("Name of the key").fill("webui-key")
        await page.get_by_label("Public key").fill("ssh-rsa wrong")
        await page.get_by_role("button", name="Add SSH key").click()
        # The form shows the server's message and keeps the typed values.
        await page.locator("form .ant-alert-error").wait_for()
        await page.get_by_label("Public key").fill("")
        await page.get_by_role("button", name="Add SSH key").click()
        secret = dialog(ui, "The private key is shown only now")
        await secret.get_by_text("BEGIN OPENSSH PRIVATE KEY").wait_for()
        await secret.get_by_role("button", name="OK").click()
        await page.get_by_role("button", name="Remove the SSH key webui-key").click()
        await page.locator(".ant-popconfirm .ant-btn-primary").click()
        await page.locator(".ant-card-head-title", has_text="webui-key").wait_for(state="detached")
    finally:
        with suppress(httpx.HTTPError), hub.rest("user2") as client:
            client.delete("/me/ssh-keys/webui-key")
    await page.get_by_role("tab", name="Requests").click()
    await page.get_by_role("row").filter(has_text="/me/ssh-keys/webui-key").first.wait_for()
    await page.get_by_role("tab", name="Keypairs").click()
    await page.get_by_role("row").filter(has_text="Main keypair").wait_for()
    await page.get_by_role("button", name="New secret key").first.wait_for()


@pytest.mark.checklist("SET-14", "SET-15")
async def test_session_setup_is_managed_in_settings(opened: Opener[Shell], hub: RunningHub) -> None:
    ui = await opened(Shell, "user2", "/settings?tab=setup")
    page = ui.page
    try:
        await page.get_by_label("Name", exact=True).fill("WEBUI_TOKEN")
        await page.get_by_label("Secret", exact=True).click()
        await page.get_by_role("textbox", name="Value").fill("s3cret-value")
        await page.get_by_role("button", name="Set variable").click()
        await page.get_by_role("button", name="Change: WEBUI_TOKEN").wait_for()
        # The form is cleared after the list has been read again.
        await page.locator("input#variable_name[value='']").wait_for()
        assert "s3cret-value" not in await page.content()
        await page.get_by_role("button", name="Add dotfile").click()
        await page.get_by_role("combobox", name="Path").first.fill(".vimrc")
        await page.get_by_label("Content", exact=True).fill("set nu")
        await page.get_by_role("button", name="Save and close").click()
        await page.get_by_role("button", name="Change: .vimrc").wait_for()
        await page.get_by_label("Script", exact=True).fill("echo ready")
        await page.get_by_role("button", name="Save", exact=True).click()
        await page.get_by_role("button", name="Remove: Bootstrap script").wait_for()
        await page.get_by_role("button", name="Remove: .vimrc").click()
        await page.locator(".ant-popconfirm .ant-btn-primary").click()
        await page.get_by_text("No dotfiles").wait_for()
    finally:
        with suppress(httpx.HTTPError), hub.rest("user2") as client:
            for path in ("environ/WEBUI_TOKEN", "dotfiles/.vimrc", "bootstrap"):
                client.delete(f"/me/{path}")


@pytest.mark.checklist("SHELL-08")
async def test_users_change_their_own_full_name(opened: Opener[Shell], hub: RunningHub) -> None:
    ui = await opened(Shell, "user2", "/settings?tab=account")
    page = ui.page
    edited = dialog(ui, "Edit full name")
    name = edited.get_by_label("Full name")
    try:
        await page.get_by_role("button", name="Edit full name").click()
        await name.fill("An\u200bn")
        await edited.get_by_role("button", name="Save").click()
        await edited.get_by_text("the invisible character U+200B at position 3").wait_for()
        await name.fill("A" * 65)
        assert await name.input_value() == "A" * 64
        await name.fill("Ann Kim")
        await name.press("Enter")
        await edited.wait_for(state="detached")
        await page.locator("#content bdi", has_text="Ann Kim").wait_for()
        # The password is changed on the Hub's page.
        await page.get_by_role("link", name="Change password").click()
        await page.locator("#repeat_password").wait_for()
    finally:
        with hub.rest("user2") as client:
            checked(client.patch("/users/user2", json={"full_name": ""}), 200)


@pytest.mark.checklist("SES-03")
async def test_filters_are_saved_and_lists_are_downloaded(opened: Opener[Shell]) -> None:
    ui = await opened(Shell, "user2", "/sessions?tab=pending&name=webui-none")
    page = ui.page
    await page.get_by_role("tab", name="Ended (").wait_for()
    await page.get_by_role("button", name="Saved filters").click()
    await page.get_by_placeholder("Name of the current filters").fill("waiting")
    await page.get_by_role("button", name="Save", exact=True).click()
    await page.get_by_role("tab", name="Ended (").click()
    await page.reload()
    await page.get_by_role("button", name="Saved filters").click()
    await page.get_by_role("button", name="waiting", exact=True).click()
    await page.wait_for_url("**/sessions?tab=pending&name=webui-none")

    async with page.expect_download() as started:
        await page.get_by_role("link", name="Download as CSV").click()
    download = await started.value
    assert download.suggested_filename == "sessions.csv"
    lines = (await download.path()).read_text("utf-8-sig").splitlines()
    # The list is filtered by a name that no session has, so the file contains only the header.
    assert len(lines) == 1
    assert lines[0].startswith("id,name,")


async def test_page_of_an_administrator_opens_at_its_top(opened: Opener[Shell]) -> None:
    """The sidebar scrolls by itself to the selected entry, which is its last one."""
    ui = await opened(Shell, "admin", "/system", viewport={"width": 1440, "height": 700})
    title = ui.page.get_by_role("heading", name="System", exact=True)
    await title.wait_for()
    entry = ui.page.locator("nav .ant-menu-item-selected")
    await entry.wait_for()
    for shown in (title, entry, ui.page.get_by_role("button", name="Account: admin")):
        box = await shown.bounding_box()
        assert box is not None
        assert 0 <= box["y"] < 700 - box["height"]


async def test_user_signs_out_of_other_browsers_in_the_settings(
    opened: Opener[Shell], hub: RunningHub
) -> None:
    # The browsers of other tests' users must stay signed in.
    name = f"webui-browsers-{secrets.token_hex(4)}"
    with hub.rest("admin") as admin:
        body = {"username": name, "email": f"{name}@example.org", "password": hub.password}
        checked(admin.post("/users", json={**body, "projects": ["default"]}), 201)
        try:
            first = await opened(Shell, name, "/start", locale="en-GB")
            second = await opened(Shell, name, "/start", locale="en-AU")
            ui = await opened(Shell, name, "/settings?tab=sign-ins")
            rows = ui.page.get_by_role("row").filter(has_text=" on Linux")
            await rows.nth(2).wait_for()
            assert await rows.count() == 3
            current = rows.filter(has_text="This browser")
            assert await current.get_by_role("button").count() == 0
            await rows.last.get_by_role("button", name="Sign out").click()
            await rows.nth(2).wait_for(state="detached")
            await ui.page.get_by_role("button", name="Sign out of all other browsers").click()
            await ui.page.locator(".ant-popconfirm .ant-btn-primary").click()
            await rows.nth(1).wait_for(state="detached")
            await current.wait_for()
            for ended in (first, second):
                await ended.page.get_by_text("You are signed out").wait_for()
        finally:
            checked(admin.delete(f"/users/{name}"), 200, 202, 204)


@pytest.mark.checklist("SHELL-10")
async def test_announcement_is_on_every_page_until_it_is_dismissed(
    opened: Opener[Shell], hub: RunningHub
) -> None:
    title = f"Power cut {secrets.token_hex(3)}"
    with hub.rest("admin") as admin:
        body = {"title": title, "text": "Save your **notebooks**.", "level": "warning"}
        announcement = checked(admin.post("/announcements", json=body), 201)
        try:
            ui = await opened(Shell, "user2", "/sessions")
            notice = ui.page.get_by_role("alert").filter(has_text=title)
            text = notice.locator("strong", has_text="notebooks")
            await text.wait_for()
            await notice.get_by_role("button", name="Hide", exact=True).click()
            await text.wait_for(state="detached")
            # The announcement stays folded on all pages.
            await ui.open("/data")
            await notice.get_by_role("button", name="Details").wait_for()
            assert await text.count() == 0
            await notice.get_by_role("button", name=f"Hide the announcement {title}").click()
            await notice.wait_for(state="detached")
            await ui.page.reload()
            await ui.page.get_by_role("heading", name="Data").first.wait_for()
            assert await notice.count() == 0
        finally:
            admin.delete(f"/announcements/{announcement['id']}")
