"""Web UI: folders, sharing and the trash, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.engines import checked
from tests.hub import RunningHub

from .conftest import Opener
from .data_page import Data, Explorer

if TYPE_CHECKING:
    from playwright.async_api import FilePayload

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

PREFIX = "webui-data"


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user2``; folders of the test are purged."""
    with hub.rest("user2") as client:
        yield client
        for folder in checked(client.get("/vfolders", params={"relation": "own"}), 200)["items"]:
            if folder["name"].startswith((PREFIX, ".webui-data")):
                client.delete(f"/vfolders/{folder['id']}")
                client.post(f"/vfolders/{folder['id']}/purge")


def create(rest: httpx.Client, name: str, **spec: object) -> str:
    folder_id: str = checked(rest.post("/vfolders", json={"name": name, **spec}), 201)["id"]
    return folder_id


@pytest.mark.checklist("DATA-01", "DATA-03", "DATA-05", "DATA-06", "DATA-10", "DATA-11")
@pytest.mark.checklist("DATA-08", "DATA-12", "AUTO-01")
async def test_life_of_a_folder(opened: Opener[Data], rest: httpx.Client) -> None:
    ui = await opened(Data, "user2", "/data")
    await ui.page.get_by_role("region", name="Storage usage").get_by_text("free").first.wait_for()
    await ui.page.get_by_role("button", name="New folder").first.click()
    await ui.dialog.get_by_label("Name").fill(PREFIX)
    await ui.dialog.get_by_text("Others may clone it").click()
    await ui.answer("New folder")
    await ui.row(PREFIX).get_by_text("Ready").wait_for()

    # A clone gets a name with a leading dot: it is mounted into every session.
    await ui.choose(PREFIX, "Clone")
    await ui.dialog.get_by_label("Name").fill(".webui-data")
    await ui.answer("Clone")
    await ui.row(".webui-data").get_by_text("Auto mount").wait_for()
    await ui.row(".webui-data").get_by_text("Ready").wait_for()

    await ui.choose(PREFIX, "Rename and settings")
    await ui.dialog.get_by_label("Name").fill("bad/name")
    await ui.dialog.get_by_role("button", name="Save").click()
    await ui.dialog.locator(".ant-form-item-explain-error").wait_for()
    await ui.dialog.get_by_label("Name").fill(f"{PREFIX}-renamed")
    await ui.answer("Save")

    await ui.choose(f"{PREFIX}-renamed", "Move to trash")
    await ui.answer("Move to trash")
    await ui.row(f"{PREFIX}-renamed").wait_for(state="detached")
    await ui.choose_tab("Trash")
    await ui.choose(f"{PREFIX}-renamed", "Restore")
    await ui.row(f"{PREFIX}-renamed").wait_for(state="detached")
    await ui.choose_tab("My folders")
    await ui.row(f"{PREFIX}-renamed").get_by_text("Ready").wait_for()


@pytest.mark.checklist("DATA-02", "DATA-04", "DATA-07", "DATA-08")
async def test_trash_of_several_folders_and_purge(opened: Opener[Data], rest: httpx.Client) -> None:
    names = [f"{PREFIX}-{number}" for number in range(2)]
    for name in names:
        create(rest, name)
    ui = await opened(Data, "user2", f'/data?filters={{"name__contains":"{PREFIX}"}}')
    await ui.row(names[0]).wait_for()
    await ui.page.get_by_role("checkbox", name="Select all folders").check()
    await ui.page.get_by_role("button", name="Move to trash (2)").click()
    await ui.answer("Move to trash")
    await ui.page.get_by_text("No folder matches.").wait_for()

    await ui.choose_tab("Trash")
    await ui.row(names[0]).get_by_text("In the trash").wait_for()
    await ui.choose(names[0], "Delete forever")
    delete = ui.dialog.get_by_role("button", name="Delete forever")
    assert await delete.is_disabled()
    await ui.dialog.get_by_role("textbox").fill(names[0])
    await ui.answer("Delete forever")
    await ui.row(names[0]).wait_for(state="detached")
    await ui.row(names[1]).wait_for()


