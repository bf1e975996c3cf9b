"""Writes of suspensions in the transaction of a transition of the session."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.sessions.lifecycle import ENDED, Event, Status
from bai_services.core.sessions.suspensions import Phase, Purpose

from .. import bulk
from ..tables.sessions import kernels, sessions
from ..tables.suspensions import session_suspensions as suspensions

_ID: sa.BindParameter[str] = sa.bindparam("of_session")
_AGENT_OF_MAIN = (
    sa.select(kernels.c.agent_id)
    .where(kernels.c.session_id == _ID, kernels.c.role == "main")
    .scalar_subquery()
)
_KEEP_HOME = (
    sa.update(sessions)
    .where(
        sessions.c.id == _ID,
        sessions.c.type == "interactive",
        # Only interactive sessions, because sessions of other types may have kernels on several
        # agents.
        sessions.c.cluster_size == 1,
    )
    .values(home_agent_id=_AGENT_OF_MAIN)
)
_AMONG = bulk.Among(suspensions.c.session_id, "ids")
_STOPPING = sa.select(
    suspensions.c.session_id,
    suspensions.c.purpose,
    suspensions.c.requested_by,
    suspensions.c.expires_at,
).where(_AMONG, suspensions.c.phase == Phase.STOPPING, suspensions.c.purpose != Purpose.STOP)
_WITH_HOME = sa.select(sessions.c.id).where(
    bulk.Among(sessions.c.id, "ids"), sessions.c.home_agent_id.is_not(None)
)
_TIMES = ("requested_at", "deadline", "suspended_at")
_AGAIN = sa.insert(suspensions).values(
    phase=Phase.SUSPENDED,
    purpose=Purpose.SUSPEND,
    requested_by="manager",
    keeps_variables=False,
)
_FORGET = sa.delete(suspensions).where(_AMONG)
_FORGET_OPEN = _FORGET.where(
    suspensions.c.phase != Phase.RESUMED, suspensions.c.purpose != Purpose.STOP
)
_UPDATE = sa.update(suspensions).where(_AMONG)
_STOP = _UPDATE.values(phase=Phase.STOPPING)
_STOP_OPEN = _STOP.where(
    suspensions.c.phase == Phase.PREPARING, suspensions.c.purpose != Purpose.STOP
)
_SUSPEND = _UPDATE.values(phase=Phase.SUSPENDED, suspended_at=sa.bindparam("at"))
_RESUME = _UPDATE.values(phase=Phase.RESUMED, resumed_at=sa.bindparam("at"))


@dataclass(frozen=True, slots=True)
class Stopping:
    """A suspension whose session is being stopped."""

    purpose: Purpose
    requested_by: str
    expires_at: datetime | None


async def read_stopping(tx: AsyncConnection, session_ids: Sequence[str]) -> dict[str, Stopping]:
    """Return the suspensions of sessions that are being stopped, by session id."""
    if not session_ids:
        return {}
    rows = await tx.execute(_STOPPING, {"ids": list(session_ids)})
    return {key: Stopping(*values) for key, *values in rows}


async def read_with_home(tx: AsyncConnection, session_ids: Sequence[str]) -> frozenset[str]:
    """Return the ids of those sessions whose home directory an agent keeps."""
    if not session_ids:
        return frozenset()
    return frozenset((await tx.execute(_WITH_HOME, {"ids": list(session_ids)})).scalars())


def end_of_stop(event: Event, stopping: Stopping | None) -> tuple[Event, CodedText | None]:
    """Return the event for a TERMINATING session after all its kernels have ended.

    If the session is being suspended or requeued, the result is ``SUSPENDED`` with a text for
    users; otherwise, it is ``event``. A session that was preempted during a suspension does not
    return to the queue.
    """
    if event not in (Event.EXITED, Event.FAILED, Event.ABORTED, Event.REQUEUED):
        return event, None
    if stopping is None or (event is Event.REQUEUED and stopping.purpose == Purpose.REQUEUE):
        return event, None
    return Event.SUSPENDED, _text(stopping)


async def forget_open(tx: AsyncConnection, session_id: str) -> bool:
    """Delete the open suspension of a session that ends; return whether one existed."""
    deleted = await tx.execute(_FORGET_OPEN, {"ids": [session_id]})
    return deleted.rowcount > 0


async def keep_home(tx: AsyncConnection, session_id: str) -> None:
    """Record that the agent of the main kernel keeps the home of an interactive session."""
    await tx.execute(_KEEP_HOME, {"of_session": session_id})


async def follow(
    tx: AsyncConnection, steps: Sequence[tuple[str, Event, Status, Status]], at: datetime
) -> None:
    """Change the suspensions of sessions in the transaction of their transitions.

    A step has the session id, the event, and the status before and after the event.
    """
    changes: dict[sa.Update | sa.Delete, list[str]] = defaultdict(list)
    again = []
    for session_id, event, before, after in steps:
        is_failed_return = event is Event.SUSPENDED and before is not Status.TERMINATING
        if is_failed_return:
            again.append({"session_id": session_id} | dict.fromkeys(_TIMES, at))
        if after in ENDED or is_failed_return:
            changes[_FORGET].append(session_id)
        elif event in _CHANGES:
            changes[_CHANGES[event]].append(session_id)
    for statement, ids in changes.items():
        timed = statement in (_SUSPEND, _RESUME)
        await tx.execute(statement, {"ids": ids} | ({"at": at} if timed else {}))
    if again:
        await tx.execute(_AGAIN, again)


_CHANGES: Mapping[Event, sa.Update | sa.Delete] = {
    Event.SUSPEND_REQUESTED: _STOP,
    # A preemption during the preparation stops the session; its suspension becomes STOPPING, too.
    Event.PREEMPTED: _STOP_OPEN,
    Event.SUSPENDED: _SUSPEND,
    Event.RESUMED: _RESUME,
    Event.REQUEUED: _RESUME,
    # A permanent stop replaces the suspension.
    Event.STOP_REQUESTED: _FORGET_OPEN,
}


def _text(stopping: Stopping) -> CodedText:
    if stopping.purpose == Purpose.REQUEUE:
        return TextTemplate.REQUEUED.text()
    if stopping.expires_at is None:
        return TextTemplate.SUSPENDED_BY.text(name=stopping.requested_by)
    return TextTemplate.SUSPENDED_UNTIL.text(
        name=stopping.requested_by, ends_at=stopping.expires_at.isoformat()
    )
