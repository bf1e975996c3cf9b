"""Schedules: times at which sessions of a user start and stop."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, created_at, identity, metadata, version

session_schedules = sa.Table(
    "session_schedules",
    metadata,
    identity(),
    created_at(),
    version(),
    sa.Column("owner_id", sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False),
    sa.Column("name", sa.String(64), nullable=False),
    # Id or name of the template that completes ``request``.
    sa.Column("template", sa.String(255)),
    sa.Column("request", sa.JSON, nullable=False),
    # Rules (``core/sessions/schedules/rules.py``); their times are in ``time_zone``.
    sa.Column("start", sa.String(200), nullable=False),
    sa.Column("stop", sa.String(200)),
    sa.Column("time_zone", sa.String(64), nullable=False),
    sa.Column("valid_from", UtcDateTime),
    sa.Column("valid_until", UtcDateTime),
    sa.Column("is_paused", sa.Boolean, nullable=False, default=False),
    sa.Column("catch_up_minutes", sa.Integer, nullable=False),
    sa.Column("overlap", sa.String(16), nullable=False),
    # The next start; NULL: the schedule is paused, or has no further start.
    sa.Column("next_start_at", UtcDateTime, index=True),
    sa.UniqueConstraint("owner_id", "name"),
)

# The session of a run has the id of the run, so a run cannot create two sessions.
schedule_runs = sa.Table(
    "schedule_runs",
    metadata,
    identity(),
    sa.Column(
        "schedule_id", sa.ForeignKey("session_schedules.id", ondelete="CASCADE"), nullable=False
    ),
    sa.Column("due_at", UtcDateTime, nullable=False, index=True),
    sa.Column("status", sa.String(16), nullable=False),  # see RunStatus
    # Why the run was skipped (``CodedText``).
    sa.Column("reason", sa.JSON(none_as_null=True)),
    sa.Column("stops_at", UtcDateTime),
    sa.UniqueConstraint("schedule_id", "due_at"),
    sa.Index("ix_schedule_runs_status_stops_at", "status", "stops_at"),
)
