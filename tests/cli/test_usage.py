"""`bai usage`, `bai admin usage`, `bai admin price`."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import Any

import pytest

from tests.testbed.fake_agent import FakeAgent
from tests.testbed.manager import Api

from .conftest import Bai, CompletedCommand
from .test_sessions import bring_to_running


def lines_of(answer: CompletedCommand) -> list[str]:
    """Return the lines of a table, without the spaces that align its columns."""
    assert answer.code == 0, answer.stderr
    return [" ".join(line.split()) for line in answer.stdout.splitlines() if line.strip()]


async def test_prices_are_set_and_reports_show_costs(bai: Bai, api: Api, agent: FakeAgent) -> None:
    set_prices = ("admin", "price", "set", "cpu=0.5", "gold/cpu=2", "--currency", "EUR")
    assert (await bai(*set_prices)).code == 0
    listed = await bai("admin", "price", "list")
    assert lines_of(listed) == [
        "RESOURCE GROUP SLOT PER HOUR",
        "all cpu 0.5 EUR",
        "gold cpu 2 EUR",
    ]
    wrong = await bai("admin", "price", "set", "cpu=cheap")
    assert wrong.code != 0 and "is not a price" in wrong.stderr
    await bai("session", "create", "my-lab", "-r", "cpu=1", "-r", "mem=1g", by="user")
    await bring_to_running(api, agent, "my-lab")
    api.world.clock.advance(minutes=12)
    own = await bai("usage", by="user")
    assert lines_of(own) == [
        "SLOT ALLOCATED USED WASTED WAITED COST ENERGY",
        "cpu 0.20 h not measured not measured - 0.10 EUR not measured",
        "mem 0.20 h not measured not measured - no price not measured",
        "sessions 0.20 h not measured not measured 0.00 h no price not measured",
    ]
    rows = (await bai("admin", "usage", "--by", "user", "--slot", "cpu", "--json")).document["rows"]
    assert [(row["name"], row["slot"], row["cost"]) for row in rows] == [("user", "cpu", 0.1)]
    others = await bai("usage", "--every", "day", by="user2")
    assert "no usage in this period" in others.stdout + others.stderr


async def test_json_csv_and_commands_have_the_same_figures_and_groups_add_up(
    bai: Bai, api: Api, agent: FakeAgent
) -> None:
    assert (await bai("admin", "price", "set", "cpu=0.5", "--currency", "EUR")).code == 0
    for user in ("user", "user2"):
        await bai("session", "create", f"{user}-lab", "-r", "cpu=1", "-r", "mem=1g", by=user)
        await agent.prepare()
    api.world.clock.advance(minutes=10)
    # A period that has ended, so that running sessions have the same usage in each report.
    until = api.world.clock()
    period = {
        "since": (until - timedelta(days=3)).isoformat(),
        "until": until.isoformat(),
        "time_zone": "Asia/Seoul",
    }
    api.world.clock.advance(minutes=1)
    admin = await api.client("admin")
    measures = ("allocated_seconds", "measured_seconds", "cost")

    def sums(rows: list[dict[str, Any]]) -> dict[str, float]:
        return {
            f"{slot} {name}": sum(row[name] or 0 for row in rows if row["slot"] == slot)
            for slot in ("cpu", "mem", "sessions")
            for name in measures
        }

    for every in ("hour", "day", "month", "period"):
        query = {**period, "every": every}
        total = (await admin.get("/usage", **query))["rows"]
        assert {row["slot"] for row in total} == {"cpu", "mem", "sessions"}
        for by in ("user", "project", "domain", "resource-group", "image", "session-kind"):
            document = await admin.get("/usage", **query, by=by)
            rows = document["rows"]
            # A cost has six decimals.
            assert sums(rows) == pytest.approx(sums(total), abs=1e-5), (every, by)
            for row in rows:
                assert row["allocated_seconds"] >= row["measured_seconds"]
                # Without a measurement, these are unknown and not 0.
                assert row["used_seconds"] is row["wasted_seconds"] is row["energy_joules"] is None
            words = ("--by", by, "--every", every, "--time-zone", "Asia/Seoul", "--json")
            times = ("--since", period["since"], "--until", period["until"])
            printed = (await bai("admin", "usage", *words, *times, by="admin")).document
            assert printed["rows"] == rows
            response = await admin.http.get("/usage", params={**query, "by": by, "format": "csv"})
            lines = list(csv.DictReader(io.StringIO(response.content.decode("utf-8-sig"))))
            assert len(lines) == len(rows)
            for line, row in zip(lines, rows, strict=True):
                assert line == {name: "" if v is None else str(v) for name, v in row.items()}
