"""The scheduler page: running sessions on their agents, the queue, and replays of the history."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.e2e.sessions import JSON, checked, stop, wait_for
from tests.hub import RunningHub, running_session

from .conftest import Opener
from .pages import Sessions
from .test_every_page import NARROW, violations_in_both_themes

if TYPE_CHECKING:
    from playwright.async_api import Locator

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


class Scheduler(Sessions):
    """The page `/scheduler`."""

    def bar(self, name: str) -> Locator:
        return self.page.locator(".bai-bar", has_text=name)

    async def choose(self, label: str, option: str) -> None:
        """Open a select with the keyboard and click one of its options."""
        select = self.page.get_by_label(label, exact=True)
        await select.focus()
        await select.press("Enter")
        await self.page.locator(".ant-select-item-option", has_text=option).last.click()

    async def start_replay(self) -> None:
        await self.page.get_by_role("button", name="Start the replay").press("Enter")

    def measure(self, name: str) -> Locator:
        """Return the cells of one measure, which is a row of the table that compares policies."""
        row = self.page.get_by_role("row").filter(
            has=self.page.get_by_role("rowheader", name=name, exact=True)
        )
        return row.locator("td")

    async def turn_pages_to(self, name: str) -> None:
        """Turn the pages of the waiting times by user until the row of a user appears."""
        header = self.page.get_by_role("rowheader", name=name)
        while not await header.count():
            await self.page.get_by_title("Next Page").last.get_by_role("button").click(timeout=5000)

    def queue_row(self, name: str) -> Locator:
        return self.page.get_by_role("row").filter(
            has=self.page.get_by_role("link", name=name, exact=True)
        )


@dataclass(frozen=True)
class FullGroup:
    """A resource group with a session that has all free GPU shares, and two pending sessions."""

    rest: httpx.Client
    running: JSON
    first: JSON
    second: JSON

    def priority_of(self, session: JSON) -> int:
        return int(self.rest.get(f"/sessions/{session['id']}").json()["priority"])


@pytest.fixture
def group(hub: RunningHub) -> Iterator[FullGroup]:
    with hub.rest("user") as rest:
        free = rest.get("/sessions/options").json()["limits"]["cuda.shares"]["now"]
        body = {"resources": {"cuda.shares": free}}
        running = running_session(hub, "user", **body)
        name = secrets.token_hex(3)
        first, second = (
            checked(rest.post("/sessions", json={"name": f"{name}-{n}", **body}), 201)
            for n in (1, 2)
        )
        yield FullGroup(rest, running, first, second)
        for session in (first, second):
            checked(rest.delete(f"/sessions/{session['id']}"), 202)
            wait_for(rest, session["id"], "CANCELLED", "TERMINATED")
        stop(rest, running["id"])


# Moves the labels of the time axis to its edges, and returns those that are cut off.
LABELS_AT_EDGES = """
() => [...document.querySelectorAll('.bai-timeline-axis .bai-timeline-track > span')]
  .flatMap(label => ['0%', '100%'].filter(at => {
    label.style.setProperty('--at', at);
    const [inner, outer] = [label, label.parentElement].map(one => one.getBoundingClientRect());
    return inner.left < outer.left || inner.right > outer.right;
  }))
