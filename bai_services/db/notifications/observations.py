"""Read conditions from the database: ends of sessions, waits, quotas, agents, mails."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.cluster.model import AgentStatus
from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.notifications.catalogue import EventName
from bai_services.core.notifications.conditions import (
    FAILED_MAIL_ATTEMPTS,
    FAILED_REPLICAS,
    PENDING_LONG,
    QUOTA_PERCENT,
    Condition,
    SessionEnd,
    ending_conditions,
)
from bai_services.core.notifications.events import ADMINISTRATORS, EVERYONE, Audience
from bai_services.core.operations.announcements import Audience as AnnouncementAudience
from bai_services.core.resources import MEM, format_amount
from bai_services.core.sessions.idle import REPORT_TTL, WARNING_TIME, idleness_of
from bai_services.core.sessions.idle_checks.checkers import CheckerType
from bai_services.core.sessions.lifecycle import SessionType, Status

from ..database import Database
from ..operations.periods import not_ended
from ..sessions.idle_checks.results import checker_of
from ..sessions.time_limits import TimeLimit
from ..tables.accounts import (
    keypair_policies,
    keypairs,
    project_policies,
    projects,
    user_policies,
    users,
)
from ..tables.cluster import agents
from ..tables.folders import quota_scopes
from ..tables.idle_checks import idle_checkers, session_idle_checks
from ..tables.mails import mails
from ..tables.operations import announcements, maintenances
from ..tables.serving import endpoints
from ..tables.sessions import sessions

# Read only sessions that end within this time: no warning begins earlier.
_HORIZON = timedelta(days=1)
# Maximum number of conditions of one kind.
_MAX_ROWS = 10_000
_SESSION = (sessions.c.id, sessions.c.name, sessions.c.owner_id, sessions.c.domain)


class ObservationStore:
    """Reads conditions. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def conditions(self, now: datetime) -> list[Condition]:
        """Return the conditions that hold now according to the database."""
        async with self._db.read() as tx:
            return [
                *await _stops(tx, now),
                *await _long_waits(tx, now),
                *await _quotas(tx),
                *await _announcements(tx, now),
                *await _maintenances(tx, now),
                *await _failing_endpoints(tx),
                *await _lost_agents(tx),
                *await _failing_mails(tx),
            ]

    async def stops(self, now: datetime) -> list[Condition]:
        """Return only the due warnings before stops of sessions."""
        async with self._db.read() as tx:
            return await _stops(tx, now)


async def _stops(tx: AsyncConnection, now: datetime) -> list[Condition]:
    ends = [*await _checker_ends(tx, now), *await _policy_ends(tx, now)]
    return ending_conditions(ends, now)


async def _checker_ends(tx: AsyncConnection, now: datetime) -> list[SessionEnd]:
    """Return the ends of sessions that idle checkers have announced."""
    checks, checkers = session_idle_checks.c, idle_checkers.c
    rows = (
        sa.select(*_SESSION, checks.ends_at, checks.rule, checks.keep_alives)
        .add_columns(
            checkers.id.label("checker_id"),
            checkers.name.label("checker"),
            checkers.type.label("checker_type"),
            checkers.settings,
        )
        .join_from(session_idle_checks, sessions, checks.session_id == sessions.c.id)
        .join(idle_checkers, checks.checker_id == checkers.id)
        .where(
            sessions.c.status == Status.RUNNING,
            checks.ends_at.is_not(None),
            checks.ends_at <= now + _HORIZON,
            checks.rule.is_not(None),
            sa.not_(checks.is_dry_run),
            sa.not_(checks.is_excluded),
        )
        .limit(_MAX_ROWS)
    )
    ends = []
    for row in await tx.execute(rows):
        checker = checker_of(row.checker_id, row.checker, row.checker_type, row.settings)
        left = max(checker.settings.max_keep_alives - row.keep_alives, 0)
        ends.append(
            SessionEnd(
                row.id,
                row.name,
                row.owner_id,
                row.domain,
                row.ends_at,
                row.checker_id,
                CodedText.from_json(row.rule),
                warnings_seconds=checker.settings.warnings_seconds,
                keep_alives_left=None if checker.type is CheckerType.LIFETIME else left,
            )
        )
    return ends


async def _policy_ends(tx: AsyncConnection, now: datetime) -> list[SessionEnd]:
    """Return the ends of sessions by idle timeouts and maximum lifetimes of keypair policies."""
    policies = keypair_policies.c
    rows = (
        sa.select(
            *_SESSION,
            sessions.c.type,
            sessions.c.started_at,
            sessions.c.used_at,
            sessions.c.use_heard_at,
            sessions.c.use_known_since,
            sessions.c.lifetime_extension_seconds,
            policies.name.label("policy"),
            policies.idle_timeout_seconds,
            policies.max_session_lifetime_seconds,
            keypairs.c.idle_limited_at,
        )
        .join_from(sessions, keypairs, sessions.c.access_key == keypairs.c.access_key)
        .join(keypair_policies, keypairs.c.resource_policy == policies.name)
        .where(
            sessions.c.status == Status.RUNNING,
            sa.or_(
                sa.and_(
                    policies.idle_timeout_seconds > 0, sessions.c.use_heard_at >= now - REPORT_TTL
                ),
                policies.max_session_lifetime_seconds > 0,
            ),
        )
    )
    found: list[SessionEnd] = []
    for row in await tx.execute(rows):
        found += _ends_of(row, now)
        if len(found) >= _MAX_ROWS:
            break
    return found


