"""Conditions that begin and end, and the stages of warnings before the end of a session."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.coded_text import TextTemplate
from bai_services.core.notifications.catalogue import EventName
from bai_services.core.notifications.conditions import (
    REARM_AFTER,
    Condition,
    SessionEnd,
    changes_of,
    ending_conditions,
)
from bai_services.core.notifications.events import ADMINISTRATORS

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)


def lost(agent: str) -> Condition:
    text = TextTemplate.NOTICE_AGENT_LOST.text(name=agent, last_at=NOW.isoformat())
    return Condition(f"agent-lost:{agent}", EventName.AGENT_LOST, ADMINISTRATORS, text)


def test_condition_begins_once_and_begins_again_only_after_a_pause() -> None:
    assert [each.key for each in changes_of([lost("a")], {}, NOW).begun] == ["agent-lost:a"]
    stored = {"agent-lost:a": (NOW, REARM_AFTER)}
    assert changes_of([lost("a")], stored, NOW).begun == ()
    later = NOW + REARM_AFTER
    assert changes_of([], stored, later - timedelta(seconds=1)).over == ()
    assert changes_of([], stored, later).over == ("agent-lost:a",)
    # Set the clock back.
    earlier = NOW - timedelta(days=1)
    assert changes_of([], stored, earlier).over == ("agent-lost:a",)
    assert changes_of([lost("a")], stored, earlier).over == ()


@given(st.lists(st.tuples(st.integers(1, 900), st.booleans()), max_size=30))
def test_event_is_raised_at_the_start_and_after_a_whole_pause(
    steps: list[tuple[int, bool]],
) -> None:
    """Naive oracle: for each check, search for an earlier check at which the pause had ended."""
    pause = int(REARM_AFTER.total_seconds())
    stored: dict[str, tuple[datetime, timedelta]] = {}
    past: list[tuple[int, bool]] = []
    seconds = 0
    for step, holds in steps:
        seconds += step
        now = NOW + timedelta(seconds=seconds)
        changes = changes_of([lost("a")] if holds else [], stored, now)
        for key in changes.over:
            del stored[key]
        if holds:
            stored["agent-lost:a"] = (now, REARM_AFTER)
        held = [at for at, held_then in past if held_then]
        is_new = not held or any(at - held[-1] >= pause for at, _ in past)
        assert bool(changes.begun) is (holds and is_new)
        past.append((seconds, holds))


def end(minutes: float, rule: str = "idle", **fields: object) -> SessionEnd:
    text = TextTemplate.IDLE_TIMEOUT.text(maximum_seconds=7200, name="default")
    ends_at = NOW + timedelta(minutes=minutes)
    return SessionEnd("s1", "lab", "u1", "d", ends_at, rule, text, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "minutes, fields, expected",
    [
        pytest.param(31, {"limit_seconds": 7200}, [], id="too early"),
        pytest.param(30, {"limit_seconds": 7200}, ["session-stops-soon"], id="first stage"),
        pytest.param(5, {"limit_seconds": 7200}, ["session-stops-now"], id="last stage"),
        pytest.param(25, {"limit_seconds": 2400}, [], id="not before half of the limit"),
        pytest.param(20, {"limit_seconds": 2400}, ["session-stops-soon"], id="half of the limit"),
        pytest.param(10, {"warnings_seconds": (600, 120)}, ["session-stops-soon"], id="checker"),
        pytest.param(
            2, {"warnings_seconds": (600, 120)}, ["session-stops-now"], id="checker, last"
        ),
        pytest.param(1, {}, [], id="checker without warnings"),
    ],
)
def test_stage_of_the_warning_depends_on_the_remaining_time(
    minutes: float, fields: dict[str, object], expected: list[str]
) -> None:
    assert [each.name for each in ending_conditions([end(minutes, **fields)], NOW)] == expected


def test_warning_names_the_rule_that_ends_the_session_first() -> None:
    ends = [
        end(9, "b", warnings_seconds=(600, 120), keep_alives_left=2),
        end(10, "a", warnings_seconds=(600, 120)),
    ]
    (warning,) = ending_conditions(ends, NOW)
    assert warning.key == "session-stops-soon:s1:b"
    assert str(warning.text).endswith("keypair policy default; remaining keep-alives: 2")
    assert warning.link == "sessions/s1"
