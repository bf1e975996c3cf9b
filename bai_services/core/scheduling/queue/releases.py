"""Releases of resources at the ends of running sessions, computed lazily in order of time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import NamedTuple, overload

from ..placement import Placement
from .durations import Durations, end_of
from .model import Certainty, RunningSession


class Release(NamedTuple):
    """Placements that a session releases when it ends.

    Releases sort by time. Releases at an unknown time are last, sorted by the start of the session.
    """

    seconds: float  # from now
    started_at: datetime
    session_id: str
    placements: tuple[Placement, ...]
    certainty: Certainty


def release_of(running: RunningSession, now: datetime, durations: Durations) -> Release:
    """Return the release of a running session's resources at its end."""
    seconds, certainty = end_of(running, now, durations)
    return Release(seconds, running.started_at, running.id, running.placements, certainty)


class Releases(Sequence[Release]):
    """The releases of all running sessions of a group, sorted and computed lazily."""

    def __init__(
        self,
        running: Mapping[str, RunningSession],
        by_end: Sequence[tuple[datetime, datetime, str]],
        without_limit: Iterable[RunningSession],
        now: datetime,
        durations: Durations,
    ) -> None:
        """Store the sessions of a group.

        ``by_end`` contains (end, start, id) of the sessions with a limit, sorted. ``without_limit``
        contains all other sessions.
        """
        self._count = len(running)
        self._computed: list[Release] = []
        self._coming = self._in_order(running, by_end, without_limit, now, durations)

    def _in_order(
        self,
        running: Mapping[str, RunningSession],
        by_end: Sequence[tuple[datetime, datetime, str]],
        without_limit: Iterable[RunningSession],
        now: datetime,
        durations: Durations,
    ) -> Iterator[Release]:
        # Sessions past their limit may end at any moment, so they are not sorted by their limit.
        past = bisect_right(by_end, now, key=lambda end: end[0])
        past_or_without_limit = [release_of(r, now, durations) for r in without_limit]
        past_or_without_limit += [
            release_of(running[key], now, durations) for _, _, key in by_end[:past]
        ]
        past_or_without_limit.sort(key=lambda r: r[:3])
        rest = (
            release_of(running[key], now, durations) for _, _, key in islice(by_end, past, None)
        )
        return (
            merge(past_or_without_limit, rest, key=lambda r: r[:3])
            if past_or_without_limit
            else rest
        )

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> Release: ...

    @overload
    def __getitem__(self, at: slice) -> list[Release]: ...

    def __getitem__(self, at: int | slice) -> Release | list[Release]:
        last = at.stop if isinstance(at, slice) else at + 1
        wanted = self._count if last is None or last < 0 else min(last, self._count)
        while len(self._computed) < wanted:
            self._computed.append(next(self._coming))
        return self._computed[at]


def releases_of(
    sessions: Iterable[RunningSession], now: datetime, durations: Durations
) -> Releases:
    """Return the releases of sessions, in any order."""
    running = {session.id: session for session in sessions}
    by_end = sorted((s.ends_at, s.started_at, s.id) for s in running.values() if s.ends_at)
    unlimited = [session for session in running.values() if session.ends_at is None]
    return Releases(running, by_end, unlimited, now, durations)
