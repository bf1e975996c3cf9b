"""Compute the instants at which a rule applies in a time zone.

A local time that does not exist, because daylight saving time begins, is replaced by the end of the
gap. If a local time occurs twice, because daylight saving time ends, only the first instant counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta, tzinfo
from itertools import islice

from ...wall_clock import instant_of
from .rules import Rule

# Every rule that can ever apply, applies within this time: 29 February can be 8 years away.
HORIZON_DAYS = 9 * 366
_DAY = timedelta(days=1)


def occurrences(rule: Rule, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """Yield the instants after ``after`` at which the rule applies, in UTC and ascending.

    The iterator ends if the rule does not apply for ``HORIZON_DAYS``.
    """
    last = after.astimezone(UTC)
    # Begin with the previous day, because a gap can move its last times to the next day.
    day = last.astimezone(zone).date() - _DAY
    end = day + HORIZON_DAYS * _DAY
    while day < end and day.year < 9990:
        if day.month not in rule.months:
            # Faster than checking each day, because an occurrence may be years away.
            day = (day.replace(day=28) + 4 * _DAY).replace(day=1)
            continue
        if rule.matches(day):
            for minutes in rule.times:
                wall = datetime.combine(day, time(minutes // 60, minutes % 60))
                instant = instant_of(wall, zone)
                # Several times in one gap count as one occurrence.
                if instant > last:
                    last, end = instant, day + HORIZON_DAYS * _DAY
                    yield instant
        day += _DAY


def next_occurrence(rule: Rule, zone: tzinfo, after: datetime) -> datetime | None:
    """Return the first instant after ``after``; None if the rule never applies."""
    return next(occurrences(rule, zone, after), None)


def next_occurrences(rule: Rule, zone: tzinfo, after: datetime, count: int) -> list[datetime]:
    return list(islice(occurrences(rule, zone, after), count))


def last_occurrence(rule: Rule, zone: tzinfo, after: datetime, until: datetime) -> datetime | None:
    """Return the last instant after ``after`` and not after ``until``, or None.

    The cost grows with the length of the period.
    """
    last = None
    for instant in occurrences(rule, zone, after):
        if instant > until:
            break
        last = instant
    return last