def _ends_of(row: Any, now: datetime) -> Iterator[SessionEnd]:
    latest = now + WARNING_TIME
    idleness = None
    if row.use_heard_at is not None and row.use_heard_at >= now - REPORT_TTL:
        idleness = idleness_of(
            SessionType(row.type),
            row.started_at,
            row.used_at,
            row.use_heard_at,
            row.idle_timeout_seconds,
            row.idle_limited_at,
            row.use_known_since,
        )
    if idleness is not None and idleness.ends_at <= latest:
        seconds = row.idle_timeout_seconds
        rule = TextTemplate.IDLE_TIMEOUT.text(maximum_seconds=seconds, name=row.policy)
        yield SessionEnd(
            row.id, row.name, row.owner_id, row.domain, idleness.ends_at, "idle", rule, seconds
        )
    if row.max_session_lifetime_seconds and row.started_at is not None:
        limit = TimeLimit(
            row.max_session_lifetime_seconds, row.lifetime_extension_seconds, 0, row.policy
        )
        seconds = limit.seconds
        ends_at = row.started_at + timedelta(seconds=seconds)
        if ends_at <= latest:
            yield SessionEnd(
                row.id, row.name, row.owner_id, row.domain, ends_at, "lifetime", limit.rule, seconds
            )


async def _long_waits(tx: AsyncConnection, now: datetime) -> list[Condition]:
    """Return one condition for each user with long-waiting sessions."""
    latest = now - PENDING_LONG
    owner = sessions.c.owner_id
    waiting = (
        sa.select(
            owner,
            sessions.c.domain,
            sessions.c.name,
            sa.func.count().over(partition_by=owner).label("number"),
            sa.func.row_number()
            .over(partition_by=owner, order_by=(sessions.c.status_changed_at, sessions.c.id))
            .label("rank"),
        )
        .where(
            sessions.c.status == Status.PENDING,
            sessions.c.status_changed_at <= latest,
            sa.or_(sessions.c.starts_at.is_(None), sessions.c.starts_at <= latest),
        )
        .subquery()
    )
    seconds = int(PENDING_LONG.total_seconds())
    rows = sa.select(waiting).where(waiting.c.rank == 1).limit(_MAX_ROWS)
    return [
        Condition(
            f"{EventName.SESSION_PENDING_LONG}:{row.owner_id}",
            EventName.SESSION_PENDING_LONG,
            Audience(user_id=row.owner_id),
            TextTemplate.NOTICE_SESSIONS_PENDING.text(
                count=row.number, minimum_seconds=seconds, name=row.name
            ),
            "sessions",
            row.domain,
        )
        for row in await tx.execute(rows)
    ]


async def _quotas(tx: AsyncConnection) -> list[Condition]:
    policy = sa.func.coalesce(
        user_policies.c.max_quota_scope_bytes, project_policies.c.max_quota_scope_bytes
    )
    limit = sa.func.coalesce(quota_scopes.c.override_bytes, policy)
    rows = (
        sa.select(
            quota_scopes.c.host,
            quota_scopes.c.scope,
            quota_scopes.c.used_bytes,
            limit.label("limit"),
            users.c.id.label("user_id"),
            projects.c.id.label("project_id"),
            projects.c.name.label("project"),
            sa.func.coalesce(users.c.domain, projects.c.domain).label("domain"),
        )
        .select_from(quota_scopes)
        .outerjoin(users, quota_scopes.c.scope == sa.literal("user:").concat(users.c.id))
        .outerjoin(projects, quota_scopes.c.scope == sa.literal("project:").concat(projects.c.id))
        .outerjoin(user_policies, users.c.resource_policy == user_policies.c.name)
        .outerjoin(project_policies, projects.c.resource_policy == project_policies.c.name)
        .where(limit > 0, quota_scopes.c.used_bytes * 100 >= limit * QUOTA_PERCENT)
        .limit(_MAX_ROWS)
    )
    return [_quota(row) for row in await tx.execute(rows) if row.user_id or row.project_id]


