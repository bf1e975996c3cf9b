"""Resize a running session in its drawer; approve and cancel a reservation on its page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.e2e.sessions import checked, stop, wait_for
from tests.hub import RunningHub

from .conftest import Opener
from .pages import Sessions

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


async def test_running_session_is_resized_in_its_drawer(
    hub: RunningHub, opened: Opener[Sessions]
) -> None:
    with hub.rest("user2") as rest:
        body = {
            "name": "drawer-size",
            "project": "default",
            "type": "batch",
            "startup_command": "sleep 300",
            "resources": {"cpu": "1", "mem": "512m"},
        }
        session = checked(rest.post("/sessions", json=body), 201)
        wait_for(rest, session["id"], "RUNNING")
        ui = await opened(Sessions, "user2", "/sessions")
        await ui.show("drawer-size")
        await ui.press("More")
        await ui.page.get_by_role("menuitem", name="Resize").click()
        dialog = ui.page.get_by_role("dialog", name="Resize drawer-size")
        await dialog.get_by_label("Memory").fill("1m")
        await dialog.get_by_role("button", name="Resize").click()
        await dialog.get_by_role("alert").wait_for()
        await dialog.get_by_label("Memory").fill("768m")
        await dialog.get_by_role("button", name="Resize").click()
        await dialog.wait_for(state="hidden")
        await ui.fact("Resources").get_by_text("768").first.wait_for()
        stop(rest, session["id"])


async def test_reservation_is_approved_and_shown_in_the_calendar(
    hub: RunningHub, opened: Opener[Sessions]
) -> None:
    start = datetime.now(UTC) + timedelta(days=3)
    body = {
        "name": "e2e-course",
        "project": "default",
        "resource_group": "default",
        "resources": {"cpu": 1},
        "starts_at": start.isoformat(),
        "ends_at": (start + timedelta(hours=8)).isoformat(),
    }
    with hub.rest("user2") as rest:
        made = checked(rest.post("/reservations", json=body), 201)
        assert made["state"] == "requested"
        try:
            ui = await opened(Sessions, "domain-admin", "/reservations")
            await ui.press("e2e-course")
            await ui.drawer.get_by_role("button", name="Approve").click()
            await ui.page.get_by_text("The reservation is approved.").wait_for()
            calendar = ui.page.get_by_role("figure", name="Calendar")
            await calendar.get_by_label("e2e-course (default) · approved").wait_for()
            await ui.drawer.get_by_role("button", name="Cancel the reservation").click()
            question = ui.page.locator(".ant-popconfirm")
            await question.get_by_role("button", name="Cancel the reservation").click()
            await ui.page.get_by_text("The reservation is cancelled.").wait_for()
        finally:
            cancel(rest, made["id"])


def cancel(rest: httpx.Client, reservation: str) -> None:
    """Cancel a reservation; if it is already cancelled, do nothing."""
    rest.patch(f"/reservations/{reservation}", json={"state": "cancelled"})
