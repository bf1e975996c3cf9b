"""Store of preemption plans."""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.accounts.roles import Role, Visibility
from bai_services.core.audit import AuditEntry
from bai_services.core.listing import ListQuery, Page
from bai_services.core.notifications.events import Event, session_continues
from bai_services.core.scheduling.placement import Placement
from bai_services.core.scheduling.preemption.options import PreemptionMode, PreemptionOptions
from bai_services.core.scheduling.preemption.plan import Preemption
from bai_services.core.scheduling.preemption.records import (
    ListedPreemption,
    PlanOutcome,
    PreemptedSession,
)
from bai_services.core.scheduling.preemption.rules import Rule
from bai_services.core.sessions.lifecycle import Status

from ..accounts.visibility import is_owner_visible
from ..audit import record
from ..database import Database
from ..listing import Listing
from ..notifications.events import raise_events
from ..tables.accounts import users
from ..tables.cluster import resource_groups
from ..tables.preemption import preemption_plans, preemption_victims
from ..tables.sessions import sessions
from . import lease
from .queue_rows import read_pending

# Maximum number of ended plans that one transaction removes.
_REMOVED_AT_ONCE = 500

_plans, _victims = preemption_plans.c, preemption_victims.c


@dataclass(frozen=True, slots=True)
class Victim:
    """A victim of an active plan.

    ``is_running``: the victim still runs and has not restarted since the plan was made.
    """

    session_id: str
    rule: Rule
    is_running: bool


@dataclass(frozen=True, slots=True)
class ActivePlan:
    """A plan that has not ended, with the current status of its beneficiary and victims.

    ``is_blocked``: the beneficiary may not start, for example because of an inactive account or
    resource group, or a spent budget.
    """

    id: str
    session_id: str
    status: Status
    resource_group: str
    mode: PreemptionMode
    stops_at: datetime
    victims: tuple[Victim, ...]
    is_blocked: bool = False


def _stored(placement: Placement) -> dict[str, Any]:
    devices = [[d.device_id, d.slot, d.amount] for d in placement.devices]
    return {"agent_id": placement.agent_id, "slots": dict(placement.slots), "devices": devices}


