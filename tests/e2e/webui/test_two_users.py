"""Web UI: two users in one folder and in one queue see each other's changes without a reload."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.sessions import JSON, checked, stop, wait_for
from tests.hub import RunningHub, running_session

from .conftest import Opener
from .data_page import Explorer
from .home_page import Dashboard
from .pages import Sessions
from .test_data_page import create, text_file, write

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def remove_file(rest: httpx.Client, folder: str, path: str) -> None:
    checked(rest.delete(f"/vfolders/{folder}/content", params={"path": path}), 204)


def set_permission(rest: httpx.Client, folder: str, permission: str) -> None:
    body = {"permission": permission}
    checked(rest.put(f"/vfolders/{folder}/grants/user", json=body), 200)


def trash(rest: httpx.Client, folder: str) -> None:
    checked(rest.delete(f"/vfolders/{folder}"), 204)


def create_session(rest: httpx.Client, name: str, gpus: str) -> JSON:
    body = {"name": name, "resources": {"cuda.shares": gpus}}
    return dict(checked(rest.post("/sessions", json=body), 201))


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("user2") as client:
        yield client


@pytest.fixture
def shared(rest: httpx.Client, hub: RunningHub) -> Iterator[str]:
    """The id of a folder of ``user2`` to which ``user`` may write."""
    folder = create(rest, f"two-{secrets.token_hex(3)}")
    set_permission(rest, folder, "rw")
    with hub.rest("user") as guest:
        (invitation,) = (
            one
            for one in checked(guest.get("/vfolder-invitations"), 200)["items"]
            if one["vfolder_id"] == folder
        )
        checked(guest.post(f"/vfolder-invitations/{invitation['id']}/accept"), 200)
    yield folder
    rest.delete(f"/vfolders/{folder}")
    rest.post(f"/vfolders/{folder}/purge")


async def test_two_users_of_a_folder_see_each_others_changes(
    opened: Opener[Explorer], rest: httpx.Client, shared: str
) -> None:
    owner = await opened(Explorer, "user2", f"/data?folder={shared}")
    guest = await opened(Explorer, "user", f"/data?folder={shared}")
    await guest.page.get_by_text("Entries: 0").wait_for()
    await owner.upload(text_file("notes.txt", "of the owner\n"), text_file("old.txt", "x"))
    await guest.row("notes.txt").wait_for()
    await guest.choose("old.txt", "Rename or move")
    await guest.dialog.get_by_label("Path in the folder").fill("new.txt")
    await guest.answer("Save")
    await owner.row("new.txt").wait_for()
    await owner.row("new.txt").get_by_role("checkbox").check()
    await owner.page.get_by_role("button", name="Delete (1)").click()
    await owner.answer("Delete")
    await guest.row("new.txt").wait_for(state="detached")

    await guest.show("notes.txt")
    await guest.editor.get_by_text("of the owner").wait_for()
    await owner.show("notes.txt")
    await owner.type_at_the_start("# edited")
    await owner.dialog.get_by_role("button", name="Save", exact=True).click()
    notice = guest.dialog.get_by_text("changed by another user")
    await notice.wait_for()
    # The user who made the change gets no notice.
    assert await owner.dialog.get_by_text("changed by another user").count() == 0
    await guest.dialog.get_by_role("button", name="Load the new version").click()
    await guest.editor.get_by_text("# edited").wait_for()
    await notice.wait_for(state="detached")
    remove_file(rest, shared, "notes.txt")
    await guest.dialog.get_by_text("has deleted or renamed this file").wait_for()


async def test_unsaved_changes_remain_until_the_user_discards_them(
    opened: Opener[Explorer], rest: httpx.Client, shared: str
) -> None:
    write(rest, shared, "notes.txt", b"first\n")
    guest = await opened(Explorer, "user", f"/data?folder={shared}")
    await guest.show("notes.txt")
    await guest.editor.get_by_text("first").wait_for()
    await guest.type_at_the_start("# draft")
    await guest.editor.get_by_text("# draft").wait_for()
    write(rest, shared, "notes.txt", b"again\n")
    await guest.dialog.get_by_text("changed by another user").wait_for()
    await guest.editor.get_by_text("# draft").wait_for()
    await guest.dialog.get_by_role("button", name="Discard my text and reload").click()
    await guest.editor.get_by_text("again").wait_for()


async def test_open_folder_page_follows_permission_changes_and_trashing(
    opened: Opener[Explorer], rest: httpx.Client, hub: RunningHub, shared: str
) -> None:
    guest = await opened(Explorer, "user", f"/data?folder={shared}")
    await guest.page.get_by_role("button", name="Upload files", disabled=False).wait_for()
    set_permission(rest, shared, "ro")
    await guest.page.get_by_role("button", name="Upload files", disabled=True).wait_for()
    trash(rest, shared)
    await guest.page.get_by_role("alert").get_by_text("there is no folder").wait_for()

    # The same happens in a folder of a project, which members can open without a grant.
    admin = hub.rest("domain-admin")
    team = create(admin, f"team-{secrets.token_hex(3)}", project="default")
    try:
        await guest.open(f"/data?folder={team}")
        await guest.page.get_by_role("button", name="Upload files", disabled=False).wait_for()
        checked(admin.patch(f"/vfolders/{team}", json={"permission": "ro"}), 200)
        await guest.page.get_by_role("button", name="Upload files", disabled=True).wait_for()
        trash(admin, team)
        await guest.page.get_by_role("alert").get_by_text("there is no folder").wait_for()
        await guest.page.get_by_role("button", name="Try again").wait_for()
        checked(admin.post(f"/vfolders/{team}/restore"), 200)
        await guest.page.get_by_role("button", name="Upload files", disabled=True).wait_for()
    finally:
        admin.delete(f"/vfolders/{team}")
        admin.post(f"/vfolders/{team}/purge")


async def test_position_changes_when_another_user_stops_a_session(
    opened: Opener[Dashboard], rest: httpx.Client, hub: RunningHub
) -> None:
    other = hub.rest("user")
    free = other.get("/sessions/options").json()["limits"]["cuda.shares"]["now"]
    running = running_session(hub, "user", resources={"cuda.shares": free})
    name = f"queue-{secrets.token_hex(3)}"
    ahead = create_session(other, name, free)
    behind = create_session(rest, name, "0.5")
    try:
        waiting = await opened(Dashboard, "user2", "/dashboard")
        card = waiting.card("My queue positions")
        await card.get_by_text("Position 2 in resource group default (all users)").wait_for()
        stopping = await opened(Sessions, "user", f"/sessions?session={ahead['id']}")
        await stopping.drawer.get_by_role("button", name="Cancel").click()
        await stopping.page.locator(".ant-modal-confirm .ant-btn-dangerous").click()
        await card.get_by_text("Position 1 in resource group default (all users)").wait_for()
        reason = wait_for(rest, behind["id"], "PENDING")["status_info"]
        await card.get_by_text(reason, exact=True).wait_for()
        stop(other, running["id"])
        await card.get_by_text(name).wait_for(state="detached")
    finally:
        for client, session in ((other, ahead), (rest, behind), (other, running)):
            stop(client, session["id"])
