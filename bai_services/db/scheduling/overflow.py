"""Store of overflow rules, and of the moves of pending sessions to other resource groups."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import CodedText
from bai_services.core.errors import (
    AlreadyExists,
    InvalidTransition,
    NotFound,
    QuotaExceeded,
)
from bai_services.core.listing import ListQuery, Page
from bai_services.core.scheduling.caps import Scope, ScopeKind
from bai_services.core.scheduling.overflow import MAX_RULES, MOVABLE_TYPES, Move, OverflowRule
from bai_services.core.scheduling.queue.model import Changes
from bai_services.core.sessions.lifecycle import Event, Status

from ..audit import record
from ..database import Database
from ..integrity import raise_on_violation, update_version
from ..listing import Listing
from ..records import first_record, records
from ..sessions import transitions
from ..sessions.rows import SELECT, SessionRow, read_rows, row_of
from ..tables.accounts import projects
from ..tables.cluster import resource_groups
from ..tables.overflow import overflow_rules
from ..tables.preemption import preemption_plans
from ..tables.sessions import session_dependencies, sessions
from . import lease
from .caps import CHUNK, read_caps, read_usage
from .queue_rows import RESERVATION_OPTION

# Session options that restrict a session to certain agents or to a reservation.
_FIXED_PLACE = ("agent_list", RESERVATION_OPTION)

_ROWS = sa.select(
    *overflow_rules.columns, projects.c.name.label("project"), projects.c.domain
).join_from(overflow_rules, projects, overflow_rules.c.project_id == projects.c.id)
_LISTING = Listing(
    columns={
        **{
            name: overflow_rules.c[name]
            for name in (
                "id",
                "created_at",
                "project_id",
                "from_group",
                "to_group",
                "position",
                "after_seconds",
                "changed_by_role",
            )
        },
        "project": projects.c.name,
        "domain": projects.c.domain,
    },
    default_sort=("domain", "project", "from_group", "position", "id"),
)
_awaited = sessions.alias("awaited")
_LAST_DEPENDENCIES = (
    sa.select(
        session_dependencies.c.session_id,
        sa.func.max(_awaited.c.terminated_at).label("ended_at"),
    )
    .join_from(session_dependencies, _awaited, session_dependencies.c.depends_on == _awaited.c.id)
    .where(session_dependencies.c.session_id.in_(sa.bindparam("ids", expanding=True)))
    .group_by(session_dependencies.c.session_id)
)
_SOURCE, _TARGET = resource_groups.alias("source"), resource_groups.alias("target")


def _in_force(rules: sa.Select[Any]) -> sa.Select[Any]:
    """Return only the rules that can currently move sessions.

    The engine of a resource group may have changed since the rule was created.
    """
    return (
        rules.join(_SOURCE, _SOURCE.c.name == overflow_rules.c.from_group)
        .join(_TARGET, _TARGET.c.name == overflow_rules.c.to_group)
        .where(_SOURCE.c.engine == _TARGET.c.engine, _TARGET.c.is_active)
    )


# A session that has already run cannot move: it has a home, and usage records of its group.
_IS_MOVABLE = sa.and_(
    sessions.c.status == Status.PENDING,
    sessions.c.type.in_(sorted(MOVABLE_TYPES)),
    sessions.c.restart_count == 0,
    sessions.c.home_agent_id.is_(None),
    ~sa.exists().where(
        preemption_plans.c.session_id == sessions.c.id, preemption_plans.c.ended_at.is_(None)
    ),
)


@dataclass(frozen=True, slots=True)
class WaitingSession:
    """A pending session that a rule may move; ``since``: start of its wait in its group."""

    row: SessionRow
    since: datetime


class OverflowStore:
    """Reads and writes overflow rules. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def page(
        self, query: ListQuery, domain: str | None, project_ids: Collection[str] | None
    ) -> Page[OverflowRule]:
        """Return a page of rules, filtered by domain and by projects (None: no filter)."""
        rows = _ROWS
        if domain is not None:
            rows = rows.where(projects.c.domain == domain)
        if project_ids is not None:
            rows = rows.where(projects.c.id.in_(sorted(project_ids)))
        async with self._db.read() as tx:
            return await _LISTING.page(tx, rows, query, OverflowRule)

    async def find(self, rule_id: str) -> OverflowRule | None:
        async with self._db.read() as tx:
            found = await tx.execute(_ROWS.where(overflow_rules.c.id == rule_id))
            return first_record(OverflowRule, found)

    async def in_force(self) -> list[OverflowRule]:
        """Return all rules that can currently move sessions."""
        async with self._db.read() as tx:
            rows = await tx.execute(_in_force(_ROWS).order_by(overflow_rules.c.id))
            return records(OverflowRule, rows)

    async def of(self, project_id: str, from_group: str) -> list[OverflowRule]:
        """Return the rules that can move a project's sessions out of a resource group."""
        chosen = sa.and_(
            overflow_rules.c.project_id == project_id, overflow_rules.c.from_group == from_group
        )
        async with self._db.read() as tx:
            return records(OverflowRule, await tx.execute(_in_force(_ROWS).where(chosen)))

    async def create(self, values: Mapping[str, Any], audit: AuditEntry) -> OverflowRule:
        """Insert a rule and return it.

        Raises
        ------
        AlreadyExists
            If the project has a rule for these two resource groups.
        QuotaExceeded
            If the project has ``MAX_RULES`` rules.
        NotFound
            If the project or a resource group no longer exists.
        """
        taken = AlreadyExists("the project already has a rule for these resource groups; change it")
        gone = NotFound("the project or a resource group no longer exists")
        count = sa.select(sa.func.count()).where(
            overflow_rules.c.project_id == values["project_id"]
        )
        async with self._db.write() as tx:
            if int(await tx.scalar(count) or 0) >= MAX_RULES:
                raise QuotaExceeded(
                    f"a project has at most {MAX_RULES} overflow rules; delete some",
                    limit=MAX_RULES,
                )
            with raise_on_violation(gone, taken):
                await tx.execute(overflow_rules.insert().values(values))
            await record(tx, audit)
            found = await tx.execute(_ROWS.where(overflow_rules.c.id == values["id"]))
            rule = first_record(OverflowRule, found)
            assert rule is not None  # it was inserted in this transaction
            return rule

    async def update(
        self, rule_id: str, version: int, changes: Mapping[str, Any], audit: AuditEntry
    ) -> None:
        """Change a rule that has ``version``; raise ``Conflict`` for another version."""
        async with self._db.write() as tx:
            await update_version(tx, overflow_rules, rule_id, version, changes)
            await record(tx, audit)

    async def delete(self, rule_id: str, audit: AuditEntry) -> None:
        async with self._db.write() as tx:
            await tx.execute(sa.delete(overflow_rules).where(overflow_rules.c.id == rule_id))
            await record(tx, audit)

    async def has_rules(self) -> bool:
        async with self._db.read() as tx:
            return (await tx.execute(sa.select(overflow_rules.c.id).limit(1))).first() is not None

    async def waiting(self, now: datetime, limit: int) -> list[WaitingSession]:
        """Return at most ``limit`` sessions that a rule may move now, in the order of creation.

        The wait counts from the latest of these times: the change to PENDING or the last move, the
        requested start, and the end of the last dependency. Both resource groups of the rule must
        have the same engine, because the image and the mounts depend on it.
        """
        rules = _in_force(
            sa.select(
                overflow_rules.c.project_id,
                overflow_rules.c.from_group,
                sa.func.min(overflow_rules.c.after_seconds).label("after"),
            ).select_from(overflow_rules)
        ).group_by(overflow_rules.c.project_id, overflow_rules.c.from_group)
        waiting: list[WaitingSession] = []
        async with self._db.read() as tx:
            for rule in await tx.execute(rules):
                latest = now - timedelta(seconds=rule.after)
                chosen = sa.and_(
                    _IS_MOVABLE,
                    sessions.c.project_id == rule.project_id,
                    sessions.c.resource_group == rule.from_group,
                    sessions.c.status_changed_at <= latest,
                    sessions.c.starts_at.is_(None) | (sessions.c.starts_at <= latest),
                )
                found = await tx.execute(
                    SELECT.where(chosen).order_by(sessions.c.sequence).limit(limit)
                )
                rows = [row for each in found if not has_fixed_place(row := row_of(each))]
                starts = await _wait_starts(tx, rows)
                waiting += [
                    WaitingSession(row, starts[row.id]) for row in rows if starts[row.id] <= latest
                ]
        waiting.sort(key=lambda one: one.row.created_at)
        return waiting[:limit]

    async def movable_since(self, row: SessionRow) -> datetime | None:
        """Return when the wait of a pending session in its resource group began.

        None if no rule can move the session.
        """
        if has_fixed_place(row):
            return None
        async with self._db.read() as tx:
            chosen = sa.and_(sessions.c.id == row.id, _IS_MOVABLE)
            if (await tx.execute(sa.select(sessions.c.id).where(chosen))).first() is None:
                return None
            return (await _wait_starts(tx, [row]))[row.id]

    async def limits(self, groups: Collection[str]) -> Changes:
        """Return the caps and the usage of resource groups."""
        scopes = [Scope(ScopeKind.RESOURCE_GROUP, group) for group in sorted(groups)]
        async with self._db.read() as tx:
            caps = await read_caps(tx, scopes)
            return Changes(
                caps={scope: caps.get(scope) for scope in scopes},
                usage=await read_usage(tx, scopes),
            )

    async def move(
        self, move: Move, reason: CodedText, at: datetime, token: int, audit: AuditEntry
    ) -> transitions.Transition | None:
        """Move a pending session to another resource group.

        Return None if the session has changed since the move was found.

        Raises
        ------
        StaleLease
            If ``token`` is not the current lease token.
        """
        async with self._db.write() as tx:
            await lease.require(tx, token)
            chosen = sa.and_(
                sessions.c.id == move.session_id,
                sessions.c.resource_group == move.from_group,
                _IS_MOVABLE,
            )
            # The lock prevents that a second manager moves the session at the same time.
            locked = sa.select(sessions.c.id).where(chosen).with_for_update(key_share=True)
            if (await tx.execute(locked)).first() is None:
                return None
            facts = transitions.TransitionValues(reason=reason)
            try:
                moved = await transitions.apply(
                    tx,
                    transitions.Move(move.session_id, Event.MOVED, facts, Status.PENDING),
                    at,
                )
            except InvalidTransition:
                return None
            await tx.execute(
                sa.update(sessions)
                .where(sessions.c.id == move.session_id)
                .values(resource_group=move.to_group, reasons=[], position=None, estimate=None)
            )
            await record(tx, audit)
            (row,) = await read_rows(tx, sessions.c.id == move.session_id)
        return transitions.Transition(row, moved.event, moved.before)


def has_fixed_place(row: SessionRow) -> bool:
    """Return whether a session can run only on certain agents or in an advance reservation."""
    return any(row.options.get(name) for name in _FIXED_PLACE)


async def _wait_starts(tx: AsyncConnection, rows: Sequence[SessionRow]) -> dict[str, datetime]:
    """Return when the wait of each pending session in its resource group began."""
    ends: dict[str, datetime] = {}
    for start in range(0, len(rows), CHUNK):
        ids = [row.id for row in rows[start : start + CHUNK]]
        found = await tx.execute(_LAST_DEPENDENCIES, {"ids": ids})
        ends |= {row.session_id: row.ended_at for row in found if row.ended_at is not None}
    return {
        row.id: max(
            time
            for time in (row.status_changed_at, row.starts_at, ends.get(row.id))
            if time is not None
        )
        for row in rows
    }
