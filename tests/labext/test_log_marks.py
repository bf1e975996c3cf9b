"""Log marks: a request with the mark of the previous response returns only the new output."""

from __future__ import annotations

import pytest

from bai_labext.manager_link import known_length, log_mark


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
def test_known_length_is_the_length_of_the_marked_prefix(before: str, now: str, known: int) -> None:
    assert known_length(now, log_mark(before)) == known


@pytest.mark.parametrize("mark", ["", "4", "4-x", "-", "x-1", "99999999999999-1"])
def test_known_length_of_an_invalid_mark_is_zero(mark: str) -> None:
    assert known_length("one\n", mark) == 0
