"""Schedules and their runs, with the fields of the REST API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

# Maximum number of schedules of a user: default in user policies, and limit for all policies.
DEFAULT_MAX_SCHEDULES = 20
MAX_SCHEDULES_PER_USER = 200
# A missed start is made up for within this time.
MAX_CATCH_UP_MINUTES = 24 * 60
DEFAULT_CATCH_UP_MINUTES = 30
# A start with a delay of up to this does not count as late, because another manager may be taking
# over.
GRACE = timedelta(minutes=2)
# Number of next starts shown for a schedule.
SHOWN_STARTS = 5
# Runs are removed after this time; only the newest ``MAX_RUNS`` runs of each schedule are kept.
RUNS_KEPT_FOR = timedelta(days=90)
MAX_RUNS = 100
# Time between the notice to users and the stop of a session by a schedule.
STOP_NOTICE = timedelta(minutes=15)


class Overlap(StrEnum):
    """What happens at a start while the schedule's last session is live. ``skip``: no session
    starts. ``restart``: the old session is stopped first.
    """

    SKIP = "skip"
    RESTART = "restart"


class RunStatus(StrEnum):
    """Status of a run. ``due``: the session is not created yet. ``started``: the session was
    created. ``skipped``: no session was created, for the reason of the run. ``stopped``: the
    schedule has stopped the session. ``ended``: the session had ended before the stop.
    """

    DUE = "due"
    STARTED = "started"
    SKIPPED = "skipped"
    STOPPED = "stopped"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A schedule as shown to a caller; ``start`` and ``stop`` are rules (see ``rules``).

    ``next_starts`` are computed; they are empty while the schedule is paused. ``request`` lacks
    the fields in ``hidden_fields``, because the caller may not read them.
    """

    id: str
    created_at: datetime
    version: int
    name: str
    owner: str
    owner_id: str
    domain: str
    template: str | None
    request: Mapping[str, Any]
    start: str
    stop: str | None
    time_zone: str
    valid_from: datetime | None
    valid_until: datetime | None
    is_paused: bool
    catch_up_minutes: int
    overlap: Overlap
    next_starts: Sequence[datetime]
    last_start_at: datetime | None
    last_status: str | None
    last_reason: str
    hidden_fields: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRun:
    """A start of a schedule; ``session_id`` is None if no session was created."""

    id: str
    schedule_id: str
    due_at: datetime
    status: RunStatus
    reason: str
    coded: Mapping[str, Any] | None
    session_id: str | None
    stops_at: datetime | None
