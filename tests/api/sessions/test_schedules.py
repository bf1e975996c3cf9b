"""Schedules over REST, and the sessions that they start and stop."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.client import Client
from bai_services.core.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    QuotaExceeded,
)
from bai_services.core.sessions.lifecycle import Event
from bai_services.core.sessions.schedules.records import MAX_RUNS
from bai_services.db.sessions.schedules.runs import ScheduleRunStore
from bai_services.db.tables.schedules import schedule_runs
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

SMALL = {"resources": {"cpu": "1", "mem": "1g"}}


async def step(api: Api) -> None:
    await api.world.manager.sessions.schedule_runner.step()


def at(api: Api, **delta: float) -> str:
    """Return a daily rule for the time of day that it will be after ``delta``."""
    when = api.world.clock() + timedelta(**delta)
    return f"daily {when:%H:%M}"


async def make(api: Api, user: Client, **fields: Any) -> dict[str, Any]:
    await FakeAgent(api.agent).beat()
    spec = {"name": "work", "request": SMALL, "start": at(api, minutes=2), **fields}
    made: dict[str, Any] = await user.post("/schedules", spec)
    return made


async def runs(user: Client, key: str = "work") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await user.get(f"/schedules/{key}/runs"))["items"]
    return found


async def test_schedule_starts_and_stops_a_session(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user, stop=at(api, minutes=5))
    start = datetime.fromisoformat(made["next_starts"][0])
    assert (start, len(made["next_starts"])) == (
        (api.world.clock() + timedelta(minutes=2)).replace(second=0),
        5,
    )
    await step(api)
    assert (await user.get("/sessions"))["items"] == []
    api.world.clock.advance(minutes=2)
    for _ in range(2):
        await step(api)
    (session,) = (await user.get("/sessions"))["items"]
    assert (session["name"], session["status"]) == ("work", "PENDING")
    (run,) = await runs(user)
    assert (run["status"], run["session_id"]) == ("started", session["id"])
    assert datetime.fromisoformat(run["stops_at"]) == start + timedelta(minutes=3)
    api.world.clock.advance(minutes=3)
    await step(api)
    (session,) = (await user.get("/sessions"))["items"]
    assert session["status"] == "CANCELLED"
    assert session["status_coded"]["values"] == {"name": "work"}
    assert [run["status"] for run in await runs(user)] == ["stopped"]
    shown = await user.get("/schedules/work")
    assert (shown["last_status"], shown["last_start_at"]) == ("stopped", run["due_at"])
    (entry,) = (await (await api.client("admin")).get("/audit-log", action="session.create"))[
        "items"
    ]
    assert entry["details"]["schedule"] == "work"


async def test_running_session_shows_its_scheduled_stop(api: Api) -> None:
    user = await api.client("user")
    await make(api, user, stop=at(api, minutes=9))
    api.world.clock.advance(minutes=2)
    await step(api)
    (session,) = (await user.get("/sessions"))["items"]
    await api.world.manager.scheduling.scheduler.run_pass()
    await start_by_force(api, session["id"])
    shown = await user.get("/sessions/work")
    assert shown["end_rule"]["coded"]["code"] == "scheduled-stop"
    assert any("schedule work stops the session at" in text for text in shown["notices"])
    # A new stop applies to the running session.
    await user.patch("/schedules/work", {"stop": None})
    assert (await user.get("/sessions/work"))["end_rule"] is None


async def start_by_force(api: Api, session_id: str) -> None:
    for event in (Event.DISPATCHED, Event.PREPARED, Event.STARTED):
        await api.world.manager.lifecycle.apply(session_id, event)


@pytest.mark.parametrize(
    ("fields", "late_minutes", "status"),
    [
        pytest.param({"catch_up_minutes": 10}, 8, "started", id="late, within the limit"),
        pytest.param({"catch_up_minutes": 0}, 8, "skipped", id="late, above the limit"),
        pytest.param({"catch_up_minutes": 0}, 1, "started", id="within the grace"),
        pytest.param({"catch_up_minutes": 10, "stop": 5}, 8, "skipped", id="after the stop"),
    ],
)
async def test_missed_start_takes_place_within_the_limit(
    api: Api, fields: dict[str, Any], late_minutes: int, status: str
) -> None:
    user = await api.client("user")
    if "stop" in fields:
        fields = {**fields, "stop": at(api, minutes=fields["stop"])}
    await make(api, user, **fields)
    api.world.clock.advance(minutes=2 + late_minutes)
    await step(api)
    (run,) = await runs(user)
    assert run["status"] == status
    assert bool(run["reason"]) == (status == "skipped")
    assert len((await user.get("/sessions"))["items"]) == (status == "started")


async def test_start_is_skipped_while_the_last_session_is_live(api: Api) -> None:
    user = await api.client("user")
    times = [api.world.clock() + timedelta(minutes=n) for n in (2, 6)]
    await make(api, user, start="daily " + ",".join(f"{each:%H:%M}" for each in times))
    for minutes in (2, 4):
        api.world.clock.advance(minutes=minutes)
        await step(api)
    second, first = await runs(user)
    assert (first["status"], second["status"]) == ("started", "skipped")
    assert second["coded"]["code"] == "schedule-overlap"
    assert len((await user.get("/sessions"))["items"]) == 1


async def test_restart_stops_the_last_session_first(api: Api) -> None:
    user = await api.client("user")
    times = [api.world.clock() + timedelta(minutes=n) for n in (2, 6)]
    start = "daily " + ",".join(f"{each:%H:%M}" for each in times)
    await make(api, user, start=start, overlap="restart")
    for minutes in (2, 4, 0):
        api.world.clock.advance(minutes=minutes)
        await step(api)
    assert [run["status"] for run in await runs(user)] == ["started", "started"]
    statuses = {item["status"] for item in (await user.get("/sessions"))["items"]}
    assert statuses == {"CANCELLED", "PENDING"}


async def test_schedule_of_an_inactive_user_does_nothing_and_says_why(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    made = await make(api, user)
    await admin.patch("/users/user", {"status": "inactive"})
    api.world.clock.advance(minutes=2)
    await step(api)
    (run,) = (await admin.get(f"/schedules/{made['id']}/runs"))["items"]
    assert run["status"] == "skipped"
    assert "this account is not active" in run["reason"]
    assert (await admin.get("/sessions"))["items"] == []


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        pytest.param(("/keypairs/{key}", {"is_active": False}), "is not active", id="keypair"),
        pytest.param(
            ("/user-policies/default", {"max_pending_sessions": 0}), "at most 0", id="quota"
        ),
    ],
)
async def test_scheduled_start_obeys_the_rules_for_its_owner(
    api: Api, changed: tuple[str, dict[str, Any]], message: str
) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    made = await make(api, user)
    path = changed[0].format(key=api.world.keys["user"].access_key)
    await admin.patch(path, changed[1])
    api.world.clock.advance(minutes=2)
    await step(api)
    (run,) = (await admin.get(f"/schedules/{made['id']}/runs"))["items"]
    assert run["status"] == "skipped"
    assert message in run["reason"]


async def test_paused_and_expired_schedules_start_nothing(api: Api) -> None:
    user = await api.client("user")
    soon = (api.world.clock() + timedelta(minutes=1)).isoformat()
    paused = await make(api, user, name="paused", is_paused=True)
    expired = await make(api, user, name="expired", valid_until=soon)
    assert paused["next_starts"] == expired["next_starts"] == []
    api.world.clock.advance(minutes=2)
    await step(api)
    assert (await user.get("/sessions"))["items"] == []
    resumed = await user.patch("/schedules/paused", {"is_paused": False})
    assert datetime.fromisoformat(resumed["next_starts"][0]) > api.world.clock()


async def test_template_is_applied_at_the_start(api: Api) -> None:
    user = await api.client("user")
    await user.post("/session-templates", {"name": "small", "request": SMALL})
    await make(api, user, request={"environ": {"A": "1"}}, template="small")
    api.world.clock.advance(minutes=2)
    await step(api)
    (session,) = (await user.get("/sessions"))["items"]
    assert session["environ"] == {"A": "1"}
    assert session["requested"]["cpu"] == "1"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"start": "never"}, "two or five parts"),
        ({"stop": "mon 25:00"}, "not a time of day"),
        ({"time_zone": "Mars/Base"}, "not a time zone"),
        ({"name": "../x"}, "name"),
        ({"request": {"secret_environ": ["A"]}}, "secret variables"),
        (
            {"valid_from": "2030-01-02T00:00Z", "valid_until": "2030-01-01T00:00Z"},
            "valid_until must be after",
        ),
        ({"valid_until": "2020-01-01T00:00Z"}, "valid_until is in the past"),
    ],
)
async def test_invalid_schedule_is_rejected(api: Api, fields: dict[str, Any], message: str) -> None:
    user = await api.client("user")
    with pytest.raises(InvalidRequest, match=message):
        await make(api, user, **fields)
    made = await make(api, user)
    if "name" not in fields:
        with pytest.raises(InvalidRequest, match=message):
            await user.patch(f"/schedules/{made['id']}", fields)


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        pytest.param({"project": "gone"}, NotFound, "not in a project 'gone'", id="project"),
        pytest.param({"resource_group": "gone"}, NotFound, "no resource group 'gone'", id="group"),
    ],
)
async def test_schedule_that_could_never_start_is_rejected(
    api: Api, request_: dict[str, Any], error: type[Exception], message: str
) -> None:
    user = await api.client("user")
    with pytest.raises(error, match=message):
        await make(api, user, request={**SMALL, **request_})
    await user.post("/session-templates", {"name": "old", "request": {**SMALL, **request_}})
    with pytest.raises(error, match=message):
        await make(api, user, request={}, template="old")
    await make(api, user)
    with pytest.raises(error, match=message):
        await user.patch("/schedules/work", {"request": {**SMALL, **request_}})


async def test_schedule_needs_a_project(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await make(api, user)
    await admin.delete("/projects/default/members/user")
    with pytest.raises(InvalidRequest, match="ask an administrator to add you to one"):
        await make(api, user, name="other")
    # The user can still stop the existing schedule.
    assert (await user.patch("/schedules/work", {"is_paused": True}))["is_paused"]


async def test_only_the_owner_defines_a_schedule(api: Api) -> None:
    user, other, admin = [await api.client(name) for name in ("user", "user2", "admin")]
    made = await make(api, user, request={**SMALL, "environ": {"A": "secret"}})
    path = f"/schedules/{made['id']}"
    with pytest.raises(NotFound):
        await other.get(path)
    shown = await admin.get(path)
    assert (shown["hidden_fields"], "environ" in shown["request"]) == (["environ"], False)
    with pytest.raises(Forbidden, match="only the owner"):
        await admin.patch(path, {"start": "daily 01:00"})
    assert (await admin.patch(path, {"is_paused": True}))["is_paused"] is True
    await admin.delete(path)
    with pytest.raises(NotFound):
        await user.get(path)


async def test_second_of_two_changes_is_a_conflict(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user)
    await user.patch("/schedules/work", {"name": "first", "version": made["version"]})
    with pytest.raises(Conflict, match="another user has changed"):
        await user.patch(f"/schedules/{made['id']}", {"name": "second", "version": made["version"]})


async def test_number_of_schedules_is_bounded_by_the_policy(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await admin.patch("/user-policies/default", {"max_schedules": 1})
    await make(api, user)
    with pytest.raises(QuotaExceeded, match="at most 1 schedule;"):
        await make(api, user, name="other")
    await admin.patch("/user-policies/default", {"max_schedules": None})
    with pytest.raises(AlreadyExists):
        await make(api, user)


@pytest.mark.both_databases
async def test_old_runs_are_removed_in_bulk(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, user)
    start = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {
            "id": f"r{n}",
            "schedule_id": made["id"],
            "due_at": start + timedelta(days=n),
            "status": "skipped",
        }
        for n in range(MAX_RUNS + 20)
    ]
    database = api.world.manager.database
    async with database.write() as tx:
        await tx.execute(schedule_runs.insert(), rows)
    await ScheduleRunStore(database).clean_up(start + timedelta(days=50), MAX_RUNS)
    async with database.read() as tx:
        kept = (await tx.scalars(sa.select(schedule_runs.c.id))).all()
    assert len(kept) == MAX_RUNS + 20 - 50


async def test_stop_ends_a_session_that_is_being_preempted(api: Api) -> None:
    user = await api.client("user")
    await make(api, user, stop=at(api, minutes=5))
    api.world.clock.advance(minutes=2)
    await step(api)
    (session,) = (await user.get("/sessions"))["items"]
    await api.world.manager.scheduling.scheduler.run_pass()
    await start_by_force(api, session["id"])
    where = {"user": session["hub_user"], "server": session["hub_server"]}
    await api.hub.post(f"/sessions/{session['id']}/launch", where)
    await api.world.manager.lifecycle.apply(
        session["id"], Event.PREEMPTED, "preempted", is_requeued_at_end=True
    )
    api.world.clock.advance(minutes=3)
    await step(api)
    assert [run["status"] for run in await runs(user)] == ["stopped"]
    await api.hub.post(f"/sessions/{session['id']}/exited", {"exit_code": 0, "reason": "x"})
    assert (await user.get(f"/sessions/{session['id']}"))["status"] == "TERMINATED"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:00-12:00"])
async def test_extreme_times_are_rejected(api: Api, text: str) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    for name in ("valid_from", "valid_until"):
        with pytest.raises(InvalidRequest, match=f"{name}: the year must be from 1970 to 9000"):
            await make(api, user, **{name: text})
    budget = {"project": "default", "amount": 1, "period": "fixed"}
    times = {"starts_at": text, "ends_at": "2026-01-01T00:00:00Z"}
    with pytest.raises(InvalidRequest, match="starts_at: the year must be from 1970 to 9000"):
        await admin.post("/budgets", {**budget, **times})