"""


@pytest.mark.checklist("SCH-01", "SCH-02")
async def test_queue_is_shown_and_its_order_can_be_changed(
    opened: Opener[Scheduler], group: FullGroup
) -> None:
    from playwright.async_api import expect

    first, second = group.first["name"], group.second["name"]
    ui = await opened(Scheduler, "admin", "/scheduler")
    await ui.bar(group.running["name"]).first.wait_for()
    await ui.queue_row(first).wait_for()
    # The positions are those of the chosen resource group; the row says why the session is pending.
    await ui.page.get_by_label("Resource group").wait_for()
    assert await ui.page.locator(".ant-select", has_text="default").count() == 1
    for title in ("Position", "Session", "Priority", "Expected start", "Why it is pending"):
        await ui.page.get_by_role("columnheader", name=title, exact=True).first.wait_for()
    await ui.queue_row(second).get_by_text("cuda.shares").first.wait_for()
    position = ui.queue_row(second).locator("td").nth(1)
    before = await position.inner_text()
    priority = ui.page.get_by_label(f"Priority of {second}")
    await priority.fill("50")
    await priority.press("Enter")
    # The list is read again after the change.
    await expect(position).not_to_have_text(before)
    assert int(await position.inner_text()) < int(before)
    assert group.priority_of(group.second) == 50

    for name in (first, second):
        await ui.page.get_by_role("checkbox", name=f"Select {name}").check()
    await ui.page.get_by_label("New priority").fill("70")
    await ui.page.get_by_role("button", name="Set the priority").click()
    await expect(ui.page.get_by_label(f"Priority of {first}")).to_have_value("70")
    await expect(ui.page.get_by_label("New priority")).to_have_count(0)
    assert [group.priority_of(one) for one in (group.first, group.second)] == [70, 70]

    await ui.page.get_by_text("1 day", exact=True).click()
    await ui.page.wait_for_url("**/scheduler?range=*")
    assert await ui.page.evaluate(LABELS_AT_EDGES) == []
    await ui.queue_row(first).get_by_role("link").click()
    await ui.drawer.get_by_text(first, exact=True).first.wait_for()


async def test_monitors_can_only_read_the_queue_and_users_cannot_open_it(
    opened: Opener[Scheduler], group: FullGroup
) -> None:
    ui = await opened(Scheduler, "monitor", "/scheduler")
    await ui.queue_row(group.first["name"]).wait_for()
    assert await ui.page.get_by_role("spinbutton").count() == 0
    assert await ui.page.get_by_role("checkbox").count() == 0
    ui = await opened(Scheduler, "user2", "/scheduler")
    await ui.page.get_by_text("You may not open this page").wait_for()


# The worker process imports numba, and may have to compile the placement code.
REPLAY_MILLIS = 120_000


async def test_history_is_compared_with_other_policies(
    opened: Opener[Scheduler], hub: RunningHub, group: FullGroup
) -> None:
    from playwright.async_api import expect

    ui = await opened(Scheduler, "admin", "/scheduler")
    await ui.page.get_by_role("tab", name="Try a policy").press("Enter")
    await ui.start_replay()
    await ui.page.get_by_role("button", name="Cancel").press("Enter")
    await ui.page.locator(".ant-alert").get_by_text("Cancelled", exact=True).wait_for()

    await ui.page.get_by_text("1 day", exact=True).click()
    await ui.choose("Placement of policy 1", "spread")
    await ui.page.get_by_role("button", name="Add a policy").press("Enter")
    await ui.choose("Order of policy 2", "last in, first out")
    await ui.start_replay()
    started = ui.measure("Started / all sessions")
    # The columns are the history, the current policy, policy 1 and policy 2. In the history, the
    # two pending sessions have not started.
    await expect(started).to_have_count(4, timeout=REPLAY_MILLIS)
    texts = await started.all_inner_texts()
    (history, count) = map(int, texts[0].split("/"))
    assert count >= history + 2
    assert await ui.measure("Earlier than in the history").first.inner_text() == "–"
    await ui.page.get_by_text("Sessions that never started", exact=False).wait_for()
    await ui.page.get_by_text("User", exact=True).first.click()
    await ui.turn_pages_to("user (default)")
    assert await violations_in_both_themes(ui.page) == []

    # The URL contains the state of the page: a monitor who opens the URL sees the result, too.
    url = ui.page.url
    assert "view=try" in url and "since=1d" in url and "spread" in url and "replay=" in url
    await ui.page.set_viewport_size(NARROW)
    await ui.page.reload()
    await started.first.wait_for()
    width = await ui.page.evaluate("document.documentElement.scrollWidth")
    assert width <= NARROW["width"]
    monitor = await opened(Scheduler, "monitor", url.removeprefix(ui.url))
    await monitor.measure("Started / all sessions").first.wait_for()
    await expect(monitor.page.get_by_role("button", name="Start the replay")).to_have_count(0)
    await monitor.page.get_by_text("Latest replays").wait_for()
