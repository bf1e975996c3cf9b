"""Whether a period has elapsed, also if the clock was set back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from bai_services.core.wall_clock import has_elapsed

SINCE = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        pytest.param(0, False, id="begins now"),
        pytest.param(59, False, id="not yet"),
        pytest.param(60, True, id="exactly"),
        pytest.param(-1, True, id="the clock was set back"),
    ],
)
def test_period_has_elapsed_also_if_the_clock_was_set_back(seconds: int, expected: bool) -> None:
    now = SINCE + timedelta(seconds=seconds)
    assert has_elapsed(SINCE, timedelta(minutes=1), now) is expected
