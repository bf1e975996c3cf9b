# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""List of sessions: limits, tabs, filters, columns, status, stopping, CSV; the agent summary."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from bai_services.core.sessions.lifecycle import Status
from tests.e2e.sessions import checked, stop, wait_for
from tests.hub import RunningHub, running_session

from .conftest import Opener
from .pages import Sessions
from .test_every_page import NARROW

if TYPE_CHECKING:
    from playwright.async_api import Locator, Route

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

# The English text of each status.
STATUSES = {
    Status.PENDING: "Pending",
    Status.SCHEDULED: "Scheduled",
    Status.PREPARING: "Preparing",
    Status.PREPARED: "Prepared",
    Status.RUNNING: "Running",
    Status.SUSPENDED: "Suspended",
    Status.TERMINATING: "Stopping",
    Status.TERMINATED: "Ended",
    Status.CANCELLED: "Cancelled",
    Status.ERROR: "Failed",
}


class SessionList(Sessions):
    """The list with its toolbar."""

    def tab(self, label: str) -> Locator:
        return self.page.get_by_role("tab", name=label, exact=True)

    async def filter_text(self, title: str, text: str) -> None:
        await self.choose_property(title)
        await self.page.get_by_placeholder("Contains").fill(text)
        await self.page.get_by_placeholder("Contains").press("Enter")

    async def choose_property(self, title: str) -> None:
        await self.page.get_by_label("Property").click()
        options = self.page.locator(".ant-select-dropdown:not(.ant-select-dropdown-hidden)")
        await options.get_by_text(title, exact=True).click()

    async def choose_columns(self, *titles: str) -> None:
        await self.page.get_by_role("button", name="Columns").click()
        dialog = self.page.get_by_role("dialog", name="Columns")
        for title in titles:
            await dialog.get_by_role("checkbox", name=title, exact=True).check()
        await dialog.get_by_role("button", name="Close", exact=True).click()
        await dialog.wait_for(state="hidden")

    def header(self, title: str) -> Locator:
        return self.page.get_by_role("columnheader", name=title, exact=True)


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    """REST client of ``user2``; stop all sessions of ``user2`` at the end."""
    with hub.rest("user2") as client:
        yield client
        for session in checked(client.get("/sessions", params={"limit": "500"}), 200)["items"]:
            if session["status"] not in ("TERMINATED", "CANCELLED", "ERROR"):
                client.delete(f"/sessions/{session['id']}", params={"force": "true"})
                wait_for(client, session["id"], "TERMINATED", "CANCELLED")


def create_pending(rest: httpx.Client, *names: str, **fields: Any) -> list[str]:
    """Create batch sessions that cannot start before tomorrow; return their ids."""
    body = {
        "project": "default",
        "type": "batch",
        "startup_command": "true",
        "starts_at": (datetime.now(UTC) + timedelta(days=1)).isoformat(),
        "resources": {"cpu": "1", "mem": "1g"},
        **fields,
    }
    sessions = [{"name": name, **body} for name in names]
    items = checked(rest.post("/bulk-sessions", json={"sessions": sessions}), 201)["items"]
    return [item["id"] for item in items]


@pytest.mark.checklist("SES-01")
async def test_panel_shows_limits_usage_and_free_resources(
    opened: Opener[SessionList], rest: httpx.Client
) -> None:
    ui = await opened(SessionList, "user2", "/sessions")
    quotas = checked(rest.get("/sessions/quotas"), 200)
    sessions = next(
        slot
        for scope in quotas["scopes"]
        for slot in scope["slots"]
        if slot["slot"] == "sessions" and slot["is_limiting"]
    )
    panel = ui.page.get_by_role("region", name="My total limit")
    await panel.get_by_text(f"{sessions['used']} of {sessions['limit']} used").wait_for()
    await panel.get_by_text("Free", exact=True).click()
    await panel.get_by_text(f"{sessions['left']} of {sessions['limit']} free").wait_for()
    for title, amounts in (
        ("My resources in the group", quotas["mine"]),
        ("Resource group", quotas["resources"]),
    ):
        await ui.page.get_by_role("button", name="Choose what is shown").click()
        await ui.page.get_by_role("menuitem", name=title, exact=True).click()
        panel = ui.page.get_by_role("region", name=title, exact=True)
        cpu = next(one for one in amounts if one["slot"] == "cpu")
        text = panel.get_by_text(f"{cpu['free']} of {cpu['total']} free", exact=True).first
        await text.wait_for()
    await ui.page.reload()
    # The browser has stored the choice.
    await text.wait_for()
    async with ui.page.expect_response("**/sessions/quotas*"):
        await panel.get_by_role("button", name="Refresh: Resource group").click()
    await ui.page.locator("#content").get_by_role("link", name="New session").first.click()
    await ui.page.wait_for_url("**/launch**")


