"""`/usage` and `/usage-prices`: exact sums, permissions, CSV, prices."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import Any

import pytest

from bai_services.core.errors import Forbidden, InvalidRequest, NotFound
from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api, Client

from .sessions.test_sessions import create_running_session, wait_for_status

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


async def test_report_adds_totals_and_open_sessions_exactly(
    api: Api, agent: FakeAgent, user: Client
) -> None:
    clock, aggregation = api.world.clock, api.world.manager.usage.aggregation
    session = await create_running_session(api, agent, "lab1", **SLOTS)
    clock.advance(seconds=5)
    clock.now = clock.now.replace(microsecond=0)
    start = clock.now
    before = (await report(user))["", "cpu"]["allocated_seconds"]
    clock.advance(hours=30)
    open_only = await report(user)
    assert open_only["", "cpu"]["allocated_seconds"] - before == 2 * 30 * 3600
    await aggregation.step()
    assert await report(user) == {
        key: {**row, "start": open_only[key]["start"]} for key, row in open_only.items()
    }
    assert (
        open_only["", "mem"]["allocated_seconds"] == open_only["", "cpu"]["allocated_seconds"] / 2
    )
    assert open_only["", "cpu"]["used_seconds"] is None
    assert open_only["", "cpu"]["cost"] is None
    # A restarted manager computes the same totals again.
    await aggregation.step()
    await user.delete(f"/sessions/{session['id']}", force="true")
    await wait_for_status(user, session["id"], "TERMINATED", "CANCELLED")
    ended = await report(user)
    clock.advance(hours=3)
    await aggregation.step()
    later = await report(user)
    names = ("allocated_seconds", "waited_seconds")
    assert {k: [row[n] for n in names] for k, row in later.items()} == {
        k: [row[n] for n in names] for k, row in ended.items()
    }
    days = await user.get(
        "/usage",
        every="day",
        slot="cpu",
        time_zone="Asia/Seoul",
        since=start.isoformat(),
    )
    assert sum(row["allocated_seconds"] for row in days["rows"]) == pytest.approx(
        later["", "cpu"]["allocated_seconds"]
    )
    assert all(row["start"].endswith("15:00:00+00:00") for row in days["rows"][1:])


async def test_each_role_sees_its_part(
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
    twice = {"prices": [prices["prices"][0]] * 2}  # type: ignore[index]
    with pytest.raises(InvalidRequest):
        await admin.put("/usage-prices", twice)
    await create_running_session(api, agent, "lab1", **SLOTS)
    api.world.clock.advance(hours=10)
    row = (await report(user))["", "cpu"]
    assert row["cost"] == pytest.approx(row["allocated_seconds"] / 3600 * 0.5)
    await api.world.manager.usage.aggregation.step()
    assert (await report(user))["", "cpu"]["cost"] == pytest.approx(row["cost"])
