# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""Notifications: the list, the settings, and webhooks of administrators."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub
from tests.testbed.wait import wait_until_async

from .conftest import Opener
from .entities_page import Entities
from .pages import WAIT_MILLIS

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("user2") as client:
        yield client


async def test_notification_is_shown_and_its_channels_are_chosen(
    opened: Opener[Any], admin: httpx.Client, rest: httpx.Client
) -> None:
    title = f"News {secrets.token_hex(3)}"
    announcement = checked(admin.post("/announcements", json={"title": title}), 201)
    try:
        ui = await opened(Entities, "user2", "/notifications")
        row = ui.page.get_by_role("row").filter(has_text=title)
        await row.wait_for()
        # On a phone, the text does not shrink to the width of a letter.
        size = ui.page.viewport_size
        assert size is not None
        await ui.page.set_viewport_size({"width": 390, "height": 844})
        text = await row.get_by_text(title).bounding_box()
        assert text is not None
        assert text["width"] >= 200
        await ui.page.set_viewport_size(size)
        # The bell shows the number of unread notifications, and lists them. More of them can arrive
        # at any time, for example for sessions of other tests.

        async def shows_number() -> bool:
            unread = checked(rest.get("/notifications?is_read=false"), 200)["total"]
            button = ui.page.get_by_role("button", name=f"Notifications, {unread} unread")
            return await button.count() == 1

        await wait_until_async(shows_number, WAIT_MILLIS / 1000, "the number in the bell")
        await ui.page.get_by_role("button", name=re.compile("^Notifications, .* unread$")).click()
        bell = ui.page.get_by_role("dialog").filter(has_text="All notifications")
        await bell.get_by_text(title).wait_for()
        await ui.page.keyboard.press("Escape")
        await bell.wait_for(state="hidden")
        await row.get_by_role("button", name="Mark as read").click()
        await row.get_by_text("yes", exact=True).wait_for()

        await ui.page.get_by_role("link", name="Choose notifications").click()
        mail = ui.page.get_by_role("checkbox", name="Announcement: Mail")
        settings = checked(rest.get("/notification-settings"), 200)
        assert await mail.is_disabled() == (settings["mail_address"] == "")
        box = ui.page.get_by_role("checkbox", name="Announcement: Webhook")
        await box.click()
        await ui.page.get_by_text("Saved", exact=True).first.wait_for()
        events = checked(rest.get("/notification-events?name=announcement"), 200)["items"]
        assert events[0]["channels"] == ["web", "webhook"]
    finally:
        admin.delete(f"/announcements/{announcement['id']}")
        rest.patch("/notification-settings", json={"channels": {"announcement": ["web"]}})


async def test_webhook_is_created_and_tested(opened: Opener[Any], admin: httpx.Client) -> None:
    name = f"hook-{secrets.token_hex(3)}"
    ui = await opened(Entities, "admin", "/webhooks")
    try:
        await ui.page.get_by_role("button", name="New webhook").click()
        await ui.fill(URL="http://10.1.2.3/hook", Name=name)
        await ui.choose("Scope", "The whole installation")
        await ui.choose("Events", "Session is running")
        await ui.save()
        await ui.drawer.get_by_text("the address is not public").last.wait_for()
        await ui.fill(URL="https://name.invalid/hook?token=tok3n-9f")
        await ui.save()
        await ui.page.get_by_text("This secret is shown only once").wait_for()
        await ui.page.get_by_role("button", name="OK", exact=True).click()
        await ui.show(name)
        await ui.drawer.get_by_role("button", name="Send test message").click()
        await ui.page.get_by_text("cannot be resolved").first.wait_for()
        assert "tok3n-9f" not in await ui.page.content()
    finally:
        for hook in admin.get("/webhooks", params={"name": name}).json()["items"]:
            admin.delete(f"/webhooks/{hook['id']}")
