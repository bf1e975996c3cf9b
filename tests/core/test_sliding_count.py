"""The sliding-window count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from bai_services.core.sliding_count import STEP, WINDOW, SlidingCount

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_events_expire_in_order() -> None:
    count = SlidingCount()
    for minute in range(15):
        count.add(START + timedelta(minutes=minute))
    assert count.total(START + timedelta(minutes=14)) == 15
    assert count.total(START + WINDOW + STEP) == 14
    assert count.total(START + WINDOW + timedelta(minutes=5)) == 9
    assert count.total(START + 3 * WINDOW) == 0


def test_event_has_expired_after_the_returned_wait() -> None:
    count = SlidingCount()
    count.add(START)
    wait = count.seconds_until_allowed(START + timedelta(minutes=10))
    assert count.total(START + timedelta(minutes=10, seconds=wait - 1)) == 1
    assert count.total(START + timedelta(minutes=10, seconds=wait)) == 0
