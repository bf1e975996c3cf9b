# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""Web UI: folders, their files, sharing and the trash, in a real browser."""

from __future__ import annotations

import json
import os
import re
import secrets
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .data_page import Data, Explorer
from .pages import Shell

if TYPE_CHECKING:
    from playwright.async_api import FilePayload

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

PREFIX = "webui-data"
# Without the filter, the folders can be on the second page of the list.
LIST = f'/data?filters={{"name__contains":"{PREFIX}"}}'


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """REST client of ``user2``. Folders that the test created are purged afterwards."""
    with hub.rest("user2") as client:
        yield client
        for folder in _folders(client):
            client.delete(f"/vfolders/{folder['id']}")
            client.post(f"/vfolders/{folder['id']}/purge")


def _folders(client: httpx.Client) -> list[dict[str, Any]]:
    query = {"relation": "own", "name__contains": PREFIX}
    found: list[dict[str, Any]] = checked(client.get("/vfolders", params=query), 200)["items"]
    return found


async def accept(guest: Shell) -> None:
    """Accept the invitation to the folder of the test."""
    invitation = guest.page.locator("#content").get_by_role("alert").filter(has_text=PREFIX)
    await invitation.get_by_role("button", name="Accept").click()


def create(rest: httpx.Client, name: str, **spec: object) -> str:
    folder_id: str = checked(rest.post("/vfolders", json={"name": name, **spec}), 201)["id"]
    return folder_id


@pytest.mark.checklist("DATA-01", "DATA-03", "DATA-05", "DATA-06", "DATA-10", "DATA-11")
@pytest.mark.checklist("DATA-08", "DATA-12", "AUTO-01")
async def test_folder_is_created_cloned_renamed_trashed_and_restored(
    opened: Opener[Data], rest: httpx.Client
) -> None:
    ui = await opened(Data, "user2", LIST)
    await ui.page.get_by_role("region", name="Storage usage").get_by_text("free").first.wait_for()
    await ui.page.get_by_role("button", name="New folder").first.click()
    for choice in ("General", "Models", "Data", "read", "read and write"):
        await ui.dialog.get_by_role("radio", name=choice, exact=True).wait_for()
    # Only administrators create folders of projects.
    assert await ui.dialog.get_by_label("Belongs to").count() == 0
    await ui.dialog.get_by_label("Storage host").click()
    await ui.page.locator(".ant-select-item-option", has_text=" free)").first.click()
    await ui.dialog.get_by_label("Name").fill(PREFIX)
    await ui.dialog.get_by_text("Others may clone it").click()
    await ui.dialog.get_by_label("Name").press("Enter")
    await ui.row(PREFIX).get_by_text("Ready").wait_for()

    # A name that starts with a dot means that the folder is mounted into each new session of its
    # owner.
    await ui.choose(PREFIX, "Clone")
    await ui.dialog.get_by_label("Name").fill(".webui-data")
    await ui.dialog.get_by_label("Name").press("Enter")
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


async def test_missing_objects_are_reported_in_the_language_of_the_user(
    opened: Opener[Data],
) -> None:
    """The messages of the API are in English."""
    missing = "folder=00000000-0000-0000-0000-000000000000"
    ui = await opened(Data, "user2", f"/data?{missing}", locale="ko-KR")
    await ui.page.get_by_role("alert").get_by_text("대상이 없거나").wait_for()