@pytest.mark.checklist("SES-02")
async def test_tabs_count_the_sessions_of_each_type(
    opened: Opener[SessionList], rest: httpx.Client
) -> None:
    """There are only two types: interactive and batch. The API rejects any other type."""
    name = secrets.token_hex(3)
    (batch,) = create_pending(rest, f"{name}-batch")
    body = {"name": f"{name}-interactive", "project": "default", "dependencies": [batch]}
    checked(rest.post("/sessions", json=body), 201)
    refused = rest.post("/sessions", json={"name": f"{name}-x", "type": "inference"})
    assert "types: interactive, batch" in refused.json()["message"]
    ui = await opened(SessionList, "user2", f"/sessions?name={name}")
    await ui.tab("All (2)").wait_for()
    await ui.tab("Pending (2)").wait_for()
    await ui.tab("Ended (0)").wait_for()
    for kind in ("interactive", "batch"):
        await ui.tab(f"{kind.title()} (1)").click()
        await ui.row(f"{name}-{kind}").wait_for()
        await ui.page.get_by_text("1–1 of 1", exact=True).wait_for()


@pytest.mark.checklist("SES-04", "SES-05", "SES-12", "SHELL-16")
async def test_administrators_filter_choose_columns_and_export(
    opened: Opener[SessionList], rest: httpx.Client
) -> None:
    name = secrets.token_hex(3)
    names = [f"{name}-{number:02}" for number in range(11)]
    resources = {"cpu": "1", "mem": "1g", "cuda.shares": "0.5"}
    session_id, *_ = create_pending(rest, *names, resources=resources)
    priority = checked(rest.get(f"/sessions/{session_id}"), 200)["priority"]
    ui = await opened(SessionList, "admin", f"/sessions?name={name}")
    page = ui.page
    default = ("Name", "Status", "Accelerators", "CPU", "Memory", "Time", "Agent", "Owner")
    for title in default:
        await ui.header(title).wait_for()
    row = ui.row(names[-1])
    for text in ("Pending", "cuda.shares 0.5", "1 GiB", "user2@example.com"):
        await row.get_by_text(text).first.wait_for()
    # On a phone, rows are cards, without the titles of empty values: no agent has the session.
    await page.set_viewport_size(NARROW)
    await row.locator("td[data-title=Owner]").wait_for()
    assert await row.locator("td[data-title=Agent]").is_hidden()
    await page.set_viewport_size({"width": 1280, "height": 720})
    optional = (
        ("Image", "Resource group", "Cluster", "Created", "Dependencies"),
        ("Project", "Result", "Priority", "Ended"),
    )
    for titles in optional:
        await ui.choose_columns(*titles)
        for title in titles:
            await ui.header(title).wait_for()
    await page.get_by_role("button", name="Columns").click()
    dialog = page.get_by_role("dialog", name="Columns")
    await dialog.get_by_placeholder("Find a column").fill("name")
    # The first column cannot be hidden.
    assert await dialog.get_by_role("checkbox").count() == 1
    assert await dialog.get_by_role("checkbox", name="Name").is_disabled()
    await dialog.get_by_role("button", name="Close", exact=True).click()

    await page.locator(".ant-pagination-options .ant-select").click()
    await page.locator(".ant-select-item-option", has_text="10 / page").click()
    await page.get_by_text("1–10 of 11", exact=True).wait_for()
    await page.get_by_title("Next Page").click()
    await page.get_by_text("11–11 of 11", exact=True).wait_for()
    await ui.header("Name").click()
    await page.wait_for_url("**sort=name**")
    await page.get_by_text("1–10 of 11", exact=True).wait_for()
    await page.get_by_title("Next Page").click()
    await ui.row(names[-1]).wait_for()
    # Setting a filter returns to the first page.
    await ui.choose_property("Cluster mode")
    await page.get_by_role("combobox", name="Cluster mode", exact=True).click()
    await page.locator(".ant-select-item-option", has_text="Single node").last.click()
    await page.get_by_text("1–10 of 11", exact=True).wait_for()
    assert "page=2" not in page.url
    for title, text in (
        ("Owner", "user2"),
        ("Domain", "default"),
        ("Project", "default"),
        ("Resource group", "default"),
        ("Priority", str(priority)),
    ):
        await ui.filter_text(title, text)
        await page.locator(".ant-tag", has_text=f"{title}: {text}").wait_for()
    await page.get_by_text("1–10 of 11", exact=True).wait_for()
    await ui.choose_property("Created since")
    await page.get_by_role("textbox", name="Created since").click()
    await page.get_by_text("Today", exact=True).click()
    await page.locator(".ant-tag", has_text="Created since").wait_for()

    await page.get_by_role("button", name="Download as CSV under another name").click()
    file_name = f"{'x' * 251}.csv"
    await page.get_by_label("File name").fill(file_name + "too long")
    async with page.expect_download() as started:
        await page.get_by_role("link", name="Download", exact=True).click()
    download = await started.value
    assert download.suggested_filename == file_name
    lines = (await download.path()).read_text("utf-8-sig").splitlines()
    assert sum(line.partition(",")[2].startswith(name) for line in lines) == 11
    await ui.filter_text("Agent", "nowhere")
    await page.get_by_text("No session matches").wait_for()
    await page.get_by_role("button", name="Remove all filters").click()
    await ui.row(names[0]).wait_for()
    for title in ("ID", "Result", "Ended since", "Ended before", "Created before"):
        await ui.choose_property(title)
    # The browser has stored the page size for the next list.
    await ui.open(f"/sessions?name={name}")
    await page.get_by_text("1–10 of 11", exact=True).wait_for()


