"""Web UI: the dashboard, the sidebar and the breadcrumbs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.e2e.sessions import checked, wait_for
from tests.hub import RunningHub
from tests.testbed.wait import wait_until_async

from .conftest import Opener
from .home_page import Dashboard
from .pages import UI

if TYPE_CHECKING:
    from playwright.async_api import Locator, Route

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

DASHBOARD = "**/api/v1/dashboard*"


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """The REST API as ``user``; sessions of the test are stopped after the test."""
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


def quotas_of(rest: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = checked(rest.get("/sessions/quotas"), 200)
    return found


async def shows_cpu(card: Locator, rest: httpx.Client, kind: str, field: str) -> None:
    """Wait until a card shows the current amount; sessions of other tests may be ending."""

    async def is_current() -> bool:
        cpu = next(one for one in quotas_of(rest)[kind] if one["slot"] == "cpu")
        text = f"{cpu[field]} of {cpu['total']} {field}"
        return await card.get_by_text(text, exact=True).first.is_visible()

    await wait_until_async(is_current, 60, f"the {field} amount of cpu")


@pytest.mark.checklist("DASH-02", "DASH-03", "DASH-04", "DASH-05", "DASH-06")
async def test_dashboard_shows_sessions_quotas_and_resources_live(
    opened: Opener[Dashboard], rest: httpx.Client
) -> None:
    ui = await opened(Dashboard, "user", "/dashboard")
    for title, kind in (("Resource group", "resources"), ("My resources in the group", "mine")):
        card = ui.card(title)
        await shows_cpu(card, rest, kind, "used")
        await card.get_by_text("Free", exact=True).click()
        await shows_cpu(card, rest, kind, "free")
        amounts = quotas_of(rest)[kind]
        # Each resource (CPU, memory and accelerators) has a bar of segments.
        assert await card.locator(".bai-segments").count() == len(amounts)
        await card.get_by_role("combobox", name="Choose a resource group").click()
        await ui.page.get_by_role("option", name="default").last.wait_for(state="attached")
        await ui.page.keyboard.press("Escape")
    await ui.card("My quotas").get_by_text("Limiting", exact=True).first.wait_for()
    await ui.card("My quotas").get_by_role("button", name="Show all").click()
    await ui.card("My quotas").get_by_text("User user").wait_for()
    await ui.card("My quotas").get_by_role("button", name="Show fewer").click()
    await ui.card("My quotas").get_by_role("button", name="Show all").wait_for()

    create_pending(rest, "dashboard-live")
    await ui.card("My queue positions").get_by_role("link", name="dashboard-live").wait_for()
    counts = ui.card("My sessions")
    await counts.get_by_role("link", name="Pending").get_by_text("1", exact=True).wait_for()
    await counts.get_by_text("Batch, running").wait_for()
    await counts.get_by_text("Starting", exact=True).wait_for()
    recent = ui.card("Recently created sessions")
    row = recent.get_by_role("row").filter(has_text="dashboard-live")
    for text in ("Pending", "1 GiB", "Batch", "default", "session:latest"):
        await row.get_by_text(text).first.wait_for()
    for column in (
        ("Name", "Status", "Accelerators", "CPU", "Memory", "Time", "Image"),
        ("Resource group", "Type", "Cluster", "Created"),
    ):
        for title in column:
            await recent.get_by_role("columnheader", name=title, exact=True).wait_for()
    await row.get_by_role("link", name="dashboard-live").click()
    await ui.page.get_by_role("dialog").get_by_text("dashboard-live").first.wait_for()


@pytest.mark.checklist("DASH-01")
async def test_widgets_are_moved_resized_explained_and_refreshed(
    opened: Opener[Dashboard],
) -> None:
    ui = await opened(Dashboard, "user2", "/dashboard", viewport={"width": 1280, "height": 1400})
    await ui.card("My quotas").wait_for()
    before = await ui.titles()
    first, second = before[:2]
    await ui.handle(second).drag_to(ui.card(first))
    await ui.page.wait_for_function(
        "title => document.querySelector('.bai-board h2')?.textContent === title", arg=second
    )
    await ui.use_menu(second, "Move forward")
    assert (await ui.titles())[:2] == [first, second]
    await ui.use_menu(first, "Move forward")

    narrow = await ui.width(first)
    await ui.use_menu(first, "Wider")
    assert await ui.width(first) > narrow * 1.5
    cell = ui.page.locator(".bai-board-cell").nth(1)
    corner = cell.locator(".bai-board-corner")
    box = await corner.bounding_box()
    assert box is not None
    await corner.hover()
    await ui.page.mouse.down()
    await ui.page.mouse.move(box["x"] - narrow, box["y"] + 240, steps=4)
    await ui.page.mouse.up()
    assert await ui.width(first) == narrow
    height = await cell.evaluate("element => element.clientHeight")
    await ui.page.reload()
    # The browser has stored the order and the sizes.
    await ui.card(first).wait_for()
    assert (await ui.titles())[:2] == [second, first]
    assert await cell.evaluate("element => element.clientHeight") == height

    await ui.page.get_by_role("button", name=f"What is shown: {first}").hover()
    await ui.page.get_by_role("tooltip").get_by_text("Your sessions by type").wait_for()
    async with ui.page.expect_response(DASHBOARD):
        await ui.page.get_by_role("button", name="Refresh: My quotas").click()
    # Without a click, one request reads the content of all widgets again every 15 seconds.
    requested: list[str] = []
    ui.page.on("request", lambda request: requested.append(urlsplit(request.url).path))
    async with ui.page.expect_response(DASHBOARD, timeout=20_000):
        pass
    cards = ("/sessions/quotas", "/quota-scopes", "/agent-totals", "/agents", "/usage-trends")
    assert [path for path in requested if path.endswith(cards)] == []
    assert len([path for path in requested if path.endswith("/dashboard")]) == 1


@pytest.mark.checklist("DASH-07")
async def test_superadmins_see_all_sessions_and_agents(
    opened: Opener[Dashboard], rest: httpx.Client
) -> None:
    create_pending(rest, "dashboard-of-user")
    ui = await opened(Dashboard, "admin", "/dashboard")
    await ui.card("Active sessions").get_by_role("link", name="Pending").wait_for()
    assert await ui.card("My sessions").count() == 0
    row = ui.card("Recently created sessions").get_by_role("row").filter(has_text="dashboard-of")
    await row.get_by_text("user", exact=True).wait_for()
    statistics = ui.card("Agent statistics")
    await statistics.get_by_text("Agents alive").wait_for()
    await statistics.get_by_role("progressbar", name="cpu").wait_for()
    agents = ui.card("Active agents")
    for title in ("Status", "Resource group", "Allocated", "Accepts sessions", "Details"):
        await agents.get_by_role("columnheader", name=title, exact=True).wait_for()
    await agents.get_by_role("progressbar", name="mem").first.wait_for()
    await agents.get_by_role("row").nth(1).get_by_role("link").click()
    # The drawer of the agent has controls.
    await ui.page.get_by_role("dialog").get_by_role("button", name="Edit").wait_for()


@pytest.mark.checklist("DASH-08")
async def test_failed_request_is_shown_and_can_be_repeated(opened: Opener[Dashboard]) -> None:
    ui = await opened(Dashboard, "user2", "/dashboard")
    await ui.card("My quotas").get_by_text("Limiting", exact=True).first.wait_for()

    async def fail(route: Route) -> None:
        await route.fulfill(
            status=400, json={"error": "invalid-request", "message": "no such project"}
        )

    await ui.page.route(DASHBOARD, fail)
    await ui.page.get_by_role("button", name="Refresh: My quotas").click()
    await ui.page.get_by_text("no such project").wait_for()
    # After the failed request, the cards keep their content.
    await ui.card("My quotas").get_by_text("Limiting", exact=True).first.wait_for()
    await ui.page.unroute(DASHBOARD)
    await ui.page.get_by_role("button", name="Try again").click()
    await ui.page.get_by_text("no such project").wait_for(state="detached")
    await ui.card("My sessions").get_by_text("Interactive, running").wait_for()


@pytest.mark.checklist("SHELL-03", "SHELL-12", "SHELL-13")
async def test_sidebar_can_be_collapsed_and_breadcrumbs_link_to_pages(
    opened: Opener[Dashboard],
) -> None:
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