@pytest.mark.checklist("DATA-02", "DATA-04", "DATA-07", "DATA-08")
async def test_several_folders_are_moved_to_trash_and_one_is_purged(
    opened: Opener[Data], rest: httpx.Client, hub: RunningHub
) -> None:
    names = [f"{PREFIX}-{number}" for number in range(2)]
    for name in names:
        create(rest, name)
    admin, of_project = hub.rest("domain-admin"), f"{PREFIX}-project"
    project_folder = create(admin, of_project, project="default")
    try:
        ui = await opened(Data, "user2", LIST)
        await ui.row(names[0]).wait_for()
        await ui.page.get_by_role("checkbox", name="Select all folders").check()
        # The third selected folder belongs to a project, so the user may not delete it.
        await ui.page.get_by_role("button", name="Move to trash (2)").click()
        await ui.dialog.get_by_text(f"so they are not changed: {of_project}").wait_for()
        await ui.answer("Move to trash")
        await ui.row(names[0]).wait_for(state="detached")
        await ui.row(of_project).get_by_text("Ready").wait_for()
    finally:
        admin.delete(f"/vfolders/{project_folder}")
        admin.post(f"/vfolders/{project_folder}/purge")

    await ui.choose_tab("Trash")
    await ui.row(names[0]).get_by_text("In the trash").wait_for()
    await ui.page.get_by_role("columnheader", name="Deleted forever").wait_for()
    with_time = re.compile(r"[A-Z][a-z]+ \d+, \d{4}")
    assert await ui.row(names[0]).get_by_text(with_time).count() == 2
    await ui.choose(names[0], "Delete forever")
    delete = ui.dialog.get_by_role("button", name="Delete forever")
    assert await delete.is_disabled()
    await ui.dialog.get_by_role("textbox").fill(names[0])
    await ui.answer("Delete forever")
    await ui.row(names[0]).wait_for(state="detached")
    await ui.row(names[1]).get_by_role("checkbox").check()
    await ui.page.get_by_role("button", name="Restore (1)").click()
    await ui.row(names[1]).wait_for(state="detached")
    await ui.choose_tab("My folders")
    await ui.row(names[1]).get_by_text("Ready").wait_for()


@pytest.mark.checklist("SHARE-01", "SHARE-02", "SHARE-03", "SHARE-04", "SHARE-05")
async def test_grantee_accepts_and_leaves_a_shared_folder(
    opened: Opener[Data], rest: httpx.Client, hub: RunningHub
) -> None:
    create(rest, PREFIX)
    other = hub.rest("user")
    own = create(other, PREFIX)
    owner = await opened(Data, "user2", LIST)
    await owner.choose(PREFIX, "Share")
    await owner.dialog.get_by_label("User name or e-mail address").fill("user")
    await owner.dialog.get_by_role("button", name="Invite").click()
    await owner.dialog.get_by_text(f"already has a folder named {PREFIX}").wait_for()
    other.delete(f"/vfolders/{own}")
    other.post(f"/vfolders/{own}/purge")
    await owner.dialog.get_by_role("button", name="Invite").click()
    invited = owner.dialog.get_by_role("row").filter(has_text="invited")
    await invited.wait_for()

    # The guest declines the invitation to another folder.
    declined = create(rest, f"{PREFIX}-declined")
    checked(rest.post(f"/vfolders/{declined}/invitations", json={"user": "user"}), 201)

    guest = await opened(Data, "user", LIST)
    await guest.page.get_by_role(
        "button", name=re.compile(r"^Notifications, \d+ unread$")
    ).wait_for()
    invitation = guest.page.locator("#content").get_by_role("alert")
    invitation = invitation.filter(has_text=f"{PREFIX}-declined")
    await invitation.get_by_role("button", name="Decline").click()
    await invitation.wait_for(state="detached")
    await accept(guest)
    await guest.choose_tab("Shared with me")
    # The row shows the owner and the permission; the declined folder is absent.
    for text in ("user2", "read"):
        await guest.row(PREFIX).get_by_role("cell", name=text, exact=True).wait_for()
    assert await guest.row(f"{PREFIX}-declined").count() == 0
    # The guest may neither rename nor delete the folder.
    await guest.page.get_by_role("button", name=f"Actions for {PREFIX}").click()
    await guest.page.get_by_role("menuitem", name="Leave").wait_for()
    assert await guest.page.locator(".ant-dropdown").inner_text() == "Leave"
    await guest.page.get_by_role("menuitem", name="Leave").click()
    await guest.answer("Leave")
    await guest.row(PREFIX).wait_for(state="detached")


