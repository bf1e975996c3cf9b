"""Structural properties of the table of session transitions."""

from __future__ import annotations

from itertools import product

import pytest

from bai_services.core.errors import InvalidTransition
from bai_services.core.sessions.lifecycle import (
    ENDED,
    LIVE,
    TRANSITIONS,
    Event,
    Status,
    next_status,
)


def reachable(start: Status) -> set[Status]:
    """Return the statuses that a session can reach from ``start``, including ``start``."""
    reached, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        steps = {after for (before, _), after in TRANSITIONS.items() if before is here} - reached
        reached |= steps
        waiting.extend(steps)
    return reached


@pytest.mark.parametrize("status", sorted(ENDED))
def test_ended_statuses_have_no_transitions(status: Status) -> None:
    assert reachable(status) == {status}


@pytest.mark.parametrize("status", sorted(LIVE - {Status.SUSPENDED}))
def test_every_live_session_can_fail_and_can_end_without_an_error(status: Status) -> None:
    assert next_status(status, Event.FAILED) is Status.ERROR
    assert reachable(status) & (ENDED - {Status.ERROR})


@pytest.mark.parametrize("status", sorted(LIVE - {Status.TERMINATING}))
def test_live_session_that_is_not_ending_can_be_stopped(status: Status) -> None:
    ends = {Status.TERMINATED} if status is Status.SUSPENDED else {Status.CANCELLED}
    assert next_status(status, Event.STOP_REQUESTED) in ends | {Status.TERMINATING}


def test_every_status_can_be_reached() -> None:
    assert reachable(Status.PENDING) == set(Status)


def test_transition_missing_from_the_table_is_rejected() -> None:
    for status, event in product(Status, Event):
        if (status, event) not in TRANSITIONS:
            with pytest.raises(InvalidTransition, match=str(status)):
                next_status(status, event)
