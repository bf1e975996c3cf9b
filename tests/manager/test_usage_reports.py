"""Usage reports of random records, compared with a naive sum over the records."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.errors import Unavailable
from bai_services.core.usage.model import (
    HOUR,
    SESSIONS,
    WAITING,
    Dimension,
    Holder,
    HourTotals,
    Price,
    Prices,
    UsageRecord,
    unit_of,
)
from bai_services.core.usage.periods import Every, intervals_of, zone_of
from bai_services.db.database import Database
from bai_services.db.tables.usage import usage_prices, usage_records
from bai_services.db.usage.aggregates import UsageAggregateStore
from bai_services.db.usage.prices import UsagePriceStore
from bai_services.db.usage.reports import UsageReportStore
from bai_services.manager.usage.reports import ReportRequest, UsageReports

pytestmark = pytest.mark.both_databases

# The period of the reports begins here and contains a change of the clocks: in Berlin, on 29 March.
FIRST = int(datetime(2026, 3, 26, tzinfo=UTC).timestamp())
ZONES = ("UTC", "Asia/Kolkata", "Europe/Berlin", "America/St_Johns")
PRICES = Prices("EUR", (Price("", "cpu", 1.5), Price("g1", "cpu", 2.0), Price("", SESSIONS, 0.25)))
CALLERS = (
    Caller(Role.SUPERADMIN, "root", "root", "d1"),
    Caller(Role.ADMIN, "head", "head", "d1"),
    Caller(Role.USER, "u1", "u1", "d1"),
)
Row = tuple[float, float, float | None]


@pytest.fixture
async def database(migrated_database_url: str) -> AsyncIterator[Database]:
    made = Database(migrated_database_url)
    async with made.write() as tx:
        rows = [{**asdict(price), "currency": PRICES.currency} for price in PRICES.prices]
        await tx.execute(sa.insert(usage_prices), rows)
    yield made
    await made.close()


def random_records(chance: random.Random, now: int) -> list[UsageRecord]:
    records = []
    for number in range(chance.randint(1, 12)):
        start = chance.randint(FIRST, now)
        if chance.random() < 0.2:
            start = start // HOUR * HOUR
        end = min(now, start + chance.choice([0, 1, HOUR, chance.randint(0, 72 * HOUR)]))
        slot = chance.choice(["cpu", "mem", SESSIONS, WAITING, "cuda.device"])
        is_kernel = slot not in (SESSIONS, WAITING)
        is_open = slot != WAITING and chance.random() < 0.25
        holder = Holder(
            chance.choice(["u1", "u2"]),
            chance.choice(["p1", "p2"]),
            chance.choice(["d1", "d2"]),
            chance.choice(["g1", "g2"]),
            chance.choice(["python", ""]),
            chance.choice(["interactive", "pipeline-task", ""]),
            "H100" if slot == "cuda.device" else "",
        )
        amount = {"cpu": chance.choice([1, 1000]), "mem": chance.choice([2**28, 2**33])}
        records.append(
            UsageRecord(
                f"s{number}",
                "k" if is_kernel else "",
                slot,
                "g0" if slot == "cuda.device" else "",
                amount.get(slot, 1),
                start,
                None if is_open else end,
                holder,
            )
        )
    return records


async def compute_totals(database: Database, first: int, until: int) -> None:
    store = UsageAggregateStore(database)
    for hour in range(first // HOUR * HOUR, until // HOUR * HOUR, HOUR):
        totals = HourTotals(hour, PRICES)
        for record in await store.records_between(hour, hour + HOUR):
            totals.add(record)
        await store.write_hour(hour, totals.facts, totals.totals(), None)


def random_request(chance: random.Random, now: int) -> ReportRequest:
    zone_name = chance.choice(ZONES)
    since = datetime.fromtimestamp(chance.randint(FIRST - 24 * HOUR, now - 1), UTC)
    if chance.random() < 0.6:
        local = since.astimezone(zone_of(zone_name))
        since = local.replace(hour=0, minute=0, second=0).astimezone(UTC)
    length = timedelta(seconds=chance.randint(1, 120 * HOUR))
    return ReportRequest(
        since,
        chance.choice([None, since + length]),
        chance.choice(list(Every)),
        chance.choice(list(Dimension)),
        zone_name,
        chance.choice(["", "", "cpu", SESSIONS]),
        limit=1000,
    )


def is_visible(record: UsageRecord, caller: Caller) -> bool:
    if caller.role is Role.USER:
        return record.holder.owner_id == caller.user_id
    return caller.role is Role.SUPERADMIN or record.holder.domain == caller.domain


def naive_rows(
    records: list[UsageRecord], caller: Caller, request: ReportRequest, now: datetime
) -> dict[tuple[int, str, str], Row]:
    until = min(request.until or now, now)
    intervals = intervals_of(request.since, until, request.every, zone_of(request.time_zone))
    rows: dict[tuple[int, str, str], Row] = {}
    for record in records:
        slot = SESSIONS if record.slot == WAITING else record.slot
        key = record.holder.key(request.by)
        if not is_visible(record, caller) or request.slot not in ("", slot):
            continue
        if not key and request.by is not Dimension.TOTAL:
            continue
        for interval in intervals:
            seconds = record.seconds_in(interval.start, interval.end)
            if not seconds:
                continue
            place = interval.start, key, slot
            allocated, waited, cost = rows.get(place, (0.0, 0.0, None))
            if record.slot == WAITING:
                rows[place] = allocated, waited + seconds, cost
                continue
            amount = record.amount * seconds
            more = PRICES.cost(record.holder.resource_group, slot, amount)
            if more is not None:
                cost = (cost or 0.0) + more
            rows[place] = allocated + amount / unit_of(slot), waited, cost
    return rows


@pytest.mark.parametrize("seed", range(2))
async def test_reports_equal_a_naive_sum(database: Database, seed: int) -> None:
    """The totals of hours end at any time in the last three days, or do not exist."""
    chance = random.Random(seed)
    now = FIRST + chance.randint(60 * HOUR, 140 * HOUR)
    records = random_records(chance, now)
    async with database.write() as tx:
        values = [{**asdict(record), **asdict(record.holder)} for record in records]
        for value in values:
            del value["holder"]
        await tx.execute(sa.insert(usage_records), values)
    if seed:
        first = min(record.started_at for record in records)
        await compute_totals(database, first, now - chance.randint(0, 60) * HOUR)
    at = datetime.fromtimestamp(now, UTC)
    reports = UsageReports(UsageReportStore(database), UsagePriceStore(database), lambda: at)
    compared = 0
    for _ in range(40):
        request, caller = random_request(chance, now), chance.choice(CALLERS)
        try:
            report = await reports.read(caller, request)
        except Unavailable:
            continue
        found = {
            (int(row.start.timestamp()), row.key, row.slot): (
                row.allocated_seconds,
                row.waited_seconds or 0.0,
                row.cost,
            )
            for row in report.rows
        }
        expected = naive_rows(records, caller, request, at)
        assert found.keys() == expected.keys()
        for key, row in expected.items():
            assert found[key] == pytest.approx(row, abs=1e-3)
        compared += len(expected)
    assert compared
