"""The interval of heartbeats grows with the number of agents."""

from __future__ import annotations

import pytest

from bai_services.core.cluster.heartbeats import interval_seconds


@pytest.mark.parametrize(
    ("agents", "shortest", "deadline", "interval"),
    [
        pytest.param(0, 5, 40, 5, id="no agents"),
        pytest.param(250, 5, 40, 5, id="50 heartbeats per second"),
        pytest.param(251, 5, 40, 6, id="one agent more"),
        pytest.param(500, 5, 40, 10, id="a quarter of the deadline"),
        pytest.param(5_000, 5, 40, 10, id="never more than a quarter of the deadline"),
        pytest.param(5_000, 1, 3, 1, id="deadline of a test"),
    ],
)
def test_interval_grows_with_the_agents_up_to_a_quarter_of_the_deadline(
    agents: int, shortest: int, deadline: float, interval: int
) -> None:
    assert interval_seconds(agents, shortest, deadline) == interval