@pytest.mark.checklist("SES-07", "SES-13")
async def test_every_status_is_shown_with_its_reason(
    opened: Opener[SessionList], rest: httpx.Client
) -> None:
    name = f"s-{secrets.token_hex(3)}"
    create_pending(rest, name)
    ui = await opened(SessionList, "user2", f"/sessions?name={name}")
    await ui.row(name).get_by_role("button", name=f"Reason of the status of {name}").click()
    await ui.page.get_by_role("tooltip").get_by_text("does not start before").wait_for()

    shown: dict[str, Any] = {}

    async def change(route: Route) -> None:
        answer = await route.fetch()
        page = await answer.json()
        page["items"] = [{**item, **shown} for item in page["items"]]
        await route.fulfill(response=answer, json=page)

    # Change the status in the responses: a real session has most statuses too briefly to check.
    await ui.page.route("**/api/v1/sessions?*", change)
    assert set(STATUSES) == set(Status)
    cases: list[tuple[str, str, dict[str, Any]]] = [
        *((status, text, {}) for status, text in STATUSES.items()),
        (Status.PREPARING, "Pulling image", {"stage": "pull", "percent": 40}),
    ]
    for status, text, progress in cases:
        shown.update(status=status, status_info=f"because {status}", progress=progress)
        await ui.page.get_by_role("button", name="Refresh", exact=True).click()
        await ui.row(name).get_by_text(text, exact=True).wait_for()
        await ui.row(name).get_by_role("button", name="Reason of the status").hover()
        await ui.page.get_by_role("tooltip").get_by_text(f"because {status}").wait_for()
    await ui.row(name).get_by_role("progressbar").wait_for()
    await ui.page.unroute("**/api/v1/sessions?*")


@pytest.mark.checklist("SES-08", "SES-14")
async def test_selected_sessions_are_stopped_by_force_and_cannot_be_changed_afterwards(
    opened: Opener[SessionList], rest: httpx.Client
) -> None:
    from playwright.async_api import expect

    name = f"s-{secrets.token_hex(3)}"
    names = [f"{name}-1", f"{name}-2", f"{name}-3"]
    ended, *live = create_pending(rest, *names)
    stop(rest, ended)
    ui = await opened(SessionList, "user2", f"/sessions?name={name}")
    box = ui.page.get_by_role("checkbox", name=f"Select {names[0]}")
    await ui.row(names[0]).get_by_text("Cancelled").wait_for()
    assert await box.is_disabled()
    await ui.page.get_by_role("checkbox", name="Select all").check()
    await ui.page.get_by_role("button", name="Stop 2", exact=True).click()
    dialog = ui.page.get_by_role("dialog")
    listed = dialog.get_by_role("listitem")
    await expect(listed).to_have_count(2)
    assert sorted(await listed.all_inner_texts()) == names[1:]
    await dialog.get_by_role("checkbox", name="Stop by force").check()
    await dialog.get_by_text("may have to be removed manually").wait_for()
    async with ui.page.expect_request(lambda request: "force=true" in request.url):
        await dialog.get_by_role("button", name="Stop by force").click()
    for session_id in live:
        wait_for(rest, session_id, "CANCELLED")
    await ui.row(names[1]).get_by_text("Cancelled").wait_for()

    # An ended session cannot be restarted, but a new session with the same options can be created.
    await ui.show(names[1])
    await ui.drawer.get_by_role("button", name="More").click()
    items = ui.page.locator(".ant-dropdown").get_by_role("menuitem")
    await expect(items).to_have_text(["New session like this"])
    for action in ("Cancel", "Stop"):
        assert await ui.drawer.get_by_role("button", name=action).count() == 0
    for word in ("Pause", "Restart", "Resume"):
        assert await ui.page.get_by_text(word, exact=True).count() == 0
    assert rest.patch(f"/sessions/{live[0]}", json={"priority": 3}).status_code == 409


