"""The system clock; tests replace it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def utcnow() -> datetime:
    return datetime.now(UTC)


def monotonic_of(clock: Clock) -> Callable[[], float]:
    """Return the monotonic clock; for a clock that a test replaces, derive it from that clock."""
    return time.monotonic if clock is utcnow else lambda: clock().timestamp()
