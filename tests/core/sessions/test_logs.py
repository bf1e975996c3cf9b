"""Session logs: timestamps, search and appended output."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.sessions.logs import (
    AttemptLog,
    appended_since,
    is_timed,
    joined_log,
    last_lines,
    search,
    without_times,
)

AT = "2026-05-01T12:00:00.123456789Z "


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("", ""),
        ("one\ntwo\n", "one\ntwo\n"),
        (f"{AT}one\n{AT}two", "one\ntwo"),
        (f"{AT}\n{AT}\n", "\n\n"),
        # The second timestamp was printed by the program and remains.
        (f"{AT}{AT}one\n", f"{AT}one\n"),
        # The beginning of the first line is missing.
        (f"456789Z one\n{AT}two\n", "456789Z one\ntwo\n"),
        # Docker stores a long line in chunks, and each chunk has a timestamp.
        (f"{AT}{'x' * 16_384}{AT}y\n", f"{'x' * 16_384}y\n"),
        (f"{AT}{'한' * 5461}{AT}글\n", f"{'한' * 5461}글\n"),
        (f"one {AT}\n", f"one {AT}\n"),
    ],
)
def test_timestamps_are_removed(text: str, plain: str) -> None:
    assert without_times(text) == plain


def test_log_is_timed_if_its_lines_begin_with_timestamps() -> None:
    assert is_timed(f"{AT}one\n")
    assert not is_timed("one\ntwo\n")
    assert not is_timed("")


def test_search_is_case_insensitive_and_numbers_lines() -> None:
    result = search("Epoch 1\nloss .5\nEPOCH 2\n", "epoch")
    assert result.lines == ((1, "Epoch 1"), (3, "EPOCH 2"))
    assert result.total == 3
    assert search("a.c\nabc\n", ".").lines == ((1, "a.c"),)


def test_last_lines_returns_the_end() -> None:
    assert last_lines("one\ntwo\nthree", 2) == "two\nthree"
    assert last_lines("one\n", 5) == "one\n"


@pytest.mark.parametrize(
    ("before", "after", "more", "is_gap"),
    [
        ("", "one\n", "one\n", False),
        ("one\n", "one\n", "", False),
        ("one\n", "one\ntwo\n", "two\n", False),
        # Between the two reads, the beginning of the log was removed.
        ("one\ntwo\n", "two\nthree\n", "two\nthree\n", True),
        (f"one\n{'two' * 2000}\n", f"{'two' * 1000}\nthree\n", "three\n", False),
        ("one\n", "", "", True),
    ],
)
def test_appended_since_returns_new_output(
    before: str, after: str, more: str, is_gap: bool
) -> None:
    assert appended_since(before, after) == (more, is_gap)


ENDED_AT = datetime(2026, 5, 1, 12, 0, 0, 123456, tzinfo=UTC)
LINE = "attempt 1 ended at 2026-05-01T12:00:00Z: preempted for high -----\n"


def test_a_line_separates_attempts() -> None:
    first = AttemptLog(0, ENDED_AT, "preempted\nfor high", "one")
    assert joined_log([first], "two\n", 1000) == f"one\n----- {LINE}two\n"
    timed = AttemptLog(0, ENDED_AT, "preempted for high", f"{AT}one\n")
    joined = joined_log([timed], f"{AT}two\n", 1000)
    assert joined == f"{AT}one\n2026-05-01T12:00:00.123456000Z ----- {LINE}{AT}two\n"
    assert without_times(joined) == f"one\n----- {LINE}two\n"
    # Timestamps are omitted unless all attempts have them.
    assert joined_log([timed], "two\n", 1000) == f"one\n----- {LINE}two\n"
    # The log of an attempt is empty if its agent was lost; only the line at the end of the attempt
    # is shown.
    lost = AttemptLog(1, ENDED_AT, "", "")
    assert without_times(joined_log([lost], "", 1000)).startswith("----- attempt 2 ended at ")
    assert joined_log([], f"{AT}two\n", 3) == f"{AT}two\n"


@given(st.lists(st.text("ab\n", max_size=30), min_size=1, max_size=5), st.integers(1, 600))
def test_joined_log_has_the_end_of_all_attempts_within_the_limit(
    outputs: list[str], limit: int
) -> None:
    *earlier, current = outputs
    attempts = [AttemptLog(n, ENDED_AT, "lost", text) for n, text in enumerate(earlier)]
    whole = joined_log(attempts, current, 10**6)
    position = 0
    for one in attempts:
        position = whole.index(one.log + ("" if one.log[-1:] in ("", "\n") else "\n"), position)
        position = whole.index(one.separator, position) + len(one.separator)
    assert whole[position:] == current
    cut = joined_log(attempts, current, limit)
    assert whole.endswith(cut)
    assert len(cut) <= limit or not attempts
