"""Idle timeouts of sessions: idle times, ends, warnings and intervals of activity reports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from .lifecycle import SessionType

# Time after which an activity report is out of date.
REPORT_TTL = timedelta(seconds=60)
# Time from the warning to the end, but at most half of the timeout.
WARNING_TIME = timedelta(minutes=30)
# Maximum interval between activity reports of a session with an idle timeout.
REPORT_INTERVAL_SECONDS = 60.0
# Maximum interval for a session without an idle timeout.
REPORT_INTERVAL_WITHOUT_TIMEOUT_SECONDS = 300.0
_MIN_REPORT_INTERVAL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Idleness:
    """Idle time of a session. Its last activity was at ``since``, according to the report at
    ``reported_at``.

    The session is stopped at ``ends_at`` unless there is activity. ``reported_at`` is the time of
    the last report from the session itself; None: no report.
    """

    since: datetime
    ends_at: datetime
    reported_at: datetime | None

    def is_over(self, now: datetime) -> bool:
        """Return whether the session must be stopped now.

        It is stopped only after a report at or after ``ends_at`` that is not older than
        ``REPORT_TTL``, because activity is unknown while the manager or the session is down.
        """
        if self.reported_at is None or self.reported_at < self.ends_at:
            return False
        return self.ends_at <= now <= self.reported_at + REPORT_TTL

    def is_warning_due(self, now: datetime) -> bool:
        """Return whether users must be warned of the end."""
        return self.ends_at - now <= min(WARNING_TIME, (self.ends_at - self.since) / 2)


def has_idle_timeout(kind: SessionType, timeout_seconds: int) -> bool:
    """Return whether a session is stopped when it is idle.

    Only interactive sessions are stopped, because other sessions run unattended. A
    ``timeout_seconds`` of 0 means no limit.
    """
    return timeout_seconds > 0 and kind is SessionType.INTERACTIVE


def idleness_of(
    kind: SessionType,
    started_at: datetime | None,
    last_activity_at: datetime | None,
    reported_at: datetime | None,
    timeout_seconds: int,
    limited_at: datetime | None = None,
    known_since: datetime | None = None,
) -> Idleness | None:
    """Return the idleness of a session.

    None if the session has no idle timeout or has not started. A ``timeout_seconds`` of 0 means no
    limit. ``limited_at``: when the timeout was introduced or reduced. A session that was running
    then has no idleness until it has sent a report, because its activity is unknown. Its end is
    postponed so that the first warning has its full time after this report (``known_since``).
    """
    if started_at is None or not has_idle_timeout(kind, timeout_seconds):
        return None
    if limited_at is not None and limited_at <= started_at:
        limited_at = None
    if limited_at is not None and (known_since is None or known_since <= limited_at):
        return None
    # A restart counts as activity.
    since = started_at if last_activity_at is None else max(started_at, last_activity_at)
    ends_at = since + timedelta(seconds=timeout_seconds)
    if limited_at is not None and known_since is not None:
        warning = min(WARNING_TIME, timedelta(seconds=timeout_seconds) / 2)
        ends_at = max(ends_at, known_since + warning)
    return Idleness(since, ends_at, reported_at)


def next_report_seconds(
    kind: SessionType, idleness: Idleness | None, timeout_seconds: int, now: datetime
) -> float:
    """Return the seconds until a session must send its next activity report.

    Without an idle timeout: ``REPORT_INTERVAL_WITHOUT_TIMEOUT_SECONDS``. With an idle timeout:
    ``REPORT_INTERVAL_SECONDS``, or less (at least 1 s) if the timeout ends sooner. A session with
    an idle timeout and without ``idleness`` has not started and reports after 1 s.
    """
    if not has_idle_timeout(kind, timeout_seconds):
        return REPORT_INTERVAL_WITHOUT_TIMEOUT_SECONDS
    remaining = (idleness.ends_at - now).total_seconds() if idleness else 0.0
    return min(max(remaining, _MIN_REPORT_INTERVAL_SECONDS), REPORT_INTERVAL_SECONDS)


class IdleTimer:
    """Limits idle times by the system clock to the time that has passed by the monotonic clock.

    If the clock is set forward, the time since the last activity appears too long. With this limit,
    the error is at most the time between two reports.
    """

    def __init__(self, monotonic_seconds: float) -> None:
        self._idle_seconds = 0.0
        self._at = monotonic_seconds

    def limited(self, idle_seconds: float, monotonic_seconds: float) -> float:
        """Return the idle time, limited to the previous idle time plus the time since then."""
        most = self._idle_seconds + monotonic_seconds - self._at
        self._idle_seconds, self._at = min(idle_seconds, most), monotonic_seconds
        return self._idle_seconds