@pytest.mark.checklist("SHARE-06")
async def test_members_see_folders_of_their_project_without_an_invitation(
    opened: Opener[Explorer], hub: RunningHub
) -> None:
    admin = hub.rest("domain-admin")
    name = f"{PREFIX}-team"
    folder = create(admin, name, project="default", permission="ro")
    try:
        ui = await opened(Explorer, "user2", LIST)
        await ui.choose_tab("Project")
        await ui.page.get_by_role("link", name=name, exact=True).click()
        # The folder's permission, "ro", applies to all members.
        await ui.page.get_by_role("button", name="Upload files", disabled=True).wait_for()
    finally:
        admin.delete(f"/vfolders/{folder}")
        admin.post(f"/vfolders/{folder}/purge")


def make_directories(rest: httpx.Client, folder: str, paths: list[str]) -> None:
    checked(rest.post(f"/vfolders/{folder}/directories", json={"paths": paths}), 201)


def share(rest: httpx.Client, folder: str) -> None:
    checked(rest.put(f"/vfolders/{folder}/grants/user", json={"permission": "ro"}), 200)


def text_file(name: str, content: str) -> FilePayload:
    return {"name": name, "mimeType": "text/plain", "buffer": content.encode()}


# Drops a file with this name on the list of files.
DROP = """name => {
  const transfer = new DataTransfer();
  transfer.items.add(new File(['dropped'], name));
  const options = {dataTransfer: transfer, bubbles: true, cancelable: true};
  document.querySelector('.bai-files-viewport, .ant-empty')
    .dispatchEvent(new DragEvent('drop', options));
}"""
TOO_LARGE = 17 * 2**30


@pytest.mark.checklist("EXP-02", "EXP-04", "EXP-07")
async def test_files_are_uploaded_moved_downloaded_and_deleted(
    opened: Opener[Explorer], rest: httpx.Client, tmp_path: Path
) -> None:
    folder = create(rest, PREFIX)
    ui = await opened(Explorer, "user2", f"/data?folder={folder}")
    await ui.upload(*(text_file(f"{number}.txt", "old") for number in range(5)))
    await ui.page.get_by_text("Entries: 5").wait_for()

    # An existing file is replaced only after the user's confirmation.
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
    # Uploads go to the open directory; a dropped file is an upload, too.
    await ui.page.evaluate(DROP, "dropped.txt")
    await ui.row("dropped.txt").get_by_text("7 B").wait_for()
    assert read(rest, folder, "sub/dropped.txt") == b"dropped"
    large = tmp_path / "large.bin"
    large.touch()
    os.truncate(large, TOO_LARGE)
    await ui.page.get_by_test_id("files").set_input_files(large)
    await ui.page.get_by_text("a file can have at most").wait_for()
    await ui.page.get_by_role("button", name="Details").click()
    await ui.dialog.get_by_text(folder).wait_for()


