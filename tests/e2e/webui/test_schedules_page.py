# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""The page of schedules, and the budgets on the page *Statistics*."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        yield client


@pytest.fixture
def rest(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("user2") as client:
        yield client


async def test_schedule_is_created_and_budget_is_shown(
    opened: Opener[Entities], rest: httpx.Client, admin: httpx.Client
) -> None:
    name = f"work-{secrets.token_hex(3)}"
    budget = {"project": "default/default", "amount": 1000}
    checked(admin.post("/budgets", json=budget), 201)
    try:
        ui = await opened(Entities, "user2", "/schedules")
        await ui.page.get_by_role("button", name="New schedule").click()
        await ui.fill(Name=name, Start_at="whenever", Stop_at="mon-fri 19:00")
        await ui.save()
        # The form shows the error message of the API below the field.
        await ui.drawer.get_by_text("two or five parts").wait_for()
        await ui.fill(Start_at="mon-fri 08:00")
        await ui.save()
        await ui.row(name).get_by_text("mon-fri 08:00").wait_for()
        await ui.show(name)
        await ui.drawer.get_by_text("No starts yet.").wait_for()
        found = checked(rest.get(f"/schedules/{name}"), 200)
        assert (len(found["next_starts"]), found["stop"]) == (5, "mon-fri 19:00")
        shown = await opened(Entities, "user2", "/statistics")
        region = shown.page.get_by_role("region", name="Budgets")
        await region.get_by_text("of 1,000.00 spent").wait_for()
    finally:
        rest.delete(f"/schedules/{name}")
        admin.delete("/budgets/default%2Fdefault")
