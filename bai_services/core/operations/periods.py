"""Periods that users set: a start and, optionally, an end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Protocol

from ..errors import InvalidRequest

# When an object is created, objects whose period ended longer ago than this are removed.
KEPT_AFTER_END = timedelta(days=90)
# A time from a user may be in the past by at most this. The user's clock may be slow, and "now" in
# a form is the time at which the user filled in the form.
PAST_TOLERANCE = timedelta(minutes=5)


class Period(Protocol):
    """An object that applies during a period; it has no end if ``ends_at`` is None."""

    @property
    def starts_at(self) -> datetime: ...
    @property
    def ends_at(self) -> datetime | None: ...


def is_current(period: Period, now: datetime) -> bool:
    """Return whether ``now`` is in the period, which includes its start but not its end."""
    is_over = period.ends_at is not None and now >= period.ends_at
    return period.starts_at <= now and not is_over


def check_period(starts_at: datetime, ends_at: datetime | None) -> None:
    """Raise ``InvalidRequest`` unless the period ends after its start."""
    if ends_at is not None and ends_at <= starts_at:
        raise InvalidRequest("ends_at must be after starts_at", field="ends_at")


def require_not_past(at: datetime | None, now: datetime, field: str) -> None:
    """Raise ``InvalidRequest`` if ``at`` is before ``now`` by more than ``PAST_TOLERANCE``; None is
    valid.
    """
    if at is not None and at < now - PAST_TOLERANCE:
        minutes = int(PAST_TOLERANCE.total_seconds()) // 60
        raise InvalidRequest(
            f"{field} is in the past ({at.isoformat()}); it can be at most {minutes} minutes ago",
            field=field,
        )