async def test_all_matching_sessions_of_several_pages_are_stopped(
    opened: Opener[SessionList], rest: httpx.Client
) -> None:
    from playwright.async_api import expect

    name = f"s-{secrets.token_hex(3)}"
    ids = create_pending(rest, *(f"{name}-{n:02}" for n in range(22)))
    ui = await opened(SessionList, "user2", f"/sessions?name={name}&size=10&sort=name")
    await ui.page.get_by_role("checkbox", name="Select all").check()
    await ui.page.get_by_role("button", name="Stop 10", exact=True).wait_for()
    await ui.page.get_by_role("button", name="Select all 22 sessions").click()
    await ui.page.get_by_role("button", name="Stop 22", exact=True).click()
    dialog = ui.page.get_by_role("dialog")
    listed = dialog.get_by_role("listitem")
    await expect(listed).to_have_text([f"{name}-{n:02}" for n in range(20)])
    await dialog.get_by_text("2 more", exact=True).wait_for()

    # A session that cannot be stopped is listed with the reason, and can be stopped again.
    failing = f"**/sessions/{ids[21]}"
    body = {"error": "conflict", "message": "its agent is busy", "details": {}}
    await ui.page.route(failing, lambda route: route.fulfill(status=409, json=body))
    await dialog.get_by_role("button", name="Stop", exact=True).click()
    await dialog.get_by_text("Could not be stopped: 1").wait_for()
    await expect(listed).to_have_text([f"{name}-21: its agent is busy"])
    await ui.page.unroute(failing)
    await dialog.get_by_role("button", name="Stop", exact=True).click()
    await dialog.wait_for(state="hidden")
    for session_id in ids:
        assert wait_for(rest, session_id, "CANCELLED")["status"] == "CANCELLED"


@pytest.mark.checklist("SES-10")
async def test_empty_list_is_refreshed_by_the_button_and_periodically(
    opened: Opener[SessionList],
) -> None:
    from playwright.async_api import expect

    ui = await opened(SessionList, "user2", "/sessions?name=no-such-session")
    message = ui.page.get_by_role("cell").filter(has_text="No session matches")
    await message.wait_for()
    columns = await ui.page.get_by_role("table").locator("thead th").count()
    assert columns > 8
    assert await message.get_attribute("colspan") == str(columns)
    async with ui.page.expect_response("**/sessions?limit=20*"):
        await ui.page.get_by_role("button", name="Refresh", exact=True).click()
    # The list is polled every 15 s.
    async with ui.page.expect_response("**/sessions?limit=20*", timeout=30_000):
        pass

    # After a reload, the list has no message before the first response.
    held = asyncio.Event()

    async def hold(route: Route) -> None:
        await held.wait()
        await route.continue_()

    await ui.page.route("**/sessions?limit=20*", hold)
    await ui.page.reload()
    cell = ui.page.locator(".bai-table tbody td")
    await ui.page.locator(".bai-table thead th", has_text="Ends in").wait_for()
    await ui.page.wait_for_function(
        "() => document.querySelector('.bai-table tbody td')?.colSpan"
        " === document.querySelectorAll('.bai-table thead th').length"
    )
    await expect(cell).to_have_text("")
    held.set()
    await expect(cell).to_contain_text("No session matches")
    await ui.page.unroute("**/sessions?limit=20*")


