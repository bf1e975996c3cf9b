"""Reservation for the first session that cannot start: room and a time that others must respect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from ..placement import Placement, Placer
from .durations import Durations, End, end_of
from .model import Certainty, Reservation, Running, Waiting
from .releases import Release, Releases, release_of

_SURENESS = (Certainty.KNOWN, Certainty.ESTIMATED, Certainty.UNKNOWN)
# Maximum failed attempts per pass to move the reservation; then nothing may use the reserved room.
_MAX_FUTILE = 4


class Reserver:
    """The reservation of one resource group in one pass (steps 5 and 6).

    It looks ahead on a fork of the placer, device by device: the ends of running sessions are
    replayed in order until the session fits, with all kernels of a multi-node session. From then on
    a session may start past it only if it is certain to end before that time, if it leaves the
    reserved room free, or if other room is available as early. Only an enforced end is certain; a
    learned run time is not.

    Where it is unknown when room is released, room is reserved all the same: that of the longest
    running sessions. Nothing starts in it then, however short, so the session waits only for what
    runs there now.
    """

    def __init__(
        self,
        placer: Placer,
        running: Iterable[Running] | Releases,
        now: datetime,
        durations: Durations | Mapping[str, Sequence[int]],
    ) -> None:
        """Take the running sessions of the group, or their releases; ``placer`` includes their
        usage.
        """
        self._placer = placer
        self._now = now
        self._durations = durations if isinstance(durations, Durations) else Durations(durations)
        self._running = running if isinstance(running, Releases) else list(running)
        self._seconds = float("inf")  # from now until the reserved session starts
        # The future state: reserved placements and what still runs then; and what is free both now
        # and then. None: nothing is reserved.
        self._then: Placer | None = None
        self._both: Placer | None = None
        self._shape = -1
        self._places: tuple[Placement, ...] = ()
        self._reserved_agents: frozenset[str] = frozenset()  # the agents of the reserved placements
        self._futile = 0
        self.moves = 0  # how often the reservation has moved to another placement
        # With its current placements, which may have moved since ``reserve``.
        self.reservation: Reservation | None = None

    def reserve(self, waiting: Waiting, shape: int) -> Reservation | None:
        """Reserve the placements with which a session can start first; one reservation per group.

        ``shape`` is the handle of its request. None: it does not fit even when all running sessions
        have ended (its agents are not schedulable or lost), or something is reserved already; other
        sessions can ignore it then.
        """
        if self._then is not None:
            return None
        then = self._placer.fork()
        releases = self._releases()
        count = first_fit(then, shape, releases)
        if count is None:
            return None
        seconds = releases[count - 1].seconds if count else 0.0
        while count < len(releases) and releases[count].seconds <= seconds < float("inf"):
            then.release(releases[count].placements)
            count += 1
        places = then.place(shape)
        assert places is not None  # it fitted before, and more room has been released since
        self._shape, self._seconds = shape, seconds
        self._set_places(places)
        self._then, self._both = then, self._placer.fork()
        self._both.lower(sorted(self._reserved_agents), self._placer, then)
        certainty = self._certainty(releases[:count])
        starts_at = None if certainty is Certainty.UNKNOWN else later(self._now, seconds)
        group = waiting.request.resource_group
        self.reservation = Reservation(waiting.id, group, starts_at, certainty, places)
        return self.reservation

    @property
    def longest(self) -> int:
        """Seconds that a session may run and still end in time; -1: unknown."""
        return int(self._seconds) if self._seconds < float("inf") else -1

    @property
    def may_move(self) -> bool:
        """Whether the reservation may still be moved."""
        return self._futile < _MAX_FUTILE

    def fits_beside_reservation(self, shapes: Sequence[int]) -> list[bool]:
        """Return for each request whether it fits now and beside the reserved session."""
        both = self._both
        if both is None:
            return [True] * len(shapes)
        return both.fits_all(shapes)

    def done(self) -> None:
        """Release the forks used for look-ahead; no method may be called afterwards."""
        for fork in (self._then, self._both):
            if fork is not None:
                self._placer.spare(fork)
        self._then = self._both = None

    def has_spare(self) -> bool:
        """Return whether there is room beside the reserved session when it starts."""
        return self._then is not None and self._then.has_spare()

    def _releases(self) -> Sequence[Release]:
        if isinstance(self._running, Releases):
            return self._running
        found = [release_of(r, self._now, self._durations) for r in self._running]
        return sorted(found, key=lambda r: r[:3])

    def _certainty(self, releases: Sequence[Release]) -> Certainty:
        """Return how certain the time is: the least certain end on an agent of the reservation."""
        if self._seconds == float("inf"):
            return Certainty.UNKNOWN
        found = [
            _SURENESS.index(release.certainty)
            for release in releases
            if any(place.agent_id in self._reserved_agents for place in release.placements)
        ]
        return _SURENESS[max(found, default=0)]

    def ends_before(self, waiting: Waiting) -> bool:
        """Return whether a session that starts now certainly ends before the reserved one starts.

        False where nothing is reserved, or the time is unknown.
        """
        return waiting.seconds is not None and self._is_over(End(waiting.seconds, Certainty.KNOWN))

    def _is_over(self, end: End) -> bool:
        """Return whether an end certainly precedes the start of the reserved session."""
        is_known = end.certainty is Certainty.KNOWN and self._seconds < float("inf")
        return is_known and end.seconds <= self._seconds

    def place(self, waiting: Waiting, shape: int) -> tuple[Placement, ...] | None:
        """Take room for a session as ``Placer.place`` does, but only where it delays nothing.

        Its request must have been prepared before the reservation was made.
        """
        if self._both is None or self.ends_before(waiting):
            return self._placer.place(shape)
        found = self._both.place(shape)
        if found is None:
            return self._move_and_place(shape)
        self._both.release(found)
        self._placer.take(found)
        return found

    def _move_and_place(self, shape: int) -> tuple[Placement, ...] | None:
        """Take reserved room if the reservation can move to other room that is available as
        early.
        """
        then = self._then
        if then is None or self._futile >= _MAX_FUTILE or not self._placer.fits(shape):
            return None
        found = self._placer.place(shape)
        assert found is not None  # it fits
        then.release(self._places)
        then.take(found)
        places = then.place(self._shape)
        then.release(found)  # ``started`` counts it
        if places is None:
            then.take(self._places)
            self._placer.release(found)
            self._futile += 1
            return None
        before = self._reserved_agents
        self.moves += 1
        self._set_places(places)
        if self.reservation is not None:
            self.reservation = replace(self.reservation, placements=places)
        if self._both is not None:
            self._both.lower(sorted(before | self._reserved_agents), self._placer, then)
        return found

    def _set_places(self, places: tuple[Placement, ...]) -> None:
        self._places = places
        self._reserved_agents = frozenset(place.agent_id for place in places)

    def started(self, running: Running) -> None:
        """Note a session that was placed in this pass, by the placer or by ``place``."""
        if isinstance(self._running, list):
            self._running.append(running)
        if self._then is None or self._both is None:
            return
        if not self._is_over(end_of(running, self._now, self._durations)):
            self._then.take(running.placements)
        touched = {place.agent_id for place in running.placements}
        self._both.lower(sorted(touched), self._placer, self._then)


def first_fit(then: Placer, shape: int, releases: Sequence[Release]) -> int | None:
    """Return how many releases, in order, make a request fit; None if all of them do not.

    They are applied to ``then``. Steps double until the request fits, then bisection finds the
    exact number, so few fits are tested.
    """
    if then.fits(shape):
        return 0
    low, step = 0, 1
    while low < len(releases):
        high = min(len(releases), low + step)
        _release(then, releases[low:high])
        if then.fits(shape):
            return _halve(then, shape, releases, low, high)
        low, step = high, 2 * step
    return None


def _halve(then: Placer, shape: int, releases: Sequence[Release], low: int, high: int) -> int:
    """Return the least number above ``low`` that makes room; ``high`` does and is applied."""
    given = high
    while high - low > 1:
        middle = (low + high) // 2
        given = _move(then, releases, given, middle)
        if then.fits(shape):
            high = middle
        else:
            low = middle
    _move(then, releases, given, high)
    return high


def _move(then: Placer, releases: Sequence[Release], given: int, wanted: int) -> int:
    """Apply the first ``wanted`` releases, or revert those beyond."""
    _release(then, releases[given:wanted])
    for release in releases[wanted:given]:
        then.take(release.placements)
    return wanted


def _release(then: Placer, releases: Iterable[Release]) -> None:
    for release in releases:
        then.release(release.placements)


def later(now: datetime, seconds: float) -> datetime:
    """Return the time ``seconds`` after now, or the latest representable time."""
    try:
        return now + timedelta(seconds=seconds)
    except OverflowError:
        return datetime.max.replace(tzinfo=now.tzinfo)
