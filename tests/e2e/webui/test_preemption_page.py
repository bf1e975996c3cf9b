# ruff: noqa: ASYNC212  # Blocking calls are harmless here: no other task runs in the event loop.
"""Preemption and lost agents: the settings of a resource group in its drawer; preemptions."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import httpx
import pytest

from tests.e2e.sessions import JSON, checked, stop, wait_for
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities

pytestmark = [pytest.mark.e2e, pytest.mark.browser]

GROUP = "/resource-groups/default"


@pytest.fixture
def admin(hub: RunningHub) -> Iterator[httpx.Client]:
    with hub.rest("admin") as client:
        options = checked(client.get(GROUP), 200)["scheduler_opts"]
        yield client
        checked(client.patch(GROUP, json={"scheduler_opts": options}), 200)


def batch_session(rest: httpx.Client, name: str, priority: int, shares: str) -> JSON:
    body = {
        "name": name,
        "project": "default",
        "type": "batch",
        "startup_command": "sleep 600",
        "priority": priority,
        "resources": {"cuda.shares": shares},
    }
    return dict(checked(rest.post("/sessions", json=body), 201))


async def test_preemption_is_switched_on_and_its_preemptions_are_listed(
    hub: RunningHub, opened: Opener[Entities], admin: httpx.Client
) -> None:
    ui = await opened(Entities, "admin", "/resource-groups")
    await ui.show("default")
    settings = ui.drawer.get_by_role("region", name="Preemption")
    await settings.get_by_role("button", name="Change preemption").click()
    await settings.get_by_label("Stop sessions for sessions of higher priority").click()
    await ui.choose("Preemptible sessions", "of the same user")
    await ui.choose("After the stop", "ends")
    await settings.get_by_label("Time between warning and stop").fill("1s")
    await settings.get_by_role("button", name="Save").click()
    await settings.get_by_text("of the same user").wait_for()
    await ui.drawer.get_by_text("Preemption: on", exact=True).wait_for()
    stored = checked(admin.get(GROUP), 200)["scheduler_opts"]["preemption"]
    assert (stored["enabled"], stored["victim_scope"], stored["grace"]) == (True, "user", 1)

    low, high = (f"{name}-{secrets.token_hex(3)}" for name in ("low", "high"))
    with hub.rest("user2") as rest:
        shares = rest.get("/sessions/options").json()["limits"]["cuda.shares"]["now"]
        victim = batch_session(rest, low, 1, shares)
        wait_for(rest, victim["id"], "RUNNING")
        urgent = batch_session(rest, high, 10, shares)
        wait_for(rest, urgent["id"], "RUNNING")
        stop(rest, urgent["id"])
        assert wait_for(rest, victim["id"], "TERMINATED")
    await ui.open("/scheduler?view=preemptions")
    row = ui.page.get_by_role("row").filter(has=ui.page.get_by_role("link", name=high))
    await row.get_by_role("link", name=low).wait_for()
    await row.get_by_text("priority", exact=True).wait_for()
    await row.get_by_text("started", exact=True).wait_for()


async def test_times_of_lost_agents_are_changed(
    opened: Opener[Entities], admin: httpx.Client
) -> None:
    ui = await opened(Entities, "admin", "/resource-groups")
    await ui.show("default")
    settings = ui.drawer.get_by_role("region", name="Lost agents")
    await settings.get_by_text("10 min").wait_for()
    await settings.get_by_role("button", name="Change lost agents").click()
    silence = settings.get_by_label("Start batch sessions of an unreachable agent elsewhere after")
    await silence.fill("20s")
    await settings.get_by_role("button", name="Save").click()
    await settings.get_by_role("alert").get_by_text("45 s to 86400 s").wait_for()
    await silence.fill("1min")
    await settings.get_by_label("Other sessions wait for").fill("2h")
    await settings.get_by_role("button", name="Save").click()
    await settings.get_by_text("2 hr").wait_for()
    stored = checked(admin.get(GROUP), 200)["scheduler_opts"]["lost_agents"]
    assert stored == {"requeue_after": 60, "wait": 7200}
