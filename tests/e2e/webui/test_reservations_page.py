"""The form of reservations: a part of a machine is requested, approved, shown and used."""

from __future__ import annotations

import re
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from tests.e2e.sessions import checked, stop, wait_for
from tests.hub import RunningHub
from tests.testbed.wait import wait_until

from .conftest import Opener
from .entities_page import Entities
from .test_every_page import NARROW, violations_in_both_themes
from .test_sizes_and_reservations import cancel

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


async def request(ui: Entities, name: str, start: datetime, resources: str) -> None:
    """Fill in the form without resources and save it; then add the resources and save again."""
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
    # The test enters UTC times, so the browser gets the time zone UTC.
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
        # The approval has no effect before the administrator confirms it.
        await admin.confirm("Close")
        await admin.drawer.get_by_text("requested", exact=True).wait_for()
        await admin.drawer.get_by_role("button", name="Reject").click()
        await admin.confirm("Reject")
        await admin.page.get_by_text("The reservation is rejected.").wait_for()
        assert checked(rest.get(f"/reservations/{made['id']}"), 200)["state"] == "rejected"


async def test_whole_machine_drains_serves_its_members_and_is_free_again(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    """The test checks recorded times, so a slow machine does not change the result."""
    name = f"live-{secrets.token_hex(3)}"
    page = f"/reservations?filters=%7B%22name__contains%22:%22{name}%22%7D"
    batch = {"project": "default", "type": "batch", "resources": {"cpu": "1", "mem": "256m"}}
    admin = await opened(Entities, "domain-admin", page, timezone_id="UTC")
    with (
        hub.rest("user") as other,
        hub.rest("user2") as member,
        hub.rest("domain-admin") as approver,
    ):

        def create(rest: httpx.Client, kind: str, command: str, **fields: str) -> str:
            body = {"name": f"{name}-{kind}", "startup_command": command, **batch, **fields}
            return str(checked(rest.post("/sessions", json=body), 201)["id"])

        def failed_checks(session: str) -> list[str]:
            reasons = checked(other.get(f"/sessions/{session}"), 200)["reasons"]
            return [reason["check"] for reason in reasons]

        running = create(other, "before", "sleep 5")
        wait_for(other, running, "RUNNING", "TERMINATED")
        start = datetime.now(UTC) + timedelta(seconds=8)
        end = start + timedelta(seconds=12)
        request = {
            "name": name,
            "project": "default",
            "resource_group": "default",
            "resources": {"cpu": 1},
            "whole_machines": True,
            "users": ["user2"],
            "starts_at": start.isoformat(),
            "ends_at": end.isoformat(),
        }
        made = checked(member.post("/reservations", json=request), 201)
        try:
            checked(approver.patch(f"/reservations/{name}", json={"state": "approved"}), 200)
            waiting = create(other, "after", "sleep 300")
            reserved = create(member, "in", "sleep 300", reservation=name)
            checks = wait_until(lambda: failed_checks(waiting), 10, "the reason")
            assert checks == ["advance-reservation"]
            inside = wait_for(member, reserved, "RUNNING")
            await admin.page.reload()
            # On a slow machine, the period of the reservation may have ended already.
            await admin.row(name).get_by_text(re.compile("in progress|ended")).wait_for()
            after = wait_for(other, waiting, "RUNNING")
            assert start <= started_at(inside)
            assert end <= started_at(after)
            # The approval has stopped no session, and the member's session continues.
            assert wait_for(other, running, "TERMINATED")["result"] == "success"
            assert checked(member.get(f"/sessions/{reserved}"), 200)["status"] == "RUNNING"
            await admin.page.reload()
            await admin.row(name).get_by_text("ended").wait_for()
        finally:
            cancel(member, made["id"])
        stop(other, waiting)
        stop(member, reserved)


def started_at(session: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(session["started_at"])


async def test_effect_of_an_approval_names_the_delayed_sessions(
    hub: RunningHub, opened: Opener[Entities]
) -> None:
    """The first reservation of the machine delays the session; the second reservation delays it
    more.
    """
    name = f"effect-{secrets.token_hex(3)}"
    now = datetime.now(UTC)
    body = {
        "project": "default",
        "resource_group": "default",
        "resources": {"cpu": 1},
        "whole_machines": True,
        "users": ["user2"],
    }
    with hub.rest("user") as other, hub.rest("user2") as member, hub.rest("admin") as admin:
        made = []
        try:
            for rest, suffix, hours in ((admin, "now", (0, 1)), (member, "next", (1, 3))):
                times = [(now + timedelta(hours=n)).isoformat() for n in hours]
                period = {"starts_at": times[0], "ends_at": times[1]}
                request = {**body, **period, "name": f"{name}-{suffix}"}
                made.append(checked(rest.post("/reservations", json=request), 201)["id"])
            session = {"name": f"{name}-lab", "project": "default", "resources": {"cpu": "1"}}
            waiting = checked(other.post("/sessions", json=session), 201)["id"]
            ui = await opened(Entities, "domain-admin", "/reservations", timezone_id="UTC")
            await ui.show(f"{name}-next")
            await ui.drawer.get_by_role("region", name="Sessions in the way").wait_for()
            effect = ui.drawer.get_by_role("region", name="Effect of an approval")
            row = effect.get_by_role("row").filter(has_text=f"{name}-lab")
            await row.get_by_text("(2 hr later)").wait_for()
            await row.get_by_text("user", exact=True).wait_for()
            await ui.page.set_viewport_size(NARROW)
            assert await violations_in_both_themes(ui.page) == []
            checked(other.delete(f"/sessions/{waiting}"), 200, 202, 204)
        finally:
            for reservation in made:
                cancel(admin, reservation)


async def test_form_is_accessible_on_phones_and_in_dark_mode(opened: Opener[Entities]) -> None:
    ui = await opened(Entities, "user2", "/reservations")
    await ui.page.set_viewport_size(NARROW)
    await ui.page.get_by_role("button", name="Request a reservation").click()
    await ui.drawer.get_by_text("Nobody else uses the machines in the period.").wait_for()
    assert await violations_in_both_themes(ui.page) == []
    width = await ui.page.evaluate("document.documentElement.scrollWidth")
    assert width <= NARROW["width"]