@pytest.mark.checklist("SHARE-01", "SHARE-02", "SHARE-03", "SHARE-05")
async def test_share_and_leave(opened: Opener[Data], rest: httpx.Client) -> None:
    create(rest, PREFIX)
    owner = await opened(Data, "user2", "/data")
    await owner.choose(PREFIX, "Share")
    await owner.dialog.get_by_label("User name or e-mail address").fill("user")
    await owner.dialog.get_by_role("button", name="Invite").click()
    invited = owner.dialog.get_by_role("row").filter(has_text="invited")
    await invited.wait_for()

    guest = await opened(Data, "user", "/data")
    await guest.page.get_by_role("button", name="Accept").click()
    await guest.choose_tab("Shared with me")
    # The guest may neither rename nor delete the folder.
    await guest.page.get_by_role("button", name=f"Actions for {PREFIX}").click()
    await guest.page.get_by_role("menuitem", name="Leave").wait_for()
    assert await guest.page.locator(".ant-dropdown").inner_text() == "Leave"
    await guest.page.get_by_role("menuitem", name="Leave").click()
    await guest.answer("Leave")
    await guest.row(PREFIX).wait_for(state="detached")


def make_directories(rest: httpx.Client, folder: str, paths: list[str]) -> None:
    checked(rest.post(f"/vfolders/{folder}/directories", json={"paths": paths}), 201)


def share(rest: httpx.Client, folder: str) -> None:
    checked(rest.put(f"/vfolders/{folder}/grants/user", json={"permission": "ro"}), 200)


def text_file(name: str, content: str) -> FilePayload:
    return {"name": name, "mimeType": "text/plain", "buffer": content.encode()}


@pytest.mark.checklist("EXP-02", "EXP-07")
async def test_files_are_uploaded_moved_downloaded_and_deleted(
    opened: Opener[Explorer], rest: httpx.Client
) -> None:
    folder = create(rest, PREFIX)
    ui = await opened(Explorer, "user2", f"/data?folder={folder}")
    await ui.upload(*(text_file(f"{number}.txt", "old") for number in range(5)))
    await ui.page.get_by_text("Entries: 5").wait_for()

    # A file that exists is replaced only after the user's decision.
    await ui.upload(text_file("0.txt", "newer"))
    await ui.page.get_by_role("button", name="Replace", exact=True).click()
    await ui.row("0.txt").get_by_text("5 B").wait_for()

    await ui.page.get_by_role("button", name="New directory").click()
    await ui.dialog.get_by_label("Name").fill("sub")
    await ui.answer("Save")
    await ui.choose("1.txt", "Rename or move")
    await ui.dialog.get_by_label("Path in the folder").fill("sub/moved.txt")
    await ui.answer("Save")
    await ui.row("1.txt").wait_for(state="detached")

    await ui.row("2.txt").get_by_role("checkbox").check()
    await ui.row("3.txt").get_by_role("checkbox").check()
    async with ui.page.expect_download() as download:
        await ui.page.get_by_role("link", name="Download (2)").click()
    assert (await download.value).suggested_filename == f"{PREFIX}.zip"
    await ui.page.get_by_role("button", name="Delete (2)").click()
    await ui.answer("Delete")
    await ui.page.get_by_text("Entries: 3").wait_for()

    await ui.row("sub").get_by_text("sub", exact=True).click()
    await ui.row("moved.txt").wait_for()
    assert ui.page.url.endswith("path=sub")
    await ui.page.get_by_role("button", name="Details").click()
    await ui.dialog.get_by_text(folder).wait_for()


@pytest.mark.checklist("EXP-08", "EXP-09", "EXP-10")
async def test_large_directory_is_scrolled_and_read_only_folder_has_no_write_actions(
    opened: Opener[Explorer], rest: httpx.Client
) -> None:
    folder = create(rest, PREFIX)
    make_directories(rest, folder, [f"{number:04}" for number in range(999)] + ["z" * 255])
    ui = await opened(Explorer, "user2", f"/data?folder={folder}")
    await ui.row("0000").wait_for()
    assert await ui.page.get_by_role("row").count() < 100
    await ui.page.locator(".bai-files-viewport").evaluate("view => view.scrollTo(0, 1e6)")
    await ui.row("z" * 255).wait_for()

    share(rest, folder)
    guest = await opened(Explorer, "user", "/data")
    await guest.page.get_by_role("button", name="Accept").click()
    await guest.page.get_by_role("link", name=PREFIX, exact=True).click()
    await guest.row("0000").wait_for()
    assert await guest.page.get_by_role("button", name="Upload files").count() == 0
    await guest.open("/data?folder=missing")
    await guest.page.get_by_role("alert").get_by_role("button", name="Try again").wait_for()