def png() -> bytes:
    """Return an image of one black pixel."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"\0\0")
    parts = ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


# A damaged file: its list of pages refers to a second page that does not exist.
PDF = b"""%PDF-1.4
1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R 9 0 R]/Count 2>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]/Contents 4 0 R
/Resources<</Font<</F1 5 0 R>>>>>>endobj
4 0 obj<</Length 44>>stream
BT /F1 18 Tf 10 50 Td (text of the page) Tj ET
endstream endobj
5 0 obj<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>endobj
trailer<</Root 1 0 R>>
"""
NOTEBOOK = {
    "nbformat": 4,
    "nbformat_minor": 5,
    "metadata": {},
    "cells": [
        {"cell_type": "markdown", "metadata": {}, "source": "# Title of the notebook"},
        {
            "cell_type": "code",
            "metadata": {},
            "execution_count": 7,
            "source": "train()",
            "outputs": [{"output_type": "stream", "name": "stdout", "text": "loss 0.5\n"}],
        },
    ],
}
MARKDOWN = "# Read me\n\n<script>alert(1)</script> [site](javascript:alert(1)) ![logo](x.png)\n"
# For this text, the Markdown parser takes quadratic time, which is minutes.
HOSTILE_MARKDOWN = b"*a_ " * 50_000
PREVIEWS: dict[str, bytes] = {
    "broken.png": b"no image",
    "code.py": b"import os\r\nprint(1)\r\n",
    "data.csv": b'name,score\r\n"Doe, Jane",7\r\n',
    "doc.pdf": PDF,
    "hostile.md": HOSTILE_MARKDOWN,
    "model.bin": bytes(range(256)),
    "notes.md": MARKDOWN.encode(),
    "pixel.png": png(),
    "train.ipynb": json.dumps(NOTEBOOK).encode(),
}


def write(rest: httpx.Client, folder: str, name: str, content: bytes) -> None:
    path = f"/vfolders/{folder}/content"
    checked(rest.put(path, params={"path": name}, content=content), 200)


def read(rest: httpx.Client, folder: str, name: str) -> bytes:
    return rest.get(f"/vfolders/{folder}/content", params={"path": name}).content


@pytest.mark.checklist("EXP-03", "EXP-06")
async def test_files_are_previewed(opened: Opener[Explorer], rest: httpx.Client) -> None:
    folder = create(rest, PREFIX)
    for name, content in PREVIEWS.items():
        write(rest, folder, name, content)
    ui = await opened(Explorer, "user2", f"/data?folder={folder}")

    await ui.show("pixel.png")
    await ui.dialog.get_by_text(f"{len(PREVIEWS['pixel.png'])} B", exact=True).wait_for()
    image = ui.dialog.get_by_role("img", name="pixel.png")
    assert await image.evaluate("image => image.decode().then(() => image.naturalWidth)") == 1
    await ui.show("broken.png")
    await ui.dialog.get_by_text("cannot show this image").wait_for()

    await ui.show("doc.pdf")
    page = ui.dialog.get_by_role("figure", name="Page 1 of 2")
    await page.get_by_text("text of the page").wait_for()
    broken = ui.dialog.get_by_role("figure", name="Page 2 of 2")
    await broken.scroll_into_view_if_needed()
    await broken.get_by_text("damaged or protected").wait_for()

    await ui.show("data.csv")
    await ui.dialog.get_by_role("cell", name="Doe, Jane").wait_for()
    await ui.dialog.get_by_role("columnheader", name="score").wait_for()

    await ui.show("notes.md")
    await ui.dialog.get_by_role("heading", name="Read me").wait_for()
    assert await ui.dialog.locator("script, img, a[href^=javascript]").count() == 0
    # The preview shows the edited text before it is saved.
    await ui.dialog.get_by_text("Text", exact=True).click()
    await ui.type_at_the_start("# Draft")
    await ui.dialog.get_by_text("Preview", exact=True).click()
    await ui.dialog.get_by_role("heading", name="Draft").wait_for()
    await ui.page.keyboard.press("Escape")
    await ui.page.get_by_role("button", name="Discard").click()
    await ui.page.wait_for_function("() => !location.search.includes('file=')")

    # A worker parses the text while the page stays usable; the deadline ends the worker.
    await ui.show("hostile.md")
    await ui.dialog.get_by_text("too complex for a preview").wait_for()

    await ui.show("train.ipynb")
    await ui.dialog.get_by_role("heading", name="Title of the notebook").wait_for()
    assert "loss 0.5" in await ui.dialog.locator(".bai-cell").inner_text()

    await ui.show("model.bin")
    await ui.dialog.get_by_text("not text").wait_for()
    assert ui.page.url.endswith("file=model.bin")
    await ui.page.reload()
    await ui.dialog.get_by_text("not text").wait_for()


@pytest.mark.checklist("EXP-05", "EXP-06")
async def test_text_is_edited_and_conflicts_are_detected(
    opened: Opener[Explorer], rest: httpx.Client
) -> None:
    folder = create(rest, PREFIX)
    write(rest, folder, "code.py", PREVIEWS["code.py"])
    ui = await opened(Explorer, "user2", f"/data?folder={folder}")
    await ui.show("code.py")
    await ui.editor.locator(".tok-keyword", has_text="import").wait_for()
    await ui.type_at_the_start("# first")
    await ui.dialog.get_by_role("button", name="Save", exact=True).click()
    await ui.page.get_by_text("Saved").wait_for()
    # The line separators are unchanged.
    assert read(rest, folder, "code.py") == b"# first\r\nimport os\r\nprint(1)\r\n"

    write(rest, folder, "code.py", b"of another\n")
    await ui.type_at_the_start("# second")
    await ui.dialog.get_by_role("button", name="Save", exact=True).click()
    await ui.dialog.get_by_text("changed by another user").wait_for()
    assert read(rest, folder, "code.py") == b"of another\n"
    async with ui.page.expect_response(lambda response: response.request.method == "PUT"):
        await ui.dialog.get_by_role("button", name="Overwrite it").click()
    await ui.dialog.get_by_text("changed by another user").wait_for(state="detached")
    assert read(rest, folder, "code.py").startswith(b"# second\r\n# first\r\n")

    await ui.type_at_the_start("# third")
    await ui.page.keyboard.press("Escape")
    await ui.page.get_by_role("button", name="Discard").click()
    await ui.editor.wait_for(state="detached")

    await ui.page.get_by_role("button", name="New file").click()
    await ui.dialog.get_by_label("Name").fill("code.py")
    await ui.dialog.get_by_role("button", name="Save").click()
    await ui.dialog.get_by_text("exists").wait_for()
    await ui.dialog.get_by_label("Name").fill("config.yaml")
    await ui.dialog.get_by_role("button", name="Save").click()
    await ui.editor.wait_for()
    await ui.type_at_the_start("key: value")
    await ui.page.keyboard.press("Control+End")
    await ui.dialog.get_by_role("button", name="Save", exact=True).click()
    await ui.dialog.get_by_role("button", name="Save", exact=True, disabled=True).wait_for()
    assert read(rest, folder, "config.yaml") == b"key: value\n"


@pytest.mark.checklist("EXP-04", "EXP-08", "EXP-09", "EXP-10")
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
    guest = await opened(Explorer, "user", LIST)
    await accept(guest)
    await guest.page.get_by_role("link", name=PREFIX, exact=True).click()
    await guest.row("0000").wait_for()
    upload = guest.page.get_by_role("button", name="Upload files", disabled=True)
    await upload.hover(force=True)
    await guest.page.get_by_role("tooltip", name="You may only read this folder.").wait_for()
    assert await guest.page.get_by_role("button", name="New directory").count() == 0
    await guest.open("/data?folder=missing")
    await guest.page.get_by_role("alert").get_by_role("button", name="Try again").wait_for()
    await guest.page.get_by_role("link", name="Back to the list of folders").click()
    await guest.page.get_by_role("tab", name="Trash").wait_for()


@pytest.mark.checklist("EXP-04", "SHARE-07")
async def test_upload_needs_the_permission_on_the_storage_host(
    opened: Opener[Explorer], hub: RunningHub
) -> None:
    """Neither the domain nor the keypair policy of the account grants uploads."""
    name = f"webui-{secrets.token_hex(4)}"
    granted = {"local": ["create-vfolder", "delete-vfolder"]}
    account = {"username": name, "email": f"{name}@example.com", "password": hub.password}
    admin = hub.rest("admin")
    try:
        for kind in ("domains", "keypair-policies"):
            body = {"name": name, "allowed_vfolder_hosts": granted}
            checked(admin.post(f"/{kind}", json=body), 201)
        account |= {"domain": name, "keypair_policy": name}
        checked(admin.post("/users", json=account), 201)
        folder = create(hub.rest(name), PREFIX)
        ui = await opened(Explorer, name, f"/data?folder={folder}")
        upload = ui.page.get_by_role("button", name="Upload files", disabled=True)
        await upload.hover(force=True)
        await ui.page.get_by_text("You may not upload files to storage host local").wait_for()
        await ui.page.get_by_role("button", name="New directory").wait_for()
        hub.rest(name).delete(f"/vfolders/{folder}")
    finally:
        admin.delete(f"/users/{name}")
        # Deactivated, not deleted: records of the deleted account still refer to the domain.
        admin.patch(f"/domains/{name}", json={"is_active": False})
