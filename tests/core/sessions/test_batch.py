"""Fields of batch sessions."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.duration_text import format_duration
from bai_services.core.durations import parse_duration
from bai_services.core.errors import InvalidRequest
from bai_services.core.sessions.batch import Batch, check_batch, parse_start_time
from bai_services.core.sessions.lifecycle import Result, SessionType, command_end, result_of

NOW = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)

TIMES: dict[str, datetime] = {
    "10min": NOW + timedelta(minutes=10),
    "0s": NOW,
    "1h30m": NOW + timedelta(minutes=90),
    "90": NOW + timedelta(seconds=90),
    "2 days": NOW + timedelta(days=2),
    "2026-03-02T19:00+09:00": NOW + timedelta(hours=1),
    "2026-03-02T10:00:00Z": NOW + timedelta(hours=1),
    # A number of seconds, although the text would also be a valid date in ISO 8601's basic format.
    "13440801": NOW + timedelta(seconds=13440801),
}


@pytest.mark.parametrize("text", TIMES)
def test_start_time_is_parsed_from_a_time_or_a_delay(text: str) -> None:
    assert parse_start_time(text, NOW) == TIMES[text]


BAD_TIMES = {
    "2026-03-02T08:59:59Z": "it was 1s ago",
    "2026-03-02T10:00": "has no time zone",
    "2026-03-02": "has no time zone",
    "2028-03-02T10:00Z": "more than 365 days ahead",
    "366d": "more than 365 days ahead",
    "soon": "not a duration",
    "": "not a duration",
    "-10min": "not a duration",
    "10 parsecs": "not a duration",
}


@pytest.mark.parametrize("text", BAD_TIMES)
def test_invalid_start_time_is_rejected(text: str) -> None:
    with pytest.raises(InvalidRequest, match=BAD_TIMES[text]) as caught:
        parse_start_time(text, NOW)
    assert caught.value.details["field"] == "starts_at"


@given(
    seconds=st.integers(0, 300 * 86400),
    offset=st.integers(-14 * 60, 14 * 60).map(lambda m: timezone(timedelta(minutes=m))),
)
@settings(max_examples=60)
def test_start_time_is_independent_of_time_zone(seconds: int, offset: timezone) -> None:
    at = NOW + timedelta(seconds=seconds)
    assert parse_start_time(at.astimezone(offset).isoformat(), NOW) == at
    assert parse_start_time(str(seconds), NOW) == at


CASES: list[tuple[SessionType, dict[str, Any], Batch | str]] = [
    (SessionType.INTERACTIVE, {}, Batch()),
    (SessionType.INTERACTIVE, {"batch_timeout": 5}, "only batch sessions"),
    (SessionType.BATCH, {"startup_command": "true"}, Batch("true")),
    (SessionType.BATCH, {"startup_command": "a", "batch_timeout": "2h"}, Batch("a", None, 7200)),
    (SessionType.BATCH, {}, "needs a command"),
    (SessionType.BATCH, {"startup_command": "\n"}, "needs a command"),
    (SessionType.BATCH, {"startup_command": "é" * 9000}, "16384 bytes"),
    (SessionType.BATCH, {"startup_command": "a", "batch_timeout": 0}, "must be 1 second to"),
    (SessionType.BATCH, {"startup_command": "a", "batch_timeout": "366d"}, "must be 1 second to"),
]


@pytest.mark.parametrize(("kind", "asked", "expected"), CASES)
def test_batch_fields_are_parsed_or_rejected(
    kind: SessionType, asked: dict[str, Any], expected: Batch | str
) -> None:
    if isinstance(expected, Batch):
        assert check_batch(kind, asked, NOW) == expected
    else:
        with pytest.raises(InvalidRequest, match=expected):
            check_batch(kind, asked, NOW)


@given(st.integers(0, 10**8))
@settings(max_examples=60)
def test_formatted_duration_is_parsed_as_about_the_same_duration(seconds: int) -> None:
    # The formatted text contains at most two units, so the parsed duration can be shorter, but by
    # less than an hour.
    shown = parse_duration(format_duration(seconds), "x")
    assert shown <= seconds < shown + 3600
    if seconds < 3600:
        assert shown == seconds


def test_exit_code_determines_result_and_text() -> None:
    assert (result_of(0), result_of(1)) == (Result.SUCCESS, Result.FAILURE)
    assert str(command_end(3)) == "the command exited with code 3"
    assert str(command_end(137)) == "the command was terminated by signal 9 (exit code 137)"
