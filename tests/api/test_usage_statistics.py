"""`/usage` and `/usage-prices`: exact sums, permissions, CSV, prices."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from datetime import timedelta
from typing import Any

import pytest

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from bai_services.core.sessions.lifecycle import Event
from bai_services.core.usage.model import Dimension, HourTotals, Prices
from bai_services.core.usage.periods import Every
from bai_services.core.usage.records import UsageReport, UsageRow
from bai_services.db.sessions.store import SessionStore
from bai_services.db.usage.aggregates import UsageAggregateStore
from bai_services.manager.usage.reports import ReportRequest
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, Client

from .pipelines.test_pipelines import create as create_pipeline
from .pipelines.test_pipelines import wait_for_session
from .sessions.test_sessions import bring_to_running, create_running_session

SLOTS = {"resources": {"cpu": "2", "mem": "1g"}}


@pytest.fixture
async def user(api: Api) -> Client:
    return await api.client("user")


@pytest.fixture
async def user2(api: Api) -> Client:
    return await api.client("user2")


@pytest.fixture
async def admin(api: Api) -> Client:
    return await api.client("admin")


async def report(client: Client, **query: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the rows of a report over one period, by name and slot."""
    found = await client.get("/usage", **query)
    return {(row["name"], row["slot"]): row for row in found["rows"]}


class Later:
    """Reads reports as a user, and ends sessions, at any time of the manager's clock.

    A signed request would be rejected, because its date is too far from the manager's time.
    """

    def __init__(self, api: Api, user_id: str) -> None:
        self._manager = api.world.manager
        self._caller = Caller(Role.USER, user_id, "user", "default")

    async def report(self, **values: Any) -> dict[tuple[str, str], UsageRow]:
        request = ReportRequest(self._manager.clock() - timedelta(days=20), **values)
        found = await self.read(request)
        return {(f"{row.start:%m-%d %H}", row.slot): row for row in found.rows}

    async def read(self, request: ReportRequest) -> UsageReport:
        return await self._manager.usage.reports.read(self._caller, request)

    async def total(self, name: str, **values: Any) -> dict[str, float]:
        """Return the sum of one measure for each slot."""
        sums: dict[str, float] = defaultdict(float)
        for (_, slot), row in (await self.report(**values)).items():
            sums[slot] += getattr(row, name) or 0.0
        return sums

    async def end(self, session: dict[str, Any], event: Event) -> None:
        store = SessionStore(self._manager.database)
        await store.move(session["id"], event, self._manager.clock())


