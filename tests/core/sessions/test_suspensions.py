"""Rules of suspensions: reports, deadlines, status changes, and when the home is kept."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from bai_services.core.sessions.lifecycle import (
    ENDED,
    LIVE,
    OCCUPYING,
    TRANSITIONS,
    Event,
    Status,
    next_status,
)
from bai_services.core.sessions.suspensions import (
    MAX_REPORT_CHARACTERS,
    MAX_REPORT_ENTRIES,
    is_stop_due,
    keeps_home,
    report_from_json,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
FIELDS = (
    *("saved_documents", "unsaved_documents", "saved_variables", "unsaved_variables"),
    *("pages", "has_hook", "hook_exit_code", "hook_message"),
)


@given(st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_report_of_a_session_is_cut_to_the_limits(content: dict[str, object]) -> None:
    report = report_from_json(content)
    lists = (
        report.saved_documents,
        report.unsaved_documents,
        report.saved_variables,
        report.unsaved_variables,
    )
    assert all(len(entries) <= MAX_REPORT_ENTRIES for entries in lists)
    texts = [text for entries in lists for text in entries] + [report.hook_message]
    assert all(len(text) <= MAX_REPORT_CHARACTERS for text in texts)
    assert report_from_json(asdict(report)) == report


@given(st.booleans(), st.integers(-5, 5))
def test_a_session_stops_when_it_has_reported_or_at_the_deadline(
    is_reported: bool, seconds: int
) -> None:
    due = is_stop_due(NOW, is_reported, NOW + timedelta(seconds=seconds))
    assert due == (is_reported or seconds >= 0)


def test_suspended_session_is_live_without_resources() -> None:
    assert Status.SUSPENDED in LIVE - OCCUPYING
    path = [Status.RUNNING]
    for event in (Event.SUSPEND_REQUESTED, Event.SUSPENDED, Event.RESUMED):
        path.append(next_status(path[-1], event))
    assert path[1:] == [Status.TERMINATING, Status.SUSPENDED, Status.PENDING]
    assert [keeps_home(*step) for step in pairwise(path)] == [False, True, False]
    assert next_status(Status.SUSPENDED, Event.STOP_REQUESTED) in ENDED


def test_home_is_kept_exactly_if_the_kernels_of_a_live_session_have_ended() -> None:
    for (before, _), after in TRANSITIONS.items():
        kernels_end = before is Status.TERMINATING
        assert keeps_home(before, after) == (kernels_end and after not in ENDED)
