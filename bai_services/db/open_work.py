"""Find out which loops of the manager have work in the database."""

from __future__ import annotations

from enum import StrEnum

import sqlalchemy as sa

from bai_services.core.cluster.model import AgentStatus
from bai_services.core.notifications.webhooks import DeliveryStatus
from bai_services.core.pipelines.states import RUN_ENDED, RunStatus
from bai_services.core.pipelines.triggers import TriggerKind
from bai_services.core.sessions.lifecycle import ENDED, Status
from bai_services.core.sessions.resizing import ResizeState
from bai_services.core.sessions.schedules.records import RunStatus as ScheduleRunStatus
from bai_services.core.sessions.suspensions import Phase

from .database import Database
from .tables.accounts import keypair_policies
from .tables.callbacks import session_callbacks
from .tables.cluster import agents
from .tables.notifications import webhook_deliveries
from .tables.overflow import overflow_rules
from .tables.pipelines import pipeline_runs, pipeline_schedules, pipeline_triggers
from .tables.preemption import preemption_plans
from .tables.resizes import elastic_sessions, session_resizes
from .tables.schedules import schedule_runs, session_schedules
from .tables.serving import endpoint_trials, endpoints
from .tables.sessions import sessions
from .tables.suspensions import session_suspensions


class Work(StrEnum):
    """The kinds of work, each for one loop."""

    CALLBACKS = "callbacks"
    DEADLINES = "deadlines"
    ELASTIC_SESSIONS = "elastic_sessions"
    ENDPOINTS = "endpoints"
    LOST_AGENTS = "lost_agents"
    OVERFLOW = "overflow"
    PIPELINE_FILES = "pipeline_files"
    PIPELINE_SCHEDULES = "pipeline_schedules"
    PIPELINE_TRIGGERS = "pipeline_triggers"
    PIPELINES = "pipelines"
    PREEMPTION = "preemption"
    SCHEDULES = "schedules"
    STARTER = "starter"
    SUSPENSIONS = "suspensions"
    TRIALS = "trials"
    WEBHOOKS = "webhooks"


def _any(table: sa.FromClause, *conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.exists(sa.select(sa.literal(1)).select_from(table).where(*conditions))


def _is_any_session(*conditions: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return _any(sessions, *conditions)


_RUNNING = sessions.c.status == Status.RUNNING
_IS_STOPPED = sessions.c.status.in_(sorted({*ENDED, Status.TERMINATING}))

# A condition may be true without work, but it must be true whenever a step has something to do
# that no wake-up announces. Each condition is cheap: it reads an index or a small table.
_CONDITIONS = {
    Work.CALLBACKS: _any(session_callbacks, session_callbacks.c.is_open),
    Work.DEADLINES: sa.or_(
        _is_any_session(sessions.c.status == Status.PENDING),
        _is_any_session(_RUNNING, sessions.c.batch_timeout_seconds.is_not(None)),
        sa.and_(
            _any(
                keypair_policies,
                (keypair_policies.c.max_session_lifetime_seconds > 0)
                | (keypair_policies.c.idle_timeout_seconds > 0),
            ),
            _is_any_session(_RUNNING),
        ),
    ),
    Work.ELASTIC_SESSIONS: sa.or_(
        _any(
            elastic_sessions.join(sessions, elastic_sessions.c.session_id == sessions.c.id),
            _RUNNING,
        ),
        _any(session_resizes, session_resizes.c.state == ResizeState.PENDING),
    ),
    Work.ENDPOINTS: _any(endpoints),
    Work.LOST_AGENTS: _any(agents, agents.c.status != AgentStatus.ALIVE),
    Work.OVERFLOW: _any(overflow_rules),
    Work.PIPELINE_FILES: _any(
        pipeline_triggers,
        pipeline_triggers.c.kind == TriggerKind.FILE,
        pipeline_triggers.c.is_enabled,
    ),
    Work.PIPELINE_SCHEDULES: _any(
        pipeline_schedules, pipeline_schedules.c.next_start_at.is_not(None)
    ),
    Work.PIPELINE_TRIGGERS: _any(
        pipeline_runs, pipeline_runs.c.fires_triggers, pipeline_runs.c.status.in_(sorted(RUN_ENDED))
    ),
    Work.PIPELINES: _any(
        pipeline_runs, pipeline_runs.c.status.in_(sorted(frozenset(RunStatus) - RUN_ENDED))
    ),
    Work.PREEMPTION: _any(preemption_plans, preemption_plans.c.ended_at.is_(None)),
    Work.SCHEDULES: sa.or_(
        _any(session_schedules, session_schedules.c.next_start_at.is_not(None)),
        _any(schedule_runs, schedule_runs.c.status == ScheduleRunStatus.DUE),
        _any(
            schedule_runs,
            schedule_runs.c.status == ScheduleRunStatus.STARTED,
            schedule_runs.c.stops_at.is_not(None),
        ),
    ),
    Work.STARTER: _is_any_session(sessions.c.status == Status.PREPARED),
    Work.SUSPENSIONS: _any(
        session_suspensions,
        session_suspensions.c.phase.in_(sorted(frozenset(Phase) - {Phase.RESUMED})),
    ),
    Work.TRIALS: sa.or_(
        _any(endpoint_trials, endpoint_trials.c.ended_at.is_(None)),
        _any(endpoint_trials.join(sessions, endpoint_trials.c.id == sessions.c.id), ~_IS_STOPPED),
    ),
    Work.WEBHOOKS: _any(webhook_deliveries, webhook_deliveries.c.status == DeliveryStatus.PENDING),
}


_SELECT = sa.select(*(condition.label(work) for work, condition in _CONDITIONS.items()))


class OpenWorkStore:
    """Reads all conditions in one statement."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._statement = ""

    async def read(self) -> frozenset[Work]:
        """Return the kinds of work that exist."""
        async with self._db.read() as tx:
            if not self._statement:
                # Keep only the text, with all values as literals: SQLAlchemy would take longer to
                # find this large statement in its cache than the database to execute it.
                literals = {"literal_binds": True}
                compiled = _SELECT.compile(dialect=tx.dialect, compile_kwargs=literals)
                self._statement = str(compiled)
            row = (await tx.exec_driver_sql(self._statement)).one()
        return frozenset(work for work, exists in zip(_CONDITIONS, row, strict=True) if exists)
