"""Rows that the loops of the manager must process, and rows that need no work."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa

from bai_services.db.database import Database
from bai_services.db.open_work import OpenWorkStore, Work
from bai_services.db.tables.accounts import keypair_policies
from bai_services.db.tables.base import UtcDateTime
from bai_services.db.tables.callbacks import session_callbacks
from bai_services.db.tables.cluster import agents
from bai_services.db.tables.notifications import webhook_deliveries
from bai_services.db.tables.overflow import overflow_rules
from bai_services.db.tables.pipelines import pipeline_runs, pipeline_schedules, pipeline_triggers
from bai_services.db.tables.preemption import preemption_plans
from bai_services.db.tables.resizes import elastic_sessions, session_resizes
from bai_services.db.tables.schedules import schedule_runs, session_schedules
from bai_services.db.tables.serving import endpoint_trials, endpoints
from bai_services.db.tables.sessions import sessions
from bai_services.db.tables.suspensions import session_suspensions

NOW = datetime(2030, 1, 1, tzinfo=UTC)
# Rows by table, with the values of the columns that matter; the other required columns get any
# value.
Rows = Mapping[sa.Table, Mapping[str, Any]]
RUNNING = {"id": "s", "status": "RUNNING"}
ENDED = {"id": "s", "status": "TERMINATED"}


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = Database(database_url)
    yield opened
    await opened.close()


def insert(url: str, rows: Rows) -> None:
    """Insert rows without the rows that their foreign keys refer to."""
    engine = sa.create_engine(url.replace("+aiosqlite", ""))
    with engine.begin() as tx:
        if engine.dialect.name == "postgresql":
            tx.execute(sa.text("SET LOCAL session_replication_role = replica"))
        for table, values in rows.items():
            required = {
                column.name: _value(column)
                for column in table.columns
                if not column.nullable and column.default is None and column.server_default is None
            }
            tx.execute(sa.insert(table).values({**required, **values}))
    engine.dispose()


def _value(column: sa.Column[Any]) -> Any:
    if isinstance(column.type, UtcDateTime):
        return NOW
    if isinstance(column.type, sa.Boolean):
        return False
    if isinstance(column.type, sa.String):
        return "x"
    return 1 if isinstance(column.type, sa.Integer) else {}


@pytest.mark.parametrize(
    ("work", "rows"),
    [
        pytest.param(Work.CALLBACKS, {session_callbacks: {"is_open": True}}, id="callback"),
        pytest.param(
            Work.DEADLINES, {sessions: {"id": "s", "status": "PENDING"}}, id="pending session"
        ),
        pytest.param(
            Work.DEADLINES, {sessions: {**RUNNING, "batch_timeout_seconds": 9}}, id="batch timeout"
        ),
        pytest.param(
            Work.DEADLINES,
            {sessions: RUNNING, keypair_policies: {"max_session_lifetime_seconds": 9}},
            id="maximum lifetime",
        ),
        pytest.param(
            Work.DEADLINES,
            {sessions: RUNNING, keypair_policies: {"idle_timeout_seconds": 9}},
            id="idle timeout",
        ),
        pytest.param(
            Work.ELASTIC_SESSIONS,
            {sessions: RUNNING, elastic_sessions: {"session_id": "s"}},
            id="elastic session",
        ),
        pytest.param(
            Work.ELASTIC_SESSIONS, {session_resizes: {"state": "pending"}}, id="pending resize"
        ),
        pytest.param(Work.ENDPOINTS, {endpoints: {}}, id="endpoint"),
        pytest.param(Work.LOST_AGENTS, {agents: {"status": "LOST"}}, id="lost agent"),
        pytest.param(Work.LOST_AGENTS, {agents: {"status": "TERMINATED"}}, id="ended agent"),
        pytest.param(Work.OVERFLOW, {overflow_rules: {}}, id="overflow rule"),
        pytest.param(
            Work.PIPELINE_FILES,
            {pipeline_triggers: {"kind": "file", "is_enabled": True}},
            id="file trigger",
        ),
        pytest.param(
            Work.PIPELINE_SCHEDULES,
            {pipeline_schedules: {"next_start_at": NOW}},
            id="pipeline schedule",
        ),
        pytest.param(
            Work.PIPELINE_TRIGGERS,
            {pipeline_runs: {"status": "failed", "fires_triggers": True}},
            id="ended run with triggers",
        ),
        pytest.param(Work.PIPELINES, {pipeline_runs: {"status": "waiting"}}, id="waiting run"),
        pytest.param(Work.PIPELINES, {pipeline_runs: {"status": "running"}}, id="running run"),
        pytest.param(Work.PIPELINES, {pipeline_runs: {"status": "cancelling"}}, id="cancelled run"),
        pytest.param(Work.PREEMPTION, {preemption_plans: {"ended_at": None}}, id="plan"),
        pytest.param(Work.SCHEDULES, {session_schedules: {"next_start_at": NOW}}, id="schedule"),
        pytest.param(Work.SCHEDULES, {schedule_runs: {"status": "due"}}, id="due start"),
        pytest.param(
            Work.SCHEDULES, {schedule_runs: {"status": "started", "stops_at": NOW}}, id="next stop"
        ),
        pytest.param(Work.STARTER, {sessions: {"status": "PREPARED"}}, id="prepared session"),
        pytest.param(Work.SUSPENSIONS, {session_suspensions: {"phase": "preparing"}}, id="warned"),
        pytest.param(
            Work.SUSPENSIONS, {session_suspensions: {"phase": "suspended"}}, id="suspended"
        ),
        pytest.param(Work.TRIALS, {endpoint_trials: {"ended_at": None}}, id="trial"),
        pytest.param(
            Work.TRIALS,
            {sessions: RUNNING, endpoint_trials: {"id": "s", "ended_at": NOW}},
            id="session of an ended trial",
        ),
        pytest.param(Work.WEBHOOKS, {webhook_deliveries: {"status": "pending"}}, id="delivery"),
    ],
)
async def test_rows_are_work_of_one_kind(
    database: Database, database_url: str, work: Work, rows: Rows
) -> None:
    insert(database_url, rows)
    assert await OpenWorkStore(database).read() == {work}


async def test_an_idle_installation_has_no_work(database: Database, database_url: str) -> None:
    finished: Rows = {
        sessions: ENDED,
        keypair_policies: {"max_session_lifetime_seconds": 9, "idle_timeout_seconds": 9},
        agents: {"status": "ALIVE"},
        session_callbacks: {"is_open": False},
        elastic_sessions: {"session_id": "s"},
        session_resizes: {"state": "applied"},
        pipeline_triggers: {"kind": "file", "is_enabled": False},
        pipeline_schedules: {"next_start_at": None},
        pipeline_runs: {"status": "succeeded", "fires_triggers": False},
        preemption_plans: {"ended_at": NOW},
        session_schedules: {"next_start_at": None},
        schedule_runs: {"status": "ended", "stops_at": NOW},
        session_suspensions: {"phase": "resumed"},
        endpoint_trials: {"id": "s", "ended_at": NOW},
        webhook_deliveries: {"status": "delivered"},
    }
    insert(database_url, finished)
    assert await OpenWorkStore(database).read() == frozenset()


async def test_running_session_without_limits_is_no_work(
    database: Database, database_url: str
) -> None:
    insert(database_url, {sessions: RUNNING})
    assert await OpenWorkStore(database).read() == frozenset()
