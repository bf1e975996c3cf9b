"""Times of delivery: quiet hours and digests in the time zone of a user."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from ..errors import InvalidRequest
from ..user_input import shown
from ..wall_clock import clock_change, instant_of

_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
_DAY = timedelta(days=1)
_HOUR_SECONDS = 3600
# Minimum time between two mails to a user, except for urgent events.
MAIL_INTERVAL_SECONDS = 60


class Digest(StrEnum):
    NONE = "none"
    HOURLY = "hourly"
    DAILY = "daily"


@dataclass(frozen=True, slots=True)
class QuietHours:
    """The time of each day from ``starts`` (included) to ``ends`` (excluded) in ``zone``.

    The period includes midnight if ``ends`` is not after ``starts``.
    """

    starts: time
    ends: time
    zone: ZoneInfo

    def includes(self, at: datetime) -> bool:
        clock = at.astimezone(self.zone).time()
        if self.starts < self.ends:
            return self.starts <= clock < self.ends
        return clock >= self.starts or clock < self.ends

    def end(self, at: datetime) -> datetime:
        """Return ``at``, or the end of the quiet hours if ``at`` is in them.

        If clocks are set back into the quiet hours, the quiet hours start a second time.
        """
        if not self.includes(at):
            return at
        candidates = _instants(_days_around(at, self.zone), self.ends, self.zone, (0, 1))
        if at.astimezone(self.zone).utcoffset() != (at + _DAY).astimezone(self.zone).utcoffset():
            candidates.append(clock_change(at, at + _DAY, self.zone))
        return min(each for each in candidates if each > at and not self.includes(each))


def mail_time(
    at: datetime, quiet: QuietHours | None, digest: Digest, daily_at: time, zone: ZoneInfo
) -> datetime:
    """Return the time at which the mail for a non-urgent event is sent.

    Events with the same result are sent in one mail. Hourly digests are sent at full hours (UTC),
    daily digests at ``daily_at`` in ``zone``; all mails wait for the end of the quiet hours.
    """
    match digest:
        case Digest.NONE:
            due = _next_multiple(at, MAIL_INTERVAL_SECONDS)
        case Digest.HOURLY:
            due = _next_multiple(at, _HOUR_SECONDS)
        case Digest.DAILY:
            due = _next_daily(at, daily_at, zone)
    return due if quiet is None else quiet.end(due)


def message_time(at: datetime, quiet: QuietHours | None) -> datetime:
    """Return the time at which a user's webhook is called for a non-urgent event."""
    return at if quiet is None else quiet.end(at)


def read_time(text: str, field: str) -> time:
    """Return a time of the day written as ``HH:MM``; raise ``InvalidRequest`` otherwise."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise InvalidRequest(f"{shown(text)!r} is not a time such as 22:30", field=field)
    return time(int(found[1]), int(found[2]))


def _next_multiple(at: datetime, seconds: int) -> datetime:
    """Return the first time after ``at`` with a Unix time that is a multiple of ``seconds``."""
    return datetime.fromtimestamp((int(at.timestamp()) // seconds + 1) * seconds, UTC)


def _next_daily(at: datetime, daily_at: time, zone: ZoneInfo) -> datetime:
    """Return the first ``daily_at`` after ``at``; if it occurs twice on a day, the first counts."""
    return min(
        each for each in _instants(_days_around(at, zone), daily_at, zone, (0,)) if each > at
    )


def _days_around(at: datetime, zone: ZoneInfo) -> list[date]:
    today = at.astimezone(zone).date()
    return [today + offset * _DAY for offset in range(-1, 3)]


def _instants(
    days: Iterable[date], clock: time, zone: ZoneInfo, folds: Iterable[int]
) -> list[datetime]:
    """Return the times at which clocks show ``clock`` on these days.

    If clocks are set forward and skip ``clock``, the result has the time of the change instead.
    """
    chosen = tuple(folds)
    return [instant_of(datetime.combine(day, clock), zone, fold) for day in days for fold in chosen]
