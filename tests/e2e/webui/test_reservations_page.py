"""The form of reservations: a part of a machine is requested, approved, shown and used."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.sessions import checked, stop, wait_for
from tests.hub import RunningHub

from .conftest import Opener
from .entities_page import Entities
from .test_every_page import NARROW, violations_in_both_themes
from .test_sizes_and_reservations import cancel

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


async def request(ui: Entities, name: str, start: datetime, resources: str) -> None:
    """Fill in the form, without the resources, and save it; then correct it and save it again."""
    await ui.page.get_by_role("button", name="Request a reservation").click()
    await ui.fill(Name=name)
    await ui.choose("Project", "default")
    await ui.choose("Resource group", "default")
    for label, at in (("Start", start), ("End", start + timedelta(hours=2))):
        field = ui.drawer.get_by_label(label, exact=True)
        await field.fill(f"{at:%Y-%m-%d %H:%M}")
    await ui.fill(Resources_on_each_machine="one core")
    await ui.save()
    hint = ui.drawer.locator(".ant-form-item-explain", has_text="Slots with quantities")
    await hint.wait_for()
    await ui.fill(Resources_on_each_machine=resources)


async def test_part_of_a_machine_is_requested_approved_and_used(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    name = f"part-{secrets.token_hex(3)}"
    # The browser of the tests has the time zone UTC.
    start = datetime.now(UTC) - timedelta(minutes=2)
    with hub.rest("user2") as rest:
        ui = await opened(Entities, "user2", "/reservations", timezone_id="UTC")
        await request(ui, name, start, "cpu=1 mem=256m")
        await ui.save()
        await ui.row(name).get_by_text("requested").wait_for()
        made = checked(rest.get(f"/reservations/{name}"), 200)
        try:
            assert made["resources"] == {"cpu": "1", "mem": "256m"}
            assert (made["whole_machines"], made["state"]) == (False, "requested")
            admin = await opened(Entities, "domain-admin", "/reservations", timezone_id="UTC")
            await admin.show(name)
            await admin.drawer.get_by_role("button", name="Approve").click()
            await admin.page.get_by_text("The reservation is approved.").wait_for()
            calendar = admin.page.get_by_role("figure", name="Calendar")
            shown = calendar.get_by_label(f"{name} (default) · approved · cpu 1, mem 256 MiB")
            await shown.first.wait_for()
            body = {
                "project": "default",
                "reservation": name,
                "type": "batch",
                "startup_command": "sleep 300",
                "resources": {"cpu": "1", "mem": "256m"},
            }
            session = checked(rest.post("/sessions", json=body), 201)
            running = wait_for(rest, session["id"], "RUNNING")
            assert running["agent"] == made["agents"][0]
            await admin.page.goto(f"{hub.url}/services/bai/scheduler")
            text = f"Reservation {name} of project default books cpu 1, mem 256 MiB"
            await admin.page.get_by_label(text).first.wait_for()
            stop(rest, session["id"])
        finally:
            cancel(rest, made["id"])


async def test_whole_machines_are_requested_and_rejected(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    name = f"whole-{secrets.token_hex(3)}"
    start = datetime.now(UTC) + timedelta(days=60)
    with hub.rest("user2") as rest:
        ui = await opened(Entities, "user2", "/reservations", timezone_id="UTC")
        await request(ui, name, start, "cpu=1")
        await ui.drawer.get_by_label("Whole machines").click()
        await ui.save()
        await ui.show(name)
        await ui.drawer.get_by_text("Whole machines", exact=True).wait_for()
        made = checked(rest.get(f"/reservations/{name}"), 200)
        assert made["whole_machines"] is True
        assert await ui.drawer.get_by_role("button", name="Approve").count() == 0
        admin = await opened(Entities, "domain-admin", "/reservations", timezone_id="UTC")
        await admin.show(name)
        await admin.drawer.get_by_role("button", name="Reject").click()
        # Nothing happens before the answer.
        await admin.confirm("Close")
        await admin.drawer.get_by_text("requested", exact=True).wait_for()
        await admin.drawer.get_by_role("button", name="Reject").click()
        await admin.confirm("Reject")
        await admin.page.get_by_text("The reservation is rejected.").wait_for()
        assert checked(rest.get(f"/reservations/{made['id']}"), 200)["state"] == "rejected"


async def test_form_is_accessible_on_phones_and_in_dark_mode(opened: Opener[Entities]) -> None:
    ui = await opened(Entities, "user2", "/reservations")
    await ui.page.set_viewport_size(NARROW)
    await ui.page.get_by_role("button", name="Request a reservation").click()
    await ui.drawer.get_by_text("Nobody else uses the machines in the period.").wait_for()
    assert await violations_in_both_themes(ui.page) == []
    width = await ui.page.evaluate("document.documentElement.scrollWidth")
    assert width <= NARROW["width"]
