"""Sliding-window counter of events."""

from __future__ import annotations

from collections import deque
from datetime import datetime, timedelta

WINDOW = timedelta(minutes=15)
# Resolution of the window: events are counted per step. ``total`` removes old pairs. If it is
# called before each ``add``, a counter stores at most 90 pairs of numbers (15 min / 10 s).
STEP = timedelta(seconds=10)


class SlidingCount:
    """Counts events of the last 15 minutes, with a resolution of ten seconds."""

    __slots__ = ("_steps", "_total")

    def __init__(self) -> None:
        self._steps: deque[list[int]] = deque()  # [number of the step, events in it]
        self._total = 0

    def total(self, now: datetime) -> int:
        """Return the number of events in the last 15 minutes."""
        oldest = _step(now) - WINDOW // STEP
        while self._steps and self._steps[0][0] <= oldest:
            self._total -= self._steps.popleft()[1]
        return self._total

    def add(self, now: datetime) -> None:
        step = _step(now)
        if not self._steps or self._steps[-1][0] < step:
            self._steps.append([step, 0])
        self._steps[-1][1] += 1
        self._total += 1

    def seconds_until_allowed(self, now: datetime) -> int:
        """Return the seconds until the oldest step has left the window; 0 without events."""
        if not self._steps:
            return 0
        expires = self._steps[0][0] + WINDOW // STEP
        return max(1, expires * int(STEP.total_seconds()) - int(now.timestamp()))


def _step(now: datetime) -> int:
    return int(now.timestamp()) // int(STEP.total_seconds())
