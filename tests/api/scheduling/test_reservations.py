"""Advance reservations over REST: booking, approval, use by sessions, and expiry."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from bai_services.core.errors import Conflict, Forbidden, InvalidRequest, NotFound, QuotaExceeded
from bai_services.db.scheduling import advance_reservations as store
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, MovableClock

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


def spec(clock: MovableClock, start: float = 1, end: float = 3, **fields: Any) -> dict[str, Any]:
    return {
        "name": "course",
        "project": "default",
        "resource_group": "default",
        "resources": {"cuda.device": 2},
        "starts_at": (clock() + start * HOUR).isoformat(),
        "ends_at": (clock() + end * HOUR).isoformat(),
        **fields,
    }


async def held_by(api: Api) -> list[str]:
    """Return the names of the reservations on the scheduler page."""
    await api.world.manager.scheduling.scheduler.run_pass()
    admin = await api.client("admin")
    schedule = await admin.get("/resource-groups/default/schedule")
    return [one["name"] for one in schedule["reservations"]]


async def test_reservation_is_requested_approved_and_shown(api: Api, clock: MovableClock) -> None:
    user, admin = await api.client("user"), await api.client("domain-admin")
    await FakeAgent(api.agent, "a1").beat()
    await FakeAgent(api.agent, "a2").beat()
    made = await user.post("/reservations", spec(clock, note="Monday"))
    assert (made["state"], made["agents"], made["author"]) == ("requested", ["a1"], "user")
    assert await held_by(api) == []
    with pytest.raises(Forbidden):
        await user.patch("/reservations/course", {"state": "approved"})
    approved = await admin.patch("/reservations/course", {"state": "approved"})
    assert (approved["state"], approved["decided_by"]) == ("approved", "domain-admin")
    (entry,) = (await admin.get("/audit-log", action="reservation.approve", outcome="done"))[
        "items"
    ]
    assert entry["details"]["changes"] == {"state": {"before": "requested", "after": "approved"}}
    assert await held_by(api) == ["course"]
    # The next reservation gets the other agent; no agent is left for a third.
    other = await admin.post("/reservations", spec(clock, 2, 4, name="other"))
    assert (other["state"], other["agents"]) == ("approved", ["a2"])
    with pytest.raises(Conflict, match="reserved in this period: course, other"):
        await admin.post("/reservations", spec(clock, 2, 4, name="third"))
    cancelled = await user.patch("/reservations/course", {"state": "cancelled"})
    assert cancelled["state"] == "cancelled"
    assert await held_by(api) == ["other"]
    with pytest.raises(Forbidden):
        await user.patch("/reservations/other", {"state": "cancelled"})


async def test_administrators_see_whom_an_approval_delays_and_by_how_much(
    api: Api, clock: MovableClock
) -> None:
    user, admin = await api.client("user"), await api.client("domain-admin")
    author, other = await api.client("user2"), await api.client("acme-user")
    await FakeAgent(api.agent, "a1").beat()
    await admin.put("/projects/research/members/user2", {})
    common = {"project": "research", "whole_machines": True}
    await admin.post("/reservations", spec(clock, -0.05, 1, name="now", **common))
    made = await author.post("/reservations", spec(clock, 1, 3, **common))
    for client in (user, other):
        await client.post("/sessions", {"name": "my-lab", "resources": {"cpu": 1, "mem": "1g"}})
    await api.world.manager.scheduling.scheduler.run_pass()
    path = f"/reservations/{made['id']}/delays"
    found = await admin.get(path)
    assert (found["is_complete"], found["count"]) == (True, 2)
    # Two sessions are delayed; the one of another domain is shown without its name.
    (delayed,) = [one for one in found["sessions"] if one["session"] is not None]
    assert (delayed["session"]["name"], delayed["session"]["owner"]) == ("my-lab", "user")
    starts_at, until = (
        datetime.fromisoformat(delayed[key]) for key in ("starts_at", "delayed_until")
    )
    # The estimated start is rounded up to a whole minute.
    assert until - starts_at == 2 * HOUR
    assert timedelta(0) <= starts_at - (clock() + HOUR) < timedelta(minutes=1)
    with pytest.raises(Forbidden):
        await author.get(path)
    await admin.patch(f"/reservations/{made['id']}", {"state": "approved"})
    assert (await admin.get(path))["sessions"] == []


async def test_sessions_in_the_way_are_shown_to_administrators_and_members(
    api: Api, clock: MovableClock
) -> None:
    """A session without a time limit delays the reservation, and the member knows why it waits."""
    user, admin = await api.client("user"), await api.client("domain-admin")
    author, other = await api.client("user2"), await api.client("acme-user")
    agent = FakeAgent(api.agent, "a1")
    await agent.beat()
    await admin.put("/projects/research/members/user2", {})
    cores = spec(clock, 1, 3, project="research", resources={"cpu": 2})
    made = await author.post("/reservations", cores)
    path = f"/reservations/{made['id']}/conflicts"
    await api.world.manager.scheduling.scheduler.run_pass()
    assert await author.get(path) == {"is_complete": True, "count": 0, "sessions": []}
    slots = (await admin.get("/agents/a1"))["slots"]
    big = {"resources": {"cpu": slots["cpu"], "mem": "1g"}}
    blocking = await user.post("/sessions", {"name": "my-lab", **big})
    await api.world.manager.scheduling.scheduler.run_pass()
    (found,) = (await admin.get(path))["sessions"]
    assert (found["session"]["name"], found["session"]["owner"]) == ("my-lab", "user")
    assert (found["agents"], found["ends_at"]) == (["a1"], None)
    # Members who may not see the session get an entry without its name.
    (hidden,) = (await author.get(path))["sessions"]
    assert hidden == {**found, "session": None}
    with pytest.raises(NotFound):
        await other.get(path)
    # The session stays in the list after the approval and after the start.
    await admin.patch(f"/reservations/{made['id']}", {"state": "approved"})
    await author.post(
        "/sessions",
        {
            "name": "their-lab",
            "project": "research",
            "reservation": "course",
            "resources": {"cpu": 1, "mem": "1g"},
        },
    )
    clock.advance(hours=1, minutes=1)
    await agent.beat()
    await api.world.manager.scheduling.scheduler.run_pass()
    waiting = await author.get("/sessions/their-lab")
    assert (waiting["status"], bool(waiting["reasons"])) == ("PENDING", True)
    assert (await author.get(path))["sessions"] == [hidden]
    await user.delete(f"/sessions/{blocking['id']}")
    await api.world.manager.scheduling.scheduler.run_pass()
    assert (await admin.get(path))["count"] == 0


async def test_sessions_wait_for_a_reservation_or_use_it(api: Api, clock: MovableClock) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await FakeAgent(api.agent, "a1").beat()
    await FakeAgent(api.agent, "a2").beat()
    await admin.put("/projects/research/members/admin", {})
    now = await admin.post(
        "/reservations", spec(clock, -0.05, 2, project="research", whole_machines=True)
    )
    await admin.post(
        "/reservations", spec(clock, 1, 3, project="research", name="later", whole_machines=True)
    )
    small = {"resources": {"cpu": 1, "mem": "1g"}}
    await user.post("/sessions", {"name": "my-lab", **small})
    of_project = {"project": "research", **small}
    await admin.post("/sessions", {"name": "first", "reservation": "course", **of_project})
    await admin.post("/sessions", {"name": "second", "reservation": "later", **of_project})
    await api.world.manager.scheduling.scheduler.run_pass()
    first = await admin.get("/sessions/first")
    assert (first["status"], first["agent"]) == ("SCHEDULED", now["agents"][0])
    (reason,) = (await admin.get("/sessions/second"))["reasons"]
    assert reason["check"] == "not-before"
    (reason,) = (await user.get("/sessions/my-lab"))["reasons"]
    assert reason["check"] == "advance-reservation"
    why = await user.get("/sessions/my-lab/why")
    failed = [check["message"] for check in why["checks"] if not check["passed"]]
    assert failed[0].startswith("held by a reservation of project research until ")
    estimate = datetime.fromisoformat(why["estimate"]["starts_at"])
    assert abs(estimate - clock() - 2 * HOUR) < timedelta(minutes=2)
    with pytest.raises(NotFound, match="no reservation"):
        await user.post("/sessions", {"reservation": "course", **small})
    # A session has used the reservation, so the reservation does not expire.
    await api.world.manager.reservations.step()
    found = await admin.get("/reservations/course")
    assert (found["state"], found["used_at"]) == ("approved", clock().isoformat())


async def test_reservation_books_a_part_of_a_machine(api: Api, clock: MovableClock) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await FakeAgent(api.agent, "a1").beat()
    await admin.put("/projects/research/members/admin", {})
    one = {"resources": {"cuda.device": 1, "cpu": 2}, "project": "research"}
    made = await admin.post("/reservations", spec(clock, -0.05, 2, **one))
    assert (made["whole_machines"], made["agents"]) == (False, ["a1"])
    # The machine has two devices, so one more can be booked in the same period.
    await admin.post("/reservations", spec(clock, 1, 3, **one, name="second"))
    for whole_machines in (False, True):
        fields = {"name": "third", "whole_machines": whole_machines}
        with pytest.raises(Conflict, match="only 0 of 1 suitable agent can"):
            await admin.post("/reservations", spec(clock, 1.5, 3, **{**one, **fields}))
    gpu = {"resources": {"cpu": 1, "mem": "1g", "cuda.device": 1}}
    limited = {"batch_timeout": 1800, "type": "batch", "startup_command": "true"}
    await user.post("/sessions", {"name": "short", **gpu, **limited})
    await user.post("/sessions", {"name": "long", **gpu})
    of_project = {"project": "research", "reservation": "course"}
    await admin.post("/sessions", {"name": "member", **gpu, **of_project})
    await api.world.manager.scheduling.scheduler.run_pass()
    statuses = {
        name: (await client.get(f"/sessions/{name}"))["status"]
        for name, client in (("short", user), ("long", user), ("member", admin))
    }
    assert statuses == {"short": "SCHEDULED", "long": "PENDING", "member": "SCHEDULED"}
    reasons = (await user.get("/sessions/long"))["reasons"]
    assert reasons[0]["check"] == "advance-reservation"
    assert reasons[0]["message"].startswith(
        "the reservation of project research keeps cpu=2 cuda.device=1 free on 1 agent until "
    )
    schedule = await admin.get("/resource-groups/default/schedule")
    (held, _) = schedule["reservations"]
    assert held["resources"] == {"cpu": "2", "cuda.device": "1"}
    assert held["whole_machines"] is False


async def test_unused_reservation_expires_after_its_grace(api: Api, clock: MovableClock) -> None:
    admin, manager = await api.client("admin"), api.world.manager
    await FakeAgent(api.agent, "a1").beat()
    await FakeAgent(api.agent, "a2").beat()
    await admin.post("/reservations", spec(clock, 0, grace_seconds=600))
    clock.advance(minutes=11)
    await admin.post("/reservations", spec(clock, -0.05, grace_seconds=600, name="later"))
    await manager.scheduling.scheduler.run_pass()
    await manager.reservations.step()
    states = {one["name"]: one["state"] for one in (await admin.get("/reservations"))["items"]}
    assert states == {"course": "expired", "later": "approved"}


@pytest.mark.both_databases
async def test_reservation_does_not_expire_while_a_session_waits_for_it(
    api: Api, clock: MovableClock
) -> None:
    """A session of another user, which was already running at the approval, keeps the devices."""
    user, admin, manager = await api.client("user"), await api.client("admin"), api.world.manager
    await FakeAgent(api.agent, "a1").beat()
    await admin.put("/projects/research/members/admin", {})
    gpus = {"resources": {"cpu": 1, "mem": "1g", "cuda.device": 2}}
    await user.post("/sessions", {"name": "in-the-way", **gpus})
    await manager.scheduling.scheduler.run_pass()
    await admin.post("/reservations", spec(clock, 0, project="research", grace_seconds=600))
    clock.advance(minutes=11)
    of_project = {"project": "research", "reservation": "course"}
    waiting = await admin.post("/sessions", {"name": "member", **gpus, **of_project})
    await manager.scheduling.scheduler.run_pass()
    await manager.reservations.step()
    assert (await admin.get("/sessions/member"))["status"] == "PENDING"
    assert (await admin.get("/reservations/course"))["state"] == "approved"
    await admin.delete(f"/sessions/{waiting['id']}")
    await manager.reservations.step()
    (found,) = (await admin.get("/reservations"))["items"]
    assert found["state"] == "expired"


async def notices(api: Api, username: str) -> list[str]:
    """Return the texts of a user's notifications about reservations, the earliest first."""
    await api.world.manager.notifications.outbox.step()
    client = await api.client(username)
    items = (await client.get("/notifications", sort="created_at"))["items"]
    return [item["text"] for item in items if item["event"].startswith("reservation-")]


