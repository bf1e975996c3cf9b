"""Transitions of sessions by compare-and-set, with history and release of resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.coded_text import CodedText
from bai_services.core.errors import InvalidTransition
from bai_services.core.sessions.kernel_group import MAIN
from bai_services.core.sessions.lifecycle import (
    ENDED,
    OCCUPYING,
    STARTING,
    Event,
    Result,
    Status,
    end_event,
    next_status,
)
from bai_services.core.sessions.suspensions import keeps_home

from ..scheduling import ledger
from ..tables.folders import vfolder_mounts
from ..tables.sessions import kernels, sessions, status_history
from ..usage import record_writes
from . import attempt_logs, suspension_writes
from .resize_rows import end_resizes
from .rows import SessionRow, require_by_id, stored_log

# Length of the columns for reasons and status texts.
TEXT_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class TransitionValues:
    """Values to write with a transition.

    If ``status_info`` is None, ``reason`` is written instead. For the other fields, None leaves the
    column unchanged.
    """

    reason: str | CodedText = ""
    status_info: str | None = None
    result: Result | None = None
    exit_code: int | None = None
    log: str | None = None
    container_id: str | None = None
    injection: Mapping[str, Any] | None = None
    fence_seconds: int | None = None
    notices: Sequence[str] = field(default_factory=tuple)
    is_requeued_at_end: bool | None = None
    started_by: str | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """A written transition: the session after the event, the event, and the previous status.

    ``is_freed``: resources were released.
    """

    row: SessionRow
    event: Event
    before: Status
    is_freed: bool = False


# Built once, at import; the values to write are bound parameters.
_MOVE = sa.update(sessions).where(
    sessions.c.id == sa.bindparam("of_session"), sessions.c.status == sa.bindparam("before")
)
_MAIN_KERNEL = sa.update(kernels).where(
    kernels.c.session_id == sa.bindparam("of_session"), kernels.c.role == MAIN
)
_STEP = sa.insert(status_history)


async def apply(
    tx: AsyncConnection,
    session_id: str,
    event: Event,
    at: datetime,
    *,
    facts: TransitionValues,
    expected: Status | None = None,
) -> Transition:
    """Apply an event to a session (see ``SessionStore.move``)."""
    while True:
        row = await require_by_id(tx, session_id)
        if expected not in (None, row.status):
            raise InvalidTransition(
                f"the session is {row.status}, not {expected}", status=row.status, event=event
            )
        event = end_event(
            event,
            row.status,
            row.result,
            has_run=row.started_at is not None,
            is_requeued=row.is_requeued_at_end,
        )
        if row.status is Status.TERMINATING:
            event, text = await suspension_writes.end_of_stop(tx, session_id, event)
            facts = facts if text is None else replace(facts, reason=text)
        elif row.status in STARTING and event is Event.FAILED:
            # The end of a session deletes its home; a failed resume must keep it.
            event = await suspension_writes.end_of_return(tx, session_id)
        if event is Event.ABORTED:
            facts = replace(facts, result=None)
        if event in (Event.REQUEUED, Event.SUSPENDED):
            facts = replace(facts, result=None, exit_code=None)
        after = next_status(row.status, event)
        values = _values(row, after, at, facts)
        if row.status is Status.TERMINATING and after not in ENDED:
            size = await end_resizes(tx, session_id, at)
            values |= {} if size is None else {"requested_slots": size}
        moved = await tx.execute(_MOVE, {"of_session": row.id, "before": row.status, **values})
        if moved.rowcount == 1:
            break
    await _write_step(tx, session_id, (event, row.status, after), at, facts.reason)
    if row.status is Status.PENDING:
        since = record_writes.wait_start(row.status_changed_at, row.starts_at)
        await record_writes.write_waits(tx, {session_id: since}, at)
    if kernel := _kernel_values(facts):
        await tx.execute(_MAIN_KERNEL, {"of_session": session_id, **kernel})
    if row.status is Status.TERMINATING and after not in ENDED:
        reason = str(values["status_info"] or row.status_info)
        await attempt_logs.end_attempt(tx, session_id, row.restart_count, at, reason)
    if keeps_home(row.status, after):
        await suspension_writes.keep_home(tx, session_id)
    await suspension_writes.follow(tx, session_id, event, (row.status, after), at)
    is_freed = await _release(tx, session_id, after, at)
    values.pop("live_name", None)  # not a field of SessionRow
    return Transition(replace(row, **values), event, row.status, is_freed)


def texts_of(reason: str | CodedText) -> tuple[str, dict[str, Any] | None]:
    """Return the columns of a reason: the English text, and the coded text if it has a code."""
    coded = reason.as_json() if isinstance(reason, CodedText) else None
    return str(reason)[:TEXT_LIMIT], coded


def _values(
    row: SessionRow, after: Status, at: datetime, facts: TransitionValues
) -> dict[str, Any]:
    reason = facts.reason if facts.status_info is None else facts.status_info
    text, coded = texts_of(reason)
    if row.status is Status.TERMINATING and row.status_info and after is not Status.SUSPENDED:
        # Keep the reason of the stop, because it is more useful than the reason of the end.
        text, coded = row.status_info, row.status_coded
    values: dict[str, Any] = {
        "status": after,
        "status_changed_at": at,
        "status_info": text,
        "status_coded": coded,
    }
    if new := [notice for notice in facts.notices if notice not in row.notices]:
        values["notices"] = [*row.notices, *new]
    if after is not Status.PENDING:
        values["reasons"] = []
    if after is Status.RUNNING:
        values["started_at"] = at
    if facts.result is not None:
        values["result"] = facts.result
    if facts.exit_code is not None:
        values["exit_code"] = facts.exit_code
    if facts.is_requeued_at_end is not None:
        values["is_requeued_at_end"] = facts.is_requeued_at_end
    if row.status in (Status.TERMINATING, Status.SUSPENDED) and after is Status.PENDING:
        values |= _requeued(row, at)
    if facts.started_by is not None:
        values["started_by"] = facts.started_by
    if after is Status.SUSPENDED:
        values["is_requeued_at_end"] = False
    if after in ENDED:
        values["terminated_at"] = at
        values["live_name"] = None
    return values


def _requeued(row: SessionRow, at: datetime) -> dict[str, Any]:
    """Return the column values of a requeued or resumed session."""
    return {
        "restart_count": row.restart_count + 1,
        "requeued_at": at,
        "is_requeued_at_end": False,
        "scheduled_at": None,
        "started_at": None,
        "used_at": None,
        "use_heard_at": None,
        "position": None,
        "estimate": None,
        # The Hub has stopped the server. The manager starts it, even if a user started it before.
        "started_by": "manager",
    }


def _kernel_values(facts: TransitionValues) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if facts.log is not None:
        values["log"] = stored_log(facts.log)
    if facts.container_id is not None:
        values["container_id"] = facts.container_id
    if facts.injection is not None:
        values["injection"] = dict(facts.injection)
        values["progress"] = {}
        values["fence_seconds"] = facts.fence_seconds
    return values


async def _release(tx: AsyncConnection, session_id: str, after: Status, at: datetime) -> bool:
    """Release the mounts, agents and resources that a session must not have in status ``after``.

    Return whether resources were released.
    """
    if after in OCCUPYING:
        return False
    if after in ENDED:
        await tx.execute(sa.delete(vfolder_mounts).where(vfolder_mounts.c.session_id == session_id))
    else:
        await tx.execute(
            sa.update(kernels)
            .where(kernels.c.session_id == session_id)
            .values(
                agent_id=None,
                injection=None,
                progress={},
                launched_at=None,
                container_id=None,
                fence_seconds=None,
                usage=None,
                last_seen_at=None,
            )
        )
    return await ledger.release(tx, session_id, at)


async def _write_step(
    tx: AsyncConnection,
    session_id: str,
    step: tuple[Event, Status, Status],
    at: datetime,
    reason: str | CodedText,
) -> None:
    """Insert ``step`` (event, status before, status after) into the history."""
    event, before, after = step
    text, coded = texts_of(reason)
    await tx.execute(
        _STEP,
        {
            "session_id": session_id,
            "at": at,
            "event": event,
            "from_status": before,
            "to_status": after,
            "reason": text,
            "reason_coded": coded,
        },
    )
