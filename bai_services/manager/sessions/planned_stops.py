"""Planned stops of running sessions: time limits, idleness and spent budgets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import StrEnum

from bai_services.core.coded_text import CodedText
from bai_services.core.sessions.lifecycle import Event, Result, Status

from .lifecycle import Lifecycle


class ReplicaDrain(StrEnum):
    """``begun``: the replica gets no further requests, and its session ends after the last one.
    ``continuing``: the same, because of an earlier call.
    """

    BEGUN = "begun"
    CONTINUING = "continuing"


# Drains the serving replica of a session; returns None if the session is not a serving replica.
DrainReplica = Callable[[str, CodedText], Awaitable[ReplicaDrain | None]]


async def no_replica(session_id: str, reason: CodedText) -> ReplicaDrain | None:
    """Return None: there are no endpoints."""
    return None


class PlannedStops:
    """Stops running sessions; replicas of endpoints finish their requests first.

    Every loop that stops running sessions by a rule uses this class, except preemption, which
    prepares its victims for the stop.
    """

    def __init__(self, lifecycle: Lifecycle, drain_replica: DrainReplica = no_replica) -> None:
        self._lifecycle = lifecycle
        self._drain_replica = drain_replica

    async def stop(
        self, session_id: str, reason: CodedText, *, result: Result | None = None
    ) -> bool:
        """Stop a session if it is still running, or begin to drain its replica.

        Return whether this call stopped or drained it. The loop of endpoints ends a draining
        replica, so that further calls have no effect.
        """
        drain = await self._drain_replica(session_id, reason)
        if drain is not None:
            return drain is ReplicaDrain.BEGUN
        stopped = await self._lifecycle.try_apply(
            session_id, Event.STOP_REQUESTED, reason, expected=Status.RUNNING, result=result
        )
        return stopped is not None
