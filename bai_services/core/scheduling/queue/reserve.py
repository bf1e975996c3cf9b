"""Reservation for the first session that cannot start: placements, and the time of its start."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ..placement import Placement, Placer
from .durations import Durations, End, end_of
from .model import Certainty, PendingSession, Reservation, RunningSession
from .releases import Release, Releases, release_of

_CERTAINTIES = (Certainty.KNOWN, Certainty.ESTIMATED, Certainty.UNKNOWN)
# Maximum number of failed attempts to move the reservation in a pass. After that, the reservation
# is not moved for the rest of the pass.
_MAX_FAILED_MOVES = 4


class Reserver:
    """The reservation of one resource group (steps 5 and 6 of a pass).

    To find the reserved placements, the ends of running sessions are replayed in order on a fork of
    the placer until all kernels of the session fit. A later session may then start only in one of
    three cases: it certainly ends before the reservation starts; it fits outside the reserved
    placements; or the reservation can move to other placements that are free when it starts. Only
    an enforced end is certain; a learned run time is not.

    If the ends are unknown, the placements of the sessions that have run longest are reserved, and
    no other session may start there, even a short one. In this case, the reserved session waits
    only for sessions that are already running.
    """

    def __init__(
        self,
        placer: Placer,
        running: Iterable[RunningSession] | Releases,
        now: datetime,
        durations: Durations | Mapping[str, Sequence[int]],
        carry_out: Callable[[Placer], None] | None = None,
    ) -> None:
        """Store the running sessions of the group, or their releases.

        ``placer`` must include the usage of these sessions. ``carry_out`` changes a fork of the
        placer as if the plans of the group (``GroupPlans``) were already carried out; the running
        sessions must match this state.
        """
        self._carry_out = carry_out
        self._placer = placer
        self._now = now
        self._durations = durations if isinstance(durations, Durations) else Durations(durations)
        self._running = running if isinstance(running, Releases) else list(running)
        self._seconds = float("inf")  # from now until the reserved session starts
        # ``_future``: the state at the start of the reserved session, including this session.
        # ``_usable``: the capacity that is free both now and in ``_future``. None: nothing is
        # reserved.
        self._future: Placer | None = None
        self._usable: Placer | None = None
        self._shape = -1
        self._placements: tuple[Placement, ...] = ()
        self._reserved_agents: frozenset[str] = frozenset()  # ids of the agents of ``_placements``
        self._failed_moves = 0
        self.moves = 0  # number of times the reservation has moved to other placements
        self.reservation: Reservation | None = None  # current, after all moves

    def reserve(self, pending: PendingSession, shape: int) -> Reservation | None:
        """Reserve the earliest possible placements for a session; one reservation per group.

        ``shape`` is the handle of its request. Return None if a reservation exists. Also return
        None if the session would not fit even after all running sessions have ended, for example
        because agents are lost. Such a session delays no other session.
        """
        if self._future is not None:
            return None
        future = self._placer.fork()
        if self._carry_out is not None:
            self._carry_out(future)
        releases = self._releases()
        count = count_releases_until_fit(future, shape, releases)
        if count is None:
            return None
        seconds = releases[count - 1].seconds if count else 0.0
        while count < len(releases) and releases[count].seconds <= seconds < float("inf"):
            future.release(releases[count].placements)
            count += 1
        placements = future.place(shape)
        assert placements is not None  # the releases up to this point suffice
        self._shape, self._seconds = shape, seconds
        self._set_placements(placements)
        self._future, self._usable = future, self._placer.fork()
        self._usable.set_to_minimum(sorted(self._reserved_agents), self._placer, future)
        certainty = self._certainty(releases[:count])
        starts_at = None if certainty is Certainty.UNKNOWN else later(self._now, seconds)
        group = pending.request.resource_group
        self.reservation = Reservation(pending.id, group, starts_at, certainty, placements)
        return self.reservation

    def forget_time(self) -> None:
        """Withdraw the announced start, because the session may not start at that time."""
        if self.reservation is not None:
            self.reservation = replace(
                self.reservation, starts_at=None, certainty=Certainty.UNKNOWN
            )

    @property
    def longest(self) -> int:
        """Maximum run time in seconds of a session that ends before the reservation starts; -1 if
        nothing is reserved or the start is unknown.
        """
        return int(self._seconds) if self._seconds < float("inf") else -1

    @property
    def may_move(self) -> bool:
        """Whether another attempt to move the reservation is allowed."""
        return self._failed_moves < _MAX_FAILED_MOVES

    def fits_beside_reservation(self, shapes: Sequence[int]) -> list[bool]:
        """Return for each request whether it fits now outside the reserved placements.

        ``shapes`` are handles of requests. Without reservations, True for every request.
        """
        usable = self._usable
        if usable is None:
            return [True] * len(shapes)
        return usable.fits_each(shapes)

    def recycle_forks(self) -> None:
        """Recycle the forks used for look-ahead. Call no other method of this object afterwards."""
        for fork in (self._future, self._usable):
            if fork is not None:
                self._placer.recycle(fork)
        self._future = self._usable = None

    def has_spare_cpu(self) -> bool:
        """Return whether an agent still has free cpu after the reserved session has started."""
        return self._future is not None and self._future.has_spare_cpu()

    def _releases(self) -> Sequence[Release]:
        if isinstance(self._running, Releases):
            return self._running
        releases = [release_of(r, self._now, self._durations) for r in self._running]
        return sorted(releases, key=lambda r: r[:3])

    def _certainty(self, releases: Sequence[Release]) -> Certainty:
        """Return the certainty of the least certain release on the reserved agents."""
        if self._seconds == float("inf"):
            return Certainty.UNKNOWN
        ranks = [
            _CERTAINTIES.index(release.certainty)
            for release in releases
            if any(place.agent_id in self._reserved_agents for place in release.placements)
        ]
        return _CERTAINTIES[max(ranks, default=0)]

    def ends_before(self, pending: PendingSession) -> bool:
        """Return whether a session that starts now certainly ends before the reserved start.

        False if nothing is reserved or the time is unknown.
        """
        return pending.max_run_seconds is not None and self._is_over(
            End(pending.max_run_seconds, Certainty.KNOWN)
        )

    def _is_over(self, end: End) -> bool:
        """Return whether an end certainly precedes the start of the reserved session."""
        is_known = end.certainty is Certainty.KNOWN and self._seconds < float("inf")
        return is_known and end.seconds <= self._seconds

    def place(self, pending: PendingSession, shape: int) -> tuple[Placement, ...] | None:
        """Place a session like ``Placer.place``, but only without delay for the reserved session.

        The request must have been prepared before ``reserve`` was called.
        """
        if self._usable is None or self.ends_before(pending):
            return self._placer.place(shape)
        placements = self._usable.place(shape)
        if placements is None:
            return self._move_and_place(shape)
        self._usable.release(placements)
        self._placer.allocate(placements)
        return placements

    def _move_and_place(self, shape: int) -> tuple[Placement, ...] | None:
        """Place a session inside the reserved placements if the reservation can move to other
        placements that are free when it starts.
        """
        future = self._future
        if (
            future is None
            or self._failed_moves >= _MAX_FAILED_MOVES
            or not self._placer.fits(shape)
        ):
            return None
        placements = self._placer.place(shape)
        assert placements is not None  # ``fits`` was true
        future.release(self._placements)
        future.allocate(placements)
        moved = future.place(self._shape)
        future.release(placements)  # ``started`` will allocate these placements again
        if moved is None:
            future.allocate(self._placements)
            self._placer.release(placements)
            self._failed_moves += 1
            return None
        before = self._reserved_agents
        self.moves += 1
        self._set_placements(moved)
        if self.reservation is not None:
            self.reservation = replace(self.reservation, placements=moved)
        if self._usable is not None:
            self._usable.set_to_minimum(
                sorted(before | self._reserved_agents), self._placer, future
            )
        return placements

    def _set_placements(self, placements: tuple[Placement, ...]) -> None:
        self._placements = placements
        self._reserved_agents = frozenset(place.agent_id for place in placements)

    def started(self, running: RunningSession) -> None:
        """Record a session that was placed in this pass, by the placer or by ``place``."""
        if isinstance(self._running, list):
            self._running.append(running)
        if self._future is None or self._usable is None:
            return
        if not self._is_over(end_of(running, self._now, self._durations)):
            self._future.allocate(running.placements)
        touched = {place.agent_id for place in running.placements}
        self._usable.set_to_minimum(sorted(touched), self._placer, self._future)


def count_releases_until_fit(future: Placer, shape: int, releases: Sequence[Release]) -> int | None:
    """Apply releases in order until a request fits; return their number, or None if the request
    does not fit even after all releases.

    Batches of releases are applied, each twice as large as the previous one, until the request
    fits. Then bisection finds the least number.
    """
    if future.fits(shape):
        return 0
    low, step = 0, 1
    while low < len(releases):
        high = min(len(releases), low + step)
        _release(future, releases[low:high])
        if future.fits(shape):
            return _bisect(future, shape, releases, low, high)
        low, step = high, 2 * step
    return None


def _bisect(future: Placer, shape: int, releases: Sequence[Release], low: int, high: int) -> int:
    """Return the least number of releases with which a request fits, and apply exactly these.

    ``low`` releases do not suffice. ``high`` releases suffice, and the caller has applied them.
    """
    given = high
    while high - low > 1:
        middle = (low + high) // 2
        given = _apply_releases(future, releases, given, middle)
        if future.fits(shape):
            high = middle
        else:
            low = middle
    _apply_releases(future, releases, given, high)
    return high


def _apply_releases(future: Placer, releases: Sequence[Release], given: int, wanted: int) -> int:
    """Change the number of applied releases from ``given`` to ``wanted``."""
    _release(future, releases[given:wanted])
    for release in releases[wanted:given]:
        future.allocate(release.placements)
    return wanted


def _release(future: Placer, releases: Iterable[Release]) -> None:
    for release in releases:
        future.release(release.placements)


def later(now: datetime, seconds: float) -> datetime:
    """Return the time ``seconds`` after ``now``, at most the latest representable time."""
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=now.tzinfo)
