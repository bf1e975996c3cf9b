"""Since when nobody uses a session, and when that ends it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from .lifecycle import SessionType

# How the reason of a session begins that was stopped because nobody used it.
IDLE_TIMEOUT = "idle-timeout"
# What a session said is taken for the present for so long.
FRESH = timedelta(seconds=60)
# The end is told of when it is this near, and not before half of the limit is over.
WARNING = timedelta(minutes=30)
# How long a session waits until it says again when it was used.
REPORT_SECONDS = 60.0
UNLIMITED_REPORT_SECONDS = 300.0
_LEAST_REPORT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Idleness:
    """Nobody has used a session ``since`` then, as far as it had said at ``heard_at``.

    It ends at ``ends_at`` unless somebody uses it.
    """

    since: datetime
    ends_at: datetime
    heard_at: datetime | None

    def is_over(self, now: datetime) -> bool:
        """Return whether it is to be ended now.

        Only a session that itself said just now that nobody has used it until its end: whoever
        was away, manager or session, does not know what it was used for meanwhile.
        """
        if self.heard_at is None or self.heard_at < self.ends_at:
            return False
        return self.ends_at <= now <= self.heard_at + FRESH

    def is_near(self, now: datetime) -> bool:
        """Return whether its end is near enough to be told of."""
        return self.ends_at - now <= min(WARNING, (self.ends_at - self.since) / 2)


def network_timeout(
    kind: SessionType,
    started_at: datetime | None,
    used_at: datetime | None,
    heard_at: datetime | None,
    timeout_seconds: int,
) -> Idleness | None:
    """Return since when nobody uses a running session; None where no such limit is for it.

    Batch sessions have none, as all that nobody sits at; 0 seconds are no limit.
    """
    if timeout_seconds <= 0 or kind is not SessionType.INTERACTIVE or started_at is None:
        return None
    # One that was started again is used by that.
    since = started_at if used_at is None else max(started_at, used_at)
    return Idleness(since, since + timedelta(seconds=timeout_seconds), heard_at)


def next_report_seconds(idleness: Idleness | None, timeout_seconds: int, now: datetime) -> float:
    """Return when a session is to say again when it was used: at its end, and now and then."""
    if timeout_seconds <= 0:
        return UNLIMITED_REPORT_SECONDS
    left = (idleness.ends_at - now).total_seconds() if idleness else 0.0
    return min(max(left, _LEAST_REPORT_SECONDS), REPORT_SECONDS)
