"""Regression tests of idle checkers: pressure, replays, large result lists, concurrent changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from bai_services.core.errors import Conflict, InvalidRequest
from bai_services.core.sessions.idle_checks.checkers import Checker, CheckerSettings, CheckerType
from bai_services.core.sessions.idle_checks.pressure import (
    WaitingSession,
    count_waiting,
    waiting_for,
)
from bai_services.core.sessions.idle_checks.replay import RecordedSession, replayed_stops
from bai_services.core.sessions.idle_checks.usage_table import KernelFacts
from bai_services.core.sessions.lifecycle import SessionType
from bai_services.core.sessions.usage_history import Grid, Sample
from bai_services.db.database import Database
from bai_services.db.sessions.idle_checks.results import StoredCheck
from bai_services.db.sessions.idle_checks.store import IdleCheckStore
from bai_services.manager.sessions.idle_checks.replays import MAX_SAMPLES, _affordable
from tests.testbed.manager import Api

NOW = datetime(2026, 11, 26, tzinfo=UTC)
WAITS = [{"check": "resources", "passed": False}]


def test_waiting_session_with_two_families_counts_once() -> None:
    waiting = [
        WaitingSession("g", frozenset({"cuda", "rngd"}), WAITS),
        WaitingSession("g", frozenset({"cuda"}), WAITS),
        WaitingSession("g", frozenset(), WAITS),
        WaitingSession("other", frozenset({"cuda"}), WAITS),
    ]
    counts = count_waiting(waiting)
    assert waiting_for("g", {"cuda", "rngd"}, counts) == 3
    assert waiting_for("g", {"rngd"}, counts) == 2
    assert waiting_for("g", set(), counts) == 1


def recorded(kernels: int, started_at: datetime, ended_at: datetime) -> RecordedSession:
    facts = tuple(KernelFacts(f"k{n}", "s", 1, 2**30) for n in range(kernels))
    kind = SessionType.INTERACTIVE
    return RecordedSession("s", "s", "ann", "p", kind, started_at, ended_at, 1, facts)


@pytest.mark.parametrize(("minutes", "stops"), [(50, 0), (55, 0), (60, 1)])
def test_replay_never_uses_a_shorter_window_than_the_checker(minutes: int, stops: int) -> None:
    settings = CheckerSettings(max_seconds=3600, thresholds={"cpu_util": 5})
    checker = Checker("c", "c", CheckerType.UTILIZATION, settings)
    start = NOW - timedelta(minutes=minutes)
    grid = Grid(start, 300, minutes // 5)
    session = recorded(1, start - timedelta(hours=2), NOW)
    samples = [
        Sample("k0", start + timedelta(minutes=5 * n), {"cpu_cores": 0.0}, {})
        for n in range(minutes // 5)
    ]
    found = replayed_stops(checker, [session], samples, grid, reuse=timedelta(hours=1))
    assert len(found) == stops


def test_replay_leaves_out_sessions_with_too_many_samples() -> None:
    start = NOW - timedelta(days=30)
    grid = Grid(start, 300, 30 * 288)
    huge, small = recorded(256, start, NOW), recorded(1, NOW - timedelta(hours=1), NOW)
    assert MAX_SAMPLES < 256 * 30 * 288
    assert _affordable([huge, small], grid, MAX_SAMPLES) == [small]
    many = [recorded(1, start, NOW)] * 100
    assert len(_affordable(many, grid, MAX_SAMPLES)) == MAX_SAMPLES // (30 * 288 + 1)


async def test_replay_of_a_period_below_the_window_is_rejected(api: Api) -> None:
    admin = await api.client("admin")
    body = {"max_seconds": 7200, "thresholds": {"cpu_util": 5}, "period_seconds": 3600}
    with pytest.raises(InvalidRequest, match="shorter than the window"):
        await admin.post("/idle-replays", body)


@pytest.mark.both_databases
async def test_more_results_than_sql_parameters_can_be_written(
    database_url: str,
) -> None:
    database = Database(database_url)
    results = [StoredCheck(f"s{n}", "c", "idle", False, False, None, None) for n in range(40_000)]
    # The sessions do not exist, as if they had been deleted since they were checked.
    await IdleCheckStore(database).write(results, [], [])
    async with database.read() as tx:
        assert list(await tx.exec_driver_sql("SELECT * FROM session_idle_checks")) == []
    await database.close()


@pytest.mark.parametrize(
    ("path", "spec", "change"),
    [
        ("/announcements", {"title": "x"}, {"title": "y"}),
        ("/maintenances", {"reason": "x"}, {"reason": "y"}),
        (
            "/idle-checkers",
            {"name": "idle", "type": "network", "max_seconds": 600},
            {"description": "y"},
        ),
    ],
)
async def test_second_of_two_administrators_gets_a_conflict(
    api: Api, path: str, spec: dict[str, Any], change: dict[str, Any]
) -> None:
    admin = await api.client("admin")
    made = await admin.post(path, spec)
    one = f"{path}/{made['id']}"
    changed = await admin.patch(one, {**change, "version": made["version"]})
    assert changed["version"] == made["version"] + 1
    with pytest.raises(Conflict, match="another user has changed"):
        await admin.patch(one, {**change, "version": made["version"]})
    # A client that does not send a version changes the current state.
    assert (await admin.patch(one, change))["version"] == made["version"] + 2
