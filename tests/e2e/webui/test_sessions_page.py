"""Web UI: sign-in, navigation, the list of sessions and the session drawer, in a real browser."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
import pytest
import pytest_asyncio

from tests.e2e.sessions import checked, start, wait_for
from tests.hub import RunningHub

from .conftest import Opener
from .pages import Sessions

if TYPE_CHECKING:
    from playwright.async_api import Browser

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user2``; after the test, all sessions of ``user2`` are stopped."""
    with hub.rest("user2") as client:
        yield client
        for session in checked(client.get("/sessions"), 200)["items"]:
            if session["status"] not in ("TERMINATED", "CANCELLED", "ERROR"):
                client.delete(f"/sessions/{session['id']}", params={"force": "true"})
                wait_for(client, session["id"], "TERMINATED", "CANCELLED")


@pytest_asyncio.fixture(loop_scope="session")
async def ui(opened: Opener[Sessions]) -> Sessions:
    """The page of sessions with ``user2`` signed in."""
    return await opened(Sessions, "user2", "/sessions")


def create_pending(rest: httpx.Client, name: str) -> str:
    """Create a session that cannot start before tomorrow."""
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    body = {
        "name": name,
        "project": "default",
        "type": "batch",
        "startup_command": "true",
        "starts_at": tomorrow.isoformat(),
        "resources": {"cpu": "1", "mem": "1g"},
    }
    session_id: str = checked(rest.post("/sessions", json=body), 201)["id"]
    return session_id


def remove_folder(rest: httpx.Client, name: str) -> None:
    folders = checked(rest.get("/vfolders", params={"name": name}), 200)["items"]
    checked(rest.delete(f"/vfolders/{folders[0]['id']}"), 200, 202, 204)


async def test_deep_link_survives_sign_in(hub: RunningHub, browser: Browser) -> None:
    page = await browser.new_page()
    await Sessions(page, hub).sign_in("user2", "/sessions?tab=ended&name=lab")
    assert page.url.endswith("/services/bai/sessions?tab=ended&name=lab")
    assert await page.get_by_placeholder("Find by name").input_value() == "lab"


@pytest.mark.checklist("SES-09", "DET-04", "DET-07")
async def test_new_session_appears_without_reload_and_stops_from_its_drawer(
    ui: Sessions, rest: httpx.Client
) -> None:
    session_id = create_pending(rest, "webui-live")
    row = ui.row("webui-live")
    await row.get_by_text("Pending").wait_for()

    await ui.show("webui-live")
    assert ui.page.url.endswith(f"?session={session_id}")
    # The drawer lists every check of the scheduler, whether it passed or failed.
    await ui.drawer.get_by_text("All checks").click()
    await ui.drawer.get_by_label("not passed").first.wait_for()
    assert await ui.drawer.get_by_label("passed", exact=True).count() > 2
    await ui.drawer.get_by_role("button", name="Cancel").click()
    question = ui.page.get_by_role("dialog", name="Cancel webui-live?")
    await question.get_by_text("Nothing is running.").wait_for()
    await question.get_by_role("button", name="Keep in the queue").wait_for()
    await question.get_by_role("button", name="Cancel the session").click()
    await ui.drawer.get_by_text("Cancelled").first.wait_for()
    assert wait_for(rest, session_id, "CANCELLED")["status"] == "CANCELLED"

    await ui.drawer.get_by_role("button", name="Close").click()
    await ui.drawer.first.wait_for(state="hidden")
    assert ui.page.url.endswith("/sessions")
    await row.get_by_text("Cancelled").wait_for()


async def test_filters_are_in_the_url_and_survive_reload(ui: Sessions, rest: httpx.Client) -> None:
    create_pending(rest, "webui-one")
    create_pending(rest, "webui-two")
    await ui.row("webui-two").wait_for()
    await ui.find("webui-o")
    await ui.row("webui-two").wait_for(state="detached")
    assert "name=webui-o" in ui.page.url
    await ui.page.reload()
    await ui.row("webui-one").wait_for()
    assert await ui.row("webui-two").count() == 0

    await ui.page.get_by_role("tab", name="Ended").click()
    await ui.row("webui-one").wait_for(state="detached")
    await ui.page.go_back()
    await ui.row("webui-one").wait_for()


