"""Idle timeouts of sessions: start of idleness, end, warning and activity reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from .lifecycle import SessionType

# An activity report is current for this long.
REPORT_TTL = timedelta(seconds=60)
# Users are warned this long before the end, but not before half of the timeout has passed.
WARNING_TIME = timedelta(minutes=30)
# Maximum interval between activity reports of a session, with and without an idle timeout.
REPORT_SECONDS = 60.0
UNLIMITED_REPORT_SECONDS = 300.0
_MIN_REPORT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Idleness:
    """Idle time of a session: no activity since ``since``, as reported at ``reported_at``.

    The session is stopped at ``ends_at`` unless there is activity.
    """

    since: datetime
    ends_at: datetime
    reported_at: datetime | None

    def is_over(self, now: datetime) -> bool:
        """Return whether the session must be stopped now.

        This requires a recent report of the session that it was idle until ``ends_at``: if manager
        or session were down, the activity in that time is unknown.
        """
        if self.reported_at is None or self.reported_at < self.ends_at:
            return False
        return self.ends_at <= now <= self.reported_at + REPORT_TTL

    def is_near(self, now: datetime) -> bool:
        """Return whether the end is near enough for a warning."""
        return self.ends_at - now <= min(WARNING_TIME, (self.ends_at - self.since) / 2)


def idleness_of(
    kind: SessionType,
    started_at: datetime | None,
    used_at: datetime | None,
    reported_at: datetime | None,
    timeout_seconds: int,
) -> Idleness | None:
    """Return the idleness of a running session; None if it has no idle timeout.

    Only interactive sessions have one, because others run unattended. ``timeout_seconds`` 0 means
    no limit. ``used_at`` is the time of the last activity.
    """
    if timeout_seconds <= 0 or kind is not SessionType.INTERACTIVE or started_at is None:
        return None
    # A restart counts as activity.
    since = started_at if used_at is None else max(started_at, used_at)
    return Idleness(since, since + timedelta(seconds=timeout_seconds), reported_at)


def next_report_seconds(idleness: Idleness | None, timeout_seconds: int, now: datetime) -> float:
    """Return the seconds until a session's next activity report: at regular intervals, and when
    its idle timeout ends.
    """
    if timeout_seconds <= 0:
        return UNLIMITED_REPORT_SECONDS
    left = (idleness.ends_at - now).total_seconds() if idleness else 0.0
    return min(max(left, _MIN_REPORT_SECONDS), REPORT_SECONDS)
