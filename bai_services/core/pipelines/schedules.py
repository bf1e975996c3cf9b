"""Times at which schedules run pipelines: a rule in a time zone, or an interval."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from ..coded_text import refusal
from ..errors import InvalidRequest
from ..refusal_texts import RefusalText
from ..sessions.schedules.occurrences import next_occurrence, occurrences
from ..sessions.schedules.records import GRACE
from ..sessions.schedules.rules import parse_rule
from ..usage.periods import zone_of

MAX_SCHEDULES_PER_PIPELINE = 20
MIN_EVERY_MINUTES = 5
MAX_EVERY_MINUTES = 31 * 24 * 60
# Limits of the catch-up mode ``all``: maximum number of runs for missed starts, and maximum age of
# a missed start.
MAX_CATCH_UP_RUNS = 100
MAX_CATCH_UP = timedelta(days=31)
_INSTANT = timedelta(microseconds=1)


class CatchUp(StrEnum):
    """The runs that are created for starts that were missed because no manager was running."""

    SKIP = "skip"  # nothing
    LAST = "last"  # one run, for the last missed start
    ALL = "all"  # one run for each missed start


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of starts: either a rule (``start``) in the time zone, or an interval of
    ``every_minutes`` that begins at ``anchor``.
    """

    start: str | None
    every_minutes: int | None
    time_zone: str
    anchor: datetime

    def check(self) -> None:
        """Check values that a user has entered.

        Raises
        ------
        InvalidRequest
            If both or neither of rule and interval are given, a value is not valid, or the rule
            has no start, such as 30 February.
        """
        if (self.start is None) == (self.every_minutes is None):
            raise InvalidRequest(refusal(RefusalText.SCHEDULE_NEEDS_ONE), field="start")
        zone_of(self.time_zone)
        if self.start is not None:
            parse_rule(self.start, "start")
            if self.next_start(self.anchor) is None:
                raise InvalidRequest(refusal(RefusalText.SCHEDULE_NEVER_STARTS), field="start")
        elif not MIN_EVERY_MINUTES <= (self.every_minutes or 0) <= MAX_EVERY_MINUTES:
            raise InvalidRequest(
                refusal(
                    RefusalText.EVERY_MINUTES_OUT_OF_RANGE,
                    lowest=MIN_EVERY_MINUTES,
                    highest=MAX_EVERY_MINUTES,
                ),
                field="every_minutes",
            )

    def next_start(self, after: datetime) -> datetime | None:
        """Return the first start after a time; None if no start follows."""
        if self.every_minutes is None:
            rule = parse_rule(self.start or "", "start")
            return next_occurrence(rule, zone_of(self.time_zone), after)
        interval = timedelta(minutes=self.every_minutes)
        number = max((after - self.anchor) // interval, 0) + 1
        return self.anchor + number * interval

    def next_starts(self, first: datetime, count: int) -> Sequence[datetime]:
        """Return at most ``count`` starts: ``first`` and the following starts."""
        found = [first]
        while len(found) < count and (start := self.next_start(found[-1])) is not None:
            found.append(start)
        return found

    def due_starts(self, first: datetime, now: datetime, catch_up: CatchUp) -> Sequence[datetime]:
        """Return the due starts for which runs must be created, oldest first; ``first`` is the
        first due start.
        """
        since = max(first, now - (GRACE if catch_up is CatchUp.SKIP else MAX_CATCH_UP))
        starts = self._starts(since, now, MAX_CATCH_UP_RUNS if catch_up is CatchUp.ALL else 1)
        if not starts and catch_up is CatchUp.LAST:
            return self._starts(first, now, 1)
        return starts

    def _starts(self, first: datetime, last: datetime, count: int) -> Sequence[datetime]:
        """Return the latest ``count`` starts of a period, oldest first."""
        found: deque[datetime] = deque(maxlen=count)
        if self.every_minutes is None:
            rule = parse_rule(self.start or "", "start")
            for start in occurrences(rule, zone_of(self.time_zone), first - _INSTANT):
                if start > last:
                    break
                found.append(start)
        else:
            start_ = self.next_start(first - _INSTANT)
            while start_ is not None and start_ <= last:
                found.append(start_)
                start_ = self.next_start(start_)
        return list(found)