async def test_approvers_and_authors_are_notified(api: Api, clock: MovableClock) -> None:
    user, admin = await api.client("user"), await api.client("domain-admin")
    await FakeAgent(api.agent, "a1").beat()
    body = spec(clock, -0.05, resources={"cpu": 1}, grace_seconds=600)
    start = datetime.fromisoformat(body["starts_at"]).isoformat()
    made = await user.post("/reservations", body)
    requested = f"user requests the reservation course for project default from {start}"
    for name in ("domain-admin", "admin"):
        assert await notices(api, name) == [requested]
    for name in ("user2", "acme-user", "monitor"):
        assert await notices(api, name) == []
    await admin.patch(f"/reservations/{made['id']}", {"state": "approved"})
    approved = f"domain-admin has approved the reservation course from {start}"
    assert await notices(api, "user") == [approved]
    clock.advance(minutes=20)
    await api.world.manager.reservations.step()
    expired = f"the reservation course from {start} has expired, because it was not used in time"
    assert await notices(api, "user") == [approved, expired]
    # Users are not notified of their own actions.
    own = await admin.post("/reservations", spec(clock, resources={"cpu": 1}))
    await admin.patch(f"/reservations/{own['id']}", {"state": "cancelled"})
    assert await notices(api, "domain-admin") == [requested]


