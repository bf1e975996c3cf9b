"""During a maintenance, and shortly before a planned one, sessions cannot use the agents."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bai_services.core.scheduling.estimates.explainer import Choices, explain_one
from bai_services.core.scheduling.maintenance import MaintenanceWindow, restriction
from bai_services.core.scheduling.placement import Designation
from bai_services.core.scheduling.queue import Changes, GroupState, PassResult, Queue

from .factories import (
    ANN,
    NOW,
    agent,
    pending_session,
    request,
    running,
    slots,
    snapshot,
    started_sessions,
    with_usage,
)

HOUR = timedelta(hours=1)


def window(start: float, end: float | None, *agents: str, ahead: bool = True) -> MaintenanceWindow:
    ends_at = None if end is None else NOW + end * HOUR
    on = frozenset(agents) or None
    return MaintenanceWindow(NOW + start * HOUR, ends_at, "new disks", on, ahead)


def codes(result: PassResult, session_id: str) -> list[str]:
    return [each["coded"]["code"] for each in result.reasons[session_id]]


@pytest.mark.parametrize(
    ("one", "hours", "is_withheld"),
    [
        pytest.param(window(-1, 1), None, True, id="now"),
        pytest.param(window(-1, None), 1, True, id="now, without end"),
        pytest.param(window(-2, 0), 99, False, id="over"),
        pytest.param(window(2, 3), 3, True, id="reaches into maintenance"),
        pytest.param(window(2, 3), 2, False, id="ends when maintenance starts"),
        pytest.param(window(2, 3), None, False, id="no maximum run time"),
        pytest.param(window(2, 3, ahead=False), 3, False, id="does not look ahead"),
        pytest.param(window(2, 3), 10**9, True, id="end after the year 9999"),
    ],
)
def test_window_withholds_sessions_that_could_run_in_it(
    one: MaintenanceWindow, hours: int | None, is_withheld: bool
) -> None:
    assert one.withholds(NOW, None if hours is None else hours * 3600) is is_withheld


@given(
    st.integers(-8, 8),
    st.none() | st.integers(0, 8),
    st.none() | st.integers(1, 16),
    st.booleans(),
)
@example(1, 0, 2, True)  # an empty period
def test_window_withholds_a_session_that_would_run_in_it(
    start: int, length: int | None, run: int | None, ahead: bool
) -> None:
    """Naive oracle: count the hours in which the session would run during the maintenance."""
    hours = range(start, 100 if length is None else start + length)
    one = window(start, None if length is None else start + length, ahead=ahead)
    seen = range(run) if ahead and run is not None else range(1)
    expected = any(hour in hours for hour in seen)
    assert one.withholds(NOW, None if run is None else run * 3600) is expected


@given(
    st.lists(
        st.builds(
            window,
            st.integers(-3, 3),
            st.none() | st.integers(-2, 6),
            st.sampled_from(["a", "b", "other"]),
        ),
        max_size=4,
    ),
    st.none() | st.integers(1, 6),
)
def test_allowed_agents_are_those_that_no_window_withholds(
    windows: list[MaintenanceWindow], hours: int | None
) -> None:
    seconds = None if hours is None else hours * 3600
    found = restriction(windows, {"a", "b"}, NOW, seconds)
    withheld = {
        name
        for one in windows
        if one.withholds(NOW, seconds)
        for name in one.agents or {"a", "b"}
        if name in {"a", "b"}
    }
    if found is None:
        assert withheld == set()
    else:
        assert set(found.agents) == {"a", "b"} - withheld


def test_session_waits_for_the_end_of_maintenance_of_its_group() -> None:
    group = {"maintenance": (window(-1, 1),)}
    queue = Queue(snapshot([pending_session(1)], [agent()], group=group))
    result = queue.run(NOW)
    assert codes(result, "s1") == ["maintenance-until"]
    assert result.wake_at == NOW + HOUR
    assert started_sessions(queue.run(NOW + HOUR)) == ["s1"]


@pytest.mark.parametrize(
    ("on", "designation", "expected"),
    [
        pytest.param("b", "strict", None, id="its agent is not affected"),
        pytest.param("a", "strict", "maintenance-until", id="its agent is affected"),
        pytest.param("b", "preferred", "maintenance-until", id="may also run on the other agent"),
    ],
)
def test_maintenance_of_other_agents_is_no_reason(
    on: str, designation: str, expected: str | None
) -> None:
    """The session waits for capacity on ``b``; ``a`` is under maintenance."""
    wanted = replace(
        request(cpu="2"), designated_agents=(on,), designation=Designation(designation)
    )
    blocker = running("r", ANN, "b", slots(cpu="7"), ends_at=NOW + 9 * HOUR)
    agents = [agent(), with_usage(agent("b"), slots(cpu="7"))]
    group = {"maintenance": (window(-1, 5, "a"),)}
    world = snapshot([pending_session(1, wanted=wanted)], agents, running=[blocker], group=group)
    queue = Queue(world)
    found = codes(queue.run(NOW), "s1")
    assert ("maintenance-until" if "maintenance-until" in found else None) == expected
    explanation = explain_one(queue, "s1", Choices())
    assert explanation is not None
    failed = {check["check"] for check in explanation.checks if not check["passed"]}
    assert ("maintenance" in failed) is (expected is not None)


def test_session_that_would_reach_into_planned_maintenance_waits() -> None:
    group = {"maintenance": (window(2, 4),)}
    sessions = [
        pending_session(1, max_run_seconds=3 * 3600),
        pending_session(2, max_run_seconds=3600),
        pending_session(3),
    ]
    queue = Queue(snapshot(sessions, [agent()], group=group))
    result = queue.run(NOW)
    # A session without a maximum run time may start. s1 would not end in time, but blocks no other
    # session.
    assert started_sessions(result) == ["s2", "s3"]
    assert codes(result, "s1") == ["maintenance-ahead"]
    found = explain_one(queue, "s1")
    assert found is not None
    failed = [check["check"] for check in found.checks if not check["passed"]]
    assert failed == ["maintenance"]
    assert codes(queue.run(NOW + 2 * HOUR), "s1") == ["maintenance-until"]
    assert started_sessions(queue.run(NOW + 4 * HOUR)) == ["s1"]


def test_other_agents_of_the_group_are_used() -> None:
    group = {"maintenance": (window(2, 4, "a"),)}
    big = request(cpu="8")
    sessions = [pending_session(n, wanted=big, max_run_seconds=3 * 3600) for n in (1, 2)]
    queue = Queue(snapshot(sessions, [agent("a"), agent("b")], group=group))
    result = queue.run(NOW)
    assert [d.placement.agent_id for d in result.decisions] == ["b"]
    assert codes(result, "s2")[:2] == ["maintenance-ahead", "shortages"]


def test_cancelled_maintenance_releases_the_sessions() -> None:
    group = {"maintenance": (window(-1, None),)}
    queue = Queue(snapshot([pending_session(1)], [agent()], group=group))
    assert codes(queue.run(NOW), "s1") == ["maintenance"]
    # Read the unchanged session again.
    queue.apply(Changes(pending=[pending_session(1)]))
    assert queue.run(NOW).decisions == ()
    queue.apply(Changes(groups=[GroupState("main")]))
    assert started_sessions(queue.run(NOW)) == ["s1"]
