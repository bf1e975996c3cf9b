"""Suspensions of sessions."""

from __future__ import annotations

import sqlalchemy as sa

from .base import UtcDateTime, metadata

# The last suspension of each live session, or its preparation for another stop; deleted when the
# session ends.
session_suspensions = sa.Table(
    "session_suspensions",
    metadata,
    sa.Column("session_id", sa.ForeignKey("sessions.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("phase", sa.String(16), nullable=False, index=True),  # see Phase
    sa.Column("purpose", sa.String(16), nullable=False),  # see Purpose
    sa.Column("requested_at", UtcDateTime, nullable=False),
    sa.Column("requested_by", sa.String(64), nullable=False),
    sa.Column("deadline", UtcDateTime, nullable=False),
    sa.Column("keeps_variables", sa.Boolean, nullable=False),
    sa.Column("suspended_at", UtcDateTime),
    sa.Column("expires_at", UtcDateTime),
    sa.Column("resumed_at", UtcDateTime),
    # What the session saved (``PreparationReport``); NULL until the session has reported.
    sa.Column("report", sa.JSON(none_as_null=True)),
)
