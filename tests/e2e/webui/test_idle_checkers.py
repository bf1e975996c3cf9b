# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""The page of idle checkers: create, bind and replay a checker."""

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


async def test_checker_is_created_bound_as_a_dry_run_and_replayed(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    name = f"idle-{secrets.token_hex(3)}"
    ui = await opened(Entities, "admin", "/idle-checkers")
    try:
        await ui.page.get_by_role("button", name="New idle checker").click()
        await ui.fill(Name=name, Thresholds="cpu_util")
        await ui.choose("Type", "Utilization")
        await ui.drawer.get_by_label("Window or maximum (seconds)").fill("600")
        await ui.save()
        await ui.drawer.get_by_text("such as cpu_util=5").last.wait_for()
        await ui.fill(Thresholds="cpu_util=5 cuda_util=5")
        await ui.save()
        await ui.show(name)
        await ui.drawer.get_by_role("button", name="Run the replay").click()
        await ui.drawer.get_by_text("Stopped wrongly").wait_for()
        checker = checked(admin.get(f"/idle-checkers/{name}"), 200)
        assert checker["thresholds"] == {"cpu_util": 5, "cuda_util": 5}

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
