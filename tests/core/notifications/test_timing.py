"""Quiet hours and digests against a naive oracle, across time zones and clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.notifications.catalogue import EVENTS, EventName
from bai_services.core.notifications.settings import NotificationSettings, check_settings
from bai_services.core.notifications.timing import Digest, QuietHours, mail_time, message_time

# Zones with clock changes of one hour, of half an hour and at midnight, with odd offsets, and with
# a skipped day.
ZONES = [
    ZoneInfo(name)
    for name in (
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "America/Sao_Paulo",
        "Australia/Lord_Howe",
        "Asia/Kathmandu",
        "Asia/Seoul",
        "Africa/Casablanca",
        "Pacific/Apia",
    )
]
MINUTE = timedelta(minutes=1)

minutes = st.integers(0, 24 * 60 - 1).map(lambda n: time(n // 60, n % 60))
zones = st.sampled_from(ZONES)
# Around the clock changes in Berlin, New York, Lord Howe, São Paulo (2018) and Apia (2011).
changes = st.sampled_from(
    [
        datetime(2026, 3, 29, 1),
        datetime(2026, 10, 25, 1),
        datetime(2026, 3, 8, 7),
        datetime(2026, 11, 1, 6),
        datetime(2026, 4, 4, 15),
        datetime(2026, 10, 3, 15, 30),
        datetime(2018, 11, 4, 3),
        datetime(2011, 12, 30, 10),
    ]
)
times = st.builds(
    lambda around, offset: around.replace(tzinfo=UTC) + offset * MINUTE,
    changes,
    st.integers(-2 * 24 * 60, 24 * 60),
)


def is_quiet(at: datetime, starts: time, ends: time, zone: ZoneInfo) -> bool:
    local = at.astimezone(zone)
    now = local.hour * 60 + local.minute
    first, last = starts.hour * 60 + starts.minute, ends.hour * 60 + ends.minute
    return (now - first) % 1440 < (last - first) % 1440


def first_minute_without_quiet(at: datetime, starts: time, ends: time, zone: ZoneInfo) -> datetime:
    while is_quiet(at, starts, ends, zone):
        at += MINUTE
    return at


@given(times, minutes, minutes, zones)
@example(datetime(2026, 3, 29, 0, 30, tzinfo=UTC), time(22), time(2, 30), ZoneInfo("Europe/Berlin"))
@example(datetime(2026, 10, 25, 0, 45, tzinfo=UTC), time(2, 30), time(5), ZoneInfo("Europe/Berlin"))
@example(datetime(2026, 10, 25, 0, 15, tzinfo=UTC), time(1), time(2, 30), ZoneInfo("Europe/Berlin"))
@example(datetime(2011, 12, 30, 9, 30, tzinfo=UTC), time(22), time(6), ZoneInfo("Pacific/Apia"))
def test_message_is_sent_in_the_first_minute_after_the_quiet_hours(
    at: datetime, starts: time, ends: time, zone: ZoneInfo
) -> None:
    if starts == ends:
        return
    quiet = QuietHours(starts, ends, zone)
    assert quiet.includes(at) == is_quiet(at, starts, ends, zone)
    assert message_time(at, quiet) == first_minute_without_quiet(at, starts, ends, zone)


@given(times, minutes, minutes, minutes, zones, st.sampled_from(Digest))
def test_digest_is_sent_at_its_time_and_not_in_the_quiet_hours(
    at: datetime, starts: time, ends: time, daily_at: time, zone: ZoneInfo, digest: Digest
) -> None:
    quiet = QuietHours(starts, ends, zone) if starts != ends else None
    due = mail_time(at, quiet, digest, daily_at, zone)
    expected = at + MINUTE
    if digest is Digest.HOURLY:
        while expected.minute:
            expected += MINUTE
    elif digest is Digest.DAILY:
        expected = first_daily(at, daily_at, zone)
    if quiet is not None:
        expected = first_minute_without_quiet(expected, starts, ends, zone)
    assert due == expected


def first_daily(at: datetime, daily_at: time, zone: ZoneInfo) -> datetime:
    """Return the first minute after ``at`` at which a daily digest is due.

    On each local day, the digest is due in the first minute that is not before ``daily_at``. If a
    clock change skips this time, it is due in the first minute after the change.
    """
    minute = at - timedelta(days=2)
    reached: datetime | None = None
    done = None
    while True:
        before = (minute - MINUTE).astimezone(zone).replace(tzinfo=None)
        wall = minute.astimezone(zone).replace(tzinfo=None)
        if wall > before:
            days = (wall.date() - before.date()).days
            for day in range(days + 1):
                target = datetime.combine(before.date() + timedelta(days=day), daily_at)
                if before < target <= wall and (done is None or target.date() > done):
                    done, reached = target.date(), minute
                    if reached > at:
                        return reached
        minute += MINUTE


def test_urgent_events_ignore_quiet_hours_and_digests() -> None:
    settings = NotificationSettings(quiet_starts="22:00", quiet_ends="07:00", digest="daily")
    night = datetime(2026, 11, 26, 23, 30, tzinfo=UTC)
    urgent, other = EVENTS[EventName.SESSION_STOPS_NOW], EVENTS[EventName.SESSION_FAILED]
    assert settings.mail_time(urgent, night) == settings.message_time(urgent, night) == night
    assert settings.mail_time(other, night) == datetime(2026, 11, 27, 8, tzinfo=UTC)
    assert settings.message_time(other, night) == datetime(2026, 11, 27, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    "fields",
    [
        {"time_zone": "Mars/Olympus"},
        {"time_zone": "../../etc/passwd"},
        {"quiet_starts": "22:00"},
        {"quiet_starts": "22:00", "quiet_ends": "22:00"},
        {"quiet_starts": "24:00", "quiet_ends": "07:00"},
        {"quiet_starts": "7:00", "quiet_ends": "08:00"},
        {"digest_time": "noon"},
        {"channels": {"lunch": ["web"]}},
        {"channels": {"session-failed": ["pigeon"]}},
        {"channels": {"mail-failing": ["mail"]}},
    ],
)
def test_invalid_settings_are_rejected(fields: dict[str, object]) -> None:
    with pytest.raises(InvalidRequest):
        check_settings(NotificationSettings(**fields))  # type: ignore[arg-type]