class PreemptionStore:
    """Reads and writes preemption plans. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def commit(
        self,
        preemption: Preemption,
        options: PreemptionOptions,
        at: datetime,
        token: int | None,
        warnings: Sequence[Event],
        audit: AuditEntry,
    ) -> bool:
        """Store a new plan; return False if its sessions are no longer in the expected states.

        The beneficiary must be pending without a plan. The victims must be running, and not be
        victims of another active plan. ``warnings``: the events for the owners of the victims.

        Raises
        ------
        StaleLease
            If ``token`` is not the current lease token.
        """
        plan, plan_id = preemption.plan, str(uuid.uuid4())
        async with self._db.write() as tx:
            if token is not None:
                await lease.require(tx, token)
            if not await _is_possible(tx, preemption):
                return False
            await tx.execute(
                sa.insert(preemption_plans).values(
                    id=plan_id,
                    created_at=at,
                    session_id=preemption.session_id,
                    resource_group=preemption.group,
                    placements=[_stored(placement) for placement in plan.placements],
                    mode=options.mode,
                    grace_seconds=options.grace_seconds,
                    stops_at=plan.stops_at,
                    outcome="",
                )
            )
            await tx.execute(
                sa.insert(preemption_victims),
                [
                    {"plan_id": plan_id, "session_id": key, "rule": rule}
                    for key, rule in plan.victims
                ],
            )
            await raise_events(tx, warnings)
            await record(tx, audit)
            return True

    async def active(self) -> list[ActivePlan]:
        """Return the plans that have not ended, oldest first."""
        select = (
            sa.select(preemption_plans, sessions.c.status, resource_groups.c.is_active)
            .join_from(preemption_plans, sessions, _plans.session_id == sessions.c.id)
            .join(resource_groups, sessions.c.resource_group == resource_groups.c.name)
            .where(_plans.ended_at.is_(None))
            .order_by(_plans.created_at, _plans.id)
        )
        async with self._db.read() as tx:
            rows = (await tx.execute(select)).all()
            victims = await _victims_of(tx, [row.id for row in rows])
            pending = await read_pending(tx, [row.session_id for row in rows]) if rows else []
        blocked = {p.id for p in pending if p.blocked_reason or p.unmet_dependencies}
        return [
            ActivePlan(
                row.id,
                row.session_id,
                Status(row.status),
                row.resource_group,
                PreemptionMode(row.mode),
                row.stops_at,
                tuple(
                    Victim(v.session_id, Rule(v.rule), _is_running(v, row.created_at))
                    for v in victims[row.id]
                ),
                row.session_id in blocked or not row.is_active,
            )
            for row in rows
        ]

    async def end(
        self, outcome: PlanOutcome, at: datetime, *, plan_id: str = "", session_id: str = ""
    ) -> list[str]:
        """End an active plan, given by its id or its beneficiary; return the ids of its victims.

        Notify the owners of victims that were not stopped that their sessions continue. Return []
        if there is no such active plan.
        """
        by = _plans.id == plan_id if plan_id else _plans.session_id == session_id
        async with self._db.write() as tx:
            update = sa.update(preemption_plans).where(by, _plans.ended_at.is_(None))
            ended = (
                await tx.execute(
                    update.values(ended_at=at, outcome=outcome).returning(
                        _plans.id, _plans.created_at
                    )
                )
            ).one_or_none()
            if ended is None:
                return []
            select = sa.select(_victims.session_id).where(_victims.plan_id == ended.id)
            victims = list(await tx.scalars(select.order_by(_victims.session_id)))
            # Select only victims that still run as at the time of the plan: a victim that was
            # stopped may already run again.
            continuing = await tx.execute(
                sa.select(
                    sessions.c.id, sessions.c.owner_id, sessions.c.domain, sessions.c.name
                ).where(
                    sessions.c.id.in_(victims),
                    sessions.c.status == Status.RUNNING,
                    sessions.c.started_at <= ended.created_at,
                )
            )
            await raise_events(
                tx,
                [
                    session_continues(row.id, at, row.owner_id, row.domain or "", row.name)
                    for row in continuing
                ],
            )
            return victims

    async def remove_before(self, before: datetime) -> None:
        """Remove plans that ended before a time."""
        old = sa.select(_plans.id).where(_plans.ended_at < before).limit(_REMOVED_AT_ONCE)
        async with self._db.write() as tx:
            await tx.execute(sa.delete(preemption_plans).where(_plans.id.in_(old)))

    async def page(self, query: ListQuery, visible: Visibility) -> Page[ListedPreemption]:
        """Return a page of plans with a visible pending session or victim, newest first.

        The names of other sessions are empty, also for filters and sorting.
        """
        is_shown = _is_visible(sessions.c, visible)
        named = {name: sa.case((is_shown, column), else_="") for name, column in _NAMED.items()}
        plain = ("placements", "session_id")
        select = (
            sa.select(
                *(column for column in preemption_plans.columns if column.name not in plain),
                *(column.label(name) for name, column in named.items()),
            )
            .join_from(preemption_plans, sessions, _plans.session_id == sessions.c.id)
            .join(users, sessions.c.owner_id == users.c.id)
        )
        if not visible.is_unrestricted:
            preempted = sessions.alias("preempted")
            of_victim = (
                sa.select(_victims.plan_id)
                .join_from(preemption_victims, preempted, _victims.session_id == preempted.c.id)
                .where(_is_visible(preempted.c, visible))
            )
            select = select.where(sa.or_(is_shown, _plans.id.in_(of_victim)))
        listing = Listing(columns={**_COLUMNS, **named}, default_sort=("-created_at", "id"))
        async with self._db.read() as tx:
            page = await listing.page(tx, select, query, _ListedPlan)
            victims = await _victims_of(tx, [plan.id for plan in page.items])

        def is_named(victim: Any) -> bool:
            is_in_domain = visible.domain in (None, victim.domain)
            return is_in_domain and Role(victim.role) not in visible.hidden_roles

        return page.with_items([_listed(plan, victims[plan.id], is_named) for plan in page.items])


def _is_visible(of: Any, visible: Visibility) -> sa.ColumnElement[bool]:
    """Return the condition that a session is visible to a caller; ``of``: the session's columns."""
    shown = is_owner_visible(of.owner_id, visible.hidden_roles)
    return shown if visible.domain is None else sa.and_(of.domain == visible.domain, shown)


@dataclass(frozen=True, slots=True)
class _ListedPlan:
    id: str
    created_at: datetime
    session_id: str
    resource_group: str
    mode: str
    grace_seconds: int
    stops_at: datetime
    ended_at: datetime | None
    outcome: str
    session: str
    domain: str
    owner: str


