"""Web UI: permissions that end while a page is open."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .data_page import Data, Explorer
from .entities_page import Entities
from .pages import Sessions, Shell

if TYPE_CHECKING:
    from playwright.async_api import Page

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

FOLDER = "webui-withdrawn"
SECRET = "secret-file.txt"


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@pytest.fixture
def guest(hub: RunningHub, admin: httpx.Client) -> Iterator[str]:
    """A user who loses permissions during the test."""
    # The name of a deleted user cannot be used again, so each run needs another name.
    name = f"webui-guest-{secrets.token_hex(4)}"
    body = {"username": name, "email": f"{name}@example.org", "password": hub.password}
    checked(admin.post("/users", json={**body, "projects": ["default"]}), 201)
    yield name
    checked(admin.delete(f"/users/{name}"), 200, 202, 204)


async def change(admin: httpx.Client, username: str, **fields: Any) -> None:
    checked(await asyncio.to_thread(admin.patch, f"/users/{username}", json=fields), 200)


async def text_of(page: Page) -> str:
    return await page.locator("body").inner_text()


async def test_demoted_user_sees_the_403_page_and_deactivated_user_must_sign_in(
    opened: Opener[Entities], guest: str, admin: httpx.Client
) -> None:
    await change(admin, guest, role="admin")
    ui = await opened(Entities, guest, '/users?filters={"username":"user2"}')
    await ui.show("user2")
    await change(admin, guest, role="user")
    await ui.page.get_by_text("You may not open this page").wait_for()
    assert "user2" not in await text_of(ui.page)
    nav = ui.page.get_by_role("navigation", name="Pages")
    assert await nav.get_by_role("link", name="Users").count() == 0

    sessions = await opened(Sessions, guest, "/start")
    await sessions.page.get_by_role("heading", name="Welcome").wait_for()
    await change(admin, guest, status="inactive")
    for page in (ui.page, sessions.page):
        await page.get_by_text("You are signed out").wait_for()
        assert guest not in await text_of(page)
    await sessions.page.get_by_role("button", name="Sign in").click()
    await sessions.page.locator("#username_input").wait_for()


async def test_removed_member_no_longer_sees_the_project(
    opened: Opener[Shell], guest: str, admin: httpx.Client
) -> None:
    member = f"/projects/research/members/{guest}"
    checked(await asyncio.to_thread(admin.put, member), 200, 201, 204)
    ui = await opened(Shell, guest, "/sessions")
    await ui.page.get_by_role("button", name="Project: All projects").click()
    await ui.page.get_by_role("menuitem", name="research").wait_for()
    checked(await asyncio.to_thread(admin.delete, member), 200, 204)
    await ui.page.get_by_role("menuitem", name="research").wait_for(state="detached")
    assert "research" not in await text_of(ui.page)


@pytest.fixture
def owner(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user``; purge the folders of the test at the end."""
    with hub.rest("user") as client:
        yield client
        for folder in checked(client.get("/vfolders", params={"name": FOLDER}), 200)["items"]:
            client.delete(f"/vfolders/{folder['id']}")
            client.post(f"/vfolders/{folder['id']}/purge")


def shared_folder(hub: RunningHub, owner: httpx.Client, guest: str, permission: str) -> str:
    """Create a folder with a file, and give another user access to the folder."""
    folder: str = checked(owner.post("/vfolders", json={"name": FOLDER}), 201)["id"]
    path = f"/vfolders/{folder}/content"
    checked(owner.put(path, params={"path": SECRET}, content=b"a secret text"), 200)
    body = {"permission": permission}
    checked(owner.put(f"/vfolders/{folder}/grants/{guest}", json=body), 200)
    with hub.rest(guest) as rest:
        (invitation,) = checked(rest.get("/vfolder-invitations"), 200)["items"]
        checked(rest.post(f"/vfolder-invitations/{invitation['id']}/accept"), 200)
    return folder


@pytest.mark.parametrize(
    "end",
    [
        pytest.param(
            lambda rest, f, user: rest.delete(f"/vfolders/{f}/grants/{user}"), id="grant withdrawn"
        ),
        pytest.param(lambda rest, f, _: rest.delete(f"/vfolders/{f}"), id="folder trashed"),
    ],
)
async def test_withdrawn_or_deleted_folder_disappears_from_open_pages(
    opened: Opener[Any],
    hub: RunningHub,
    guest: str,
    owner: httpx.Client,
    end: Callable[[httpx.Client, str, str], httpx.Response],
) -> None:
    folder = shared_folder(hub, owner, guest, "rw")
    explorer = await opened(Explorer, guest, f"/data?folder={folder}")
    await explorer.show(SECRET)
    await explorer.editor.get_by_text("a secret text").wait_for()
    data = await opened(Data, guest, "/data?tab=shared")
    await data.row(FOLDER).wait_for()
    checked(await asyncio.to_thread(end, owner, folder, guest), 200, 202, 204)
    await data.row(FOLDER).wait_for(state="detached")
    await explorer.page.get_by_role("alert").get_by_role("button", name="Try again").wait_for()
    assert "secret" not in await text_of(explorer.page)