@pytest.mark.checklist("SHELL-14")
async def test_a_new_session_is_announced_with_its_actions(
    opened: Opener[SessionList], rest: httpx.Client, hub: RunningHub
) -> None:
    ui = await opened(SessionList, "user2", "/settings")
    await ui.page.get_by_role("button", name="Notifications").wait_for()
    session = running_session(hub, "user2")
    notice = ui.page.locator(".ant-notification-bottomRight .ant-notification-notice").filter(
        has_text=session["name"]
    )
    await notice.get_by_text("Running", exact=True).wait_for()
    await notice.hover()  # the mouse over the notice keeps it open
    link = notice.get_by_role("link", name="Open", exact=True)
    assert await link.get_attribute("href") == session["url"]
    terminal = notice.get_by_role("link", name="Terminal")
    address = await terminal.get_attribute("href")
    assert address is not None
    assert address.startswith(session["url"])
    for name, panel in (("Apps", "apps"), ("Log", "logs")):
        await notice.get_by_role("button", name=name, exact=True).click()
        await ui.page.wait_for_url(f"**panel={panel}")
        await ui.drawer.first.get_by_role("tab", name=name, selected=True).wait_for()
    await notice.get_by_role("button", name="Stop").click()
    await ui.page.locator(".ant-popconfirm .ant-btn-dangerous").click()
    wait_for(rest, session["id"], "TERMINATED")
    await notice.get_by_text("Ended", exact=True).wait_for()


async def test_a_failed_batch_session_is_announced_with_its_exit_code(
    opened: Opener[SessionList], rest: httpx.Client
) -> None:
    ui = await opened(SessionList, "user2", "/sessions")
    name = f"s-{secrets.token_hex(3)}"
    body = {"name": name, "project": "default", "type": "batch", "startup_command": "exit 3"}
    body |= {"resources": {"cpu": "1", "mem": "512m"}}
    checked(rest.post("/sessions", json=body), 201)
    failure = f"{name} failed (exit code 3)"
    await ui.page.locator(".ant-notification-notice").get_by_text(failure).wait_for()
    await ui.row(name).get_by_text("Failed", exact=True).wait_for()
    await ui.row(name).get_by_text("Exit code 3", exact=True).wait_for()
    await ui.page.keyboard.press("]")
    notices = ui.page.get_by_role("dialog").filter(has_text="Notifications")
    await notices.get_by_text(f"session {name} has failed").wait_for()


@pytest.mark.checklist("AGS-01", "AGS-02")
async def test_users_see_agents_without_controls(
    opened: Opener[SessionList], hub: RunningHub
) -> None:
    ui = await opened(SessionList, "user2", "/start")
    await ui.page.get_by_role("link", name="Agent summary").click()
    await ui.page.get_by_text("1–1 of 1", exact=True).wait_for()
    for title in ("ID", "Architecture", "Allocated", "Resource group", "Accepts sessions"):
        await ui.header(title).wait_for()
    row = ui.page.get_by_role("row").nth(1)
    with hub.rest("user2") as rest:
        (agent,) = checked(rest.get("/agent-summaries"), 200)["items"]
    for text in (agent["id"], agent["architecture"], agent["resource_group"]):
        await row.get_by_text(text, exact=True).wait_for()
    for slot in agent["slots"]:
        await row.get_by_role("progressbar", name=slot).wait_for()
    # There are no controls in the list and no links to a drawer with controls.
    assert await row.get_by_role("button").count() == 0
    assert await row.get_by_role("link").count() == 0
    assert await ui.page.get_by_role("switch").count() == 0
    assert await ui.page.get_by_role("row").get_by_role("checkbox").count() == 0

    for title in ("ID", "Resource group", "Accepts sessions"):
        await ui.header(title).click()
    await ui.page.wait_for_url("**sort=schedulable**")
    await ui.page.locator(".ant-segmented-item", has_text="Terminated").click()
    await ui.page.get_by_text("Nothing").or_(ui.page.locator(".ant-empty")).first.wait_for()
    await ui.page.locator(".ant-segmented-item", has_text="Connected").click()
    await row.get_by_text(agent["id"], exact=True).wait_for()
    await ui.choose_property("Accepts sessions")
    await ui.page.get_by_role("combobox", name="Accepts sessions", exact=True).click()
    await ui.page.locator(".ant-select-item-option", has_text="no").last.click()
    await ui.page.locator(".ant-empty").wait_for()
    await ui.page.get_by_role("button", name="Columns").click()
    await ui.page.get_by_role("dialog", name="Columns").wait_for()

    # Administrators have another page of agents instead.
    ui = await opened(SessionList, "admin", "/agent-summary")
    await ui.page.get_by_text("You may not open this page").wait_for()
