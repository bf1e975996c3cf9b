"""Web UI: the start page."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.e2e.sessions import checked, stop
from tests.hub import RunningHub, running_session

from .conftest import Opener
from .home_page import Dashboard

if TYPE_CHECKING:
    from playwright.async_api import Locator

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


class Start(Dashboard):
    """The landing page."""

    def alert(self, text: str) -> Locator:
        attention = self.page.get_by_role("region", name="Needs your attention")
        return attention.get_by_role("alert").filter(has_text=text)


@pytest.fixture
def newcomer(hub: RunningHub) -> Iterator[str]:
    """A new user, whose sessions and folders are removed after the test."""
    name = f"new-{secrets.token_hex(3)}"
    with hub.rest("admin") as admin:
        checked(
            admin.post(
                "/users",
                json={
                    "username": name,
                    "email": f"{name}@example.com",
                    "password": hub.password,
                    "projects": ["default"],
                },
            ),
            201,
        )
        yield name
        with hub.rest(name) as rest:
            for session in checked(rest.get("/sessions"), 200)["items"]:
                stop(rest, session["id"])
            for folder in checked(rest.get("/vfolders", params={"relation": "own"}), 200)["items"]:
                rest.delete(f"/vfolders/{folder['id']}")
                rest.post(f"/vfolders/{folder['id']}/purge")
        admin.delete(f"/users/{name}")


@pytest.mark.checklist("START-01", "START-02", "START-03")
async def test_cards_open_dialogs_and_the_launcher_and_can_be_reordered(
    opened: Opener[Start], newcomer: str
) -> None:
    # The window is so high that all cards are visible: the page must not scroll while a card is
    # dragged.
    ui = await opened(Start, newcomer, "/start", viewport={"width": 1280, "height": 1400})
    # Wait for the parts that load last, because they move the cards.
    await ui.page.locator(".bai-first-steps").wait_for()
    await ui.card("One click").get_by_role("button", name="Start now").wait_for()
    cards = ("New folder", "New interactive session", "New batch session", "Start from a link")
    for title in cards:
        await ui.card(title).wait_for()
    await ui.handle("Start from a link").drag_to(ui.card("New interactive session"))
    await ui.page.wait_for_function(
        "() => [...document.querySelectorAll('.bai-board h2')][1]?.textContent"
        " === 'Start from a link'"
    )
    await ui.page.reload()
    await ui.card("New folder").wait_for()
    assert (await ui.titles())[1] == "Start from a link"

    await ui.card("New folder").get_by_role("button", name="New folder", exact=True).click()
    dialog = ui.page.get_by_role("dialog")
    await dialog.get_by_label("Name").wait_for()
    assert ui.page.url.endswith("/start")
    await dialog.get_by_role("button", name="Cancel").click()
    for kind in ("interactive", "batch"):
        await ui.card(f"New {kind} session").get_by_role("link").click()
        await ui.page.locator(f"input[type=radio][value={kind}]:checked").wait_for(state="attached")
        link = ui.page.url
        await ui.page.go_back()

    await (
        ui.card("Start from a link")
        .get_by_role("button", name="Start from a link", exact=True)
        .click()
    )
    field = dialog.get_by_label("Link to the launcher")
    await field.fill("https://example.com/launch?request={}")
    await dialog.get_by_role("button", name="Open in the launcher").click()
    await dialog.get_by_text("This is not a link").wait_for()
    await field.fill(link)
    await dialog.get_by_role("button", name="Open in the launcher").click()
    await ui.page.locator("input[type=radio][value=batch]:checked").wait_for(state="attached")


async def test_a_new_user_is_guided_and_starts_the_recommended_session(
    opened: Opener[Start], newcomer: str, hub: RunningHub
) -> None:
    ui = await opened(Start, newcomer, "/start")
    steps = ui.page.locator(".bai-first-steps")
    await steps.get_by_role("button", name="New folder").click()
    dialog = ui.page.get_by_role("dialog")
    await dialog.get_by_label("Name").fill("first")
    await dialog.get_by_role("button", name="New folder").click()
    await steps.get_by_role("button", name="Start a session").wait_for()

    await ui.card("One click").get_by_role("button", name="Start now").click()
    await ui.page.wait_for_url("**/sessions?session=*")
    await ui.page.get_by_role("dialog").get_by_role("button", name="Close").click()
    await ui.page.get_by_role("link", name="Start", exact=True).first.click()
    await steps.get_by_role("link", name="Open").wait_for()
    with hub.rest(newcomer) as rest:
        (session,) = checked(rest.get("/sessions"), 200)["items"]
        stop(rest, session["id"])
    # The steps are not shown again, and the card "One click" offers the same session.
    await ui.card("One click").get_by_role("button", name="Start again").wait_for()
    await steps.wait_for(state="detached")
    await ui.card("Recent sessions").get_by_text(session["name"]).wait_for()


async def test_user_without_a_project_sees_why_no_session_can_be_started(
    opened: Opener[Start], newcomer: str, hub: RunningHub
) -> None:
    with hub.rest("admin") as admin:
        checked(admin.patch(f"/users/{newcomer}", json={"projects": []}), 200)
    ui = await opened(Start, newcomer, "/start")
    await (
        ui.page.get_by_role("alert").filter(has_text="You are not a member of a project").wait_for()
    )
    await ui.card("New folder").wait_for()
    assert await ui.titles() == ["New folder", "Recent sessions"]
    await ui.page.locator(".bai-first-steps").wait_for(state="detached")
    await ui.open("/sessions")
    await ui.page.get_by_text("You are not a member of a project").wait_for()
    content = ui.page.locator("#content")
    await content.get_by_role("button", name="New session").wait_for(state="detached")


async def test_monitor_cannot_create_a_session_like_their_own(
    opened: Opener[Start], newcomer: str, hub: RunningHub
) -> None:
    session = running_session(hub, newcomer)
    with hub.rest("admin") as admin:
        checked(admin.patch(f"/users/{newcomer}", json={"role": "monitor"}), 200)
    try:
        ui = await opened(Start, newcomer, f"/sessions?session={session['id']}")
        await ui.page.get_by_role("button", name="More").click()
        await ui.page.get_by_role("menuitem", name="Rename").wait_for()
        again = ui.page.get_by_role("menuitem", name="New session like this")
        assert await again.count() == 0
    finally:
        with hub.rest("admin") as admin:
            checked(admin.patch(f"/users/{newcomer}", json={"role": "user"}), 200)


async def test_sessions_that_stop_soon_and_full_quotas_need_attention(
    opened: Opener[Start], newcomer: str, hub: RunningHub
) -> None:
    with hub.rest("admin") as admin:
        policy = f"p-{newcomer}"
        limits = {
            "idle_timeout_seconds": 600,
            "total_resource_slots": {"cpu": "1"},
            "default_for_unspecified": "UNLIMITED",
        }
        checked(admin.post("/keypair-policies", json={"name": policy, **limits}), 201)
        (keypair,) = checked(admin.get("/keypairs", params={"user": newcomer}), 200)["items"]
        path = f"/keypairs/{keypair['access_key']}"
        checked(admin.patch(path, json={"resource_policy": policy}), 200)
    session = running_session(hub, newcomer)
    ui = await opened(Start, newcomer, "/start")
    await ui.alert("Quotas that are nearly used up").get_by_text("cpu 1 of 1, 0 left").wait_for()
    soon = ui.alert(session["name"])
    await soon.get_by_text("is stopped in").wait_for()
    await soon.get_by_role("button", name="Keep alive").click()
    await ui.page.get_by_text("The idle timeout starts again").wait_for()
    with hub.rest("admin") as admin:
        lifetime = {"max_session_lifetime_seconds": 590, "max_lifetime_extension_seconds": 3600}
        checked(admin.patch(f"/keypair-policies/{policy}", json=lifetime), 200)
    # A warning remains after a reload, until the user closes it.
    await ui.page.reload()
    warning = ui.page.locator(".ant-notification-notice").filter(
        has_text=f"{session['name']} will be stopped soon"
    )
    await warning.get_by_text("Left:").wait_for()
    # The buttons can be reached with Tab from the start of the page.
    await ui.page.get_by_role("link", name="Skip to the warnings").press("Enter")
    focused = await ui.page.evaluate("document.activeElement.closest('.ant-notification') !== null")
    assert focused
    await warning.get_by_role("button", name="Close").click()
    await warning.wait_for(state="detached")
    await ui.page.reload()
    await soon.get_by_text("reaches the end of its lifetime").wait_for()
    assert await warning.count() == 0
    await soon.get_by_role("button", name="Extend the lifetime").click()
    await ui.page.get_by_text("The lifetime is extended").wait_for()
    # The idle timeout ends the session first again.
    await soon.get_by_text("reaches the end of its lifetime").wait_for(state="detached")


async def test_no_session_can_be_started_during_read_only_maintenance(
    opened: Opener[Start], newcomer: str, hub: RunningHub
) -> None:
    from playwright.async_api import expect

    with hub.rest("admin") as admin:
        body = {"mode": "read-only", "reason": "New disks"}
        maintenance = checked(admin.post("/maintenances", json=body), 201)
        try:
            ui = await opened(Start, newcomer, "/start")
            card = ui.card("One click")
            reason = "read-only because of maintenance: no session can be created"
            await card.get_by_text(reason).wait_for()
            await expect(card.get_by_role("button", name="Start now")).to_be_disabled()
            await ui.open("/launch")
            await ui.page.locator(".bai-start-bar").get_by_text(reason).wait_for()
            start = ui.page.get_by_role("button", name="Start the session")
            await expect(start).to_be_disabled()
        finally:
            admin.delete(f"/maintenances/{maintenance['id']}")


async def test_storage_quotas_that_are_nearly_full_need_attention(
    opened: Opener[Start], newcomer: str, hub: RunningHub
) -> None:
    fill_storage(hub, newcomer)
    ui = await opened(Start, newcomer, "/start")
    full = ui.alert("Quotas that are nearly used up")
    await full.get_by_text("Storage local, My folders: 95 B of 100 B").wait_for()
    await full.get_by_role("link", name="Dashboard").click()
    await ui.card("Storage quotas").get_by_text("95 B of 100 B").wait_for()
    bar = ui.card("Storage quotas").get_by_role("progressbar", name="local")
    assert await bar.first.get_attribute("aria-valuenow") == "95"


def fill_storage(hub: RunningHub, username: str) -> None:
    """Give a user a storage quota of 100 bytes and a file that uses 95 of them."""
    with hub.rest(username) as rest, hub.rest("admin") as admin:
        folder = checked(rest.post("/vfolders", json={"name": "full"}), 201)
        content = f"/vfolders/{folder['id']}/content"
        checked(rest.put(content, params={"path": "file"}, content=b"x" * 95), 200)
        scope = f"/quota-scopes/local/user:{folder['owner_id']}"
        checked(admin.put(scope, json={"limit_bytes": 100}), 200)
        usage = f"/vfolders/{folder['id']}/usage"
        assert checked(rest.get(usage, params={"fresh": "true"}), 200)["bytes"] == 95
        quotas = checked(rest.get("/quota-scopes", params={"mine": "true"}), 200)["items"]
        # Check only the user's own quota: the quotas of the projects may include folders of other
        # tests.
        assert [quota["percent"] for quota in quotas if quota["kind"] == "user"] == [95]
