# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""The page of idle checkers: create, bind and replay a checker."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.e2e.sessions import checked, start, stop
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

from .conftest import Opener
from .entities_page import Entities
from .pages import Sessions

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("user2") as client:
        yield client


async def check_drawer(opened: Opener[Sessions], rest: httpx.Client, admin: httpx.Client) -> None:
    """Check that the drawer shows the end time, and that "Exclude" exempts the session."""
    name = f"life-{secrets.token_hex(3)}"
    checker = {"name": name, "type": "session-lifetime", "max_seconds": 7200}
    checked(admin.post("/idle-checkers", json={**checker, "allows_exclusion": True}), 201)
    binding = {"checker": name, "scope": "user", "scope_key": "user2"}
    checked(admin.post("/idle-checker-bindings", json=binding), 201)
    session = start(rest, "idle-drawer")
    try:
        ui = await opened(Sessions, "user2", f"/sessions?session={session['id']}")
        wait_until(
            lambda: bool(checked(rest.get(f"/sessions/{session['id']}"), 200)["idle_checks"]),
            60,
            "the result of the checker",
        )
        await ui.page.reload()
        limits = ui.fact("Ends in")
        await limits.get_by_text(f"({name})").wait_for()
        # The drawer names the rule even before the countdown begins.
        await limits.get_by_text(f"the limit of idle checker {name}").wait_for()
        await limits.get_by_role("button", name="Exclude").click()
        await limits.get_by_text(f"Excluded from idle checker {name}").wait_for()
    finally:
        admin.delete(f"/idle-checkers/{name}")
        stop(rest, session["id"])


async def check_form_by_keyboard(ui: Entities) -> None:
    """Open the form with the keyboard, and close it: the focus returns, and input is kept."""
    from playwright.async_api import expect

    button = ui.page.get_by_role("button", name="New idle checker")
    await button.press("Enter")
    await ui.drawer.get_by_label("Name", exact=True).wait_for()
    await ui.page.keyboard.press("Escape")
    await expect(button).to_be_focused()
    await button.press("Enter")
    await ui.fill(Name="typed")
    await ui.page.keyboard.press("Escape")
    question = ui.page.get_by_role("dialog", name="Discard your input?")
    await expect(question.get_by_role("button", name="Continue editing")).to_be_focused()
    await ui.page.keyboard.press("Enter")
    await question.wait_for(state="detached")
    await expect(ui.drawer.get_by_label("Name", exact=True)).to_have_value("typed")


@pytest.mark.checklist("DET-06")
async def test_checker_is_created_bound_as_a_dry_run_and_replayed(
    opened: Opener[Any], admin: httpx.Client, rest: httpx.Client
) -> None:
    from playwright.async_api import expect

    await check_drawer(opened, rest, admin)
    name = f"idle-{secrets.token_hex(3)}"
    ui = await opened(Entities, "admin", "/idle-checkers")
    try:
        await check_form_by_keyboard(ui)
        await ui.choose("Type", "Network inactivity")
        await ui.drawer.get_by_label("Keep-alives per session").wait_for()
        assert await ui.drawer.get_by_label("Thresholds").count() == 0
        await ui.choose("Type", "Utilization")
        await ui.drawer.get_by_text("If empty: all metrics are below").wait_for()
        await ui.fill(Thresholds="cpu_util")
        await ui.save()
        # A failed save scrolls to the first invalid field, which was out of view, and focuses it.
        window = ui.drawer.get_by_label("Window", exact=True)
        await expect(window).to_be_focused()
        await ui.fill(Name=name)
        await window.fill("soon")
        await ui.save()
        await ui.drawer.get_by_text("A duration, such as 30min").last.wait_for()
        await window.fill("2 days")
        await ui.drawer.get_by_text("From 1min to 1d").wait_for()
        await window.fill("15min")
        await ui.save()
        await ui.drawer.get_by_text("cpu_util is not a name and a whole number").wait_for()
        await ui.fill(Thresholds="cpu_util=5 cuda_util=5")
        # Enter a shortest window that is longer than the window. The server's error has the label
        # of the field, and disappears with the next change.
        floor = ui.drawer.get_by_label("Shortest window while others wait")
        await floor.fill("30min")
        await ui.save()
        refusal = ui.drawer.get_by_text("“Shortest window while others wait”=1800 must be from")
        await refusal.wait_for()
        await floor.fill("10min")
        await refusal.wait_for(state="detached")
        await ui.save()
        await ui.page.get_by_text("Saved", exact=True).wait_for()
        await expect(ui.page.get_by_role("button", name="New idle checker")).to_be_focused()
        await ui.show(name)
        await ui.drawer.get_by_role("button", name="Run the replay").click()
        await expect(ui.drawer.get_by_text("Stopped wrongly")).to_be_in_viewport()
        checker = checked(admin.get(f"/idle-checkers/{name}"), 200)
        assert checker["thresholds"] == {"cpu_util": 5, "cuda_util": 5}
        assert checker["max_seconds"] == 900

        await ui.page.goto(ui.page.url.split("?")[0] + "?tab=idle-bindings")
        await ui.page.get_by_role("button", name="New binding").click()
        await ui.choose("Idle checker", name)
        await ui.choose("Scope", "Domain")
        await ui.drawer.get_by_label("Name of the domain").fill("default")
        await ui.drawer.get_by_label("Dry run (stops nothing)").click()
        await ui.save()
        await ui.row(name).get_by_text("default").wait_for()
        (binding,) = checked(admin.get("/idle-checker-bindings", params={"checker": name}), 200)[
            "items"
        ]
        assert (binding["scope"], binding["is_dry_run"]) == ("domain", True)
    finally:
        admin.delete(f"/idle-checkers/{name}")
