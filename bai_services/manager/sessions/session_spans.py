"""Spans of the start of a session.

The trace of a session begins with the request that creates it; ``sessions.trace`` stores that
context. Each run of the session has a span ``session start``. Its id is computed from the session
and the number of the run, so every component can refer to it before the start has ended.
"""

from __future__ import annotations

import hashlib
from contextlib import nullcontext
from datetime import datetime

from bai_services import tracing
from bai_services.core.coded_text import TextTemplate
from bai_services.core.sessions.lifecycle import STARTING, Result, Status
from bai_services.db.sessions.rows import SessionRow
from bai_services.db.sessions.transitions import Transition

_BEFORE_RUN = STARTING | {Status.PENDING}


def new_trace() -> str | None:
    """Return the current span for a new session.

    A session that the manager creates by itself, for example for a pipeline, begins a trace.
    """
    if not tracing.is_on():
        return None
    with tracing.span("session create") if tracing.traceparent() is None else nullcontext():
        return tracing.traceparent()


def context_of(row: SessionRow) -> str | None:
    """Return the span of a session's current start, as ``traceparent``; None without a trace."""
    if not tracing.is_on() or row.trace is None:
        return None
    return tracing.with_span_id(row.trace, _span_id(row))


def record_placement(row: SessionRow, began_at: datetime, count: int) -> None:
    """Record the wait in the queue, and the scheduling pass that has placed the session.

    ``count``: number of sessions that the pass has placed together.
    """
    if (parent := context_of(row)) is None or row.scheduled_at is None:
        return
    attributes = {"bai.session.id": row.id, "bai.resource_group": row.resource_group}
    tracing.record(
        "session queue",
        parent=parent,
        started_at=_requested_at(row),
        ended_at=row.scheduled_at,
        attributes={**attributes, "bai.priority": row.priority},
    )
    tracing.record(
        "scheduler pass",
        parent=parent,
        started_at=min(began_at, row.scheduled_at),
        ended_at=row.scheduled_at,
        attributes={**attributes, "bai.pass.placed": count},
    )


def record_start(transition: Transition) -> None:
    """Record the start of a session if the transition ends it."""
    row = transition.row
    if row.trace is None or transition.before not in _BEFORE_RUN or row.status in _BEFORE_RUN:
        return
    tracing.record(
        "session start",
        parent=row.trace,
        started_at=_requested_at(row),
        ended_at=row.status_changed_at,
        attributes={
            "bai.session.id": row.id,
            "bai.session.type": row.type,
            "bai.session.status": row.status,
            "bai.resource_group": row.resource_group,
            "bai.image": row.image,
            "bai.started_by": row.started_by,
            "bai.restart_count": row.restart_count,
        },
        hidden=(row.owner, row.hub_user),
        error=_error_of(row),
        span_id=_span_id(row),
    )


def _error_of(row: SessionRow) -> str | None:
    """Return the reason why a start has failed, None if it has not."""
    if row.result != Result.FAILURE and row.status is not Status.ERROR:
        return None
    if (row.status_coded or {}).get("code") == TextTemplate.BOOTSTRAP_FAILED.code:
        return "a bootstrap script failed"  # the text contains the output of the script
    return row.status_info


def _requested_at(row: SessionRow) -> datetime:
    return row.requeued_at or row.created_at


def _span_id(row: SessionRow) -> str:
    """Return 16 hexadecimal digits that are never all zero."""
    digest = hashlib.sha256(f"{row.id}/{row.restart_count}".encode()).hexdigest()
    return digest[:15] + "1"
