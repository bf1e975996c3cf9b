"""Writes of suspensions in the transaction of a transition of the session."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.sessions.lifecycle import ENDED, Event, Status
from bai_services.core.sessions.suspensions import Phase, Purpose

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
        # Sessions of other types may have kernels on several agents.
        sessions.c.cluster_size == 1,
    )
    .values(home_agent_id=_AGENT_OF_MAIN)
)
_STOPPING = sa.select(suspensions).where(
    suspensions.c.session_id == _ID,
    suspensions.c.phase == Phase.STOPPING,
    suspensions.c.purpose != Purpose.STOP,
)
_HOME = sa.select(sessions.c.home_agent_id).where(sessions.c.id == _ID)
_TIMES = ("requested_at", "deadline", "suspended_at")
_AGAIN = sa.insert(suspensions).values(
    phase=Phase.SUSPENDED,
    purpose=Purpose.SUSPEND,
    requested_by="manager",
    keeps_variables=False,
)
_FORGET = sa.delete(suspensions).where(suspensions.c.session_id == _ID)
_FORGET_OPEN = _FORGET.where(
    suspensions.c.phase != Phase.RESUMED, suspensions.c.purpose != Purpose.STOP
)
_UPDATE = sa.update(suspensions).where(suspensions.c.session_id == _ID)
_STOP_OPEN = _UPDATE.where(
    suspensions.c.phase == Phase.PREPARING, suspensions.c.purpose != Purpose.STOP
).values(phase=Phase.STOPPING)


async def end_of_stop(
    tx: AsyncConnection, session_id: str, event: Event
) -> tuple[Event, CodedText | None]:
    """Return the event for a TERMINATING session after all its kernels have ended.

    If the session is being suspended or requeued, the result is ``SUSPENDED`` with a text for
    users; otherwise, it is ``event``. A session that was preempted during a suspension does not
    return to the queue.
    """
    if event not in (Event.EXITED, Event.FAILED, Event.ABORTED, Event.REQUEUED):
        return event, None
    row = (await tx.execute(_STOPPING, {"of_session": session_id})).mappings().one_or_none()
    if row is None or (event is Event.REQUEUED and row["purpose"] == Purpose.REQUEUE):
        return event, None
    return Event.SUSPENDED, _text(dict(row))


async def forget_open(tx: AsyncConnection, session_id: str) -> bool:
    """Delete the suspension of a session that ends instead; return whether one existed."""
    deleted = await tx.execute(_FORGET_OPEN, {"of_session": session_id})
    return deleted.rowcount > 0


async def keep_home(tx: AsyncConnection, session_id: str) -> None:
    """Record that the agent of the main kernel keeps the home of an interactive session."""
    await tx.execute(_KEEP_HOME, {"of_session": session_id})


async def end_of_return(tx: AsyncConnection, session_id: str) -> Event:
    """Return the event after a failed start: ``SUSPENDED`` if the session's home is kept."""
    home = await tx.scalar(_HOME, {"of_session": session_id})
    return Event.FAILED if home is None else Event.SUSPENDED


async def follow(
    tx: AsyncConnection, session_id: str, event: Event, step: tuple[Status, Status], at: datetime
) -> None:
    """Change the suspension of a session in the transaction of a transition.

    ``step`` has the status before and after the event.
    """
    before, after = step
    of = {"of_session": session_id}
    if after in ENDED:
        await tx.execute(_FORGET, of)
    elif event is Event.SUSPEND_REQUESTED:
        await tx.execute(_UPDATE.values(phase=Phase.STOPPING), of)
    elif event is Event.PREEMPTED:
        # The preemption stops a session that is being suspended.
        await tx.execute(_STOP_OPEN, of)
    elif event is Event.SUSPENDED and before is not Status.TERMINATING:
        # A resumed session could not start.
        await tx.execute(_FORGET, of)
        await tx.execute(_AGAIN, {"session_id": session_id} | dict.fromkeys(_TIMES, at))
    elif event is Event.SUSPENDED:
        await tx.execute(_UPDATE.values(phase=Phase.SUSPENDED, suspended_at=at), of)
    elif event in (Event.RESUMED, Event.REQUEUED):
        await tx.execute(_UPDATE.values(phase=Phase.RESUMED, resumed_at=at), of)
    elif event is Event.STOP_REQUESTED:
        # A permanent stop replaces the suspension.
        await tx.execute(_FORGET_OPEN, of)


def _text(row: Mapping[str, Any]) -> CodedText:
    if row["purpose"] == Purpose.REQUEUE:
        return TextTemplate.REQUEUED.text()
    if row["expires_at"] is None:
        return TextTemplate.SUSPENDED_BY.text(name=row["requested_by"])
    return TextTemplate.SUSPENDED_UNTIL.text(
        name=row["requested_by"], ends_at=row["expires_at"].isoformat()
    )
