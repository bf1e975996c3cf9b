"""Transitions of sessions in sets, with history and release of resources."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import CodedText, TextTemplate
from bai_services.core.errors import InvalidTransition, NotFound
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

from .. import bulk
from ..audit import record
from ..scheduling import ledger
from ..tables.folders import vfolder_mounts
from ..tables.sessions import kernels, sessions, status_history
from ..usage import record_writes
from . import attempt_logs, suspension_writes
from .resize_rows import end_resizes
from .rows import SELECT, SessionRow, row_of, stored_log

# Length of the columns for reasons and status texts.
TEXT_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class TransitionValues:
    """Values and the audit entry to write with a transition.

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
    # Returns the audit entry of the transition for the session.
    audit: Callable[[SessionRow], AuditEntry] | None = None


@dataclass(frozen=True, slots=True)
class Transition:
    """A written transition: the session after the event, the event, and the previous status.

    ``is_freed``: resources were released.
    """

    row: SessionRow
    event: Event
    before: Status
    is_freed: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """An event to apply to a session; if ``expected`` is given, the session must be in it."""

    session_id: str
    event: Event
    facts: TransitionValues = field(default_factory=TransitionValues)
    expected: Status | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """A transition to write, with the new values of the session's columns."""

    row: SessionRow
    event: Event
    after: Status
    facts: TransitionValues
    values: dict[str, Any]

    @property
    def restarts(self) -> bool:
        """Whether a stopped session will run again."""
        return self.row.status is Status.TERMINATING and self.after not in ENDED


Rejected = NotFound | InvalidTransition

