"""Stop the victims of a preemption plan in one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import CodedText
from bai_services.core.notifications import events
from bai_services.core.sessions.lifecycle import Event, Status

from ..audit import record
from ..database import Database
from ..notifications.events import raise_events
from ..sessions.transitions import Move, Transition, TransitionValues, apply
from ..tables.preemption import preemption_plans, preemption_victims
from . import lease
from .preemption import lock_sessions

_plans, _victims = preemption_plans.c, preemption_victims.c


@dataclass(frozen=True, slots=True)
class VictimStop:
    """The reason for a victim's stop, the notification of its owner, and the audit entry."""

    reason: CodedText
    notice: events.Event
    audit: AuditEntry


class VictimStops:
    """Stops the victims of preemption plans. Each public method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def stop(
        self,
        plan_id: str,
        stops: Mapping[str, VictimStop],
        at: datetime,
        *,
        is_requeued: bool,
        token: int,
    ) -> list[Transition]:
        """Stop victims (by session id) of an active plan; return the transitions.

        Stop no victims if the plan has ended or its beneficiary no longer waits. Skip victims that
        have ended, are being stopped, or have restarted since the plan was made.

        Raises
        ------
        StaleLease
            If ``token`` is not the current lease token.
        """
        async with self._db.write() as tx:
            await lease.require(tx, token)
            running = await _running_victims(tx, plan_id, list(stops))
            return [
                await _stop(tx, plan_id, key, stops[key], at, is_requeued=is_requeued)
                for key in running
            ]


async def _running_victims(
    tx: AsyncConnection, plan_id: str, session_ids: Sequence[str]
) -> list[str]:
    """Lock the sessions, and return the ids of the sessions to stop."""
    of_plan = sa.select(_plans.session_id, _plans.created_at)
    plan = (await tx.execute(of_plan.where(_plans.id == plan_id))).one_or_none()
    if plan is None:
        return []
    locked = await lock_sessions(tx, [plan.session_id, *session_ids])
    is_ended = await tx.scalar(sa.select(_plans.ended_at).where(_plans.id == plan_id)) is not None
    beneficiary = locked.get(plan.session_id)
    if is_ended or beneficiary is None or beneficiary.status != Status.PENDING:
        return []
    return [
        key
        for key in sorted(session_ids)
        if (row := locked.get(key)) is not None
        and row.status == Status.RUNNING
        and row.started_at <= plan.created_at
    ]


async def _stop(
    tx: AsyncConnection,
    plan_id: str,
    session_id: str,
    stop: VictimStop,
    at: datetime,
    *,
    is_requeued: bool,
) -> Transition:
    values = TransitionValues(reason=stop.reason, is_requeued_at_end=is_requeued)
    moved = await apply(tx, Move(session_id, Event.PREEMPTED, values), at)
    await tx.execute(
        sa.update(preemption_victims)
        .where(_victims.plan_id == plan_id, _victims.session_id == session_id)
        .values(stopped_at=at)
    )
    await raise_events(tx, [stop.notice])
    await record(tx, stop.audit)
    return moved