def _quota(row: Any) -> Condition:
    values: dict[str, str | int] = {
        "host": row.host,
        "percent": row.used_bytes * 100 // row.limit,
        "used": _rounded(row.used_bytes),
        "limit": _rounded(row.limit),
    }
    template = TextTemplate.NOTICE_QUOTA
    audience = Audience(user_id=row.user_id)
    if row.user_id is None:
        template, values["name"] = TextTemplate.NOTICE_PROJECT_QUOTA, row.project
        audience = Audience(project_id=row.project_id)
    key = f"{EventName.QUOTA_NEARLY_FULL}:{row.host}:{row.scope}"
    text = template.text(**values)
    return Condition(key, EventName.QUOTA_NEARLY_FULL, audience, text, "data", row.domain)


def _rounded(size: int) -> str:
    """Format a number of bytes, rounded down, in the largest unit with a value of at least 10."""
    for power in (40, 30, 20, 10):
        if size >= 10 << power:
            return format_amount(MEM, size >> power << power)
    return format_amount(MEM, size)


async def _announcements(tx: AsyncConnection, now: datetime) -> list[Condition]:
    rows = sa.select(announcements).where(
        announcements.c.starts_at <= now, not_ended(announcements, now)
    )
    return [
        Condition(
            f"{EventName.ANNOUNCEMENT}:{row.id}",
            EventName.ANNOUNCEMENT,
            _audience_of(row),
            TextTemplate.NOTICE_ANNOUNCEMENT.text(title=row.title),
            "",
            row.domain,
        )
        for row in await tx.execute(rows)
    ]


def _audience_of(row: Any) -> Audience:
    match row.audience:
        case AnnouncementAudience.DOMAIN:
            return Audience(domain=row.domain)
        case AnnouncementAudience.PROJECT:
            return Audience(project_id=row.project_id)
        case AnnouncementAudience.ROLE:
            return Audience(role=row.target)
        case _:
            return EVERYONE


async def _maintenances(tx: AsyncConnection, now: datetime) -> list[Condition]:
    rows = sa.select(maintenances).where(not_ended(maintenances, now))
    found = []
    for row in await tx.execute(rows):
        starts_at = row.starts_at.isoformat(timespec="seconds")
        values = {"starts_at": starts_at, "reason": row.reason}
        text = TextTemplate.NOTICE_MAINTENANCE.text(**values)
        if row.target is not None:
            text = TextTemplate.NOTICE_MAINTENANCE_OF.text(target=row.target, **values)
        # The start is part of the key, so a maintenance is announced again if its start changes.
        key = f"{EventName.MAINTENANCE_PLANNED}:{row.id}:{int(row.starts_at.timestamp())}"
        found.append(Condition(key, EventName.MAINTENANCE_PLANNED, EVERYONE, text))
    return found


async def _failing_endpoints(tx: AsyncConnection) -> list[Condition]:
    """Return the endpoints whose replicas fail although their revision has served before.

    The failure of a new revision is an event of its rollout.
    """
    rows = (
        sa.select(endpoints.c.id, endpoints.c.name, endpoints.c.owner_id, endpoints.c.problem)
        .add_columns(projects.c.domain)
        .join_from(endpoints, projects, endpoints.c.project_id == projects.c.id)
        .where(
            endpoints.c.failures >= FAILED_REPLICAS,
            endpoints.c.active_revision_id == endpoints.c.target_revision_id,
            endpoints.c.problem.is_not(None),
            sa.not_(endpoints.c.is_paused),
            sa.not_(endpoints.c.is_deleting),
        )
        .limit(_MAX_ROWS)
    )
    return [
        Condition(
            f"{EventName.ENDPOINT_FAILED}:{row.id}",
            EventName.ENDPOINT_FAILED,
            Audience(user_id=row.owner_id),
            TextTemplate.NOTICE_ENDPOINT_FAILING.text(
                CodedText.from_json(row.problem), name=row.name
            ),
            f"endpoints?item={row.id}",
            row.domain,
        )
        for row in await tx.execute(rows)
    ]


async def _lost_agents(tx: AsyncConnection) -> list[Condition]:
    rows = sa.select(agents.c.id, agents.c.last_heartbeat_at).where(
        agents.c.status == AgentStatus.LOST
    )
    return [
        Condition(
            f"{EventName.AGENT_LOST}:{row.id}",
            EventName.AGENT_LOST,
            ADMINISTRATORS,
            TextTemplate.NOTICE_AGENT_LOST.text(
                name=row.id, last_at=row.last_heartbeat_at.isoformat(timespec="seconds")
            ),
            "agents",
        )
        for row in await tx.execute(rows.limit(_MAX_ROWS))
    ]


async def _failing_mails(tx: AsyncConnection) -> list[Condition]:
    rows = sa.select(sa.func.count()).where(mails.c.attempts >= FAILED_MAIL_ATTEMPTS)
    count = await tx.scalar(rows)
    if not count:
        return []
    text = TextTemplate.NOTICE_MAIL_FAILING.text(count=count, attempts=FAILED_MAIL_ATTEMPTS)
    return [Condition(f"{EventName.MAIL_FAILING}:", EventName.MAIL_FAILING, ADMINISTRATORS, text)]