async def test_invalid_reservations_are_refused(api: Api, clock: MovableClock) -> None:
    admin = await api.client("admin")
    await FakeAgent(api.agent, "a1").beat()
    for fields, error, text in (
        ({"users": ["nobody"]}, InvalidRequest, "not a member"),
        ({"nodes": 2}, Conflict, "2 agents with .* only 1 of 1 suitable agent can"),
        (
            {"resources": {"cpu": 64}},
            Conflict,
            "^no agent of resource group default has cpu=64$",
        ),
        (
            {"resources": {"cpu": 64}, "whole_machines": True},
            Conflict,
            "^no agent of resource group default has cpu=64$",
        ),
        (
            {"starts_at": (clock() + 5 * HOUR).isoformat()},
            InvalidRequest,
            "must end after its start",
        ),
        ({"starts_at": "1min"}, InvalidRequest, "starts_at: must be a time with a time zone"),
        ({"starts_at": "2030-01-01T00:00"}, InvalidRequest, "starts_at: must be a time with"),
        ({"resource_group": "nothing"}, NotFound, "no resource group"),
        ({"resources": {"cpu": 0}}, InvalidRequest, "a reservation needs resources"),
        ({"resources": {"cuda.device": 1, "cuda.shares": 0.5}}, InvalidRequest, "exclusive"),
    ):
        with pytest.raises(error, match=text):
            await admin.post("/reservations", spec(clock, **fields))
    await admin.patch("/agents/a1", {"schedulable": False})
    text = "^no agent of resource group default with cuda.device=2 accepts sessions$"
    with pytest.raises(Conflict, match=text):
        await admin.post("/reservations", spec(clock))
    await admin.patch("/agents/a1", {"schedulable": True})
    await admin.patch("/projects/default", {"total_resource_slots": {"cuda.device": "1"}})
    with pytest.raises(QuotaExceeded):
        await admin.post("/reservations", spec(clock))


