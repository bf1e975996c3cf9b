"""Stops by a rule: time limits, failed dependencies, idleness and spent budgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

from bai_services.core.audit import AuditEntry
from bai_services.core.coded_text import CodedText
from bai_services.core.sessions.lifecycle import Event, Result, Status
from bai_services.db.sessions.rows import SessionRow

from ..audit import Audit
from .lifecycle import Lifecycle


class ReplicaDrain(StrEnum):
    """``begun``: from now on, the replica gets no further requests; its session ends after the last
    one. ``continuing``: the replica drains already because of an earlier call.
    """

    BEGUN = "begun"
    CONTINUING = "continuing"


# Drains the serving replica of a session; returns None if the session is not a serving replica.
DrainReplica = Callable[[str, CodedText], Awaitable[ReplicaDrain | None]]


async def no_replica(session_id: str, reason: CodedText) -> ReplicaDrain | None:
    """Return None, because there are no endpoints."""
    return None


class PlannedStops:
    """Stops sessions and writes audit entries about the stops; replicas finish their requests
    first.

    Every loop that stops sessions by a rule uses this class, except preemption, which prepares its
    victims for the stop.
    """

    def __init__(
        self, lifecycle: Lifecycle, audit: Audit, drain_replica: DrainReplica = no_replica
    ) -> None:
        self._lifecycle = lifecycle
        self._audit = audit
        self._drain_replica = drain_replica

    async def stop(
        self,
        session_id: str,
        reason: CodedText,
        *,
        result: Result | None = None,
        expected: Status = Status.RUNNING,
        event: Event = Event.STOP_REQUESTED,
    ) -> bool:
        """Stop a session if it still has the ``expected`` status, or begin to drain its replica.

        ``event`` is STOP_REQUESTED or SUSPENDED. Return whether this call stopped or drained the
        session. Further calls have no effect, because the endpoint loop stops a draining replica.
        """
        if expected is Status.RUNNING:
            drain = await self._drain_replica(session_id, reason)
            if drain is not None:
                return drain is ReplicaDrain.BEGUN
        action = "session.suspend" if event is Event.SUSPENDED else "session.stop"

        def entry_of(row: SessionRow) -> AuditEntry:
            return self._audit.system(
                action,
                row.id,
                domain=row.domain,
                owner_id=row.owner_id,
                name=row.name,
                reason=str(reason),
            )

        stopped = await self._lifecycle.try_apply(
            session_id, event, reason, expected=expected, result=result, audit=entry_of
        )
        return stopped is not None