# Built once, at import; the values to write are bound parameters.
_LOCK = bulk.RowLock(sessions, {"id": sa.String()})
_ROWS = SELECT.where(bulk.Among(sessions.c.id, "ids"))
_MOVE = sa.update(sessions).where(sessions.c.id == sa.bindparam("of_session"))
_MAIN_KERNEL = sa.update(kernels).where(
    kernels.c.session_id == sa.bindparam("of_session"), kernels.c.role == MAIN
)
_HISTORY = bulk.RowInsert(
    status_history,
    ["session_id", "event", "from_status", "to_status", "reason", "reason_coded"],
    ["at"],
)
_UNMOUNT = sa.delete(vfolder_mounts).where(bulk.Among(vfolder_mounts.c.session_id, "ids"))
_CLEAR_KERNELS = (
    sa.update(kernels)
    .where(bulk.Among(kernels.c.session_id, "ids"))
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


async def apply(tx: AsyncConnection, move: Move, at: datetime) -> Transition:
    """Apply an event to one session; raise the error that ``apply_all`` would return."""
    outcome = (await apply_all(tx, [move], at))[move.session_id]
    if isinstance(outcome, Transition):
        return outcome
    raise outcome


async def apply_all(
    tx: AsyncConnection, moves: Sequence[Move], at: datetime
) -> dict[str, Transition | Rejected]:
    """Apply one event to each of at most ``CHUNK`` sessions; return the outcome by session id.

    The rows of the sessions are locked first, so no session changes between the read and the write.
    An event that is not valid changes nothing and does not affect the other sessions.
    """
    keys = sorted(move.session_id for move in moves)
    await _LOCK.run(tx, [(key,) for key in keys])
    rows = {row.id: row for row in map(row_of, await tx.execute(_ROWS, {"ids": keys}))}
    ending = [key for key, row in rows.items() if row.status is Status.TERMINATING]
    stopping = await suspension_writes.read_stopping(tx, ending)
    failed = [move.session_id for move in moves if move.event is Event.FAILED]
    starting = [key for key in failed if key in rows and rows[key].status in STARTING]
    with_home = await suspension_writes.read_with_home(tx, starting)
    outcomes: dict[str, Transition | Rejected] = {}
    steps: list[_Step] = []
    for move in sorted(moves, key=lambda move: move.session_id):
        key = move.session_id
        try:
            if (row := rows.get(key)) is None:
                raise NotFound(f"there is no session {key}", session=key)
            steps.append(_step(row, move, at, stopping.get(key), has_home=key in with_home))
        except (NotFound, InvalidTransition) as error:
            outcomes[key] = error
    if steps:
        freed = await _write(tx, steps, at)
        for step in steps:
            columns = {k: v for k, v in step.values.items() if k != "live_name"}
            moved = replace(step.row, **columns)
            outcomes[moved.id] = Transition(moved, step.event, step.row.status, moved.id in freed)
    return outcomes


def _step(
    row: SessionRow,
    move: Move,
    at: datetime,
    stopping: suspension_writes.Stopping | None,
    *,
    has_home: bool,
) -> _Step:
    """Return the transition of a session; raise ``InvalidTransition`` if the event is not valid."""
    facts = move.facts
    if move.expected not in (None, row.status):
        raise InvalidTransition(
            f"the session is {row.status}, not {move.expected}",
            status=row.status,
            event=move.event,
        )
    event = end_event(
        move.event,
        row.status,
        row.result,
        has_run=row.started_at is not None,
        is_requeued=row.is_requeued_at_end,
    )
    if row.status is Status.TERMINATING:
        event, text = suspension_writes.end_of_stop(event, stopping)
        facts = facts if text is None else replace(facts, reason=text)
    elif row.status in STARTING and event is Event.FAILED and has_home:
        # Suspend a session whose resume has failed, instead of ending it: its home must be kept,
        # but the home of an ended session is deleted.
        event = Event.SUSPENDED
    if event is Event.ABORTED:
        facts = replace(facts, result=None)
    if event is Event.REQUEUED and stopping is None:
        # Write another reason: the reason of the stop is already in the history.
        facts = replace(facts, reason=TextTemplate.RETURNED_TO_QUEUE.text())
    if event in (Event.REQUEUED, Event.SUSPENDED):
        facts = replace(facts, result=None, exit_code=None)
    after = next_status(row.status, event)
    return _Step(row, event, after, facts, _values(row, after, at, facts))


async def _write(tx: AsyncConnection, steps: Sequence[_Step], at: datetime) -> frozenset[str]:
    """Write transitions, and what follows from them; return the sessions that freed resources."""
    for step in steps:
        if step.restarts:
            size = await end_resizes(tx, step.row.id, at)
            step.values.update({} if size is None else {"requested_slots": size})
    await _update_each(tx, _MOVE, [(step.row.id, step.values) for step in steps])
    await _HISTORY.run(
        tx,
        [
            (step.row.id, step.event, step.row.status, step.after, *texts_of(step.facts.reason))
            for step in steps
        ],
        at=at,
    )
    await record_writes.write_waits(
        tx,
        {
            step.row.id: record_writes.wait_start(step.row.status_changed_at, step.row.starts_at)
            for step in steps
            if step.row.status is Status.PENDING
        },
        at,
    )
    for step in steps:
        if step.facts.audit is not None:
            await record(tx, step.facts.audit(step.row))
    of_kernels = [(step.row.id, _kernel_values(step.facts)) for step in steps]
    await _update_each(tx, _MAIN_KERNEL, [(key, values) for key, values in of_kernels if values])
    for step in steps:
        if step.restarts:
            reason = str(step.values["status_info"] or step.row.status_info)
            await attempt_logs.end_attempt(tx, step.row.id, step.row.restart_count, at, reason)
        if keeps_home(step.row.status, step.after):
            await suspension_writes.keep_home(tx, step.row.id)
    await suspension_writes.follow(
        tx, [(step.row.id, step.event, step.row.status, step.after) for step in steps], at
    )
    return await _release(tx, [step for step in steps if step.after not in OCCUPYING], at)


async def _update_each(
    tx: AsyncConnection, update: sa.Update, rows: Sequence[tuple[str, dict[str, Any]]]
) -> None:
    """Run ``update`` for each session with its values."""
    groups: dict[frozenset[str], list[dict[str, Any]]] = defaultdict(list)
    for session_id, values in rows:
        groups[frozenset(values)].append({"of_session": session_id, **values})
    for group in groups.values():
        await tx.execute(update, group)


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
        "use_known_since": None,
        "position": None,
        "estimate": None,
        # The Hub has stopped the server. From now on, the manager starts it, even if a user started
        # it before.
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


async def _release(tx: AsyncConnection, steps: Sequence[_Step], at: datetime) -> frozenset[str]:
    """Release the mounts, agents and resources of sessions that must not have them any more.

    Return the sessions whose resources were released.
    """
    if ended := [step.row.id for step in steps if step.after in ENDED]:
        await tx.execute(_UNMOUNT, {"ids": ended})
    if waiting := [step.row.id for step in steps if step.after not in ENDED]:
        await tx.execute(_CLEAR_KERNELS, {"ids": waiting})
    scopes = {
        row.id: ledger.scopes_of(
            row.domain, row.project_id, row.owner_id, row.access_key, row.resource_group
        )
        for row in (step.row for step in steps)
    }
    return await ledger.release(tx, scopes, at)