_COLUMNS = {
    "id": _plans.id,
    "created_at": _plans.created_at,
    "resource_group": _plans.resource_group,
    "mode": _plans.mode,
    "stops_at": _plans.stops_at,
    "ended_at": _plans.ended_at,
    "outcome": _plans.outcome,
}
# Columns that name the pending session.
_NAMED: Mapping[str, sa.ColumnElement[Any]] = {
    "session_id": _plans.session_id,
    "session": sessions.c.name,
    "owner": users.c.username,
    "domain": sessions.c.domain,
}


def _listed(
    plan: _ListedPlan, victims: Sequence[Any], is_named: Callable[[Any], bool]
) -> ListedPreemption:
    return ListedPreemption(
        id=plan.id,
        created_at=plan.created_at,
        session_id=plan.session_id,
        session=plan.session,
        owner=plan.owner,
        domain=plan.domain,
        resource_group=plan.resource_group,
        mode=plan.mode,
        grace_seconds=plan.grace_seconds,
        stops_at=plan.stops_at,
        ended_at=plan.ended_at,
        outcome=plan.outcome,
        victims=[
            PreemptedSession(
                session_id=victim.session_id,
                session=victim.name,
                owner=victim.owner,
                rule=victim.rule,
                status=victim.status,
                stopped_at=victim.stopped_at,
            )
            for victim in victims
            if is_named(victim)
        ],
        victim_count=len(victims),
    )


async def _victims_of(tx: AsyncConnection, plan_ids: Sequence[str]) -> Mapping[str, list[Any]]:
    """Return the victims of plans with their sessions, by plan."""
    found: dict[str, list[Any]] = defaultdict(list)
    if not plan_ids:
        return found
    select = (
        sa.select(
            preemption_victims,
            sessions.c.status,
            sessions.c.started_at,
            sessions.c.name,
            sessions.c.domain,
            users.c.username.label("owner"),
            users.c.role,
        )
        .join_from(preemption_victims, sessions, _victims.session_id == sessions.c.id)
        .join(users, sessions.c.owner_id == users.c.id)
        .where(_victims.plan_id.in_(plan_ids))
        .order_by(_victims.plan_id, _victims.session_id)
    )
    for row in await tx.execute(select):
        found[row.plan_id].append(row)
    return found


def _is_running(victim: Any, planned_at: datetime) -> bool:
    return bool(victim.status == Status.RUNNING and victim.started_at <= planned_at)


async def lock_sessions(tx: AsyncConnection, ids: Sequence[str]) -> Mapping[str, Any]:
    """Lock sessions until the end of the transaction; return status and start time by id."""
    # Lock in a fixed order, to avoid deadlocks.
    locked = await tx.execute(
        sa.select(sessions.c.id, sessions.c.status, sessions.c.started_at)
        .where(sessions.c.id.in_(list(ids)))
        .order_by(sessions.c.id)
        .with_for_update(key_share=True)
    )
    return {row.id: row for row in locked}


async def _is_possible(tx: AsyncConnection, preemption: Preemption) -> bool:
    victims = preemption.plan.victim_ids
    locked = await lock_sessions(tx, [preemption.session_id, *victims])
    statuses = {key: row.status for key, row in locked.items()}
    is_expected = statuses.get(preemption.session_id) == Status.PENDING and all(
        statuses.get(key) == Status.RUNNING for key in victims
    )
    if not is_expected:
        return False
    in_plan = sa.select(_plans.id).where(
        _plans.ended_at.is_(None),
        sa.or_(
            _plans.session_id == preemption.session_id,
            _plans.id.in_(sa.select(_victims.plan_id).where(_victims.session_id.in_(victims))),
        ),
    )
    return await tx.scalar(in_plan.limit(1)) is None


@dataclass(frozen=True, slots=True)
class PreemptionWarning:
    """The announced preemption of a running session."""

    resource_group: str
    rule: Rule
    mode: PreemptionMode
    stops_at: datetime


async def read_warnings(tx: AsyncConnection, ids: Sequence[str]) -> dict[str, PreemptionWarning]:
    """Return the announced preemption of each of these running sessions."""
    rows = await tx.execute(
        sa.select(
            _victims.session_id,
            _plans.resource_group,
            _victims.rule,
            _plans.mode,
            _plans.stops_at,
        )
        .join_from(preemption_victims, preemption_plans, _victims.plan_id == _plans.id)
        .join(sessions, _victims.session_id == sessions.c.id)
        .where(
            _victims.session_id.in_(list(ids)),
            _plans.ended_at.is_(None),
            sessions.c.started_at <= _plans.created_at,
        )
    )
    return {
        row.session_id: PreemptionWarning(
            row.resource_group, Rule(row.rule), PreemptionMode(row.mode), row.stops_at
        )
        for row in rows
    }
