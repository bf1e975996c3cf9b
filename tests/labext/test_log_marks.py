"""A log that is asked for again comes in bits."""

from __future__ import annotations

import pytest

from bai_labext.manager_link import known_length, log_mark


@pytest.mark.parametrize(
    "before, now, known",
    [
        pytest.param("one\n", "one\ntwo\n", 4, id="more has come"),
        pytest.param("one\n", "one\n", 4, id="nothing has come"),
        pytest.param("한글\n", "한글\ntwo\n", 3, id="characters, not bytes"),
        pytest.param("one\ntwo\n", "two\nthree\n", 0, id="its beginning was thrown away"),
        pytest.param("one\ntwo\n", "one\n", 0, id="it is another one, and shorter"),
        pytest.param("", "one\n", 0, id="there was nothing yet"),
    ],
)
def test_only_what_is_new_is_sent(before: str, now: str, known: int) -> None:
    assert known_length(now, log_mark(before)) == known


@pytest.mark.parametrize("mark", ["", "4", "4-x", "-", "x-1", "99999999999999-1"])
def test_a_mark_that_is_none_gets_all(mark: str) -> None:
    assert known_length("one\n", mark) == 0
