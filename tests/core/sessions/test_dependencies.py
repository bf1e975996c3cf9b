"""Dependencies between sessions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bai_services.core.errors import Conflict, InvalidRequest
from bai_services.core.sessions.dependencies import (
    Dependency,
    check_no_cycles,
    check_none_failed,
    failure_reason,
    unmet_dependencies_text,
)
from bai_services.core.sessions.lifecycle import ENDED, Result, Status


def one(status: Status, result: Result = Result.UNDEFINED, name: str = "load") -> Dependency:
    return Dependency(f"id-{name}", name, status, result)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("result", Result)
def test_only_success_meets_a_dependency(status: Status, result: Result) -> None:
    found = one(status, result)
    is_success = status is Status.TERMINATED and result is Result.SUCCESS
    assert found.is_met == is_success
    assert found.is_failed == (status in ENDED and not is_success)

    assert not (found.is_met and found.is_failed)


CYCLES = {
    "session depends on itself": ({"a": ["a"]}, "a -> a"),
    "two sessions": ({"a": ["b"], "b": ["a"]}, "a -> b -> a"),
    "first session is not in the cycle": ({"a": ["b"], "b": ["c"], "c": ["b"]}, "b -> c -> b"),
}


@pytest.mark.parametrize("case", CYCLES)
def test_error_names_the_sessions_of_a_cycle(case: str) -> None:
    items, expected = CYCLES[case]
    with pytest.raises(InvalidRequest) as caught:
        check_no_cycles(items)
    cycle = caught.value.details["circle"]
    assert cycle[0] == cycle[-1]
    assert set(cycle) == set(expected.split(" -> "))
    assert " -> ".join(cycle) in str(caught.value)


@given(st.lists(st.lists(st.integers(0, 30), max_size=4), max_size=20))
@settings(max_examples=80)
def test_dependencies_on_earlier_sessions_have_no_cycle(edges: list[list[int]]) -> None:
    items = {str(n): [str(m) for m in after if m < n] for n, after in enumerate(edges)}
    check_no_cycles({**items, "outside": ["elsewhere"]})
    if items:
        # Create a cycle: a new last session depends on all others, and the first depends on the
        # last.
        last = str(len(items))
        with pytest.raises(InvalidRequest):
            check_no_cycles({**items, "0": [last], last: list(items)})


def test_failed_dependency_is_rejected_with_its_reason() -> None:
    check_none_failed([one(Status.RUNNING), one(Status.TERMINATED, Result.SUCCESS)])
    with pytest.raises(Conflict, match=r"load \(CANCELLED\)"):
        check_none_failed([one(Status.RUNNING), one(Status.CANCELLED)])
    reason = str(failure_reason(one(Status.TERMINATED, Result.FAILURE)))
    assert reason.startswith("DEPENDENCY_FAILED: its dependency, session load")


def test_unmet_dependencies_are_listed_with_their_status() -> None:
    assert unmet_dependencies_text([one(Status.TERMINATED, Result.SUCCESS)]) is None
    text = unmet_dependencies_text([one(Status.RUNNING)])
    assert str(text) == "waits for the success of load (RUNNING)"
    many = [one(Status.PENDING, name=f"n{i}") for i in range(7)]
    assert str(unmet_dependencies_text(many)).endswith("n4 (PENDING) and 2 more")
