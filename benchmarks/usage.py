"""Time of usage reports over a month with a million records, on SQLite and on PostgreSQL.

For each hour in turn, the records are written and the totals computed, as the manager does.
``hour_ms`` is the median time to compute the totals of an hour; ``report_ms`` is the median time of
the slowest report on the slower database.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bai_services.core.accounts.roles import Caller, Role
from bai_services.core.usage.model import HOUR, Dimension
from bai_services.core.usage.periods import Every
from bai_services.db import bulk
from bai_services.db.database import Database
from bai_services.db.scheduling.lease import LeaseStore
from bai_services.db.schema import upgrade
from bai_services.db.sessions.usage_samples import UsageSampleStore
from bai_services.db.tables.usage import usage_records
from bai_services.db.usage.aggregates import UsageAggregateStore
from bai_services.db.usage.prices import UsagePriceStore
from bai_services.db.usage.reports import UsageReportStore
from bai_services.manager.scheduling.idle_scheduling import new_loop
from bai_services.manager.scheduling.lease import Lease
from bai_services.manager.usage.aggregation import UsageAggregation
from bai_services.manager.usage.reports import ReportRequest, UsageReports
from tests.testbed import ComponentMissing, postgres

EXIT_MISSING = 6
START = datetime(2026, 1, 1, tzinfo=UTC)
HOURS = 31 * 24
USERS, PROJECTS, DOMAINS, IMAGES, GROUPS = 500, 60, 4, 25, 5
MODELS = ("A100", "H100", "L4", "MI300X", "Gaudi3", "B200")
MEAN_SECONDS = 2 * HOUR
SLOTS = ("cpu", "mem", "cuda.device", "sessions")
ADMIN = Caller(Role.SUPERADMIN, "u0", "admin", "d0")
REPORTS = {
    "users_of_month": {"by": Dimension.USER, "every": Every.MONTH},
    "all_users_of_period": {"by": Dimension.USER, "limit": 1000},
    "images_by_day": {"by": Dimension.IMAGE, "every": Every.DAY},
    "users_by_day_in_seoul": {
        "by": Dimension.USER,
        "every": Every.DAY,
        "slot": "cuda.device",
        "time_zone": "Asia/Seoul",
    },
    "total_by_day_in_seoul": {"every": Every.DAY, "time_zone": "Asia/Seoul"},
    "total_by_hour": {"every": Every.HOUR},
    "own_by_project_and_day": {"by": Dimension.PROJECT, "every": Every.DAY, "is_own": True},
}
_INSERT = bulk.RowInsert(usage_records, [column.name for column in usage_records.columns])


def main() -> int:
    """Print one JSON object on standard output and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.usage", description=__doc__)
    parser.add_argument("--database", choices=["both", "sqlite", "postgres"], default="both")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    spec = parser.parse_args()
    figures: dict[str, Any] = {"records": spec.records}
    with tempfile.TemporaryDirectory(prefix="bai-bench-") as home:
        for kind in ("sqlite", "postgres") if spec.database == "both" else (spec.database,):
            try:
                if kind == "sqlite":
                    url = f"sqlite+aiosqlite:///{Path(home)}/usage.sqlite"
                    figures[kind] = _run(_measure(url, spec))
                else:
                    with postgres.running() as server, server.database() as url:
                        figures[kind] = _run(_measure(url, spec))
            except ComponentMissing as missing:
                print(f"PostgreSQL is missing: {missing}", file=sys.stderr)
                print(json.dumps(figures, indent=2))
                return EXIT_MISSING
    measured = [figures[kind] for kind in ("sqlite", "postgres") if kind in figures]
    figures["report_ms"] = max(max(found["reports_ms"].values()) for found in measured)
    print(json.dumps(figures, indent=2))
    return 0


def _run(measure: Coroutine[None, None, dict[str, Any]]) -> dict[str, Any]:
    with asyncio.Runner(loop_factory=new_loop) as runner:  # the event loop of the manager
        return runner.run(measure)


async def _measure(url: str, spec: argparse.Namespace) -> dict[str, Any]:
    upgrade(url)
    database = Database(url)
    now = START

    def clock() -> datetime:
        return now

    lease = Lease(LeaseStore(database), clock, 3600)
    prices = UsagePriceStore(database)
    aggregation = UsageAggregation(
        UsageAggregateStore(database), UsageSampleStore(database), prices, lease, clock
    )
    by_hour = _records(spec.records)
    seconds = []
    for hour in range(HOURS):
        async with database.write() as tx:
            await _INSERT.run(tx, by_hour[hour])
            if hour % 100 == 0 and not database.is_sqlite:
                await tx.execute(sa.text("ANALYZE usage_records"))
        now = START + timedelta(hours=hour + 1, minutes=8)
        began = time.perf_counter()
        await aggregation.step()
        seconds.append(time.perf_counter() - began)
    async with database.write() as tx:
        await tx.execute(sa.text("ANALYZE"))
    now = START + timedelta(hours=HOURS)
    reports = UsageReports(UsageReportStore(database), prices, clock)
    figures: dict[str, Any] = {"hour_ms": round(1000 * statistics.median(seconds), 1)}
    figures["reports_ms"] = {}
    for name, values in REPORTS.items():
        request = ReportRequest(START, **values)  # type: ignore[arg-type]
        runs = []
        for _ in range(spec.runs):
            began = time.perf_counter()
            found = await reports.read(ADMIN, request)
            runs.append(time.perf_counter() - began)
        assert found.rows, name
        figures["reports_ms"][name] = round(1000 * statistics.median(runs), 1)
    await lease.stop()
    await database.close()
    return figures


def _records(count: int) -> dict[int, list[tuple[Any, ...]]]:
    """Return the records by the hour in which they start, in the order of the table's columns."""
    chance = random.Random(1)
    by_hour: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
    first = int(START.timestamp())
    for number in range(count // len(SLOTS)):
        start = first + chance.randrange(HOURS * HOUR - 60)
        end = start + int(chance.expovariate(1 / MEAN_SECONDS))
        user = min(int(chance.expovariate(6 / USERS)), USERS - 1)  # some users are very active
        holder = (
            f"u{user}",
            f"p{(user * 7 + chance.randrange(2)) % PROJECTS}",
            f"d{user % DOMAINS}",
            f"group{chance.randrange(GROUPS)}",
            f"registry.example/image-{chance.randrange(IMAGES)}:1",
        )
        for slot in SLOTS:
            model = chance.choice(MODELS) if slot == "cuda.device" else ""
            kernel, device = ("", "") if slot == "sessions" else (f"k{number}", f"{model}-0")
            amount = {"cpu": 4000, "mem": 2**34}.get(slot, 1)
            by_hour[(start - first) // HOUR].append(
                (f"s{number}", kernel, slot, device, start, end, amount, *holder, model)
            )
    return by_hour


if __name__ == "__main__":
    sys.exit(main())
