"""The sessions that an advance reservation delays, and those that delay it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from bai_services.core.accounts.roles import Caller
from bai_services.core.scheduling.estimates.conflicts import conflicts_with
from bai_services.core.scheduling.estimates.delays import Delay, delays_by
from bai_services.core.scheduling.queue.model import announced_start
from bai_services.core.scheduling.reservation_states import OPEN_STATES, ReservationState

from ..clock import Clock
from ..sessions.names import SessionName, visible_names
from ..sessions.sessions import Sessions
from .advance_reservations import AdvanceReservations
from .scheduler import Scheduler

# Maximum number of sessions in the list; the others are only counted.
MAX_LISTED = 50


@dataclass(frozen=True, slots=True)
class DelayedSession:
    """``session`` is None if the caller may not see it. For the times, see ``Delay``."""

    session: SessionName | None
    starts_at: datetime
    delayed_until: datetime | None


@dataclass(frozen=True, slots=True)
class ReservationDelays:
    """``count``: all delayed sessions, also those beyond the limit of the list.

    If ``is_complete`` is false, this manager cannot estimate starts now; the list is then empty.
    """

    is_complete: bool
    count: int = 0
    sessions: tuple[DelayedSession, ...] = ()


@dataclass(frozen=True, slots=True)
class ConflictingSession:
    """``session`` is None if the caller may not see it; for other fields, see ``Conflict``."""

    session: SessionName | None
    agents: tuple[str, ...]
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class ReservationConflicts:
    """``count`` and ``is_complete``: as in ``ReservationDelays``."""

    is_complete: bool
    count: int = 0
    sessions: tuple[ConflictingSession, ...] = ()


class ReservationForecast:
    """Computes the effect of a reservation on pending sessions, and of running sessions on it."""

    def __init__(
        self,
        reservations: AdvanceReservations,
        scheduler: Scheduler,
        sessions: Sessions,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._reservations = reservations
        self._scheduler = scheduler
        self._sessions = sessions

    async def delays(self, caller: Caller, key: str) -> ReservationDelays:
        """Return the sessions that an approval delays; none if the reservation is not requested.

        Raises
        ------
        NotFound
            If the caller sees no such reservation.
        Forbidden
            If the caller may not approve it.
        """
        found, held = await self._reservations.preview_approval(caller, key)
        if found.state is not ReservationState.REQUESTED:
            return ReservationDelays(is_complete=True)
        await self._scheduler.wait_for_changes()
        query = partial(delays_by, group=found.resource_group, held=held)
        exact = await self._scheduler.query(query)
        if exact is None:
            return ReservationDelays(is_complete=False)
        delays = _announced(exact)
        listed = delays[:MAX_LISTED]
        names = await visible_names(self._sessions, caller, [one.session_id for one in listed])
        return ReservationDelays(
            is_complete=True,
            count=len(delays),
            sessions=tuple(
                DelayedSession(names.get(one.session_id), one.starts_at, one.delayed_until)
                for one in listed
            ),
        )

    async def conflicts(self, caller: Caller, key: str) -> ReservationConflicts:
        """Return the running sessions that may delay an open reservation.

        Raises
        ------
        NotFound
            If the caller sees no such reservation.
        """
        found, held = await self._reservations.held(caller, key)
        if found.state not in OPEN_STATES:
            return ReservationConflicts(is_complete=True)
        await self._scheduler.wait_for_changes()
        query = partial(conflicts_with, group=found.resource_group, held=held, now=self._clock())
        conflicts = await self._scheduler.query(query)
        if conflicts is None:
            return ReservationConflicts(is_complete=False)
        listed = conflicts[:MAX_LISTED]
        names = await visible_names(self._sessions, caller, [one.session_id for one in listed])
        return ReservationConflicts(
            is_complete=True,
            count=len(conflicts),
            sessions=tuple(
                ConflictingSession(names.get(one.session_id), one.agents, one.ends_at)
                for one in listed
            ),
        )


def _announced(delays: Sequence[Delay]) -> list[Delay]:
    """Return the delays as users see them: starts are rounded up to a whole minute."""
    rounded = [
        Delay(one.session_id, rounded_up, announced_start(one.delayed_until))
        for one in delays
        if (rounded_up := announced_start(one.starts_at)) is not None
    ]
    return [one for one in rounded if one.starts_at != one.delayed_until]
