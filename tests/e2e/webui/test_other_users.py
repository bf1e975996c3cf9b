# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""Web UI: an administrator creates a session for another user, and later purges the user."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from tests.e2e.sessions import checked, wait_for
from tests.hub import RunningHub
from tests.testbed.wait import wait_until_async

from .conftest import Opener
from .entities_page import Entities
from .launcher_page import Launcher
from .pages import Shell

if TYPE_CHECKING:
    from playwright.async_api import Route


pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


async def show_masked(route: Route) -> None:
    """Serve the page as if the installation masked the names of users."""
    answer = await route.fetch()
    text = await answer.text()
    masked = text.replace("&quot;masksUsers&quot;: false", "&quot;masksUsers&quot;: true")
    await route.fulfill(response=answer, body=masked)


@pytest.mark.checklist("LCH-05", "SHELL-11", "SHELL-17", "USR-08")
async def test_admin_creates_a_session_for_a_user_and_purges_the_user(
    opened: Opener[Any], admin: httpx.Client, hub: RunningHub
) -> None:
    name = f"other-{secrets.token_hex(4)}"
    account = {
        "username": name,
        "email": f"{name}@example.com",
        "password": hub.password,
        "projects": ["default"],
    }
    checked(admin.post("/users", json=account), 201)

    launcher: Launcher = await opened(Launcher, "admin", "/launch")
    await launcher.page.get_by_role("switch", name="For another user").click()
    await launcher.field("owner").fill(f"{name}@")
    await launcher.page.locator(".ant-select-item-option", has_text=name).first.click()
    await launcher.fill(name=f"{name}-lab")
    await launcher.launch_without_folder()

    def sessions() -> list[dict[str, Any]]:
        return list(checked(admin.get("/sessions", params={"owner": name}), 200)["items"])

    await wait_until_async(sessions, 30, "the session")
    (session,) = sessions()
    assert session["name"] == f"{name}-lab"
    admin.delete(f"/sessions/{session['id']}", params={"force": "true"})
    wait_for(admin, session["id"], "TERMINATED", "CANCELLED")

    with hub.rest(name) as user:
        checked(user.post("/vfolders", json={"name": f"{name}-data"}), 201)
    shell: Shell = await opened(Shell, name, "/start")
    await shell.page.get_by_role("button", name=f"Account: {name}").wait_for()
    checked(admin.patch(f"/users/{name}", json={"need_password_change": True}), 200)
    bar = shell.page.get_by_role("alert").filter(has_text="change your password")
    await bar.get_by_role("link", name="Change password").wait_for()
    await shell.page.route("**/services/bai/start", show_masked)
    await shell.page.reload()
    await shell.page.get_by_role("button", name=f"Account: {name[:2]}***", exact=True).wait_for()

    checked(admin.patch(f"/users/{name}", json={"status": "inactive"}), 200)
    await shell.page.get_by_text("You are signed out").wait_for()

    def may_be_purged() -> bool:
        # Probe with a purge that cannot succeed. It returns 409 during the sign-out, and then 404,
        # because the new owner does not exist.
        body = {"new_owner": "nobody"}
        return admin.post(f"/users/{name}/purge", json=body).status_code == HTTPStatus.NOT_FOUND

    await wait_until_async(may_be_purged, 60, "the end of the sign-out")
    users: Entities = await opened(
        Entities, "admin", f"/users?filters=%7B%22username__contains%22:%22{name}%22%7D"
    )
    await users.show(name)
    await users.drawer.get_by_role("button", name="Purge").click()
    dialog = users.page.get_by_role("dialog", name=f"Purge {name}?")
    confirm = dialog.get_by_role("button", name="Purge")
    assert await confirm.is_disabled()

    await dialog.get_by_label(f"Type “{name}” to confirm").fill(name)
    await confirm.click()
    await users.row(name).wait_for(state="detached")
    # The drawer of the user closes.
    await users.drawer.wait_for(state="detached")
    folders = checked(admin.get("/vfolders", params={"name": f"{name}-data"}), 200)["items"]
    assert [folder["owner"] for folder in folders if folder["owner"] == "admin"] == ["admin"]
    for folder in folders:
        admin.delete(f"/vfolders/{folder['id']}")
