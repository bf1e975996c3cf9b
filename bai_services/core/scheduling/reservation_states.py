"""States of advance reservations, and their phases in time."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum


class ReservationState(StrEnum):
    """State of a reservation; ``requested``: waits for an approval and holds no agents yet."""

    REQUESTED = "requested"
    APPROVED = "approved"
    REJECTED = "rejected"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class ReservationPhase(StrEnum):
    """Phase of an open reservation relative to its period."""

    AHEAD = "ahead"
    # The period has begun, but no session of a member runs on the agents.
    UNUSED = "unused"
    USED = "used"
    ENDED = "ended"


def phase_of(
    starts_at: datetime, ends_at: datetime, used_at: datetime | None, now: datetime
) -> ReservationPhase:
    """Return the phase of a reservation at ``now``."""
    if now >= ends_at:
        return ReservationPhase.ENDED
    if now < starts_at:
        return ReservationPhase.AHEAD
    return ReservationPhase.UNUSED if used_at is None else ReservationPhase.USED


# States in which a reservation holds its agents or can still be approved.
OPEN_STATES = (ReservationState.REQUESTED, ReservationState.APPROVED)
