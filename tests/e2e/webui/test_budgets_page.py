"""Budgets of projects: an administrator creates a budget, and its project is shown as blocked."""

from __future__ import annotations

import secrets

import pytest

from tests.e2e.sessions import checked
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


async def test_budget_is_created_and_a_spent_one_is_shown_as_blocked(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    name = f"spent-{secrets.token_hex(3)}"
    with hub.rest("admin") as admin:
        project = checked(admin.post("/projects", json={"name": name, "domain": "default"}), 201)
        try:
            ui = await opened(Entities, "admin", "/projects?tab=budgets")
            await ui.page.get_by_role("button", name="New budget").click()
            await ui.choose("Project", name)
            await ui.fill(Budget="0")
            await ui.choose("When the budget is spent", "Start no sessions")
            await ui.save()
            await ui.row(name).get_by_text("Start no sessions").wait_for()
            budget = checked(admin.get(f"/budgets/{project['id']}"), 200)
            assert budget["mode"] == "block" and budget["blocked_at"] is not None

            await ui.open("/statistics")
            await ui.page.get_by_placeholder("Start date").focus()
            await ui.page.keyboard.press("Tab")
            await ui.page.keyboard.press("Tab")
            # Tab must move the focus out of the empty date fields.
            await ui.page.wait_for_function("!document.activeElement.closest('.ant-picker')")
            card = ui.page.get_by_role("region", name="Budgets").locator(".ant-card")
            card = card.filter(has_text=f"default/{name}")
            await card.get_by_text("No new starts").wait_for()
            await card.get_by_role("progressbar").wait_for()
        finally:
            admin.delete(f"/budgets/{project['id']}")
            admin.delete(f"/projects/{project['id']}")
