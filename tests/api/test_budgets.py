"""Budgets of projects: the spent amount, warnings, and the block of new starts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import sqlalchemy as sa

from bai_services.core.errors import AlreadyExists, Conflict, Forbidden, InvalidRequest, NotFound
from bai_services.core.scheduling.queue import run_pass
from bai_services.core.sessions.lifecycle import Event, Status
from bai_services.core.usage.budgets import month_of
from bai_services.db.scheduling.queue import QueueStore
from bai_services.db.tables.notifications import notification_events
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

ONE_PER_MINUTE = {"currency": "EUR", "prices": [{"slot": "sessions", "per_hour": 60}]}
SMALL = {"resources": {"cpu": "1", "mem": "1g"}}


def test_month_begins_at_local_midnight_across_daylight_saving_time() -> None:
    zone = ZoneInfo("Europe/Berlin")
    assert month_of(datetime(2026, 10, 25, 12, tzinfo=UTC), zone) == (
        datetime(2026, 9, 30, 22, tzinfo=UTC),
        datetime(2026, 10, 31, 23, tzinfo=UTC),
    )
    december = month_of(datetime(2026, 12, 31, 23, 30, tzinfo=UTC), ZoneInfo("UTC"))
    assert december[1] == datetime(2027, 1, 1, tzinfo=UTC)


async def make(api: Api, **fields: Any) -> dict[str, Any]:
    admin = await api.client("admin")
    await FakeAgent(api.agent).beat()
    await admin.put("/usage-prices", ONE_PER_MINUTE)
    # A fixed period, so that the test does not depend on the day on which it runs.
    now = api.world.clock()
    period = {
        "period": "fixed",
        "starts_at": (now - timedelta(days=1)).isoformat(),
        "ends_at": (now + timedelta(days=1)).isoformat(),
    }
    spec = {"project": "default/default", "amount": 10, "mode": "block", **period, **fields}
    made: dict[str, Any] = await admin.post("/budgets", spec)
    return made


async def run(api: Api, session_id: str) -> None:
    """Place a session as a scheduling pass does, and start it."""
    database, clock = api.world.manager.database, api.world.clock
    queue = QueueStore(database)
    decisions = [
        decision
        for decision in run_pass(await queue.snapshot(clock())).decisions
        if decision.session_id == session_id
    ]
    await queue.commit(decisions, clock(), None)
    for event in (Event.DISPATCHED, Event.PREPARED, Event.STARTED):
        await api.world.manager.lifecycle.apply(session_id, event)


async def notices(api: Api) -> list[int]:
    """Return the percentages that the members of the project were notified of."""
    async with api.world.manager.database.read() as tx:
        rows = await tx.scalars(
            sa.select(notification_events.c.text)
            .where(notification_events.c.name == "budget-warning")
            .order_by(notification_events.c.created_at)
        )
    return [text["values"]["percent"] for text in rows]


@pytest.mark.both_databases
async def test_spent_budget_warns_and_blocks_new_starts(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    watch = api.world.manager.usage.budget_watch
    made = await make(api)
    assert (made["spent"], made["left"], made["blocked_at"]) == (0, 10, None)
    first = await user.post("/sessions", {"name": "first", **SMALL})
    await run(api, first["id"])
    api.world.clock.advance(minutes=8)
    await watch.step()
    shown = await user.get(f"/budgets/{made['project_id']}")
    assert (shown["spent"], shown["spent_percent"], shown["left"]) == (8, 80, 2)
    assert await notices(api) == [80]
    waiting = await user.post("/sessions", {"name": "second", **SMALL})
    # The budget is spent after the decisions of a pass and before their commit.
    queue = QueueStore(api.world.manager.database)
    decisions = run_pass(await queue.snapshot(api.world.clock())).decisions
    assert [decision.session_id for decision in decisions] == [waiting["id"]]
    api.world.clock.advance(minutes=2)
    await watch.step()
    await watch.step()
    assert await notices(api) == [80, 100]
    committed = await queue.commit(decisions, api.world.clock(), None)
    assert (committed.placed, committed.lost) == ((), (waiting["id"],))
    snapshot = await queue.snapshot(api.world.clock())
    assert run_pass(snapshot).decisions == ()
    (pending,) = snapshot.pending
    assert str(pending.blocked_reason) == "the budget of project default (10 EUR) is spent"
    await api.world.manager.scheduling.scheduler.run_pass()
    (reason,) = (await user.get("/sessions/second"))["reasons"]
    assert reason["check"] == "budget"
    why = await user.get("/sessions/second/why")
    failed = {check["check"] for check in why["checks"] if not check["passed"]}
    assert (failed, why["sooner"]) == ({"budget"}, [])
    # The running session continues.
    assert (await user.get("/sessions/first"))["status"] == Status.RUNNING
    entries = (await admin.get("/audit-log", action="budget.reached"))["items"]
    assert [entry["details"]["percent"] for entry in entries] == [100, 80]
    # The budget is raised: the session starts.
    await admin.patch(f"/budgets/{made['project_id']}", {"amount": 100})
    decisions = run_pass(await queue.snapshot(api.world.clock())).decisions
    assert len((await queue.commit(decisions, api.world.clock(), None)).placed) == 1


async def test_fixed_budget_cannot_end_in_the_past(api: Api) -> None:
    past = (api.world.clock() - timedelta(hours=1)).isoformat()
    with pytest.raises(InvalidRequest, match="ends_at is in the past"):
        await make(api, ends_at=past)
    made = await make(api)
    admin = await api.client("admin")
    with pytest.raises(InvalidRequest, match="ends_at is in the past"):
        await admin.patch(f"/budgets/{made['project_id']}", {"ends_at": past})


async def test_spent_budget_has_zero_left_and_not_minus_zero(api: Api) -> None:
    user = await api.client("user")
    made = await make(api, amount=0.07)
    first = await user.post("/sessions", {"name": "first", **SMALL})
    await run(api, first["id"])
    # The cost is 0.07 EUR, as the sum of parts that are not exact.
    admin = await api.client("admin")
    price = {"slot": "sessions", "per_hour": 84.0000001}
    await admin.put("/usage-prices", {"currency": "EUR", "prices": [price]})
    api.world.clock.advance(seconds=3)
    await api.world.manager.usage.budget_watch.step()
    shown = await user.get(f"/budgets/{made['project_id']}")
    assert (str(shown["spent"]), str(shown["left"])) == ("0.07", "0.0")


@pytest.mark.both_databases
async def test_amount_has_two_exact_decimals(api: Api) -> None:
    admin = await api.client("admin")
    made = await make(api, amount=1234567.29)
    assert (made["amount"], made["left"]) == (1234567.29, 1234567.29)
    path = f"/budgets/{made['project_id']}"
    # 0.29 is less than 29/100 as a floating-point number.
    assert (await admin.patch(path, {"amount": "0.29"}))["amount"] == 0.29
    with pytest.raises(InvalidRequest, match="2 decimal places"):
        await admin.patch(path, {"amount": 0.295})
    most = 10**12 - 0.01
    assert (await admin.patch(path, {"amount": most}))["amount"] == most
    (*_, entry) = (await admin.get("/audit-log", action="budget.update", sort="-at"))["items"]
    assert entry["details"]["changes"]["amount"] == {"before": "1234567.29", "after": "0.29"}


async def test_running_sessions_are_stopped_after_the_grace(api: Api) -> None:
    user = await api.client("user")
    watch = api.world.manager.usage.budget_watch
    await make(api, amount=1, stop_after_minutes=5)
    first = await user.post("/sessions", {"name": "first", **SMALL})
    await run(api, first["id"])
    api.world.clock.advance(minutes=2)
    await watch.step()
    shown = await user.get("/sessions/first")
    assert shown["end_rule"]["coded"]["code"] == "budget-stop"
    await api.world.manager.notifications.outbox.step()
    (notice,) = (await user.get("/notifications", event="budget-warning"))["items"]
    assert "default has used 200% of its budget: new sessions wait, and running" in notice["text"]
    api.world.clock.advance(minutes=4)
    await watch.step()
    assert (await user.get("/sessions/first"))["status"] == Status.RUNNING
    api.world.clock.advance(minutes=1)
    await watch.step()
    shown = await user.get("/sessions/first")
    assert (shown["status"], shown["status_coded"]["code"]) == ("TERMINATING", "budget-stop")


@pytest.mark.both_databases
async def test_spent_amount_is_the_same_from_totals_and_from_records(api: Api) -> None:
    user = await api.client("user")
    usage = api.world.manager.usage
    made = await make(api, amount=1000)
    first = await user.post("/sessions", {"name": "first", **SMALL})
    await run(api, first["id"])
    api.world.clock.advance(hours=5, minutes=30)
    await usage.budget_watch.step()
    caller = await api.world.caller("user")
    before = await usage.budgets.get(caller, made["project_id"])
    await usage.aggregation.step()
    await usage.budget_watch.step()
    after = await usage.budgets.get(caller, made["project_id"])
    assert before.spent == after.spent == 330


async def test_warning_budget_blocks_nothing_and_repeats_no_event(api: Api) -> None:
    user = await api.client("user")
    watch = api.world.manager.usage.budget_watch
    made = await make(api, amount=1, mode="warn", warn_percents=[50, 200])
    first = await user.post("/sessions", {"name": "first", **SMALL})
    await run(api, first["id"])
    for _ in range(3):
        api.world.clock.advance(seconds=45)
        await watch.step()
    # The percentages 50, 100 and 200 are reached. The notifications contain the spent amount.
    assert await notices(api) == [75, 150, 225]
    assert (await user.get(f"/budgets/{made['project_id']}"))["blocked_at"] is None


async def test_preview_shows_costs_and_what_is_left(api: Api) -> None:
    user, admin = await api.client("user"), await api.client("admin")
    await make(api)
    prices = [{"slot": "cpu", "per_hour": 0.5}, {"slot": "mem", "per_hour": 0.25}]
    await admin.put("/usage-prices", {"currency": "EUR", "prices": prices})
    body = {"resources": {"cpu": "2", "mem": "4g"}, "cluster_size": 1}
    shown = await user.post("/sessions/preview", body)
    assert (shown["cost_per_hour"], shown["currency"], shown["budget_left"]) == (2.0, "EUR", 10)


async def test_month_budget_begins_again_in_a_new_month(api: Api) -> None:
    api.world.clock.now = datetime(2026, 11, 30, 23, 30, tzinfo=UTC)
    usage, caller = api.world.manager.usage, await api.world.caller("admin")
    project = await api.world.project_id()
    spec = {"project": project, "amount": 0, "mode": "block", "time_zone": "Asia/Seoul"}
    made = await usage.budgets.create(caller, spec)
    assert made.period_start == datetime(2026, 11, 30, 15, tzinfo=UTC)
    assert made.blocked_at is not None
    api.world.clock.now = datetime(2027, 1, 1, tzinfo=UTC)
    await usage.budget_watch.refresh()
    again = await usage.budgets.get(caller, project)
    assert again.period_start == datetime(2026, 12, 31, 15, tzinfo=UTC)
    assert again.blocked_at == datetime(2027, 1, 1, tzinfo=UTC)


async def test_nothing_is_spent_of_a_budget_of_zero_before_its_period(api: Api) -> None:
    user = await api.client("user")
    session = await user.post("/sessions", {"name": "early", **SMALL})
    await FakeAgent(api.agent).beat()
    await run(api, session["id"])
    now = api.world.clock()
    period = {
        "starts_at": (now + timedelta(hours=2)).isoformat(),
        "ends_at": (now + timedelta(days=1)).isoformat(),
    }
    made = await make(api, amount=0, **period)
    api.world.clock.advance(minutes=50)
    await api.world.manager.usage.budget_watch.step()
    shown = await user.get(f"/budgets/{made['project_id']}")
    assert (shown["spent"], shown["spent_percent"], shown["blocked_at"]) == (0, 0, None)
    assert await notices(api) == []
    api.world.clock.advance(hours=3)
    await api.world.manager.usage.budget_watch.step()
    shown = await user.get(f"/budgets/{made['project_id']}")
    assert shown["spent_percent"] == 100 and shown["blocked_at"] is not None


async def test_month_of_a_budget_is_the_month_of_reports(api: Api) -> None:
    """If the offset to UTC has half an hour, budget and statistics begin at the same full hour of
    UTC.
    """
    user, zone = await api.client("user"), "Asia/Kolkata"
    # 23:20 on the last day of the month: the next month begins at 18:30 UTC.
    now = api.world.clock()
    last_day = month_of(now, ZoneInfo(zone))[1] - timedelta(minutes=40)
    api.world.clock.advance(seconds=(last_day - now).total_seconds())
    made = await make(
        api, amount=1000, mode="warn", period="month", time_zone=zone, starts_at=None, ends_at=None
    )
    session = await user.post("/sessions", {"name": "midnight", **SMALL})
    await run(api, session["id"])
    api.world.clock.advance(hours=3)
    await api.world.manager.usage.budget_watch.step()
    spent = (await user.get(f"/budgets/{made['project_id']}"))["spent"]
    since = (api.world.clock() - timedelta(days=2)).isoformat()
    report = await user.get("/usage", every="month", since=since, time_zone=zone, slot="sessions")
    month = max(report["rows"], key=lambda row: row["start"])
    assert spent == pytest.approx(month["cost"])


async def test_budget_changes_need_permission_version_and_valid_values(api: Api) -> None:
    made = await make(api)
    user, admin = await api.client("user"), await api.client("admin")
    path = f"/budgets/{made['project_id']}"
    with pytest.raises(AlreadyExists):
        await admin.post("/budgets", {"project": "default/default", "amount": 1})
    with pytest.raises(Forbidden):
        await user.patch(path, {"amount": 1})
    assert (await admin.patch(path, {"amount": 7, "version": made["version"]}))["amount"] == 7
    with pytest.raises(Conflict):
        await admin.patch(path, {"amount": 8, "version": made["version"]})
    for wrong in ({"period": "month"}, {"ends_at": None}, {"time_zone": "Mars"}):
        with pytest.raises(InvalidRequest):
            await admin.patch(path, wrong)
    await admin.delete(path)
    assert (await user.get("/budgets"))["items"] == []
    with pytest.raises(NotFound, match="has no budget"):
        await user.get(path)