async def test_requests_of_one_project_do_not_exclude_others(
    api: Api, clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MAX_RESERVATIONS", 3)
    monkeypatch.setattr(store, "MAX_REQUESTED", 2)
    monkeypatch.setattr(store, "MAX_STORED", 4)
    user, admin = await api.client("user"), await api.client("admin")
    await FakeAgent(api.agent, "a1").beat()
    for number in range(2):
        await user.post("/reservations", spec(clock, name=f"r{number}"))
    with pytest.raises(Conflict, match="2 reservations of the project wait for an approval"):
        await user.post("/reservations", spec(clock, name="r2"))
    await admin.post("/reservations", spec(clock, 4, 5, project="research"))
    with pytest.raises(Conflict, match="3 open reservations"):
        await admin.post("/reservations", spec(clock, project="research", name="more"))
    # The names of reservations of other projects are not revealed.
    await user.patch("/reservations/r1", {"state": "cancelled"})
    with pytest.raises(Conflict) as raised:
        await user.post("/reservations", spec(clock, 4, 5, name="overlap"))
    assert raised.value.details["reservations"] == []
    await user.post("/reservations", spec(clock, name="r1"))
    # Cancelled reservations do not count, and only a few are kept.
    for _ in range(3):
        await user.patch("/reservations/r0", {"state": "cancelled"})
        clock.advance(seconds=1)
        await user.post("/reservations", spec(clock, name="r0"))
    states = [one["state"] for one in (await admin.get("/reservations"))["items"]]
    assert sorted(states) == ["approved", "cancelled", "requested", "requested"]


async def test_quota_of_the_domain_limits_all_its_projects_together(
    api: Api, clock: MovableClock
) -> None:
    admin = await api.client("admin")
    await FakeAgent(api.agent, "a1").beat()
    await FakeAgent(api.agent, "a2").beat()
    domain = (await admin.get("/projects/research"))["domain"]
    await admin.patch(f"/domains/{domain}", {"total_resource_slots": {"cuda.device": "3"}})
    await admin.post("/reservations", spec(clock))
    with pytest.raises(QuotaExceeded):
        await admin.post("/reservations", spec(clock, project="research"))
    await admin.post("/reservations", spec(clock, 3, 4, project="research"))
