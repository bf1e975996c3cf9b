"""Idle time of sessions, and when the idle timeout ends them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from .lifecycle import SessionType

# An activity report is considered current for this long.
FRESH = timedelta(seconds=60)
# Users are warned this long before the end, but not before half of the limit has passed.
WARNING = timedelta(minutes=30)
# Interval between activity reports of a session.
REPORT_SECONDS = 60.0
UNLIMITED_REPORT_SECONDS = 300.0
_MIN_REPORT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Idleness:
    """A session without activity ``since`` then, as reported at ``heard_at``.

    It is stopped at ``ends_at`` unless there is activity.
    """

    since: datetime
    ends_at: datetime
    heard_at: datetime | None

    def is_over(self, now: datetime) -> bool:
        """Return whether it must be stopped now.

        Only if the session itself has reported recently that it was idle until its end: after an
        interruption of manager or session the activity meanwhile is unknown.
        """
        if self.heard_at is None or self.heard_at < self.ends_at:
            return False
        return self.ends_at <= now <= self.heard_at + FRESH

    def is_near(self, now: datetime) -> bool:
        """Return whether its end is near enough for a warning."""
        return self.ends_at - now <= min(WARNING, (self.ends_at - self.since) / 2)


def network_timeout(
    kind: SessionType,
    started_at: datetime | None,
    used_at: datetime | None,
    heard_at: datetime | None,
    timeout_seconds: int,
) -> Idleness | None:
    """Return the idleness of a running session; None where it has no idle timeout.

    Batch sessions have none, because they run unattended; 0 seconds mean no limit.
    """
    if timeout_seconds <= 0 or kind is not SessionType.INTERACTIVE or started_at is None:
        return None
    # A restart counts as activity.
    since = started_at if used_at is None else max(started_at, used_at)
    return Idleness(since, since + timedelta(seconds=timeout_seconds), heard_at)


def next_report_seconds(idleness: Idleness | None, timeout_seconds: int, now: datetime) -> float:
    """Return when a session must report its activity next: at its end, and at regular intervals."""
    if timeout_seconds <= 0:
        return UNLIMITED_REPORT_SECONDS
    left = (idleness.ends_at - now).total_seconds() if idleness else 0.0
    return min(max(left, _MIN_REPORT_SECONDS), REPORT_SECONDS)
