"""Sessions that are started by their agent; repeated and outdated launch orders."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.sessions.agent_launch import (
    Marker,
    Phase,
    Step,
    launch_step,
    may_prepare,
    runs_on_agent,
)

MARKERS = st.none() | st.builds(Marker, st.integers(0, 3), st.sampled_from(Phase))


@pytest.mark.parametrize(
    ("kind", "cluster_size", "started_by", "can_launch", "expected"),
    [
        pytest.param("batch", 1, "manager", True, True, id="batch session"),
        pytest.param("batch", 1, "agent", True, True, id="batch session that starts again"),
        pytest.param("batch", 1, "manager", False, False, id="agent does not offer it"),
        pytest.param("batch", 1, "hub", True, False, id="its spawner waits for it"),
        pytest.param("batch", 2, "manager", True, False, id="cluster session"),
        pytest.param("interactive", 1, "manager", True, False, id="session with pages"),
        pytest.param("inference", 1, "manager", True, False, id="replica"),
    ],
)
def test_only_batch_sessions_run_on_agents(
    kind: str, cluster_size: int, started_by: str, can_launch: bool, expected: bool
) -> None:
    assert runs_on_agent(kind, cluster_size, started_by, can_launch=can_launch) is expected


@given(MARKERS, st.integers(0, 3))
def test_an_order_starts_only_the_prepared_attempt(marker: Marker | None, attempt: int) -> None:
    step = launch_step(marker, attempt)
    if step is Step.START:
        assert marker == Marker(attempt, Phase.PREPARED)
    elif step is not Step.REFUSE:
        assert marker is not None
        assert (marker.attempt, marker.phase in (Phase.INTENDED, Phase.STARTED)) == (attempt, True)


@given(MARKERS, st.integers(0, 3))
def test_a_repeated_preparation_does_not_remove_a_started_kernel(
    marker: Marker | None, attempt: int
) -> None:
    if marker is not None and marker.phase is not Phase.PREPARED and marker.attempt >= attempt:
        assert not may_prepare(marker, attempt)
    if marker is None or marker.attempt < attempt:
        assert may_prepare(marker, attempt)


@given(st.builds(Marker, st.integers(0, 3), st.sampled_from(Phase), st.just({"pid": 7})))
def test_a_stored_marker_is_read_back(marker: Marker) -> None:
    assert Marker.from_json(marker.to_json()) == marker
