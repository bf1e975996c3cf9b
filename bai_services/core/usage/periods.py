"""The intervals of a report: hours, days or months of a time zone, or the whole period."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ..errors import InvalidRequest
from ..user_input import shown
from .model import DAY, HOUR

# Retention times of records and of their hourly and daily totals.
KEPT_FOR = timedelta(days=400)
MAX_HOURS = 31 * 24
_MAX_ZONE_NAME = 64
_MAX_TIME = 40


class Every(StrEnum):
    """Length of the intervals of a report; ``PERIOD`` is one interval."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    PERIOD = "period"


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of a report, in Unix time (seconds); ``end`` is excluded."""

    start: int
    end: int


def zone_of(name: str) -> ZoneInfo:
    """Return the time zone with an IANA name such as ``Asia/Seoul``.

    Raises
    ------
    InvalidRequest
        If there is no such zone.
    """
    try:
        if not name or len(name) > _MAX_ZONE_NAME or not name.isascii():
            raise ValueError(name)
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidRequest(
            f"{shown(name)!r} is not a time zone; use a name such as UTC or Asia/Seoul",
            field="time_zone",
        ) from None


def read_time(name: str, text: str, zone: ZoneInfo) -> datetime:
    """Parse a parameter: a date with a time, or a date without a time, which stands for its
    beginning in ``zone``.

    A time without a zone is in ``zone``.

    Raises
    ------
    InvalidRequest
        If the text is not a date, or cannot be converted to UTC.
    """
    try:
        if len(text) > _MAX_TIME or text.isdigit():
            raise ValueError(text)
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidRequest(
            f"{name}={shown(text)!r} is not a date; use the form 2026-01-31 or "
            "2026-01-31T08:00:00+00:00",
            field=name,
        ) from None


def full_hour(seconds: float) -> int:
    """Return the start of the hour (UTC) that contains a time."""
    return int(seconds // HOUR) * HOUR


def next_full_hour(seconds: float) -> int:
    """Return the first full hour (UTC) at or after a time."""
    return -full_hour(-seconds)


def intervals_of(since: datetime, until: datetime, every: Every, zone: ZoneInfo) -> list[Interval]:
    """Return the intervals that cover a period, oldest first.

    ``since`` is rounded down to a full hour; the first and the last interval can be incomplete.
    Totals are stored by hours of UTC. If the offset of the zone is not a whole number of hours, a
    day or month therefore begins at the next full hour of UTC.
    """
    first, last = full_hour(since.timestamp()), int(until.timestamp())
    edges = [first]
    if every is Every.HOUR:
        edges.extend(range(first + HOUR, last, HOUR))
    elif every is not Every.PERIOD:
        local = datetime.fromtimestamp(first, zone)
        starts = (next_full_hour(at.timestamp()) for at in _starts(local, every))
        for start in starts:
            if start >= last:
                break
            if start > edges[-1]:
                edges.append(start)
    edges.append(last)
    return [Interval(a, b) for a, b in zip(edges, edges[1:], strict=False) if a < b]


def _starts(local: datetime, every: Every) -> Iterator[datetime]:
    """Yield the starts of the days or months after a local time, without end."""
    day = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    while True:
        if every is Every.DAY:
            day += timedelta(days=1)
        elif day.month == 12:
            day = day.replace(year=day.year + 1, month=1, day=1)
        else:
            day = day.replace(month=day.month + 1, day=1)
        yield day.astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Parts:
    """The stored totals that make up an interval: totals of whole days (UTC) and of hours."""

    days: Interval | None
    hours: tuple[Interval, ...]


def parts_of(interval: Interval) -> Parts:
    """Return the days and hours of an interval that begins and ends at full hours."""
    first_day = -(-interval.start // DAY) * DAY
    last_day = interval.end // DAY * DAY
    if first_day >= last_day:
        return Parts(None, (interval,) if interval.start < interval.end else ())
    edges = (Interval(interval.start, first_day), Interval(last_day, interval.end))
    return Parts(Interval(first_day, last_day), tuple(e for e in edges if e.start < e.end))
