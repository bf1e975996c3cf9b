"""Shapes: groups of pending sessions that are interchangeable in a pass."""

from __future__ import annotations

import copy

from ...resources import ResourceSlots
from ..placement.placer import Placer
from .dominant_shares import amounts_by_resource, fair_scopes
from .model import Party, PendingSession, Reason
from .quota import Ints, Quotas

ShapeKey = tuple[object, ...]


def session_slots(pending: PendingSession) -> ResourceSlots:
    """Return the total slots of all kernels of a session."""
    request = pending.request
    if request.kernels == 1:
        return request.slots
    return ResourceSlots({slot: n * request.kernels for slot, n in request.slots.items()})


def shape_key(pending: PendingSession) -> ShapeKey:
    """Return the key of a session's shape, which is equal for interchangeable sessions."""
    return (
        pending.request,
        pending.scopes,
        pending.priority,
        pending.max_run_seconds,
        pending.kind,
        pending.job_priority,
        # A session with a plan has its own shape.
        None if pending.plan is None else pending.id,
        # The key does not need the request without restriction, because the restricted request
        # determines it.
        None if pending.maintenance is None else str(pending.maintenance),
        pending.reservation_id,
    )


class Shape:
    """Pending sessions that, for the scheduler, differ only in their creation order.

    ``members`` are sorted (sequence, id) pairs. ``pending`` is the session for which the shape was
    created; this session may have left the queue.
    """

    __slots__ = (
        "amounts",
        "column",
        "fresh",
        "handle",
        "key",
        "members",
        "need",
        "number",
        "party",
        "priority",
        "reasons",
        "rows",
        "slots",
        "reported",
        "pending",
    )

    def __init__(
        self, number: int, pending: PendingSession, quotas: Quotas, placer: Placer
    ) -> None:
        self.number = number
        self.column = -1  # index in ``Selection``; -1: not added yet
        self.pending = pending
        self.key = shape_key(pending)
        self.slots = session_slots(pending)
        self.handle = placer.prepare(pending.request)
        self.rows: Ints = quotas.rows(pending.scopes)
        self.need: Ints = quotas.need(self.slots)
        self.amounts = amounts_by_resource(self.slots)
        self.party: Party = fair_scopes(pending.scopes)
        self.priority = pending.priority
        self.members: list[tuple[int, str]] = []
        self.reasons: tuple[Reason, ...] = ()
        # The reasons last reported for the members; None: not reported yet. ``fresh``: members that
        # were added after the last report.
        self.reported: tuple[Reason, ...] | None = None
        self.fresh: list[str] = []

    def without_members(self, placer: Placer) -> Shape:
        """Return the same shape without members, for another placer."""
        other = copy.copy(self)
        other.handle = placer.prepare(self.pending.request)
        other.members, other.fresh = [], []
        return other
