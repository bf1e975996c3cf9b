"""Check whether a session could start in another resource group, or with another request."""

from __future__ import annotations

from dataclasses import replace

from ..errors import InvalidRequest
from .caps import Scope, ScopeKind
from .queue.model import PendingSession
from .queue.run import Queue
from .queue.shape import session_slots


def in_group(pending: PendingSession, group: str) -> PendingSession:
    """Return a copy of a pending session for another resource group."""
    pending = pending.without_maintenance()
    request = replace(pending.request, resource_group=group, designated_agents=())
    scopes = tuple(
        Scope(scope.kind, group) if scope.kind == ScopeKind.RESOURCE_GROUP else scope
        for scope in pending.scopes
    )
    return replace(pending, request=request, scopes=scopes)


def would_start(queue: Queue, pending: PendingSession) -> bool:
    """Return whether a session could start now.

    The group must be active, quota and capacity must be free, and the order of the queue must
    permit the start.
    """
    group_queue = queue.group_queue(pending.request.resource_group)
    rows, need = queue.quotas.rows(pending.scopes), queue.quotas.need(session_slots(pending))
    if (
        not group_queue.state.is_active
        or group_queue.stopped_by
        or queue.quotas.exceeds_cap(rows, need)
    ):
        return False
    try:
        return group_queue.placer.fits(group_queue.placer.prepare(pending.request))
    except InvalidRequest:
        return False
