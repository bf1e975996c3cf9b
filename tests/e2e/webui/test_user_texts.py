# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""Web UI: names and texts of users and programs cannot reorder or imitate adjacent text."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.sessions import checked, stop, wait_for
from tests.hub import RunningHub

from .conftest import Opener
from .data_page import Explorer
from .entities_page import Entities
from .pages import Sessions

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

FOLDER = "webui-odd"
# Without protection, the name moc<U+202E>gpj.exe would look like "mocexe.jpg".
COMMAND = (
    rf"cd ~/{FOLDER} && touch $(printf 'moc\342\200\256gpj.exe') '<i>x' $(printf '\327\251x') "
    r"&& printf 'safe\342\200\256 line\033]0;owned\007\n' && sleep 300"
)
RIGHT_TO_LEFT = "שלום (1)"


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user2``, with a folder."""
    with hub.rest("user2") as client:
        folder = checked(client.post("/vfolders", json={"name": FOLDER}), 201)["id"]
        yield client
        client.delete(f"/vfolders/{folder}")
        client.post(f"/vfolders/{folder}/purge")


async def test_file_names_and_log_lines_cannot_imitate_other_texts(
    opened: Opener[Explorer], hub: RunningHub, rest: httpx.Client
) -> None:
    body = {"name": "odd-texts", "project": "default", "type": "batch", "startup_command": COMMAND}
    body |= {"resources": {"cpu": "1", "mem": "512m"}, "mounts": [{"vfolder": FOLDER}]}
    session = checked(rest.post("/sessions", json=body), 201)
    wait_for(rest, session["id"], "RUNNING")
    ui = await opened(Explorer, "user2", f"/sessions?session={session['id']}")
    log = Sessions(ui.page, hub).drawer.get_by_role("log")
    await log.get_by_text("safe[U+202E] line", exact=True).wait_for()
    stop(rest, session["id"])

    await ui.open("/data")
    await ui.page.get_by_role("link", name=FOLDER, exact=True).click()
    for shown in ("moc[U+202E]gpj.exe", "<i>x", "שx"):
        await ui.page.locator("bdi", has_text=shown).first.wait_for()
    # In a sentence, isolating characters surround a right-to-left name.
    await ui.page.get_by_role("checkbox", name="Select \u2068שx\u2069").wait_for()
    await ui.choose("moc[U+202E]gpj.exe", "Delete")
    question = ui.page.locator(".ant-modal-confirm-title", has_text="Delete moc[U+202E]gpj.exe?")
    await question.wait_for()
    await ui.answer("Delete")
    await ui.page.locator("bdi", has_text="[U+202E]").wait_for(state="detached")
    # The form rejects a name with U+202E.
    await ui.page.get_by_role("button", name="New directory").click()
    await ui.dialog.get_by_role("textbox").fill("moc\u202egpj")
    await ui.dialog.locator(".ant-modal-footer .ant-btn-primary").click()
    await ui.page.get_by_text("U+202E, which changes the direction of text").wait_for()


async def test_names_of_users_cannot_reorder_a_list(
    opened: Opener[Entities], hub: RunningHub
) -> None:
    ui = await opened(
        Entities, "admin", "/users?filters=%7B%22username__contains%22:%22user2%22%7D&item=user2"
    )
    await ui.drawer.get_by_role("button", name="Edit").click()
    await ui.fill(Full_name="ad\u200bmin")
    await ui.save()
    await ui.drawer.get_by_text("the invisible character U+200B at position 3").wait_for()
    try:
        await ui.fill(Full_name=RIGHT_TO_LEFT)
        await ui.save()
        await ui.page.locator(".ant-table bdi", has_text=RIGHT_TO_LEFT).wait_for()
    finally:
        with hub.rest("admin") as admin:
            checked(admin.patch("/users/user2", json={"full_name": ""}), 200)
