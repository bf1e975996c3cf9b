"""Idle time of sessions, and the termination of sessions by the idle timeout."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.sessions.idle import (
    REPORT_INTERVAL_WITHOUT_TIMEOUT_SECONDS,
    REPORT_TTL,
    Idleness,
    IdleTimer,
    idleness_of,
    next_report_seconds,
)
from bai_services.core.sessions.lifecycle import SessionType

START = datetime(2030, 1, 1, tzinfo=UTC)
INTERACTIVE = SessionType.INTERACTIVE


def time_at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("kind", "started", "used", "timeout", "since"),
    [
        pytest.param(INTERACTIVE, 0, None, 600, 0, id="no activity: idle since the start"),
        pytest.param(INTERACTIVE, 0, 90, 600, 90, id="idle since the last activity"),
        pytest.param(
            INTERACTIVE, 300, 90, 600, 300, id="a start after the last activity counts as activity"
        ),
        pytest.param(INTERACTIVE, 0, 90, 0, None, id="timeout 0: no limit"),
        pytest.param(SessionType.BATCH, 0, 90, 600, None, id="batch session: no limit"),
        pytest.param(INTERACTIVE, None, None, 600, None, id="not started: not idle"),
    ],
)
def test_idle_time_starts_at_the_last_activity(
    kind: SessionType, started: int | None, used: int | None, timeout: int, since: int | None
) -> None:
    times = [None if seconds is None else time_at(seconds) for seconds in (started, used)]
    found = idleness_of(kind, times[0], times[1], None, timeout)
    assert (found and found.since) == (None if since is None else time_at(since))
    assert found is None or found.ends_at - found.since == timedelta(seconds=timeout)


@pytest.mark.parametrize(
    ("reported", "now", "is_over"),
    [
        pytest.param(600, 600, True, id="idle report at the end of the timeout"),
        pytest.param(640, 641, True, id="idle report after the end of the timeout"),
        pytest.param(599, 700, False, id="last report before the end of the timeout"),
        pytest.param(None, 9000, False, id="no report"),
        pytest.param(600, 600 + 61, False, id="last report is too old"),
    ],
)
def test_only_a_session_with_a_recent_idle_report_is_ended(
    reported: int | None, now: int, is_over: bool
) -> None:
    idleness = Idleness(time_at(0), time_at(600), None if reported is None else time_at(reported))
    assert idleness.is_over(time_at(now)) is is_over


@pytest.mark.parametrize(
    ("timeout", "now", "is_warning_due"),
    [
        (7200, 7200 - 1801, False),
        (7200, 7200 - 1800, True),
        (600, 299, False),
        (600, 300, True),
        (600, 700, True),
    ],
)
def test_warning_starts_at_half_the_timeout_but_at_most_half_an_hour_before_the_end(
    timeout: int, now: int, is_warning_due: bool
) -> None:
    assert (
        Idleness(time_at(0), time_at(timeout), None).is_warning_due(time_at(now)) is is_warning_due
    )


@pytest.mark.parametrize(
    ("timeout", "used", "now", "expected"),
    [
        pytest.param(0, 0, 100, 300, id="no limit: after 5 minutes"),
        pytest.param(3600, 0, 100, 60, id="far from the end: after 1 minute"),
        pytest.param(600, 0, 580, 20, id="20 s before the end: after 20 s"),
        pytest.param(600, 0, 9000, 1, id="after the end: after 1 s"),
        pytest.param(600, None, 0, 1, id="not running yet: after 1 s"),
    ],
)
def test_next_activity_report_is_due_after_the_expected_seconds(
    timeout: int, used: int | None, now: int, expected: float
) -> None:
    started = None if used is None else time_at(0)
    idleness = idleness_of(INTERACTIVE, started, None, None, timeout)
    assert next_report_seconds(INTERACTIVE, idleness, timeout, time_at(now)) == expected


seconds = st.integers(min_value=0, max_value=100_000)


@given(
    kind=st.sampled_from(SessionType),
    started=seconds,
    used=st.none() | seconds,
    reported=st.none() | seconds,
    timeout=st.integers(min_value=0, max_value=2**31 - 1),
    now=seconds,
)
def test_session_ends_only_with_a_recent_report_that_covers_the_timeout(
    kind: SessionType, started: int, used: int | None, reported: int | None, timeout: int, now: int
) -> None:
    idleness = idleness_of(
        kind,
        time_at(started),
        None if used is None else time_at(used),
        None if reported is None else time_at(reported),
        timeout,
    )
    if idleness is None:
        assert timeout == 0 or kind is not INTERACTIVE
        return
    assert idleness.since == time_at(max(started, used or 0))
    if idleness.is_over(time_at(now)):
        assert reported is not None and time_at(now) <= time_at(reported) + REPORT_TTL
        # At the last report, the session had been idle for the whole timeout.
        assert reported >= started + timeout and reported >= (used or 0) + timeout
        assert idleness.is_warning_due(time_at(now))
    assert 1 <= next_report_seconds(INTERACTIVE, idleness, timeout, time_at(now)) <= 300


@given(used=seconds, later=seconds, reported=seconds, timeout=st.integers(1, 100_000), now=seconds)
def test_later_activity_postpones_the_idle_end(
    used: int, later: int, reported: int, timeout: int, now: int
) -> None:
    before = idleness_of(INTERACTIVE, START, time_at(used), time_at(reported), timeout)
    after = idleness_of(INTERACTIVE, START, time_at(used + later), time_at(reported), timeout)
    assert before is not None and after is not None
    assert after.ends_at - before.ends_at == timedelta(seconds=later)
    assert not after.is_over(time_at(now)) or reported >= used + later + timeout


@pytest.mark.parametrize("kind", [SessionType.BATCH, SessionType.INFERENCE])
def test_session_without_idle_timeout_uses_the_long_report_interval(kind: SessionType) -> None:
    """Regression: these sessions reported every second if the policy had an idle timeout.

    The idle timeout of a policy applies only to interactive sessions.
    """
    assert (
        next_report_seconds(kind, None, 600, time_at(0)) == REPORT_INTERVAL_WITHOUT_TIMEOUT_SECONDS
    )


@given(
    steps=st.lists(
        st.tuples(
            st.integers(1, 100), st.booleans(), st.sampled_from([0, 0, 0, -5000, -7, 9, 5000])
        ),
        max_size=20,
    )
)
def test_idle_time_never_exceeds_the_real_one_when_the_clock_is_changed(
    steps: list[tuple[int, bool, int]],
) -> None:
    timer, clock, real = IdleTimer(0), 0, 0
    used_by_clock = used = 0
    is_changed = False
    for seconds, is_used, jump in steps:
        real, clock = real + seconds, clock + seconds + jump
        is_changed |= jump != 0
        if is_used:
            used, used_by_clock = real, clock
        idle = timer.limited(max(clock - used_by_clock, 0), real)
        assert 0 <= idle <= real - used
        assert is_changed or idle == real - used
