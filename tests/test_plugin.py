"""Settings of the pytest plugin."""

from __future__ import annotations

from tests.testbed.plugin import LONGEST_FIRST, TESTS


def test_files_that_are_run_first_exist() -> None:
    assert [name for name in LONGEST_FIRST if not (TESTS / name).exists()] == []
