"""Find sessions that exceed a time limit: pending, running or idle for too long."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.sessions.idle import REPORT_TTL, Idleness, idleness_of
from bai_services.core.sessions.lifecycle import Result, SessionType, Status

from ..database import Database
from ..tables.accounts import keypair_policies, keypairs
from ..tables.cluster import resource_groups
from ..tables.sessions import session_dependencies, sessions


@dataclass(frozen=True, slots=True)
class Overdue:
    """A session that exceeds a limit of ``seconds``, plus an extension of ``added_seconds``.

    ``limit_of`` is the name of the resource group or policy that sets the limit; empty for a limit
    in the session's request. ``has_home``: the session will run again, so its home must be kept.
    """

    session_id: str
    seconds: int
    limit_of: str = ""
    has_home: bool = False
    added_seconds: int = 0


class DeadlineStore:
    """Reads overdue sessions. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def pending(self, now: datetime) -> list[Overdue]:
        """Return the sessions that have been pending longer than their resource group allows.

        The time counts from the latest of these times: the change to PENDING, the requested start,
        and the end of the last dependency.
        """
        overdue: list[Overdue] = []
        async with self._db.read() as tx:
            for group, seconds in (await _pending_timeouts(tx)).items():
                latest = now - timedelta(seconds=seconds)
                rows = await tx.execute(
                    sa.select(sessions.c.id, sessions.c.starts_at, sessions.c.home_agent_id).where(
                        sessions.c.status == Status.PENDING,
                        sessions.c.resource_group == group,
                        sessions.c.status_changed_at < latest,
                    )
                )
                late = [row for row in rows if row.starts_at is None or row.starts_at < latest]
                blocked = await _blocked_at(tx, group, latest) if late else set()
                overdue += [
                    Overdue(row.id, seconds, group, has_home=row.home_agent_id is not None)
                    for row in late
                    if row.id not in blocked
                ]
        return overdue

    async def batch(self, now: datetime) -> list[Overdue]:
        """Return the batch sessions that have run longer than their timeout."""
        async with self._db.read() as tx:
            rows = await tx.execute(_WITH_BATCH_TIMEOUT)
            return [
                Overdue(row.id, row.batch_timeout_seconds)
                for row in rows
                if row.started_at + timedelta(seconds=row.batch_timeout_seconds) <= now
            ]

    async def lifetime(self, now: datetime) -> list[Overdue]:
        """Return the sessions that have run longer than the policy of their keypair allows."""
        overdue: list[Overdue] = []
        async with self._db.read() as tx:
            policies = await tx.execute(_POLICIES_WITH_LIFETIME)
            for policy in policies.all():
                of_policy = sa.select(keypairs.c.access_key).where(
                    keypairs.c.resource_policy == policy.name
                )
                rows = await tx.execute(
                    sa.select(
                        sessions.c.id,
                        sessions.c.started_at,
                        sessions.c.lifetime_extension_seconds.label("added"),
                    ).where(
                        sessions.c.status == Status.RUNNING,
                        sessions.c.started_at <= now - timedelta(seconds=policy.seconds),
                        sessions.c.access_key.in_(of_policy),
                    )
                )
                for row in rows:
                    seconds = policy.seconds + row.added
                    if row.started_at <= now - timedelta(seconds=seconds):
                        overdue.append(
                            Overdue(row.id, policy.seconds, policy.name, added_seconds=row.added)
                        )
        return overdue

    async def idle(self, now: datetime) -> list[Overdue]:
        """Return the sessions that have been idle longer than their keypair's policy allows."""
        async with self._db.read() as tx:
            rows = await tx.execute(_IDLE_CANDIDATES, {"since": now - REPORT_TTL})
            return [
                Overdue(row.id, row.seconds, row.policy)
                for row in rows
                if (idleness := _idleness_of(row)) is not None and idleness.is_over(now)
            ]


# These statements run every second. They are built at import, because building one takes longer
# than running it.
_GROUPS = sa.select(resource_groups.c.name, resource_groups.c.scheduler_opts)
_WITH_BATCH_TIMEOUT = sa.select(
    sessions.c.id, sessions.c.started_at, sessions.c.batch_timeout_seconds
).where(sessions.c.status == Status.RUNNING, sessions.c.batch_timeout_seconds.is_not(None))
_POLICIES_WITH_LIFETIME = sa.select(
    keypair_policies.c.name, keypair_policies.c.max_session_lifetime_seconds.label("seconds")
).where(keypair_policies.c.max_session_lifetime_seconds > 0)
# Sessions with an idle timeout of the policy and a recent activity report. Without a recent report,
# it is unknown whether a session is idle.
_IDLE_CANDIDATES = (
    sa.select(
        sessions.c.id,
        sessions.c.type,
        sessions.c.started_at,
        sessions.c.used_at,
        sessions.c.use_heard_at,
        sessions.c.use_known_since,
        keypair_policies.c.name.label("policy"),
        keypair_policies.c.idle_timeout_seconds.label("seconds"),
        keypairs.c.idle_limited_at,
    )
    .join_from(sessions, keypairs, sessions.c.access_key == keypairs.c.access_key)
    .join(keypair_policies, keypairs.c.resource_policy == keypair_policies.c.name)
    .where(
        sessions.c.status == Status.RUNNING,
        sessions.c.use_heard_at >= sa.bindparam("since"),
        keypair_policies.c.idle_timeout_seconds > 0,
    )
)


def _idleness_of(row: Any) -> Idleness | None:
    return idleness_of(
        SessionType(row.type),
        row.started_at,
        row.used_at,
        row.use_heard_at,
        row.seconds,
        row.idle_limited_at,
        row.use_known_since,
    )


async def _pending_timeouts(tx: AsyncConnection) -> Mapping[str, int]:
    rows = await tx.execute(_GROUPS)
    timeouts = {row.name: (row.scheduler_opts or {}).get("pending_timeout") for row in rows}
    return {name: int(seconds) for name, seconds in timeouts.items() if seconds}


async def _blocked_at(tx: AsyncConnection, group: str, latest: datetime) -> set[str]:
    """Return the pending sessions of a group that had an unmet dependency at ``latest``."""
    dependencies = sessions.alias("dependencies")
    rows = await tx.execute(
        sa.select(
            session_dependencies.c.session_id,
            dependencies.c.status,
            dependencies.c.result,
            dependencies.c.terminated_at,
        )
        .join_from(
            session_dependencies, sessions, session_dependencies.c.session_id == sessions.c.id
        )
        .join(dependencies, session_dependencies.c.depends_on == dependencies.c.id)
        .where(sessions.c.status == Status.PENDING, sessions.c.resource_group == group)
    )
    was_blocked: dict[str, bool] = defaultdict(bool)
    for row in rows:
        is_met = row.status == Status.TERMINATED and row.result == Result.SUCCESS
        was_blocked[row.session_id] |= not is_met or row.terminated_at >= latest
    return {key for key, is_blocked in was_blocked.items() if is_blocked}
