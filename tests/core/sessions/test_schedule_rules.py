"""Occurrences of schedule rules against a naive oracle that checks each minute."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.schedules.occurrences import (
    last_occurrence,
    next_occurrence,
    next_occurrences,
    occurrences,
)
from bai_services.core.sessions.schedules.rules import MAX_RULE_CHARS, Rule, parse_rule

ZONES = (
    "UTC",
    "Asia/Seoul",
    "Asia/Kolkata",
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",  # changes at midnight
    "Australia/Lord_Howe",  # changes by half an hour
    "Pacific/Apia",  # skipped 30 December 2011
    "Africa/Casablanca",
)
MINUTE = timedelta(minutes=1)


def naive(rule: Rule, zone: ZoneInfo, after: datetime, days: int) -> list[datetime]:
    """Return the minutes at which the local time is a time of the rule, ascending.

    If the clock skips a time of the rule, return the minute after the gap. If the clock shows a
    time twice, return only the first minute.
    """
    found = []
    minute = after.replace(second=0, microsecond=0)
    before = minute.astimezone(zone)
    for _ in range(days * 24 * 60):
        minute += MINUTE
        local = minute.astimezone(zone)
        skipped = int((local.replace(tzinfo=None) - before.replace(tzinfo=None)) / MINUTE)
        walls = [local.replace(tzinfo=None) - n * MINUTE for n in range(max(skipped, 1))]
        if local.fold == 0 and any(
            rule.matches(wall.date()) and wall.hour * 60 + wall.minute in rule.times
            for wall in walls
        ):
            found.append(minute)
        before = local
    return found


def rules() -> st.SearchStrategy[Rule]:
    # Random times, many of them around clock changes.
    minutes = st.integers(0, 24 * 60 - 1) | st.integers(0, 200) | st.integers(1380, 1439)
    return st.builds(
        Rule,
        times=st.sets(minutes, min_size=1, max_size=5).map(lambda found: tuple(sorted(found))),
        weekdays=st.frozensets(st.integers(0, 6), min_size=1),
        days=st.just(frozenset(range(1, 32))) | st.frozensets(st.integers(1, 31), min_size=1),
        months=st.just(frozenset(range(1, 13))),
        is_any_day=st.booleans(),
    )


EVERY_DAY = frozenset(range(7))


@settings(deadline=None)
@given(rules(), st.sampled_from(ZONES), st.datetimes(datetime(2011, 1, 1), datetime(2035, 1, 1)))
@example(Rule((150, 155), EVERY_DAY), "Europe/Berlin", datetime(2026, 3, 28, 12))
@example(Rule((150, 180), EVERY_DAY), "Europe/Berlin", datetime(2026, 10, 24, 12))
@example(Rule((0, 30, 1410), EVERY_DAY), "America/Santiago", datetime(2026, 9, 5, 12))
@example(Rule((0, 30, 1410), EVERY_DAY), "America/Santiago", datetime(2026, 4, 4, 12))
@example(Rule((110, 135), EVERY_DAY), "Australia/Lord_Howe", datetime(2026, 10, 3, 5))
@example(Rule((480, 1140), EVERY_DAY), "Pacific/Apia", datetime(2011, 12, 29, 5))
def test_occurrences_equal_the_minutes_found_one_by_one(
    rule: Rule, zone_name: str, start: datetime
) -> None:
    zone, after = ZoneInfo(zone_name), start.replace(tzinfo=UTC)
    end = after.replace(second=0, microsecond=0) + timedelta(days=2)
    expected = naive(rule, zone, after, days=2)
    found = []
    for instant in occurrences(rule, zone, after):
        if instant > end:
            break
        found.append(instant)
    assert found == expected
    assert last_occurrence(rule, zone, after, end) == (expected[-1] if expected else None)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("mon-fri 08:00", "0 8 * * 1-5"),
        ("daily 09:30", "30 9 * * *"),
        ("sat,sun 10:00", "0 10 * * 0,6"),
        ("fri-mon 07:05", "5 7 * * fri,sat,sun,mon"),
        ("daily 00:00,06:00,12:00,18:00", "0 */6 * * *"),
        ("SUN 10:00", "0 10 * * 7"),
        ("sun-thu 09:00", "0 9 * * sun-thu"),
        ("fri-sun 09:00", "0 9 * * fri-sun"),
        ("sun-sun 09:00", "0 9 * * sun-sun"),
        ("mon,wed,fri 09:00", "0 9 * * 1/2"),
        ("daily 00:10,00:40", "10/30 0 * * *"),
    ],
)
def test_rule_of_days_and_times_equals_cron(text: str, same: str) -> None:
    assert parse_rule(text, "start") == parse_rule(same, "start")


def test_rule_with_times_that_cron_cannot_express() -> None:
    rule = parse_rule("mon-fri 8:00,19:30", "start")
    friday = datetime(2026, 11, 27, 8, 0, tzinfo=UTC)
    assert list(next_occurrences(rule, UTC, friday, 2)) == [
        friday.replace(hour=19, minute=30),
        friday + timedelta(days=3),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "two or five parts"),
        ("mon 08:00 x", "two or five parts"),
        ("monday 08:00", "'monday' is not a day"),
        ("mon 24:00", "not a time of day"),
        ("mon 8", "not a time of day"),
        ("* * * * *", "1440 times per day"),
        ("61 0 * * *", "61 is not between 0 and 59"),
        ("0 0 31-1 * *", "is empty"),
        ("0 0 * jan *", "'jan' is not a number"),
        ("*/0 0 * * *", "is empty"),
        ("0 0 L * *", "not a part"),
        ("0" * (MAX_RULE_CHARS + 1), "at most"),
    ],
)
def test_invalid_rule_is_rejected_with_its_field(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message) as caught:
        parse_rule(text, "stop")
    assert caught.value.details["field"] == "stop"


def test_day_of_month_or_weekday_as_in_cron() -> None:
    rule = parse_rule("0 0 13 * 5", "start")
    found = next_occurrences(rule, UTC, datetime(2026, 11, 10, tzinfo=UTC), 3)
    assert [each.day for each in found] == [13, 20, 27]


def test_rare_days_are_found_and_impossible_days_are_not() -> None:
    after = datetime(2096, 3, 1, tzinfo=UTC)
    leap_day = next_occurrence(parse_rule("0 0 29 2 *", "start"), UTC, after)
    assert leap_day == datetime(2104, 2, 29, tzinfo=UTC)
    assert next_occurrence(parse_rule("0 0 31 2 *", "start"), UTC, after) is None
