"""Record the daily usage during a replay, as input of the fair-share order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from ..caps import Scope, ScopeKind
from ..queue import DailyUsage
from .workload import Job

DAY = 86400
# Default day of second 0 of a replay: 2000-01-01, in days since 1970-01-01.
FIRST_DAY = 10957
# Interval, in seconds of the replay, at which the queue receives the usage.
_INTERVAL_SECONDS = 3600


class UsageByDay:
    """Daily usage of ended jobs by scope, for one resource group."""

    def __init__(
        self,
        group: str,
        first_day: int = FIRST_DAY,
        earlier: Mapping[Scope, Sequence[DailyUsage]] | None = None,
    ) -> None:
        """Start with the usage before the replay (``earlier``).

        ``first_day`` is the day of second 0, in days since 1970-01-01.
        """
        self._group = group
        self._first_day = first_day
        self._used: dict[Scope, dict[int, dict[str, int]]] = {
            scope: {day: defaultdict(int, slots) for day, slots in days}
            for scope, days in (earlier or {}).items()
        }
        self._due = 0

    def add(self, job: Job, started: int) -> None:
        """Add the usage of an ended job to each day on which it ran."""
        for scope in _scopes(job):
            days = self._used.setdefault(scope, {})
            for day, seconds in days_of(started, started + job.seconds):
                used = days.setdefault(self._first_day + day, defaultdict(int))
                for slot, amount in job.slots.items():
                    used[slot] += amount * job.kernels * seconds

    def is_due(self, seconds: int) -> bool:
        """Return whether the queue must receive new usage; True at most once per interval."""
        if seconds < self._due:
            return False
        self._due = seconds + _INTERVAL_SECONDS
        return True

    def history(self) -> Mapping[str, Mapping[Scope, Sequence[DailyUsage]]]:
        """Return the daily usage in the form of ``Snapshot.history``."""
        found = {
            scope: [DailyUsage(day, dict(used)) for day, used in sorted(days.items())]
            for scope, days in self._used.items()
        }
        return {self._group: found}


def days_of(start: int, end: int) -> list[tuple[int, int]]:
    """Return (day, seconds on that day) for each day between two times in seconds."""
    found = []
    while start < end:
        day = start // DAY
        until = min(end, (day + 1) * DAY)
        found.append((day, until - start))
        start = until
    return found


def _scopes(job: Job) -> list[Scope]:
    named = (
        (ScopeKind.DOMAIN, job.domain),
        (ScopeKind.PROJECT, job.project),
        (ScopeKind.USER, job.user),
    )
    return [Scope(kind, name) for kind, name in named if name]
