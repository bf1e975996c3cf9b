"""Log cursors: a request with the cursor of the previous response returns only the new output."""

from __future__ import annotations

import pytest

from bai_labext.manager_link import known_length, log_cursor


@pytest.mark.parametrize(
    "before, now, known",
    [
        pytest.param("one\n", "one\ntwo\n", 4, id="output was appended"),
        pytest.param("one\n", "one\n", 4, id="no new output"),
        pytest.param("한글\n", "한글\ntwo\n", 3, id="characters are counted, not bytes"),
        pytest.param("one\ntwo\n", "two\nthree\n", 0, id="beginning was dropped"),
        pytest.param("one\ntwo\n", "one\n", 0, id="end was dropped"),
        pytest.param("", "one\n", 0, id="log was empty"),
    ],
)
def test_known_length_is_the_length_of_the_prefix_of_the_cursor(
    before: str, now: str, known: int
) -> None:
    assert known_length(now, log_cursor(before)) == known


@pytest.mark.parametrize("cursor", ["", "4", "4-x", "-", "x-1", "99999999999999-1"])
def test_known_length_of_an_invalid_cursor_is_zero(cursor: str) -> None:
    assert known_length("one\n", cursor) == 0