async def test_selected_sessions_stop_together(ui: Sessions, rest: httpx.Client) -> None:
    ids = [create_pending(rest, f"webui-bulk-{n}") for n in range(2)]
    await ui.find("webui-bulk")
    for n in range(2):
        await ui.page.get_by_role("checkbox", name=f"Select webui-bulk-{n}").check()
    await ui.page.get_by_role("button", name="Stop 2").click()
    await ui.page.get_by_role("dialog").get_by_role("button", name="Stop", exact=True).click()
    for session_id in ids:
        assert wait_for(rest, session_id, "CANCELLED")["status"] == "CANCELLED"


@pytest.mark.checklist("APP-01")
async def test_running_session_has_a_history_and_only_its_owner_has_app_links(
    ui: Sessions, opened: Opener[Sessions], rest: httpx.Client
) -> None:
    name = f"webui-run-{secrets.token_hex(2)}"
    session = start(rest, name)
    row = ui.row(name)
    await row.get_by_text("Running").wait_for()
    href = await row.get_by_role("link", name="Open").get_attribute("href")
    assert href == session["url"]
    await ui.show(name)
    await ui.page.get_by_role("tab", name="History").click()
    await ui.drawer.locator(".ant-timeline").get_by_text("Running").first.wait_for()
    await ui.page.get_by_role("tab", name="Apps").click()
    async with ui.page.context.expect_page() as opened_page:
        await ui.drawer.get_by_role("link", name="Open JupyterLab").click()
    lab = await opened_page.value
    await lab.locator("#jp-top-panel").wait_for()
    await lab.close()
    # An administrator may stop the session but not enter it.
    admin = await opened(Sessions, "domain-admin", ui.page.url.partition("/services/bai")[2])
    await admin.drawer.get_by_role("button", name="Stop").wait_for()
    await admin.page.get_by_role("tab", name="Apps").click()
    await admin.drawer.get_by_text("Only the owner").wait_for()
    assert await admin.drawer.get_by_role("link", name="Open").count() == 0


@pytest.mark.checklist("SHELL-15")
async def test_command_palette_opens_a_session_by_name(ui: Sessions, rest: httpx.Client) -> None:
    session_id = create_pending(rest, "webui-palette")
    await ui.open("/start")
    await ui.page.get_by_role("heading", name="Welcome").wait_for()
    await ui.go_to("webui-pal", "webui-palette")
    await ui.drawer.get_by_text("webui-palette", exact=True).first.wait_for()
    assert session_id in ui.page.url


async def test_language_changes_at_once_and_is_remembered(ui: Sessions) -> None:
    await ui.choose_language("Language", "ไทย")
    await ui.page.get_by_role("heading", name="เซสชัน", exact=True).wait_for()
    await ui.page.reload()
    await ui.page.get_by_role("heading", name="เซสชัน", exact=True).wait_for()
    assert await ui.page.evaluate("document.documentElement.lang") == "th"


@pytest.mark.checklist("DET-08")
async def test_session_of_another_user_is_not_found(
    hub: RunningHub, ui: Sessions, rest: httpx.Client
) -> None:
    with hub.rest("user") as other:
        session_id = create_pending(other, "webui-foreign")
        try:
            await ui.open(f"/sessions?session={session_id}")
            await ui.drawer.get_by_role("alert").wait_for()
            assert "webui-foreign" not in await ui.page.inner_text("body")
        finally:
            other.delete(f"/sessions/{session_id}", params={"force": "true"})