async def test_report_adds_totals_and_open_sessions_exactly(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    clock, step = api.world.clock, api.world.manager.usage.aggregation.step
    session = await create_running_session(api, agent, "lab1", **SLOTS)
    later = Later(api, session["owner_id"])
    clock.advance(seconds=5)
    before = await later.total("allocated_seconds")
    clock.advance(hours=50)  # contains a complete day in every time zone
    open_only = await later.total("allocated_seconds")
    assert open_only["cpu"] - before["cpu"] == 2 * 50 * 3600
    assert open_only["mem"] * 2 == open_only["cpu"] == open_only["sessions"] * 2
    for _ in range(2):  # A repeated step changes nothing.
        await step()
        assert await later.total("allocated_seconds") == open_only
    for row in (await later.report()).values():
        assert (row.used_seconds, row.wasted_seconds, row.energy_joules) == (None, None, None)
    await later.end(session, Event.EXITED)
    ended = await later.total("allocated_seconds")
    clock.advance(hours=50)
    await step()
    for every in Every:
        for zone in ("UTC", "Asia/Seoul", "America/St_Johns", "Europe/Berlin"):
            found = await later.total("allocated_seconds", every=every, time_zone=zone)
            assert found == pytest.approx(ended), (every, zone)
    days = await later.report(every=Every.DAY, time_zone="Asia/Seoul", slot="cpu")
    assert {start[-2:] for start, _ in list(days)[1:]} == {"15"}
    assert sorted(row.allocated_seconds for row in days.values())[-1] == 2 * 86400


async def test_report_by_kind_of_session(api: Api, agent: FakeAgent, user: Client) -> None:
    """The kinds are the same before and after the totals of the hours are computed."""
    session = await create_running_session(api, agent, "lab1", **SLOTS)
    task = "tasks:\n- {name: train, command: make, resources: {cpu: 1, mem: 1g}}\n"
    await create_pipeline(user, "chain", task)
    run = (await user.post("/pipelines/chain/runs", {}))["id"]
    await bring_to_running(api, agent, await wait_for_session(user, run, "train"))
    api.world.clock.advance(hours=3)
    later = Later(api, session["owner_id"])

    async def cores() -> dict[str, int]:
        request = ReportRequest(
            api.world.clock() - timedelta(hours=3), by=Dimension.SESSION_KIND, slot="cpu"
        )
        found = await later.read(request)
        return {row.name: round(row.allocated_seconds / 3600) for row in found.rows}

    assert await cores() == {"interactive": 6, "pipeline-task": 3}
    await api.world.manager.usage.aggregation.step()
    assert await cores() == {"interactive": 6, "pipeline-task": 3}


async def test_waiting_session_is_counted_in_each_hour(api: Api, user: Client) -> None:
    """The session waits for 5 hours until the totals are computed, and for one more hour."""
    session = await user.post(
        "/sessions", {"name": "big-job", "resources": {"cpu": "8", "mem": "1g"}}
    )
    later, clock = Later(api, session["owner_id"]), api.world.clock
    clock.now = clock.now.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    start = (await later.total("waited_seconds"))["sessions"]
    clock.advance(hours=5)
    await api.world.manager.usage.aggregation.step()
    clock.advance(hours=1)
    await later.end(session, Event.STOP_REQUESTED)
    assert (await later.total("waited_seconds"))["sessions"] == start + 6 * 3600
    clock.advance(hours=2)
    await api.world.manager.usage.aggregation.step()
    assert (await later.total("waited_seconds"))["sessions"] == start + 6 * 3600


async def test_recomputed_hour_keeps_the_utilization_of_expired_samples(
    api: Api, agent: FakeAgent
) -> None:
    clock, usage = api.world.clock, api.world.manager.usage
    session = await create_running_session(api, agent, "lab1", **SLOTS)
    clock.advance(hours=3)
    await Later(api, session["owner_id"]).end(session, Event.EXITED)
    await usage.aggregation.step()
    store = UsageAggregateStore(api.world.manager.database)
    done = await store.done_until()
    assert done is not None
    hour = done - 2 * 3600
    facts = await store.facts(hour)
    for (_, slot), measures in facts.items():
        if slot == "cpu":
            measures.measured, measures.used, measures.wasted = 7200.0, 1800.0, 60.0
            measures.energy = 5.0
    totals = HourTotals(hour, Prices())
    totals.facts.update(facts)
    await store.write_hour(hour, facts, totals.totals(), None)
    clock.advance(days=31)
    await usage.aggregation.compute_hour(hour, None)
    assert await store.facts(hour) == facts


async def test_report_contains_only_usage_that_the_role_may_see(
    api: Api, agent: FakeAgent, user: Client, user2: Client, admin: Client
) -> None:
    await create_running_session(api, agent, "lab1", **SLOTS)
    api.world.clock.advance(seconds=60)
    assert ("user", "cpu") in await report(user, by="user")
    assert await report(user2, by="user") == {}
    assert ("user", "cpu") in await report(admin, by="user")
    assert ("user", "cpu") in await report(admin, by="user", user="user")
    assert await report(admin, by="user", own="true") == {}
    with pytest.raises(NotFound):
        await report(user2, user="user")
    for by in ("project", "domain", "resource-group", "image", "total"):
        assert await report(admin, by=by, every="hour"), by


@pytest.mark.parametrize(
    "query",
    [
        {"every": "year"},
        {"by": "colour"},
        {"time_zone": "Mars"},
        {"slot": "no slot"},
        {"limit": "0"},
        {"limit": "-1"},
        {"since": "2001-01-01"},
        {"since": "yesterday"},
        {"since": "2026-01-02", "until": "2026-01-01"},
        {"every": "hour", "since": "PAST"},
        {"format": "xml"},
    ],
)
async def test_malformed_query_is_rejected(api: Api, user: Client, query: dict[str, str]) -> None:
    past = (api.world.clock.now - timedelta(days=60)).date().isoformat()
    with pytest.raises(InvalidRequest):
        await user.get("/usage", **{k: past if v == "PAST" else v for k, v in query.items()})


async def test_csv_has_one_line_for_each_row(api: Api, agent: FakeAgent, user: Client) -> None:
    await create_running_session(api, agent, "lab1", **SLOTS)
    api.world.clock.advance(seconds=60)
    rows = (await user.get("/usage", by="image"))["rows"]
    async with user.stream("/usage", by="image", format="csv") as response:
        assert 'filename="usage.csv"' in response.headers["Content-Disposition"]
        text = (await response.aread()).decode("utf-8-sig")
    lines = list(csv.DictReader(io.StringIO(text)))
    assert [line["slot"] for line in lines] == [row["slot"] for row in rows]
    assert lines[0]["used_seconds"] == ""


async def test_costs_follow_the_prices(
    api: Api, agent: FakeAgent, user: Client, admin: Client
) -> None:
    prices = {"currency": "EUR", "prices": [{"slot": "cpu", "per_hour": 0.5}]}
    with pytest.raises(Forbidden):
        await user.put("/usage-prices", prices)
    await admin.put("/usage-prices", prices)
    assert await user.get("/usage-prices") == {
        "currency": "EUR",
        "prices": [{"resource_group": None, "slot": "cpu", "per_hour": 0.5}],
    }
    await admin.put("/usage-prices", {**prices, "prices": [{"slot": "mem", "per_hour": 1}]})
    entries = (await admin.get("/audit-log", action="usage-price.replace", sort="-id"))["items"]
    assert entries[0]["details"]["changes"] == {
        "cpu": {"before": "0.5", "after": None},
        "mem": {"before": None, "after": "1.0"},
    }
    await admin.put("/usage-prices", prices)
    twice = {"prices": [prices["prices"][0]] * 2}  # type: ignore[index]
    with pytest.raises(InvalidRequest):
        await admin.put("/usage-prices", twice)
    session = await create_running_session(api, agent, "lab1", **SLOTS)
    api.world.clock.advance(hours=10)
    later = Later(api, session["owner_id"])
    cost = await later.total("cost")
    assert cost["cpu"] == pytest.approx((await later.total("allocated_seconds"))["cpu"] / 7200)
    await api.world.manager.usage.aggregation.step()
    assert await later.total("cost") == pytest.approx(cost)
