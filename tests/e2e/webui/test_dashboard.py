"""Web UI: the dashboard and the shell around every page."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.engines import checked, wait_for
from tests.hub import RunningHub

from .conftest import Opener
from .home_page import Dashboard
from .pages import UI

if TYPE_CHECKING:
    from playwright.async_api import Route

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user``; sessions of the test are stopped."""
    with hub.rest("user") as client:
        yield client
        for session in checked(client.get("/sessions"), 200)["items"]:
            if session["name"].startswith("dashboard-") and session["status"] != "CANCELLED":
                client.delete(f"/sessions/{session['id']}", params={"force": "true"})
                wait_for(client, session["id"], "TERMINATED", "CANCELLED")


def create_pending(rest: httpx.Client, name: str) -> None:
    """Create a session that cannot start before tomorrow."""
    body = {
        "name": name,
        "project": "default",
        "type": "batch",
        "startup_command": "true",
        "starts_at": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
        "resources": {"cpu": "1", "mem": "1g"},
    }
    checked(rest.post("/sessions", json=body), 201)


def resources_of_group(rest: httpx.Client) -> list[dict[str, str]]:
    found: list[dict[str, str]] = checked(rest.get("/sessions/quotas"), 200)["resources"]
    return found


@pytest.mark.checklist("DASH-02", "DASH-03", "DASH-05")
async def test_dashboard_shows_sessions_quotas_and_resources_live(
    opened: Opener[Dashboard], rest: httpx.Client
) -> None:
    ui = await opened(Dashboard, "user", "/dashboard")
    group = ui.card("Resource group")
    total = next(one["total"] for one in resources_of_group(rest) if one["slot"] == "cpu")
    await group.get_by_text(f"of {total} free").first.wait_for()
    await ui.card("My quotas").get_by_text("Limiting", exact=True).first.wait_for()
    await ui.card("My quotas").get_by_text("User user").wait_for()

    create_pending(rest, "dashboard-live")
    for title in ("My sessions", "My queue positions"):
        await ui.card(title).get_by_role("link", name="dashboard-live").wait_for()
    await ui.card("My sessions").get_by_role("link", name="dashboard-live").click()
    await ui.page.get_by_role("dialog").get_by_text("dashboard-live").first.wait_for()


@pytest.mark.checklist("DASH-08")
async def test_failing_card_does_not_break_the_others(opened: Opener[Dashboard]) -> None:
    ui = await opened(Dashboard, "user2", "/start")

    async def fail(route: Route) -> None:
        await route.fulfill(
            status=400, json={"error": "invalid-request", "message": "no such project"}
        )

    await ui.page.route("**/sessions/quotas*", fail)
    await ui.page.get_by_role("link", name="Dashboard").click()
    await ui.card("My quotas").get_by_text("no such project").wait_for()
    await ui.card("My sessions").get_by_text("Interactive, running").wait_for()
    await ui.page.unroute("**/sessions/quotas*")
    await ui.card("My quotas").get_by_role("button", name="Try again").click()
    await ui.card("My quotas").get_by_text("User user2").wait_for()


@pytest.mark.checklist("SHELL-03", "SHELL-12", "SHELL-13")
async def test_sidebar_and_breadcrumbs(opened: Opener[Dashboard]) -> None:
    ui = await opened(Dashboard, "user2", "/dashboard")
    trail = ui.page.get_by_role("navigation", name="Breadcrumbs")
    await trail.get_by_text("Dashboard").wait_for()
    collapsed = ui.page.locator(".ant-layout-sider-collapsed")
    assert await collapsed.count() == 0
    await ui.page.keyboard.press("[")
    await collapsed.wait_for()
    await ui.page.reload()
    await collapsed.wait_for()
    await ui.page.keyboard.press("[")
    await collapsed.wait_for(state="detached")

    await ui.page.set_viewport_size({"width": 390, "height": 844})
    await ui.page.get_by_role("button", name="Menu").click()
    await ui.page.get_by_role("dialog").get_by_role("link", name="Sessions").click()
    await ui.page.wait_for_url(f"**{UI}/sessions")
    await trail.get_by_role("link", name="Start").click()
    await ui.page.wait_for_url(f"**{UI}/start")
