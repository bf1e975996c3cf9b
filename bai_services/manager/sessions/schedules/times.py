"""The next start and stop of a schedule, from its stored fields."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from bai_services.core.sessions.schedules.occurrences import last_occurrence, next_occurrence
from bai_services.core.sessions.schedules.rules import parse_rule
from bai_services.core.usage.periods import zone_of

_INSTANT = timedelta(microseconds=1)


def next_start(schedule: Mapping[str, Any], after: datetime) -> datetime | None:
    """Return the first start after ``after``; None if the schedule is paused or has no more."""
    if schedule["is_paused"]:
        return None
    if (first := schedule["valid_from"]) is not None:
        after = max(after, first - _INSTANT)
    rule = parse_rule(schedule["start"], "start")
    found = next_occurrence(rule, zone_of(schedule["time_zone"]), after)
    end = schedule["valid_until"]
    return None if found is None or (end is not None and found >= end) else found


def last_start(schedule: Mapping[str, Any], after: datetime, until: datetime) -> datetime | None:
    """Return the last start later than ``after``, at the latest ``until``."""
    if (end := schedule["valid_until"]) is not None:
        until = min(until, end - _INSTANT)
    rule = parse_rule(schedule["start"], "start")
    return last_occurrence(rule, zone_of(schedule["time_zone"]), after, until)


def stop_after(schedule: Mapping[str, Any], at: datetime) -> datetime | None:
    """Return the first stop after ``at``; None if the schedule stops no sessions."""
    if schedule["stop"] is None:
        return None
    return next_occurrence(parse_rule(schedule["stop"], "stop"), zone_of(schedule["time_zone"]), at)
