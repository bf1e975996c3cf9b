"""`bai session resize` and `bai reservation`."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai
from .test_sessions import bring_to_running


async def test_session_is_resized(bai: Bai, api: Api, agent: FakeAgent) -> None:
    await bai("session", "create", "my-lab", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await bring_to_running(api, agent, "my-lab")
    resizing = asyncio.create_task(bai("session", "resize", "my-lab", "-r", "cpu=2", by="user"))
    (item,) = await agent.work(20)
    await agent.report(item)
    assert (await resizing).stdout == "my-lab has cpu=2 mem=1g\n"
    refused = await bai("session", "resize", "my-lab", "-r", "cuda.device=1", by="user")
    assert refused.code == 2
    assert "started without cuda.device" in refused.stderr


async def test_pending_elastic_session_is_listed_with_both_sizes(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    await agent.beat()
    admin = await api.client("admin")
    await admin.patch("/agents/a1", {"schedulable": False})
    size = ("-r", "cpu=2", "-r", "mem=1g", "--minimum", "cpu=1")
    await bai("session", "create", "my-lab", *size, by="user")
    listed = (await bai("session", "ls", by="user")).stdout
    assert "1 CPU, 1 GiB (preferred: 2 CPU)" in listed
    await admin.patch("/agents/a1", {"schedulable": True})
    await bring_to_running(api, agent, "my-lab")
    assert "preferred" not in (await bai("session", "ls", by="user")).stdout


async def test_reservation_is_requested_approved_and_listed(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    start = api.world.clock() + timedelta(hours=1)
    made = await bai(
        "reservation", "create", "course", "--project", "default", "--group", "default",
        "-r", "cpu=4", "--from", start.isoformat(), "--until",
        (start + timedelta(hours=2)).isoformat(), by="user",
    )  # fmt: skip
    assert made.stdout == "reservation course is requested: a1\n"
    assert (await bai("reservation", "approve", "course", by="user")).code == 5
    approved = await bai("reservation", "approve", "course", by="admin")
    assert approved.stdout == "reservation course is approved\n"
    listed = (await bai("reservation", "list", "--json", by="user")).document
    assert [(one["name"], one["state"]) for one in listed["items"]] == [("course", "approved")]
    shown = await bai("reservation", "show", "course", by="user")
    assert "approved" in shown.stdout
    cancelled = await bai("reservation", "cancel", "course", by="user")
    assert cancelled.stdout == "reservation course is cancelled\n"


async def test_sessions_that_an_approval_delays_are_listed(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    now = api.world.clock()
    hours = [(now + timedelta(hours=n)).isoformat() for n in (0, 1, 3)]
    common = ("--project", "research", "--group", "default", "-r", "cpu=1", "--whole-machines")
    await bai("admin", "project", "members", "add", "research", "user2", by="admin")
    for name, start, end, author in (
        ("now", *hours[:2], "admin"),
        ("later", *hours[1:], "user2"),
    ):
        period = ("--from", start, "--until", end)
        made = await bai("reservation", "create", name, *common, *period, by=author)
        assert made.code == 0, made.stderr
    nothing = await bai("reservation", "delays", "later", by="admin")
    assert "the approval delays no pending session" in nothing.stdout + nothing.stderr
    await bai("session", "create", "my-lab", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await api.world.manager.scheduling.scheduler.run_pass()
    listed = (await bai("reservation", "delays", "later", by="admin")).stdout
    assert "my-lab" in listed and "DELAYED UNTIL" in listed.upper()
    document = (await bai("reservation", "delays", "later", "--json", by="admin")).document
    assert document["sessions"][0]["session"]["name"] == "my-lab"
    assert (await bai("reservation", "delays", "later", by="user2")).code == 5


async def test_sessions_that_can_delay_a_reservation_are_listed(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    start, end = ((api.world.clock() + timedelta(hours=n)).isoformat() for n in (1, 3))
    words = ("--project", "research", "--group", "default", "-r", "cpu=1", "--whole-machines")
    period = ("--from", start, "--until", end)
    made = await bai("reservation", "create", "course", *words, *period, by="admin")
    assert (made.code, made.stderr) == (0, "")
    nothing = await bai("reservation", "conflicts", "course", by="admin")
    assert "no running session delays the reservation" in nothing.stdout + nothing.stderr
    await bai("reservation", "cancel", "course", by="admin")
    await bai("session", "create", "my-lab", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await agent.prepare()
    made = await bai("reservation", "create", "course", *words, *period, by="admin")
    assert made.stderr == (
        "1 running session can delay the reservation: bai reservation conflicts course\n"
    )
    listed = (await bai("reservation", "conflicts", "course", by="admin")).stdout
    assert re.search(r"my-lab +user +\S+ +no time limit", listed), listed
    document = (await bai("reservation", "conflicts", "course", "--json", by="admin")).document
    assert document["sessions"][0]["session"]["name"] == "my-lab"


async def test_lists_show_whether_a_reservation_has_begun_and_is_used(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    start = api.world.clock() - timedelta(minutes=1)
    period = "--from", start.isoformat(), "--until", (start + timedelta(hours=2)).isoformat()
    common = "--project", "default", "--group", "default", "-r", "cpu=1", *period
    await bai("reservation", "create", "course", *common, by="admin")
    assert "in progress, unused" in (await bai("reservation", "list", by="user")).stdout
    await bai("session", "create", "my-lab", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await bring_to_running(api, agent, "my-lab")
    await api.world.manager.reservations.step()
    shown = (await bai("reservation", "show", "course", by="user")).stdout
    assert "in progress" in shown and "unused" not in shown


async def test_only_whole_machines_exclude_other_reservations(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    start = api.world.clock() + timedelta(hours=1)
    period = "--from", start.isoformat(), "--until", (start + timedelta(hours=2)).isoformat()
    common = "--project", "default", "--group", "default", "-r", "cpu=3", *period
    for name in ("one", "two"):
        made = await bai("reservation", "create", name, *common, by="admin")
        assert made.stdout == f"reservation {name} is approved: a1\n"
    whole = await bai("reservation", "create", "all", *common, "--whole-machines", by="admin")
    assert whole.code != 0
    assert (
        "1 agent with cpu=3 requested, but only 0 of 1 suitable agent can be reserved"
        in whole.stderr
    )
    await bai("reservation", "cancel", "one", by="admin")
    await bai("reservation", "cancel", "two", by="admin")
    await bai("reservation", "create", "all", *common, "--whole-machines", by="admin")
    shown = await bai("reservation", "show", "all", "--json", by="admin")
    assert shown.document["whole_machines"] is True
