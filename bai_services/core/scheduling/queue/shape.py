"""Shapes: sessions that a pass treats alike."""

from __future__ import annotations

import copy

from ...resources import ResourceSlots
from ..placement.placer import Placer
from .model import Party, Reason, Waiting
from .quota import Ints, Quotas
from .shares import amounts_of, fair_scopes

ShapeKey = tuple[object, ...]


def session_slots(waiting: Waiting) -> ResourceSlots:
    """Return the total slots of all kernels of a session."""
    request = waiting.request
    if request.kernels == 1:
        return request.slots
    return ResourceSlots({slot: n * request.kernels for slot, n in request.slots.items()})


def shape_key(waiting: Waiting) -> ShapeKey:
    """Return the values that all sessions of one shape have in common."""
    w = waiting
    return (w.request, w.scopes, w.priority, w.seconds, w.kind)


class Shape:
    """Sessions that are equal to a pass, except for their creation order.

    ``members`` are (sequence, id) pairs, sorted. ``waiting`` is any one of them.
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
        "waiting",
    )

    def __init__(self, number: int, waiting: Waiting, quotas: Quotas, placer: Placer) -> None:
        self.number = number
        self.column = -1  # index in the selection of its queue
        self.waiting = waiting
        self.key = shape_key(waiting)
        self.slots = session_slots(waiting)
        self.handle = placer.prepare(waiting.request)
        self.rows: Ints = quotas.rows(waiting.scopes)
        self.need: Ints = quotas.need(self.slots)
        self.amounts = amounts_of(self.slots)
        self.party: Party = fair_scopes(waiting.scopes)
        self.priority = waiting.priority
        self.members: list[tuple[int, str]] = []
        self.reasons: tuple[Reason, ...] = ()
        # Reasons already reported for all members except the fresh ones, whose reasons were never
        # reported.
        self.reported: tuple[Reason, ...] | None = None
        self.fresh: list[str] = []

    def without_members(self, placer: Placer) -> Shape:
        """Return the same shape without members, for another placer."""
        other = copy.copy(self)
        other.handle = placer.prepare(self.waiting.request)
        other.members, other.fresh = [], []
        return other
