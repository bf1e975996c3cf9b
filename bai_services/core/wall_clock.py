"""Conversion of wall-clock times in a time zone to instants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo


def instant_of(wall: datetime, zone: tzinfo, fold: int = 0) -> datetime:
    """Return the instant, in UTC, at which clocks in ``zone`` show ``wall`` (without a time zone).

    ``fold`` is 1 for the second of two such instants, when clocks are set back. If clocks are set
    forward and skip ``wall``, the result is the time of that change.
    """
    found = wall.replace(tzinfo=zone, fold=fold).astimezone(UTC)
    if found.astimezone(zone).replace(tzinfo=None) == wall:
        return found
    # The change is between two instants: ``wall`` with the offset after the change (fold=1), and
    # with the offset before it (fold=0).
    first = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return clock_change(first, wall.replace(tzinfo=zone, fold=0).astimezone(UTC), zone)


def has_elapsed(since: datetime, period: timedelta, now: datetime) -> bool:
    """Return whether ``period`` has passed since ``since``.

    If ``since`` is in the future, the clock was set back. In this case, the period counts as
    passed, because it could otherwise take long until the clock reaches ``since``.
    """
    return not since <= now < since + period


def clock_change(low: datetime, high: datetime, zone: tzinfo) -> datetime:
    """Return the first second up to ``high`` with another offset from UTC than ``low``."""
    low, high = low.astimezone(UTC).replace(microsecond=0), high.astimezone(UTC)
    before = low.astimezone(zone).utcoffset()
    while high - low > timedelta(seconds=1):
        middle = low + timedelta(seconds=int((high - low).total_seconds()) // 2)
        if middle.astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    return high