async def test_narrow_screen_has_the_menu_in_a_drawer(ui: Sessions) -> None:
    await ui.page.set_viewport_size({"width": 390, "height": 800})
    await ui.page.get_by_role("button", name="Menu").click()
    await ui.page.get_by_role("dialog").get_by_role("link", name="Data").click()
    await ui.page.wait_for_url(re.compile("/data$"))
    overflow = await ui.page.evaluate(
        "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    )
    assert not overflow


async def test_phone_shows_rows_and_hides_filters_until_they_are_requested(
    ui: Sessions, rest: httpx.Client
) -> None:
    from playwright.async_api import expect

    await ui.page.set_viewport_size({"width": 390, "height": 844})
    for number in range(3):
        create_pending(rest, f"webui-phone-{number}")
    await ui.open("/sessions")
    for number in range(3):
        await expect(ui.row(f"webui-phone-{number}")).to_be_in_viewport(ratio=1)
    await ui.page.get_by_role("button", name="Filters and options").click()
    await ui.find("phone-1")
    await ui.row("webui-phone-0").wait_for(state="detached")
    await ui.page.get_by_role("button", name="Filters and options (1)").click()
    await ui.page.get_by_placeholder("Find by name").wait_for(state="detached")


async def test_phone_sorts_and_selects_all_rows(ui: Sessions, rest: httpx.Client) -> None:
    from playwright.async_api import expect

    await ui.page.set_viewport_size({"width": 390, "height": 844})
    for number in range(3):
        create_pending(rest, f"webui-sort-{number}")
    # Without the filter, the sessions can be on different pages.
    await ui.open("/sessions?name=webui-sort-")
    names = ui.page.locator(".ant-table-row", has_text="webui-sort-")
    for order, first in (("Name, ascending", 0), ("Name, descending", 2)):
        await ui.page.get_by_role("button", name="Sort", exact=True).click()
        await ui.page.get_by_role("menuitem", name=order).click()
        await expect(names.first).to_contain_text(f"webui-sort-{first}")
        await expect(names.last).to_contain_text(f"webui-sort-{2 - first}")
    every = ui.page.get_by_role("checkbox", name="Select all", exact=True)
    await every.check()
    for number in range(3):
        await expect(ui.row(f"webui-sort-{number}").get_by_role("checkbox")).to_be_checked()
    await ui.row("webui-sort-1").get_by_role("checkbox").uncheck()
    await expect(every).not_to_be_checked()
    await expect(every).to_have_js_property("indeterminate", True)
    await every.check()
    await every.uncheck()
    await expect(ui.row("webui-sort-0").get_by_role("checkbox")).not_to_be_checked()


async def test_folder_is_created_in_the_page(ui: Sessions, rest: httpx.Client) -> None:
    await ui.open("/data")
    await ui.page.get_by_role("button", name="New folder").first.click()
    dialog = ui.page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("bad/name")
    await dialog.get_by_role("button", name="New folder").click()
    await dialog.locator(".ant-form-item-explain-error").wait_for()
    await dialog.get_by_label("Name").fill("webui-folder")
    await dialog.get_by_role("button", name="New folder").click()
    await ui.row("webui-folder").wait_for()
    remove_folder(rest, "webui-folder")


@pytest.mark.checklist("DET-01", "SSH-01", "SSH-03")
async def test_session_is_renamed_and_gets_a_priority_in_its_drawer(
    ui: Sessions, rest: httpx.Client
) -> None:
    session_id = create_pending(rest, "webui-old")
    await ui.show("webui-old")
    for label, field, value in (("Priority", "Priority", "5"), ("Rename", "Name", "webui-new")):
        await ui.drawer.get_by_role("button", name="More").click()
        await ui.page.get_by_role("menuitem", name=label).click()
        dialog = ui.page.get_by_role("dialog", name=label)
        await dialog.get_by_label(field, exact=True).fill(value)
        await dialog.get_by_role("button", name="Save").click()
        await dialog.wait_for(state="hidden")
    await ui.drawer.get_by_text("webui-new", exact=True).first.wait_for()
    session = wait_for(rest, session_id, "PENDING")
    assert (session["name"], session["priority"]) == ("webui-new", 5)

    await ui.drawer.get_by_role("tab", name="Command line").click()
    for command in (
        "bai ssh webui-new",
        "bai scp FILE webui-new:",
        "rsync -e 'bai ssh' -a FOLDER webui-new:",
        "sftp webui-new.bai",
        "code --remote ssh-remote+webui-new.bai /home/work",
    ):
        await ui.drawer.get_by_text(command, exact=True).wait_for()
    link = ui.drawer.get_by_role("link", name="Open in VS Code")
    assert await link.get_attribute("href") == (
        "vscode://vscode-remote/ssh-remote+webui-new.bai/home/work"
    )


async def test_tabs_filter_sessions_and_chosen_columns_are_remembered(
    ui: Sessions, rest: httpx.Client
) -> None:
    create_pending(rest, "webui-batch")
    await ui.page.get_by_role("tab", name="Batch").click()
    await ui.row("webui-batch").wait_for()
    await ui.page.get_by_role("tab", name="Cluster").click()
    await ui.row("webui-batch").wait_for(state="detached")

    await ui.page.get_by_role("tab", name="All").click()
    await ui.row("webui-batch").wait_for()
    await ui.page.get_by_role("button", name="Columns").click()
    await ui.page.get_by_role("checkbox", name="Project").check()
    await ui.page.get_by_role("columnheader", name="Project").wait_for()
    await ui.page.reload()
    # The browser has stored the choice.
    await ui.page.get_by_role("columnheader", name="Project").wait_for()
