"""Times of schedules of pipelines."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.errors import InvalidRequest
from bai_services.core.pipelines.schedules import MAX_CATCH_UP_RUNS, CatchUp, Timing

DAY = datetime(2026, 3, 2, tzinfo=UTC)  # a Monday
HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
NIGHTLY = Timing("daily 02:00", None, "Asia/Seoul", DAY)  # 17:00 UTC
HOURLY = Timing(None, 60, "UTC", DAY)


@pytest.mark.parametrize(
    ("timing", "after", "expected"),
    [
        pytest.param(NIGHTLY, DAY, DAY + 17 * HOUR, id="a rule is in its time zone"),
        pytest.param(HOURLY, DAY, DAY + HOUR, id="an interval starts after the first period"),
        pytest.param(HOURLY, DAY + HOUR, DAY + 2 * HOUR, id="a start is not repeated"),
        pytest.param(HOURLY, DAY - 5 * HOUR, DAY + HOUR, id="no start before the interval begins"),
    ],
)
def test_next_start_follows_the_rule_or_the_interval(
    timing: Timing, after: datetime, expected: datetime
) -> None:
    assert timing.next_start(after) == expected


def test_rule_without_a_start_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="the rule has no start"):
        Timing("0 0 30 2 *", None, "UTC", DAY).check()
    Timing("0 0 29 2 *", None, "UTC", DAY).check()  # two years later


@pytest.mark.parametrize(
    ("catch_up", "now", "expected"),
    [
        pytest.param(CatchUp.SKIP, SECOND, [0], id="a start without a delay is made"),
        pytest.param(CatchUp.SKIP, 5 * HOUR - SECOND, [], id="missed starts are dropped"),
        pytest.param(CatchUp.SKIP, 5 * HOUR + SECOND, [5], id="but not one that is due now"),
        pytest.param(CatchUp.LAST, 5 * HOUR - SECOND, [4], id="only the last missed start is made"),
        pytest.param(CatchUp.ALL, 3 * HOUR, [0, 1, 2, 3], id="all missed starts are made"),
    ],
)
def test_due_starts_after_a_time_without_manager(
    catch_up: CatchUp, now: timedelta, expected: list[int]
) -> None:
    first = DAY + HOUR
    starts = HOURLY.due_starts(first, first + now, catch_up)
    assert starts == [first + number * HOUR for number in expected]


def test_number_of_missed_starts_is_limited() -> None:
    timing = Timing(None, 5, "UTC", DAY)
    now = DAY + timedelta(days=4000)
    starts = timing.due_starts(DAY + timedelta(minutes=5), now, CatchUp.ALL)
    assert len(starts) == MAX_CATCH_UP_RUNS
    assert now - starts[-1] < timedelta(minutes=5)


@pytest.mark.parametrize(
    ("catch_up", "expected"),
    [(CatchUp.SKIP, []), (CatchUp.LAST, [2027]), (CatchUp.ALL, [])],
)
def test_last_missed_start_may_be_long_ago(catch_up: CatchUp, expected: list[int]) -> None:
    yearly = Timing("0 0 1 1 *", None, "UTC", DAY)
    starts = yearly.due_starts(datetime(2027, 1, 1, tzinfo=UTC), DAY.replace(year=2027), catch_up)
    assert [start.year for start in starts] == expected


@pytest.mark.parametrize(
    ("start", "every_minutes", "time_zone"),
    [
        (None, None, "UTC"),
        ("daily 02:00", 60, "UTC"),
        ("never", None, "UTC"),
        ("daily 02:00", None, "Mars/Base"),
        (None, 1, "UTC"),
    ],
)
def test_invalid_times_are_refused(
    start: str | None, every_minutes: int | None, time_zone: str
) -> None:
    with pytest.raises(InvalidRequest):
        Timing(start, every_minutes, time_zone, DAY).check()


@given(
    st.sampled_from([NIGHTLY, HOURLY, Timing("*/30 9 * * 1-5", None, "Europe/Berlin", DAY)]),
    st.lists(st.integers(0, 90_000), min_size=1, max_size=20),
)
def test_no_start_is_lost_or_repeated_with_catch_up_of_all(
    timing: Timing, pauses: list[int]
) -> None:
    now, made = DAY, []
    first = timing.next_start(DAY)
    for pause in pauses:
        now += timedelta(seconds=pause)
        if first is not None and first <= now:
            made += timing.due_starts(first, now, CatchUp.ALL)
            first = timing.next_start(now)
    expected, at = [], timing.next_start(DAY)
    while at is not None and at <= now:
        expected.append(at)
        at = timing.next_start(at)
    assert made == expected
